"""The health of a table in words: what `check --health` prints, and `table.check(health=True)` returns.

orders: 3,000 partitions, 2 beyond a threshold
  8,000,000 rows, 12,000 of them dead; 3,400 files, 1.1 GiB; 41,000 rows wait
day=1995-04-03: 140 files over the others (100); the oldest delta waits for 30.0 h (24 h)
day=1995-04-04: 31.0 % dead rows (30 %)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltacompact.base.model import Partition
from deltacompact.base.notebooks import html_table
from deltacompact.base.partitions import done_for_each
from deltacompact.base.printable import named
from deltacompact.base.thresholds import Thresholds
from deltacompact.base.wording import counted, error_document, one_line, size
from deltacompact.delta_streams.streams import Streams
from deltacompact.maintenance.health import Health, health_of, worst_first
from deltacompact.reports.counting import Counting, silently
from deltacompact.reports.scale import WORST, Detail
from deltacompact.reports.shown import printed
from deltacompact.reports.words import NOTHING_HELD

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, repr=False)
class TableHealth:
    """What readers of a table fold and skip, partition by partition, held against thresholds.

    partitions    a Health each: `file_bytes`, `rows`, `dead_rows`, `dead_share`, `overlap`, `waiting_rows`, `age_s`
    failed        partitions that could not be read, each with its error
    """

    table_id: str
    thresholds: Thresholds
    partitions: tuple[Health, ...]
    failed: tuple[tuple[Partition, Exception], ...] = ()

    @property
    def beyond(self) -> list[Health]:
        """The partitions beyond a threshold, the worst first."""
        return worst_first(self.partitions, self.thresholds)

    @property
    def healthy(self) -> bool:
        """Whether all partitions were read, and none is beyond a threshold."""
        return not self.failed and not self.beyond

    @property
    def document(self) -> list[dict[str, Any]]:
        """A dict for each partition, as `check --health --json` has it. Seconds and bytes are in the names."""
        failed = [{"partition": dict(of.values), "error": error_document(error)} for of, error in self.failed]
        return [*(_document(of_partition, self.thresholds) for of_partition in self.partitions), *failed]

    def __repr__(self) -> str:
        return f"health of {self.table_id!r}: {self._verdict}"

    def __str__(self) -> str:
        """What `check --health` prints."""
        return printed(lambda out: print_health(out, self, Detail()))

    def _repr_html_(self) -> str:
        """The partitions beyond a threshold, the ten worst of many: for notebooks."""
        head = ("rows", "dead rows", "files", "files over the others", "rows waiting", "partition")
        return html_table(repr(self), head, map(_cells, self.beyond[:WORST]))

    @property
    def _verdict(self) -> str:
        ill = len(self.beyond)
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        said = f"{ill:,} beyond a threshold" if ill or failed else "all healthy"
        return f"{counted(len(self.partitions) + len(self.failed), 'partition')}, {said}{failed}"

    def _total_lines(self) -> Iterator[str]:
        yield f"{self.table_id}: {self._verdict}"
        rows, dead = (
            sum(of_partition.rows for of_partition in self.partitions),
            sum(of_partition.dead_rows for of_partition in self.partitions),
        )
        sizes = [size_ for of_partition in self.partitions for size_ in of_partition.file_bytes]
        waiting = sum(of_partition.waiting_rows for of_partition in self.partitions)
        files = f"{counted(len(sizes), 'file')}, {size(sum(sizes))}"
        waits = f"; {counted(waiting, 'row')} waiting" if waiting else ""
        yield f"  {counted(rows, 'row')}, {dead:,} of them dead; {files}{waits}"


def health_of_streams(
    catalog: Streams,
    table_id: str,
    partitions: Sequence[Partition],
    thresholds: Thresholds,
    counting: Counting = silently,
) -> TableHealth:
    """The health of these partitions of a table. Of each stream the log is read, and no file."""
    now_s = catalog.clock()
    with counting(f"looking at {table_id}", len(partitions)) as one_is_done:

        def health(partition: Partition) -> Health:
            try:
                return health_of(dict(partition.values), catalog.state(table_id, partition), now_s)
            finally:
                one_is_done()

        found, errors = done_for_each(partitions, health, catalog.at_once)
    return TableHealth(table_id, thresholds, tuple(found), tuple(errors))


def print_health(out: Console, health: TableHealth, detail: Detail) -> None:
    """Totals, and what is the matter with the ten worst partitions, or with all that are beyond a threshold."""
    if not health.partitions and not health.failed:
        out.print(NOTHING_HELD)
        return
    for line in health._total_lines():
        out.print(line)
    for partition, error in health.failed[:WORST]:
        out.print(f"{named(dict(partition.values))}: failed: {one_line(error)}", style="red")
    ill = health.beyond
    for of_partition in ill if detail.verbose else ill[:WORST]:
        out.print(
            f"{named(of_partition.partition)}: {'; '.join(of_partition.beyond(health.thresholds).values())}",
            style="red",
        )
    for line in detail.rest(len(ill), "partition"):
        out.print(line)


def _document(of_partition: Health, limits: Thresholds) -> dict[str, Any]:
    beyond = of_partition.beyond(limits)
    facts = dataclasses.asdict(of_partition)
    sizes = facts.pop("file_bytes")
    return {
        **facts,
        "files": len(sizes),
        "bytes": sum(sizes),
        "small_files": of_partition.small_files(limits.small_file_bytes),
        "dead_share": of_partition.dead_share,
        "beyond": list(beyond),
        "healthy": not beyond,
    }


def _cells(of_partition: Health) -> tuple[str, ...]:
    counts = (
        of_partition.rows,
        of_partition.dead_rows,
        len(of_partition.file_bytes),
        of_partition.overlap,
        of_partition.waiting_rows,
    )
    return (*(f"{count:,}" for count in counts), named(of_partition.partition))
