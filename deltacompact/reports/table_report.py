"""The reports of `show`: the tables of a catalog, the streams of a table, the versions of each stream."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.model import CompactedDelta, DataFile, LifecycleState, Partition, Readers, Table
from deltacompact.base.notebooks import html_table
from deltacompact.base.partitions import done_for_each, side_by_side
from deltacompact.base.printable import named
from deltacompact.base.wording import counted, error_document, size
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.sizes import sizes_of
from deltacompact.delta_streams.streams import Streams
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.reports.scale import Detail, worst_lines
from deltacompact.reports.sizes import Sizes, added, compacted_words, read_through, sizes_document, waiting_words
from deltacompact.reports.words import Report, depth_lines, in_columns, minute, moment, position_text

if TYPE_CHECKING:
    from rich.console import Console

    from deltacompact.reports.plan_report import PlannedTotal

Counting = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Tells what is being done, and to how many: what it yields is called for each. On a terminal it is a bar."""


@contextlib.contextmanager
def silently(doing: str, partitions: int) -> Iterator[Callable[[], None]]:
    """Tells nobody."""
    yield lambda: None


def declared(table: Table) -> str:
    """The declared keys of a table, in words."""
    primary = ", ".join(table.keys.primary) if table.keys else "not declared"
    sort = ", ".join(f"{key.name}:{key.direction.value}" for key in table.keys.sort) if table.keys else ""
    partitioned = ", ".join(table.partition_keys)
    retention = table.tombstone_retention
    return (
        f"primary keys {primary}; sort keys {sort or 'none'}; partition keys {partitioned or 'none'}; "
        f"tombstone retention {'for ever' if retention is None else retention}; schema mode {table.schema_mode}; "
        f"columns {_columns_in_words(table) or 'not declared'}"
    )


def _columns_in_words(table: Table) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in table.columns or ())


_TABLES_AT_ONCE = 8
"""Tables whose partitions are looked for at a time: each asks the store for many at a time itself."""


def catalog_document(catalog: Streams, quick: bool = False, counting: Counting = silently) -> Report:
    """The tables of a catalog, with the sizes of their streams unless `quick`. They are opened side by side."""
    names = catalog.tables()
    at_once = min(catalog.at_once, _TABLES_AT_ONCE)
    there, errors = done_for_each(names, lambda name: (catalog.described(name), catalog.partitions(name)), at_once)
    rows: dict[str, dict[str, Any]] = {
        table.table_id: {**_keys_document(table), "partitions": len(partitions)} for table, partitions in there
    }
    rows |= {name: {"table": name, "error": error_document(error)} for name, error in errors}
    unreadable: list[tuple[Any, Exception]] = []
    if not quick:
        unreadable = _add_sizes(
            catalog, rows, [(table.table_id, each) for table, found in there for each in found], counting
        )
    return Report([rows[name] for name in names], tuple(error for _, error in (*errors, *unreadable)))


def _add_sizes(
    catalog: Streams, rows: dict[str, dict[str, Any]], streams: Sequence[tuple[str, Partition]], counting: Counting
) -> list[tuple[Any, Exception]]:
    """Add sizes to the rows of tables. Of a table with streams that cannot be read, those of the others."""
    now_s = catalog.clock()
    with counting(f"opening the streams of {counted(len(rows), 'table')}", len(streams)) as one_is_done:

        def opened(stream: tuple[str, Partition]) -> tuple[str, dict[str, Any]]:
            try:
                return stream[0], sizes_document(sizes_of(catalog.state(*stream)), now_s)
            finally:
                one_is_done()

        found, errors = done_for_each(streams, opened, catalog.at_once)
    by_table: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, sizes in found:
        by_table[name].append(sizes)
    for name, row in rows.items():
        if "error" not in row:
            row["sizes"] = added(by_table[name])
    for (name, _), error in errors:
        row = rows[name]
        row["failed_partitions"] = row.get("failed_partitions", 0) + 1
        row["first_error"] = row.get("first_error", error_document(error))
    return errors


