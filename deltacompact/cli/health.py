"""check --health: what readers fold and skip, against thresholds.

orders: 3,000 partitions, 2 beyond a threshold
  8,000,000 rows, 12,000 of them dead; 3,400 files, 1.1 GiB; 41,000 rows wait
day=1995-04-03: 140 files over the others (100); the oldest delta waits for 30.0 h (24 h)
day=1995-04-04: 31.0 % dead rows (30 %)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from deltacompact.base.errors import UnhealthyError
from deltacompact.base.wording import counted, error_document, one_line, size
from deltacompact.catalog.opening import is_iceberg_catalog
from deltacompact.cli.answers import Failed, for_each, say_json
from deltacompact.cli.arguments import one_partition
from deltacompact.cli.sections import refuse_delta_stream_options, refuse_iceberg_options
from deltacompact.maintenance.health import Health, Thresholds, health_of, worst_first
from deltacompact.reports.scale import WORST, Detail
from deltacompact.reports.words import NOTHING_HELD, named

if TYPE_CHECKING:
    from deltacompact.base.model import Partition
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


def run(
    catalog: DeltaStreamCatalog | IcebergCatalog, table: str, partition: Sequence[str], options: dict[str, Any]
) -> None:
    """Print the health of a table. Raises Failed for the first error, or for what is beyond a threshold."""
    limits = _thresholds(options)
    errors: list[tuple[Partition, Exception]] = []
    if is_iceberg_catalog(catalog):
        from deltacompact.maintenance.iceberg_health import health_of_branch

        refuse_delta_stream_options()
        found = health_of_branch(catalog.state(table, options["branch"]))
    else:
        refuse_iceberg_options()
        found, errors = _of_streams(catalog, table, one_partition(catalog, table, partition))
    if options["plot"]:
        from deltacompact.cli.plots import draw_health

        draw_health(options["plot"], table, found, limits)
    ill = worst_first(found, limits)
    if options["as_json"]:
        failed = [{"partition": dict(of.values), "error": error_document(error)} for of, error in errors]
        say_json([*(_document(one, limits) for one in found), *failed])
    else:
        _print(table, found, ill, errors, limits, Detail(options["verbose"]))
    if errors:
        raise Failed(errors[0][1])
    if ill:
        raise Failed(
            UnhealthyError(f"table {table!r}: {counted(len(ill), 'partition')} beyond a threshold: compact it")
        )


def _of_streams(
    catalog: DeltaStreamCatalog, table: str, only: Partition | None
) -> tuple[list[Health], list[tuple[Partition, Exception]]]:
    now_s = catalog.clock()

    def health(chosen: Partition) -> list[Health]:
        return [health_of(dict(chosen.values), catalog.state(table, chosen), now_s)]

    return for_each(catalog, table, only, "looking at", health, catalog.at_once)


def _thresholds(options: dict[str, Any]) -> Thresholds:
    return Thresholds(
        small_files=options["max_small_files"],
        small_file_bytes=int(options["small_file_mib"] * (1 << 20)),
        overlap=options["max_overlap"],
        dead_share=options["max_dead_share"],
        age_s=options["max_age_hours"] * 3600,
    )


def _document(one: Health, limits: Thresholds) -> dict[str, Any]:
    beyond = one.beyond(limits)
    facts = dataclasses.asdict(one)
    sizes = facts.pop("file_bytes")
    return {
        **facts,
        "files": len(sizes),
        "bytes": sum(sizes),
        "small_files": one.small_files(limits.small_file_bytes),
        "dead_share": one.dead_share,
        "beyond": list(beyond),
        "healthy": not beyond,
    }


def _print(
    table: str,
    found: Sequence[Health],
    ill: Sequence[Health],
    errors: Sequence[tuple[Partition, Exception]],
    limits: Thresholds,
    detail: Detail,
) -> None:
    from deltacompact.cli.console import out

    if not found and not errors:
        out.print(NOTHING_HELD)
        return
    for line in _total_lines(table, found, ill):
        out.print(line)
    for partition, error in errors[:WORST]:
        out.print(f"{named(dict(partition.values))}: failed: {one_line(error)}", style="red")
    for one in ill if detail.verbose else ill[:WORST]:
        out.print(f"{named(one.partition)}: {'; '.join(one.beyond(limits).values())}", style="red")
    for line in detail.rest(len(ill), "partition"):
        out.print(line)


def _total_lines(table: str, found: Sequence[Health], ill: Sequence[Health]) -> Iterator[str]:
    verdict = f"{len(ill):,} beyond a threshold" if ill else "all healthy"
    yield f"{table}: {counted(len(found), 'partition')}, {verdict}"
    rows, dead = sum(one.rows for one in found), sum(one.dead_rows for one in found)
    sizes = [size_ for one in found for size_ in one.file_bytes]
    waiting = sum(one.waiting_rows for one in found)
    waits = f"; {counted(waiting, 'row')} waiting" if waiting else ""
    yield f"  {counted(rows, 'row')}, {dead:,} of them dead; {counted(len(sizes), 'file')}, {size(sum(sizes))}{waits}"
