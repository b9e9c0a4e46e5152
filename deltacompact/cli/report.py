"""The reports of the command line: plans, results, catalogs and tables, as JSON values and as text."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deltacompact.base.model import DataFile, LifecycleState, Partition, Table
from deltacompact.base.partitions import done_for_each, side_by_side
from deltacompact.base.wording import counted, error_document, one_line
from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog
from deltacompact.catalog.delta_stream.vacuum import VacuumResult
from deltacompact.catalog.delta_stream.versions import versions
from deltacompact.cli.decisions import decided_documents, decided_words, forecast_documents, forecast_lines
from deltacompact.executors.choose import Foreseen, foresee
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.job import Request, Work, plan_work, prepare
from deltacompact.planning.plan import CompactionPlan
from deltacompact.results import CompactionResult, SessionResult
from deltacompact.table.ports import NothingToDo

if TYPE_CHECKING:
    from rich.console import Console

    from deltacompact.catalog.publication.publication import PublicationResult

NOTHING_HELD = "nothing to do: the table holds no data"


@dataclass(frozen=True, slots=True)
class Shown:
    """A document, and the errors of the partitions that could not be read. The document has these errors, too."""

    document: Any
    errors: tuple[Exception, ...] = ()


def plan_report(catalog: DeltaStreamCatalog, request: Request) -> Shown:
    """The plan of a compaction, partition by partition. Writes nothing and starts no cluster."""
    job = prepare(catalog, request)
    lanes = job.lanes
    foreseen = {lane: foresee(request.options, lane) for lane in set(lanes.values())}

    def planned(work: Work) -> tuple[dict[str, Any], list[Exception]]:
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
        "capacity": {**dataclasses.asdict(foreseen.capacity), "assumed": foreseen.assumed},
        "files": forecast_documents(decided),
    }


def print_plans(out: Console, reports: list[dict[str, Any]]) -> None:
    if not reports:
        out.print(NOTHING_HELD)
    for report in reports:
        name = _named(report["partition"])
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
            f"  needs at the peak {_bytes(report['planned_peak_memory_bytes'])} of memory a task "
            f"(of {_bytes(report['capacity']['memory_per_task_bytes'])}), "
            f"{_bytes(report['planned_peak_space_bytes'])} more space"
        )
        if report["capacity"]["assumed"]:
            out.print(f"  the capacity is assumed: {report['capacity']['assumed']}")
        for line in forecast_lines(report["files"]):
            out.print(f"  {line}", markup=False)


def result_document(result: CompactionResult) -> dict[str, Any]:
    """The result as JSON values: each session's error as text, and the first error as the error of the document."""
    sessions = []
    for session in result.sessions:
        document = {f.name: getattr(session, f.name) for f in dataclasses.fields(session)}
        document["decisions"] = decided_documents(session.decisions)
        document["error"] = None if session.error is None else one_line(session.error)
        sessions.append(document)
    return {
        "source_table_id": result.source_table_id,
        "destination_table_id": result.destination_table_id,
        "sessions": sessions,
        **({"publication": publication_document(result.publication)} if result.publication else {}),
        **({"error": error_document(result.errors[0])} if result.errors else {}),
    }


def print_result(out: Console, result: CompactionResult) -> None:
    if not result.sessions:
        out.print(NOTHING_HELD)
    for session in result.sessions:
        out.print(f"{_named(session.partition)}: {_outcome(session)}", markup=False)
        if session.version is not None:
            stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in session.seconds.items())
            out.print(
                f"  files {session.files_before} -> {session.files_after} ({decided_words(session.decisions)}), "
                f"{_bytes(session.bytes_in)} -> {_bytes(session.bytes_out)}, "
                f"{counted(session.rounds, 'round')} on {session.executor}"
            )
            out.print(
                f"  seconds: {stages}; memory of a process: planned {_bytes(session.planned_peak_bytes)}, "
                f"measured {_bytes(session.measured_peak_bytes)}{_spilled(session)}"
            )
    if result.publication is not None:
        out.print(publication_words(result.publication), markup=False)


def publication_document(result: PublicationResult) -> dict[str, Any]:
    """What a run has changed in an Iceberg table, as JSON values."""
    document = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    return document | {"error": None if result.error is None else one_line(result.error)}


def publication_words(result: PublicationResult) -> str:
    """The same in one line."""
    if result.error is not None:
        return f"{result.target} does not show it yet, the next run will: {one_line(result.error)}"
    left_out = f"; {counted(result.deltas_left_out, 'delta')} not compacted yet" if result.deltas_left_out else ""
    if result.snapshot is None:
        return f"{result.target}: nothing to change{left_out}"
    return (
        f"{result.target}: snapshot {result.snapshot}, {counted(result.files_added, 'file')} added, "
        f"{result.files_removed:,} removed, {counted(result.dead_row_files_added, 'file')} of dead rows{left_out}"
    )