_SIZE_COLUMNS = ("rows", "dead rows", "deltas", "delta rows", "bytes", "oldest (UTC)", "compacted (UTC)")
"""What is compacted; what waits, and in bytes all together; the time of the oldest delta, the last compaction."""
_COLUMNS = (
    "partitions",
    *_SIZE_COLUMNS,
    "table",
    "partition keys",
    "primary keys",
    "sort keys",
    "destination of",
)
_NUMBERS = _COLUMNS.index("table")


def print_catalog(out: Console, where: str, tables: list[dict[str, Any]]) -> None:
    """A line for each table of the catalog at `where`. A column without any value is left out."""
    if not tables:
        out.print(f"no tables in {where}")
    rows = [_COLUMNS, *(_catalog_cells(table) for table in tables if "error" not in table)]
    kept = [n for n, name in enumerate(_COLUMNS) if name == "table" or any(row[n] != "-" for row in rows[1:])]
    cells = [[row[n] for n in kept] for row in rows]
    for line in in_columns(cells, right=sum(n < _NUMBERS for n in kept)) if len(rows) > 1 else ():
        out.print(line)
    for table in tables:
        if "error" in table:
            out.print(f"{table['table']}: failed: {table['error']['message']}", style="red")
        if "failed_partitions" in table:
            failed = counted(table["failed_partitions"], "partition")
            out.print(f"{table['table']}: {failed} failed: {table['first_error']['message']}", style="red")


def catalog_as_html(caption: str, tables: list[dict[str, Any]]) -> str:
    """The tables, the ten of many whose readers fold most rows, in the columns in which `show` lists them."""
    rows = [(*_sizes_or_failed(table), table["table"]) for table in Detail().chosen(tables, _badness)]
    return html_table(f"{caption}: {counted(len(tables), 'table')}", (*_SIZE_COLUMNS, "table"), rows)


