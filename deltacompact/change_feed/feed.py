"""The net change of some candidates, row by row.

candidates     what may have come or gone                 removed 1 x, 2 y, 3 z      added 1 x, 2 Y
cancelled      by row lineage (version 3), then by the digest of the row             1 x
paired         by key                                     update 2: y -> Y           delete 3 z

The feed is that of `SELECT columns FROM table WHERE filter`: a row that begins to match is an insert, and one that
changed in other columns only is no change. It accounts for exactly the difference, as EXCEPT ALL finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deltacompact.change_feed.cancelling import lineage_digests, uncancelled
from deltacompact.change_feed.candidates import Candidates, HeldBytes, Numbers
from deltacompact.change_feed.columns import CODES, ChangeCommit, ChangeType, with_change_columns
from deltacompact.change_feed.pairing import PAIRING_COPIES, paired
from deltacompact.change_feed.row_digests import Digests, row_digests
from deltacompact.reading.selection import Selected
from deltacompact.reading.skipping import Skipping

FEED_MEMORY_BYTES = 512 << 20
"""The bytes that a feed holds in memory unless they are bounded; more goes to files of a temporary folder."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Which changes are wanted: columns and filter, the key of a row (empty: none), and whether updates come with what
    was before.

    `selected` reads the key's columns, too.
    """

    selected: Selected
    key: tuple[str, ...] = ()
    before: bool = False
    held_bytes: int = FEED_MEMORY_BYTES

    def changes(self, candidates: Sequence[Candidates], commit: ChangeCommit) -> Iterator[pa.Table]:
        """The net change, as tables of `feed_schema`."""
        candidates = self._that_may_match(candidates)
        if _both_sides(candidates):
            if all(candidate.file.lineage(candidate.bits) is not None for candidate in candidates):
                candidates = uncancelled(candidates, lineage_digests, self.held_bytes)
            room = HeldBytes(self.held_bytes // PAIRING_COPIES)  # rows that do not fit are read twice
            candidates = uncancelled([candidate.kept(room) for candidate in candidates], self._digests, self.held_bytes)
        if self.key and _both_sides(candidates):
            yield from self._updates(candidates, commit)
            return
        for candidate in sorted(candidates, key=lambda candidate: candidate.is_added):
            kind = ChangeType.INSERT if candidate.is_added else ChangeType.DELETE
            for _, table in candidate.tables(self.selected):
                if table.num_rows:
                    yield with_change_columns(table.select(self.selected.wanted.names), kind, commit)

    def _that_may_match(self, candidates: Sequence[Candidates]) -> list[Candidates]:
        """The candidates without files that have no matching row on either side: these stay closed."""
        skipping = Skipping.of(self.selected)
        may = skipping.may_match([candidate.file.known(skipping.asked) for candidate in candidates])
        return [candidate for candidate, wanted in zip(candidates, may, strict=True) if wanted]

    def _updates(self, candidates: Sequence[Candidates], commit: ChangeCommit) -> Iterator[pa.Table]:
        for rows, kinds in paired(candidates, self.selected, self.key, self.held_bytes):
            if not self.before:
                kept = kinds != CODES[ChangeType.UPDATE_BEFORE]
                rows, kinds = rows.filter(pa.array(kept)), kinds[kept]
            yield with_change_columns(rows.select(self.selected.wanted.names), kinds, commit)

    def _digests(self, candidate: Candidates) -> Iterator[tuple[Numbers, Digests]]:
        names = list(dict.fromkeys([*self.selected.wanted.names, *self.key]))
        for numbers, table in candidate.tables(self.selected):
            if len(numbers):
                yield np.asarray(numbers), row_digests(table.select(names), candidate.file.path)


def _both_sides(candidates: Sequence[Candidates]) -> bool:
    return len({candidate.is_added for candidate in candidates}) == 2