def _spilled(session: SessionResult) -> str:
    """The spilled bytes in words; nothing after a well planned session."""
    return f"; spilled to disk {_bytes(session.spilled_bytes)}" if session.spilled_bytes else ""


def _outcome(session: SessionResult) -> str:
    if session.error is not None:
        return f"failed: {one_line(session.error)}"
    if session.nothing_to_do is not None:
        return f"nothing to do: {session.nothing_to_do}"
    return (
        f"{counted(session.rows_in, 'row')} in, {session.live:,} live, {session.superseded:,} superseded, "
        f"{session.deleted:,} deleted by {counted(session.delete_rows, 'delete row')}"
    )


def print_vacuumed(out: Console, result: VacuumResult, dry_run: bool) -> None:
    """Print which data was deleted, and how many dead rows are left."""
    verb = "would delete" if dry_run else "deleted"
    fenced = f", fenced {counted(len(result.fenced), 'dead session')}" if result.fenced else ""
    deleted = counted(len(result.deleted), "object")
    out.print(f"{result.partition}: {verb} {deleted} ({_bytes(result.bytes)}), kept {result.kept:,}{fenced}")
    for stat in result.deleted:
        if "/data/" in stat.path:
            out.print(f"  {verb} data {stat.path}  {_bytes(stat.bytes)}", markup=False)
    if result.waiting:
        waiting = counted(len(result.waiting), "data file")
        out.print(
            f"  {waiting} of older versions kept ({_bytes(sum(stat.bytes for stat in result.waiting))}): too young"
        )
    if result.doubtful:
        doubtful = counted(len(result.doubtful), "object")
        size = _bytes(sum(stat.bytes for stat in result.doubtful))
        out.print(
            f"  {doubtful} that nothing names kept ({size}): newer than the last log entry; vacuum after a commit"
        )
    if result.unfinished:
        out.print(f"  {verb} {counted(len(result.unfinished), 'write')} that was never finished")
    if result.dead_rows:
        dead = counted(result.dead_rows, "dead row")
        out.print(
            f"  {dead} still in files of the active version, under deletion vectors: compact --purge takes them out"
        )


def declared(table: Table) -> str:
    """The declared keys of a table, in words."""
    primary = ", ".join(table.keys.primary) if table.keys else "not declared"
    sort = ", ".join(f"{key.name}:{key.direction.value}" for key in table.keys.sort) if table.keys else ""
    partitioned = ", ".join(table.partition_keys)
    retention = table.tombstone_retention
    return (
        f"primary keys {primary}; sort keys {sort or 'none'}; partition keys {partitioned or 'none'}; "
        f"tombstone retention {'for ever' if retention is None else retention}"
    )


def catalog_document(catalog: DeltaStreamCatalog) -> Shown:
    """The tables of a catalog."""

    def about(name: str) -> dict[str, Any]:
        return {**_keys_document(catalog.table(name)), "partitions": len(catalog.partitions(name))}

    names = catalog.tables()
    tables, errors = done_for_each(names, about)
    failed = [{"table": name, "error": error_document(error)} for name, error in errors]
    rank = {name: number for number, name in enumerate(names)}
    document = sorted([*tables, *failed], key=lambda row: rank[row["table"]])
    return Shown(document, tuple(error for _, error in errors))


def print_catalog(out: Console, tables: list[dict[str, Any]]) -> None:
    rows = [("table", "partition keys", "primary keys", "sort keys", "partitions", "destination of")]
    for table in tables:
        if "error" in table:
            rows.append((table["table"], f"failed: {table['error']['message']}", "", "", "", ""))
            continue
        rows.append(
            (
                table["table"],
                ", ".join(table["partition_keys"]) or "-",
                ", ".join(table["primary_keys"] or ["(not declared)"]),
                ", ".join(table["sort_keys"] or []) or "-",
                str(table["partitions"]),
                table["destination_of"] or "-",
            )
        )
    for line in in_columns(rows):
        out.print(line)


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns. Long cells are neither cut off nor wrapped."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _keys_document(table: Table) -> dict[str, Any]:
    return {
        "table": table.table_id,
        "partition_keys": table.partition_keys,
        "primary_keys": table.keys.primary if table.keys else None,
        "sort_keys": [f"{k.name}:{k.direction.value}" for k in table.keys.sort] if table.keys else None,
        "destination_of": table.source_table_id,
        "publication": table.publication,
    }


def table_document(catalog: DeltaStreamCatalog, table_id: str) -> Shown:
    """Streams, versions, deltas and index of a table."""
    streams, errors = [], []
    for partition in catalog.partitions(table_id):
        try:
            streams.append(_stream_document(catalog, table_id, partition))
        except Exception as error:
            errors.append(error)
            streams.append({"partition": dict(partition.values), "error": error_document(error)})
    table = catalog.table(table_id)  # after the states: a first compaction declares the keys before its seal
    return Shown({**_keys_document(table), "streams": streams}, tuple(errors))