def _sizes_or_failed(thing: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a table's or a partition's sizes."""
    return _size_cells(thing["sizes"]) if "sizes" in thing else ("failed",) * len(_SIZE_COLUMNS)


def _catalog_cells(table: dict[str, Any]) -> tuple[str, ...]:
    sizes = table.get("sizes")
    return (
        f"{table['partitions']:,}",
        *(_size_cells(sizes) if sizes else ("-",) * len(_SIZE_COLUMNS)),
        table["table"],
        ", ".join(table["partition_keys"]) or "-",
        ", ".join(table["primary_keys"] or ["(not declared)"]),
        ", ".join(table["sort_keys"] or []) or "-",
        table["destination_of"] or "-",
    )


def _size_cells(sizes: Sizes) -> tuple[str, ...]:
    """As `_SIZE_COLUMNS` has them."""
    return (
        f"{sizes['rows']:,}",
        *(f"{sizes[name]:,}" if sizes[name] else "-" for name in ("dead_rows", "deltas", "delta_rows")),
        size(sizes["bytes"] + sizes["delta_bytes"]),
        "-" if sizes["oldest_delta_s"] is None else minute(sizes["oldest_delta_s"]),
        "-" if sizes["compacted_s"] is None else minute(sizes["compacted_s"]),
    )


def _keys_document(table: Table) -> dict[str, Any]:
    return {
        "table": table.table_id,
        "partition_keys": table.partition_keys,
        "primary_keys": table.keys.primary if table.keys else None,
        "sort_keys": [f"{k.name}:{k.direction.value}" for k in table.keys.sort] if table.keys else None,
        "destination_of": table.source_table_id,
        "publication": table.publication,
        "schema_mode": table.schema_mode,
        "readers": table.readers or Readers.FILES,
        "cluster_by": table.cluster_by,
        "declared_columns": {field.name: str(field.type) for field in table.columns} if table.columns else None,
    }


def table_document(
    catalog: Streams, table_id: str, counting: Counting = silently, usd_per_core_hour: float | None = None
) -> Report:
    """Streams, versions, deltas and index of a table; and what a compaction of its deltas is expected to take."""
    partitions, now_s = catalog.partitions(table_id), catalog.clock()
    with counting(f"opening {table_id}", len(partitions)) as one_is_done:

        def opened(partition: Partition) -> Described | Exception:
            try:
                return _described(catalog, table_id, partition, now_s)
            except Exception as error:
                return error
            finally:
                one_is_done()

        found = side_by_side(partitions, opened, catalog.at_once)
    streams = [
        {"partition": dict(partition.values), "error": error_document(stream)}
        if isinstance(stream, Exception)
        else stream[0]
        for partition, stream in zip(partitions, found, strict=True)
    ]
    table = catalog.described(table_id)  # after the states: a first compaction declares the keys before its seal
    errors = tuple(stream for stream in found if isinstance(stream, Exception))
    files = [stream[1] for stream in found if not isinstance(stream, Exception)]
    document = {**_keys_document(table), "depth": _depths(files, table.cluster_by), "streams": streams}
    if not any(each.get("deltas") for each in streams):
        return Report(document, errors)
    expected, words = _expected(catalog, table_id, partitions, usd_per_core_hour)
    return Report(document | {"expected": expected}, errors, words)


def _expected(
    catalog: Streams, table_id: str, partitions: Sequence[Partition], usd_per_core_hour: float | None
) -> tuple[dict[str, Any], str]:
    """What `plan` says of all partitions that can be planned, or why there is no plan; as JSON values and in words."""
    from deltacompact.arguments import request_of
    from deltacompact.reports.plan_report import plan_report

    try:
        request = replace(request_of(table_id), partitions=partitions, as_read=True)
        total: PlannedTotal = plan_report(catalog, request, usd_per_core_hour).total
    except DeltaCompactError as error:  # such as no keys yet
        return {"error": error_document(error)}, f"a compaction cannot be planned: {error}"
    return total.expected.document(usd_per_core_hour), f"a compaction would take {total.words}"


def _depths(files: Sequence[Sequence[DataFile]], cluster_by: str | None) -> dict[str, float]:
    if not cluster_by:
        return {}
    from deltacompact.planning.depth_in_log import (
        depths_in_log,  # only bounds of clustered tables need Arrow's functions
    )

    return depths_in_log(files, cluster_by)


Described = tuple[dict[str, Any], tuple[DataFile, ...]]
"""A document about a stream, and its compacted files."""


def _described(catalog: Streams, table_id: str, partition: Partition, now_s: float) -> Described:
    state = catalog.state(table_id, partition)
    manifest = read_manifest(catalog.store, state.index) if state.index else None
    document = {
        "partition": dict(partition.values),
        "versions": [
            {"version": version, "state": lifecycle.value}
            for version, lifecycle in (
                (state.opened.parent, LifecycleState.DEPRECATED),
                (state.version, LifecycleState.ACTIVE),
            )
            if version is not None
        ],
        "last_position": state.last_position,
        "sizes": sizes_document(sizes_of(state), now_s),
        "compacted": None if state.compacted is None else _compacted_document(state.compacted),
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
    return document, state.compacted.files if state.compacted else ()


def _compacted_document(compacted: CompactedDelta) -> dict[str, Any]:
    return {
        "watermark": compacted.watermark,
        "rows": compacted.rows,
        "bytes": compacted.bytes,
        "files": [
            {
                "number": file.number,
                "path": file.path,
                "rows": file.rows,
                "bytes": file.bytes,
                "dead_rows": file.rows - file.live_rows,
            }
            for file in compacted.files
        ],
    }


def original_name(file: DataFile) -> str:
    """The user's name of the file."""
    return file.name or os.path.basename(file.path)


def print_table(out: Console, shown: Report, detail: Detail) -> None:
    """Totals, and as much of each partition as the detail says."""
    document, streams = shown.document, shown.document["streams"]
    keys = ", ".join(document["primary_keys"] or ["not declared yet"])
    out.print(f"{document['table']}: primary keys {keys}; sort keys {', '.join(document['sort_keys'] or ['none'])}")
    if document["publication"]:
        out.print(f"published to {document['publication']}")
    for line in depth_lines(document["depth"]):
        out.print(f"clustered by {document['cluster_by']}; {line}")
    if not streams:
        out.print("it holds no data")
    if len(streams) > 1:
        for line in _total_lines(streams):
            out.print(line)
    if shown.total is not None:
        out.print(f"{'  ' if len(streams) > 1 else ''}{shown.total}")
    if detail.is_screenful(len(streams)):
        _print_worst(out, streams, detail)
        return
    for stream in detail.chosen(streams, _badness):
        _print_stream(out, stream, detail)
    for line in detail.rest(len(streams), "partition"):
        out.print(line)


def table_as_html(shown: Report) -> str:
    """The partitions, the ten worst of many, as a table whose caption is what `show` says first."""
    document, streams = shown.document, shown.document["streams"]
    worst = Detail().chosen(streams, _badness)
    rows = [(*_sizes_or_failed(stream), named(stream["partition"])) for stream in worst]
    keys = ", ".join(document["primary_keys"] or ["not declared yet"])
    caption = f"{document['table']}: primary keys {keys}; {counted(len(streams), 'partition')}"
    return html_table(caption, (*_SIZE_COLUMNS, "partition"), rows)


def _total_lines(streams: Sequence[dict[str, Any]]) -> Iterator[str]:
    known = [stream["sizes"] for stream in streams if "sizes" in stream]
    failed = f", {len(streams) - len(known):,} failed" if len(known) < len(streams) else ""
    yield f"{counted(len(streams), 'partition')}{failed}"
    total = added(known)
    yield f"  compacted: {compacted_words(total)}"
    yield f"  {waiting_words(total)}"
    if total["compacted_s"] is not None:
        never = sum(not sizes["files"] and sizes["compacted_s"] is None for sizes in known)
        besides = f"; {counted(never, 'partition')} never" if never else ""
        yield f"  compacted last at {moment(total['compacted_s'])}{besides}"


def _badness(thing: dict[str, Any]) -> tuple[bool, int]:
    return "error" in thing, read_through(thing["sizes"]) if "sizes" in thing else 0


def _print_worst(out: Console, streams: Sequence[dict[str, Any]], detail: Detail) -> None:
    worst = detail.chosen(streams, _badness)
    for stream in worst:
        if "error" in stream:
            _print_stream(out, stream, detail)
    head = (*_SIZE_COLUMNS, "partition")
    rows = [(*_size_cells(stream["sizes"]), named(stream["partition"])) for stream in worst if "sizes" in stream]
    for line in worst_lines(head, rows) if rows else ():
        out.print(line)
    for line in detail.rest(len(streams), "partition"):
        out.print(line)


_DELTAS_SHOWN = 10
"""So many deltas of a partition have a line, the oldest first, unless everything is asked for."""


def _print_stream(out: Console, stream: dict[str, Any], detail: Detail) -> None:
    """All that is known of one partition."""
    if "error" in stream:
        out.print(f"{named(stream['partition'])}: failed: {stream['error']['message']}", style="red")
        return
    active = stream["versions"][-1]["version"]
    out.print(f"{named(stream['partition'])}: version {active} (of {int(active.partition('-')[0]) + 1:,})")
    for line in _stream_lines(stream, detail):
        out.print(f"  {line}")


def _stream_lines(stream: dict[str, Any], detail: Detail) -> Iterator[str]:
    if compacted := stream["compacted"]:
        dead = stream["sizes"]["dead_rows"]
        yield (
            f"compacted up to position {position_text(compacted['watermark'])}: {counted(compacted['rows'], 'row')} in "
            f"{counted(len(compacted['files']), 'file')}, {size(compacted['bytes'])}"
            + (f"; {counted(dead, 'dead row')}" if dead else "")
        )
        for file in compacted["files"] if detail.files else ():
            yield f"  {file['path']}  {counted(file['rows'], 'row')}, {file['dead_rows']:,} dead, {size(file['bytes'])}"
    if index := stream["index"]:
        yield (
            f"index: {counted(index['rows'], 'row')} and {counted(index['tombstones'], 'tombstone')} in "
            f"{counted(index['hash_buckets'], 'hash bucket')}, {size(index['bytes'])}"
        )
    deltas = stream["deltas"] if detail.verbose or detail.files else stream["deltas"][:_DELTAS_SHOWN]
    for delta in deltas:
        yield from _delta_lines(delta, detail)
    if more := len(stream["deltas"]) - len(deltas):
        yield f"and {counted(more, 'more delta')}: --verbose prints all"


def _delta_lines(delta: dict[str, Any], detail: Detail) -> Iterator[str]:
    files = delta["files"]
    rows = sum(file["rows"] for file in files)
    names = ", ".join(file["name"] for file in files[:_DELTAS_SHOWN]) + (", …" if len(files) > _DELTAS_SHOWN else "")
    what = f"{delta['operation']} of {counted(rows, 'row')} in {counted(len(files), 'file')}"
    yield f"delta {position_text(delta['position'])}: {what}: {names}"
    for file in files if detail.files else ():
        yield f"  {file['path']}  {counted(file['rows'], 'row')}, {size(file['bytes'])}"


def versions_document(catalog: Streams, table_id: str) -> Report:
    """The versions of each partition, oldest first."""
    from deltacompact.delta_streams.versions import versions

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
                "taken_out": _taken_out(info.state),
            }
            for info in versions(catalog, table_id, partition)
        ]

    found, errors = done_for_each(catalog.partitions(table_id), about, catalog.at_once)
    failed = [{"partition": dict(partition.values), "error": error_document(error)} for partition, error in errors]
    return Report([row for rows in found for row in rows] + failed, tuple(error for _, error in errors))


