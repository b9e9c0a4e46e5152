"""What a dead session's converted deletes would change on the current head: pure.

    recorded    group 0: a, b asked for e and f -> marks p1 of a, p2 of b
    head        a, b, e, f                  added p1 and p2, removed e and f: as if it had just been asked
                b, e, f                     added p2: nobody needs the rows of a
                a with position deletes q instead of p, which a had when it was asked: a is left out, and e stays

The journal says which deletes each data file had when it was asked, not which it has now: p1 lacks the rows that p
named. If p is gone, p1 does not say all that e deleted. Data files of groups that are not recorded were not asked, so
what may apply to them stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltacompact.iceberg.commit.proposal import Proposal
from deltacompact.iceberg.deletes.matching import FileScanTask
from deltacompact.iceberg.marks.marking import Mark
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.convert.plan_document import equality_paths
from deltacompact.iceberg_modes.convert.proposals import Converted, ConvertOutcome, ProposeConversion
from deltacompact.iceberg_modes.journal.journal import Planned, WrittenGroup
from deltacompact.iceberg_modes.journal.recorded_marks import marks_of
from deltacompact.iceberg_modes.plan_envelope import NamedFiles


def resume_conversion(planned: Planned, groups: Sequence[WrittenGroup], state: TableState) -> Proposal[ConvertOutcome]:
    """Propose the marks that are still true, and to remove the equality deletes that they replace."""
    files = NamedFiles(state, planned.body["deletes"])
    asked: dict[str, FileScanTask] = {}
    marks: list[Mark] = []
    for group in groups:
        inputs = planned.body["groups"][group.number]["inputs"]
        of_group = {source["path"]: FileScanTask(*files.past(source)) for source in inputs}
        marks += marks_of(group, of_group)
        asked |= of_group
    converted = Converted(tuple(asked.values()), tuple(marks), groups=len(groups))
    return ProposeConversion(equality_paths(planned.body), converted)(state)
