"""The parts of a session: groups of its stages for which CPU seconds are learned apart.

terms           decoded_row  row  byte  …      index_entry …      merged_row …     file, object, …
parts           fold                           index              merge            write, session

So CPU seconds of decoding teach nothing about the index.
"""

from __future__ import annotations

import numpy as np

from deltacompact.planning.work import STAGE_OF, TERMS

PARTS = {
    "hash_bucket": "fold",
    "dedupe": "index",
    "assign_pointers": "index",
    "rehash": "index",
    "lay_out": "write",
    "write_index": "write",
    "materialize": "write",
}
"""The parts that CPU seconds are learned for, by stage; everything else is "session". Writing the index overlaps with
materializing, so nobody can tell the two apart."""
WHOLE = ""
"""The part of a session whose stages are not known."""


def part_of(term: str) -> str:
    return PARTS.get(STAGE_OF[term], "session")


PART_OF_TERM = tuple(map(part_of, TERMS))
MERGED = TERMS.index("merged_row")
MERGE = "merge"
"""The index part of a session that merges runs. It is learned apart, because searching runs says little about it."""
PART_OF_MERGE = tuple(MERGE if part == "index" else part for part in PART_OF_TERM)
IN_PART = {
    part: np.array([of_term == part for of_term in parts])
    for parts in (PART_OF_TERM, PART_OF_MERGE)
    for part in dict.fromkeys(parts)
}
IN_PART[WHOLE] = np.ones(len(TERMS), bool)