def _taken_out(state: StreamState) -> dict[str, Any] | None:
    """The file that a version was written without, and its live rows then."""
    taken = state.opened.taken_out
    return None if taken is None else {"file": taken.path, "rows": taken.rows}


def _badness_of_versions(versions: list[dict[str, Any]]) -> tuple[bool, int]:
    return "error" in versions[0], len(versions)


def print_versions(out: Console, shown: Report, detail: Detail) -> None:
    """A line for each version, of many partitions for those with most versions."""
    if not shown.document:
        out.print("no versions: the table holds no data")
    partitions: list[list[dict[str, Any]]] = [
        list(rows) for _, rows in groupby(shown.document, key=lambda row: row["partition"])
    ]
    chosen = detail.chosen(partitions, _badness_of_versions)
    for version in chain.from_iterable(chosen):
        out.print(_version_line(version), style="red" if "error" in version else "")
    for line in detail.rest(len(partitions), "partition"):
        out.print(line)


def _version_line(version: dict[str, Any]) -> str:
    if "error" in version:
        return f"{named(version['partition'])}: failed: {version['error']['message']}"
    when = "active" if version["sealed_s"] is None else f"sealed {moment(version['sealed_s'])}"
    kept = "" if version["retained"] else ", vacuumed"
    if taken := version["taken_out"]:
        kept += f", without {taken['file']} and its {counted(taken['rows'], 'row')}"
    return (
        f"{named(version['partition'])}: {version['version']}  {when}{kept}  {counted(version['rows'], 'row')} in "
        f"{counted(version['files'], 'file')}, {counted(version['deltas'], 'delta')} since"
    )
