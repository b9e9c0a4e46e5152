"""The report of `plan`: what a compaction would do, of all partitions together and of each, and what it would need.

orders: 3,000 partitions: 12 to compact, 2,987 with nothing to do, 1 failed
  compacted: 3,400 files, 8,000,000 rows, 1.1 GiB, 12,000 dead rows (0.1 %)
  waiting: 14 deltas, 300,000 rows, 20.1 MiB; 14 for less than an hour, since 2026-11-22 01:10 UTC
  files: 3,414 -> about 3,400
  expected: 3.1 s with start-up on 2 slots, 5.2 core-seconds, 0.0001 USD

day=1995-04-03: 3 deltas since the last compaction
  1,000 rows of 3 deltas into 8,000 compacted, 1 round, 8 hash buckets, executor local
  needs at the peak 420.0 MiB of memory a task (of 6.0 GiB), 12.3 MiB more space
  expected: 0.1 s on 2 slots
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltacompact.base.expected import Expected
from deltacompact.base.notebooks import html_table
from deltacompact.base.partitions import side_by_side
from deltacompact.base.printable import named
from deltacompact.base.wording import counted, error_document, size
from deltacompact.delta_streams.sizes import StreamSizes, sizes_of_parts
from deltacompact.delta_streams.streams import Streams
from deltacompact.executors.choose import Foreseen, foresee
from deltacompact.job import CompactionJob, PartitionWork, Request, plan_work, prepare
from deltacompact.planning.driver_work import driver_s
from deltacompact.planning.lanes import Lane, sessions_at_once
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.statistics import statistics_of
from deltacompact.planning.work import expected_s, together_s, work_of_plan
from deltacompact.reports.decisions import FILES_SHOWN_MAX, expected_sizes, forecast_documents, forecast_lines
from deltacompact.reports.scale import WORST, Detail, worst_lines
from deltacompact.reports.sizes import added, compacted_words, read_through, sizes_document, waiting_words
from deltacompact.reports.words import NOTHING_HELD, Report, minute
from deltacompact.table.ports import NothingToDo

if TYPE_CHECKING:
    from rich.console import Console

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SessionSeconds:
    """What a session takes by itself, and on one slot. A dispatcher that has learned nothing yet expects the same."""

    alone: float
    core: float

    @classmethod
    def of(cls, decided: CompactionPlan, foreseen: Foreseen) -> SessionSeconds:
        rows, capacity = decided.input.delta_rows + decided.base_rows, foreseen.capacity
        driver = 0.0 if foreseen.executor == "local" else driver_s(rows, capacity)
        known = statistics_of(decided)
        return cls(*(expected_s(work_of_plan(decided, slots, driver, known)) for slots in (capacity.slots, 1)))


@dataclass(frozen=True, slots=True)
class PlannedTotal:
    """What all sessions together are expected to take, in the order of the partitions, and what a core costs."""

    table: str
    expected: Expected
    usd_per_core_hour: float | None = None

    @property
    def words(self) -> str:
        return self.expected.words(self.usd_per_core_hour)


def plan_report(catalog: Streams, request: Request, usd_per_core_hour: float | None = None) -> Report:
    """The plan of a compaction, partition by partition. Writes nothing and starts no cluster."""
    job = prepare(catalog, request)
    lanes, now_s = job.lanes, catalog.clock()
    foreseen = {lane: foresee(request.options, lane, job.waits) for lane in set(lanes.values())}

    def planned(work: PartitionWork) -> tuple[Document, Exception | None, SessionSeconds | None]:
        about: Document = {"table": job.source_table_id, "partition": dict(work.partition.values)}
        try:
            if isinstance(work.found, Exception):
                raise work.found
            if isinstance(work.found, NothingToDo):
                return about | {"nothing_to_do": work.found.reason}, None, None
            there = foreseen[lanes[work.partition]]
            decided = plan_work(job, work, work.found, there.capacity)
            sizes = sizes_document(_sizes(catalog, decided), now_s)
            seconds = SessionSeconds.of(decided, there)
            return about | _plan_document(decided, there, seconds) | {"sizes": sizes}, None, seconds
        except Exception as error:
            return about | {"error": error_document(error)}, error, None

    plans = side_by_side(job.work, planned, job.at_once)
    total = _total(job, [seconds for _, _, seconds in plans], foreseen, usd_per_core_hour)
    errors = tuple(error for _, error, _ in plans if error is not None)
    return Report([about for about, _, _ in plans], errors, total)


def _sizes(catalog: Streams, decided: CompactionPlan) -> StreamSizes:
    """What the plan folds. The log was read a moment ago, so it knows without a request when deltas were committed."""
    snapshot = decided.input
    state = catalog.log(snapshot.source_table_id, snapshot.partition).remembered
    return sizes_of_parts(snapshot.base, snapshot.deltas, state.commits if state else ())


def _plan_document(decided: CompactionPlan, foreseen: Foreseen, seconds: SessionSeconds) -> Document:
    snapshot, files, needs = decided.input, forecast_documents(decided), Needs(decided)
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
        "planned_peak_memory_bytes": needs.peak_bytes,
        "planned_peak_space_bytes": needs.space_bytes,
        "executor": foreseen.executor,
        "expected_s": round(seconds.alone, 1),
        "expected_core_s": round(seconds.core, 3),
        "capacity": {**dataclasses.asdict(foreseen.capacity), "assumed": foreseen.assumed},
        **expected_sizes(files, decided.target_file_bytes),
        "files": files,
    }


def _total(
    job: CompactionJob,
    sessions: Sequence[SessionSeconds | None],
    foreseen: Mapping[Lane, Foreseen],
    usd_per_core_hour: float | None,
) -> PlannedTotal:
    """All sessions: those of a lane side by side as far as they run so, and the lanes one after the other."""
    seconds, lane_of = 0.0, job.lanes
    lanes = [lane_of.get(work.partition) for work in job.work]
    for lane, there in foreseen.items():
        of_lane = [
            (session.alone, session.core)
            for session, its in zip(sessions, lanes, strict=True)
            if session and its is lane
        ]
        at_once = sessions_at_once(lane, job.terms.options, job.waits)
        seconds += together_s(of_lane, there.capacity.slots, at_once == 1)
    start_s = max((there.start_s for there in foreseen.values()), default=0.0)
    slots = max((there.capacity.slots for there in foreseen.values()), default=1)
    each = tuple(session.core for session in sessions if session)
    return PlannedTotal(job.source_table_id, Expected(seconds, sum(each), each, slots, start_s), usd_per_core_hour)


def _is_planned(report: Document) -> bool:
    return "why" in report


def print_plans(out: Console, shown: Report, detail: Detail) -> None:
    """Totals, and as much of each partition as the detail says."""
    reports: list[Document] = shown.document
    if not reports:
        out.print(NOTHING_HELD)
        return
    if len(reports) > 1:
        for line in _total_lines(reports, shown.total):
            out.print(line)
    todo = [report for report in reports if "nothing_to_do" not in report]
    if detail.is_screenful(len(reports)):
        _print_worst(out, todo, detail)
        return
    chosen = detail.chosen(reports if detail.verbose or len(reports) <= WORST else todo, _badness)
    files = sum(len(report.get("files", ())) for report in chosen)
    only = shown.total.words if len(reports) == 1 else None
    for report in chosen:
        _print_plan(out, report, detail.files or files <= FILES_SHOWN_MAX, only)
    for line in detail.rest(len(todo), "partition"):
        out.print(line)


def _total_lines(reports: Sequence[Document], total: PlannedTotal) -> Iterator[str]:
    planned = [report for report in reports if _is_planned(report)]
    failed = sum("error" in report for report in reports)
    said = [f"{len(planned):,} to compact"]
    said += [f"{idle:,} with nothing to do"] if (idle := len(reports) - len(planned) - failed) else []
    said += [f"{failed:,} failed"] if failed else []
    yield f"{total.table}: {counted(len(reports), 'partition')}: {', '.join(said)}"
    if planned:
        sizes = added(report["sizes"] for report in planned)
        yield f"  compacted: {compacted_words(sizes)}"
        yield f"  {waiting_words(sizes)}"
        before, after = (sum(report[f"files_{when}"] for report in planned) for when in ("before", "after"))
        yield f"  files: {before:,} -> about {after:,}"
        yield f"  expected: {total.words}"
        yield f"  needs {size(sum(report['planned_peak_space_bytes'] for report in planned))} more space at most"


def _badness(report: Document) -> tuple[bool, float, int]:
    """Failures first, then what takes longest, then what readers go through in vain."""
    sizes = report.get("sizes")
    return "error" in report, report.get("expected_core_s", 0.0), read_through(sizes) if sizes else 0


def _print_worst(out: Console, reports: Sequence[Document], detail: Detail) -> None:
    worst = detail.chosen(reports, _badness)
    for report in worst:
        if "error" in report:
            _print_plan(out, report, False, None)
    planned = [report for report in worst if _is_planned(report)]
    if planned:
        for line in worst_lines(_HEAD, list(map(_cells, planned))):
            out.print(line)
    for line in detail.rest(len(reports), "partition"):
        out.print(line)


_HEAD = ("seconds", "deltas", "rows", "bytes", "dead rows", "oldest (UTC)", "partition")


def plan_as_html(caption: str, shown: Report) -> str:
    """The partitions to compact, the ten worst of many, as a table."""
    planned = [report for report in shown.document if _is_planned(report)]
    return html_table(caption, _HEAD, map(_cells, Detail().chosen(planned, _badness)))


def _cells(report: Document) -> tuple[str, ...]:
    sizes = report["sizes"]
    return (
        f"{report['expected_s']:,.1f}",
        f"{sizes['deltas']:,}",
        f"{sizes['delta_rows']:,}",
        size(sizes["delta_bytes"]),
        f"{sizes['dead_rows']:,}",
        "-" if sizes["oldest_delta_s"] is None else minute(sizes["oldest_delta_s"]),
        named(report["partition"]),
    )


def _print_plan(out: Console, report: Document, files: bool, expected: str | None) -> None:
    """All that is known of one partition. `expected`: what is said of all, where it is the only one."""
    name = named(report["partition"])
    if "error" in report:
        out.print(f"{name}: failed: {report['error']['message']}", style="red")
        return
    if "nothing_to_do" in report:
        out.print(f"{name}: nothing to do: {report['nothing_to_do']}")
        return
    out.print(f"{name}: {report['why']}")
    for line in _plan_lines(report, expected):
        out.print(f"  {line}")
    for line in forecast_lines(report["files"], files):
        out.print(f"  {line}")


def _plan_lines(report: Document, expected: str | None) -> Iterator[str]:
    yield (
        f"{counted(report['delta_rows'], 'row')} of {counted(report['deltas'], 'delta')} "
        f"into {report['base_rows']:,} compacted, "
        f"{counted(len(report['rounds']), 'round')}, {counted(report['hash_buckets'], 'hash bucket')}, "
        f"executor {report['executor']}"
    )
    if report["rehash"]:
        yield "the index is rehashed first"
    yield (
        f"needs at the peak {size(report['planned_peak_memory_bytes'])} of memory a task "
        f"(of {size(report['capacity']['memory_per_task_bytes'])}), "
        f"{size(report['planned_peak_space_bytes'])} more space"
    )
    alone = f"{report['expected_s']:,.1f} s on {counted(report['capacity']['slots'], 'slot')}"
    yield f"expected: {expected or alone}"
    if report["capacity"]["assumed"]:
        yield f"the capacity is assumed: {report['capacity']['assumed']}"
