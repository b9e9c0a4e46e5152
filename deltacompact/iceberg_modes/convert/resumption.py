"""Proposes, on the current head, the marks that a dead session had written.

    recorded    group 0: a, b searched for the keys of e and f -> marks p1 of a, p2 of b
    head        a, b, e, f                  added p1 and p2, removed e and f
                b, e, f                     added p2: a is gone, so p1 is not needed
                a with position deletes q instead of p, which a had when it was searched: a is marked once more

p1 lacks the rows that p named when a was searched. If p is gone, p1 alone does not name all dead rows; but the journal
also has the rows that were found dead. A journal of the version before does not have them: then a is left out, and e
stays. Data files of groups that are not recorded were not searched, so the deletes that may apply to them stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from deltacompact.iceberg.commit.proposal import Proposal
from deltacompact.iceberg.deletes.matching import FileScanTask
from deltacompact.iceberg.marks.marking import FileToMark, Mark
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.convert.plan_document import equality_paths
from deltacompact.iceberg_modes.convert.proposals import Converted, ConvertOutcome, Follow, ProposeConversion
from deltacompact.iceberg_modes.journal.journal import Planned, WrittenGroup
from deltacompact.iceberg_modes.journal.recorded_marks import marks_of
from deltacompact.iceberg_modes.plan_envelope import NamedFiles


def dead_document(dead: Sequence[FileToMark]) -> dict[str, Any]:
    """Where the live bitmap of each data file lies, and its checksum, for the journal."""
    bitmaps = [(file.task.entry.file.path, file.dead) for file in dead if isinstance(file.dead, LiveBitmap)]
    return {
        "dead": [[path, bitmap.masks_path, bitmap.ordinal] for path, bitmap in bitmaps],
        "crc32s": [bitmap.crc32 for _, bitmap in bitmaps],
    }


def resume_conversion(
    follow: Follow, planned: Planned, groups: Sequence[WrittenGroup], state: TableState
) -> Proposal[ConvertOutcome]:
    """Propose the marks that are still true, and to remove the equality deletes that they replace."""
    files = NamedFiles(state, planned.body["deletes"])
    asked: dict[str, FileScanTask] = {}
    marks: list[Mark] = []
    is_known = all("dead" in group.details for group in groups)
    dead: dict[str, LiveBitmap] = {}
    for group in groups:
        bitmaps = zip(group.details.get("dead", ()), group.details.get("crc32s") or repeat(None), strict=False)
        dead |= {path: LiveBitmap(masks, ordinal, crc32) for (path, masks, ordinal), crc32 in bitmaps}
        inputs = planned.body["groups"][group.number]["inputs"]
        of_group = {source["path"]: FileScanTask(*files.past(source)) for source in inputs}
        marks += marks_of(group, of_group)
        asked |= of_group
    converted = Converted(tuple(asked.values()), tuple(marks), groups=len(groups), dead=dead if is_known else None)
    return ProposeConversion(equality_paths(planned.body), converted, follow=follow)(state)
