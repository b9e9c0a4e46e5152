"""The report of `plan`: partition by partition, what a compaction would do and what it would need.

day=1995-04-03: 3 deltas since version 4-a1…
  1,000 rows of 3 deltas into 8,000 compacted, 1 round, 8 hash buckets, executor local
  needs at the peak 420.0 MiB of memory a task (of 6.0 GiB), 12.3 MiB more space
  expected: 0.1 s on 2 slots
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import counted, error_document
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.cli.decisions import forecast_documents, forecast_lines
from deltacompact.cli.words import NOTHING_HELD, Shown, named, size
from deltacompact.executors.choose import Foreseen, foresee
from deltacompact.job import PartitionWork, Request, plan_work, prepare
from deltacompact.planning.driver_work import driver_s
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.work import expected_s, work_of_plan
from deltacompact.table.ports import NothingToDo

if TYPE_CHECKING:
    from rich.console import Console


def plan_report(catalog: DeltaStreamCatalog, request: Request) -> Shown:
    """The plan of a compaction, partition by partition. Writes nothing and starts no cluster."""
    job = prepare(catalog, request)
    lanes = job.lanes
    foreseen = {lane: foresee(request.options, lane) for lane in set(lanes.values())}

    def planned(work: PartitionWork) -> tuple[dict[str, Any], list[Exception]]:
        about: dict[str, Any] = {"table": job.source_table_id, "partition": dict(work.partition.values)}
        try:
            if isinstance(work.found, Exception):
                raise work.found
            if isinstance(work.found, NothingToDo):
                return about | {"nothing_to_do": work.found.reason}, []
            there = foreseen[lanes[work.partition]]
            return about | _plan_document(plan_work(job, work, work.found, there.capacity), there), []
        except Exception as error:
            return about | {"error": error_document(error)}, [error]

    plans = side_by_side(job.work, planned, job.at_once)
    return Shown([about for about, _ in plans], tuple(error for _, errors in plans for error in errors))


def _plan_document(decided: CompactionPlan, foreseen: Foreseen) -> dict[str, Any]:
    snapshot = decided.input
    return {
        "why": snapshot.why,
        "destination": snapshot.destination_table_id,
        "base_version": snapshot.moment.destination_version,
        "deltas": len(snapshot.deltas),
        "delta_rows": snapshot.delta_rows,
        "base_rows": snapshot.base.rows if snapshot.base else 0,
        "rounds": [{"position": round_.position, "files": round_.stop - round_.first} for round_ in decided.rounds],
        "hash_buckets": decided.hash_bucket_count,
        "rehash": decided.rehash,
        "entry_bytes": decided.encoding.entry_bytes,
        "planned_peak_memory_bytes": decided.planned_peak_bytes,
        "planned_peak_space_bytes": decided.planned_space_bytes,
        "executor": foreseen.executor,
        "expected_s": round(_expected_s(decided, foreseen), 1),
        "capacity": {**dataclasses.asdict(foreseen.capacity), "assumed": foreseen.assumed},
        "files": forecast_documents(decided),
    }


def _expected_s(decided: CompactionPlan, foreseen: Foreseen) -> float:
    """What a dispatcher expects, too, before it has learned anything."""
    rows, capacity = decided.input.delta_rows + decided.base_rows, foreseen.capacity
    driver = 0.0 if foreseen.executor == "local" else driver_s(rows, capacity)
    return expected_s(work_of_plan(decided, capacity.slots, driver))


def print_plans(out: Console, reports: list[dict[str, Any]]) -> None:
    if not reports:
        out.print(NOTHING_HELD)
    for report in reports:
        name = named(report["partition"])
        if "error" in report:
            out.print(f"{name}: failed: {report['error']['message']}", style="red")
            continue
        if "nothing_to_do" in report:
            out.print(f"{name}: nothing to do: {report['nothing_to_do']}")
            continue
        out.print(f"{name}: {report['why']}")
        out.print(
            f"  {counted(report['delta_rows'], 'row')} of {counted(report['deltas'], 'delta')} "
            f"into {report['base_rows']:,} compacted, "
            f"{counted(len(report['rounds']), 'round')}, {counted(report['hash_buckets'], 'hash bucket')}, "
            f"executor {report['executor']}"
        )
        if report["rehash"]:
            out.print("  the index is rehashed first")
        out.print(
            f"  needs at the peak {size(report['planned_peak_memory_bytes'])} of memory a task "
            f"(of {size(report['capacity']['memory_per_task_bytes'])}), "
            f"{size(report['planned_peak_space_bytes'])} more space"
        )
        slots = counted(report["capacity"]["slots"], "slot")
        out.print(f"  expected: {report['expected_s']:,.1f} s on {slots}")
        if report["capacity"]["assumed"]:
            out.print(f"  the capacity is assumed: {report['capacity']['assumed']}")
        for line in forecast_lines(report["files"]):
            out.print(f"  {line}", markup=False)