def _stream_document(catalog: DeltaStreamCatalog, table_id: str, partition: Partition) -> dict[str, Any]:
    chain = list(catalog.log(table_id, partition).chain())
    state = chain[-1]
    manifest = read_manifest(catalog.store, state.index) if state.index else None
    return {
        "partition": dict(partition.values),
        "versions": [{"version": version.version, "state": version.lifecycle.value} for version in chain],
        "last_position": state.last_position,
        "compacted": None
        if state.compacted is None
        else {
            "watermark": state.compacted.watermark,
            "rows": state.compacted.rows,
            "bytes": state.compacted.bytes,
            "files": [
                {"number": f.number, "path": f.path, "rows": f.rows, "bytes": f.bytes} for f in state.compacted.files
            ],
        },
        "deltas": [
            {
                "position": delta.position,
                "operation": delta.operation.value,
                "files": [
                    {"path": f.path, "name": original_name(f), "rows": f.rows, "bytes": f.bytes} for f in delta.files
                ],
            }
            for delta in state.deltas
        ],
        "index": None
        if manifest is None or state.index is None
        else {
            "manifest": state.index.path,
            "hash_buckets": manifest.hash_bucket_count,
            "rows": manifest.rows,
            "tombstones": manifest.tombstones,
            "bytes": manifest.size_bytes,
            "entry_bytes": manifest.encoding.entry_bytes,
        },
    }


def original_name(file: DataFile) -> str:
    """The user's name of the file."""
    return file.name or os.path.basename(file.path)


def print_table(out: Console, document: dict[str, Any]) -> None:
    keys = ", ".join(document["primary_keys"] or ["not declared yet"])
    out.print(f"{document['table']}: primary keys {keys}; sort keys {', '.join(document['sort_keys'] or ['none'])}")
    if document["publication"]:
        out.print(f"published to {document['publication']}", markup=False)
    if not document["streams"]:
        out.print("it holds no data")
    for stream in document["streams"]:
        if "error" in stream:
            out.print(f"{_named(stream['partition'])}: failed: {stream['error']['message']}", style="red")
            continue
        versions = stream["versions"]
        active = next(version["version"] for version in versions if version["state"] == LifecycleState.ACTIVE.value)
        out.print(f"{_named(stream['partition'])}: version {active} (of {len(versions)})", markup=False)
        if compacted := stream["compacted"]:
            out.print(
                f"  compacted up to position {compacted['watermark']}: {counted(compacted['rows'], 'row')} in "
                f"{counted(len(compacted['files']), 'file')}, {_bytes(compacted['bytes'])}"
            )
        if index := stream["index"]:
            out.print(
                f"  index: {counted(index['rows'], 'row')} and {counted(index['tombstones'], 'tombstone')} in "
                f"{counted(index['hash_buckets'], 'hash bucket')}, {_bytes(index['bytes'])}"
            )
        for delta in stream["deltas"]:
            rows = sum(file["rows"] for file in delta["files"])
            names = ", ".join(file["name"] for file in delta["files"])
            out.print(
                f"  delta {delta['position']}: {delta['operation']} of {counted(rows, 'row')} in "
                f"{counted(len(delta['files']), 'file')}: {names}"
            )


def versions_document(catalog: DeltaStreamCatalog, table_id: str) -> Shown:
    """The versions of each partition, oldest first."""

    def about(partition: Partition) -> list[dict[str, Any]]:
        return [
            {
                "partition": dict(partition.values),
                "version": info.state.version,
                "state": info.state.lifecycle.value,
                "sealed_s": info.sealed_s,
                "retained": info.retained,
                "rows": info.rows,
                "files": len(info.state.compacted.files) if info.state.compacted else 0,
                "deltas": len(info.state.deltas),
            }
            for info in versions(catalog, table_id, partition)
        ]

    found, errors = done_for_each(catalog.partitions(table_id), about)
    failed = [{"partition": dict(partition.values), "error": error_document(error)} for partition, error in errors]
    return Shown([row for rows in found for row in rows] + failed, tuple(error for _, error in errors))


def print_versions(out: Console, document: list[dict[str, Any]]) -> None:
    if not document:
        out.print("no versions: the table holds no data")
    for version in document:
        if "error" in version:
            out.print(f"{_named(version['partition'])}: failed: {version['error']['message']}", style="red")
            continue
        when = "active"
        if version["sealed_s"] is not None:
            when = f"sealed {datetime.fromtimestamp(version['sealed_s'], UTC):%Y-%m-%d %H:%M} UTC"
        kept = "" if version["retained"] else ", vacuumed"
        out.print(
            f"{_named(version['partition'])}: {version['version']}  {when}{kept}  {counted(version['rows'], 'row')} in "
            f"{counted(version['files'], 'file')}, {counted(version['deltas'], 'delta')} since",
            markup=False,
        )


def _named(partition: Mapping[str, str | None]) -> str:
    return "/".join(f"{name}={'null' if v is None else v}" for name, v in partition.items()) or "(all)"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
