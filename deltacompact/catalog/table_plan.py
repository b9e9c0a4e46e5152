"""What a compaction of a table of delta streams would do, as a value: `table.plan()`.

plan of 'orders': 3 partitions: 2 to compact, 1 with nothing to do, 0 failed     repr: a line
print(plan)                                                                       what `deltacompact plan` prints
plan.document                                                                     what `deltacompact plan --json` prints
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltacompact.base.wording import counted
from deltacompact.delta_streams.streams import Streams
from deltacompact.job import Request
from deltacompact.reports.plan_report import plan_as_html, plan_report, print_plans
from deltacompact.reports.scale import Detail
from deltacompact.reports.shown import printed
from deltacompact.reports.words import Report


@dataclass(frozen=True, slots=True, repr=False)
class TablePlan:
    """The plan of each partition. `errors` are those of partitions that could not be planned."""

    table_id: str
    _shown: Report

    @property
    def document(self) -> list[dict[str, Any]]:
        """A dict for each partition, as `plan --json` has it. Seconds, bytes and rows are in the names of the keys."""
        found: list[dict[str, Any]] = self._shown.document
        return found

    @property
    def errors(self) -> tuple[Exception, ...]:
        return self._shown.errors

    @property
    def nothing_to_do(self) -> bool:
        """Whether no partition needs a compaction, as far as they could be planned."""
        return all("nothing_to_do" in planned for planned in self.document)

    def __repr__(self) -> str:
        idle, failed = (sum(word in planned for planned in self.document) for word in ("nothing_to_do", "error"))
        todo = len(self.document) - idle - failed
        counts = f"{todo:,} to compact, {idle:,} with nothing to do, {failed:,} failed"
        return f"plan of {self.table_id!r}: {counted(len(self.document), 'partition')}: {counts}"

    def __str__(self) -> str:
        """What `deltacompact plan` prints."""
        return printed(lambda out: print_plans(out, self._shown, Detail()))

    def _repr_html_(self) -> str:
        return plan_as_html(repr(self), self._shown)


def plan_of(catalog: Streams, request: Request, usd_per_core_hour: float | None = None) -> TablePlan:
    """The plan of a request. Writes nothing and starts no cluster."""
    return TablePlan(request.source_table_id, plan_report(catalog, request, usd_per_core_hour))
