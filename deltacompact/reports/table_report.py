"""The report of `show` on a table: its streams, what waits in them, and what a compaction would take."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import CompactedDelta
from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.model import LifecycleState, Partition
from deltacompact.base.notebooks import html_table
from deltacompact.base.partitions import side_by_side
from deltacompact.base.printable import named
from deltacompact.base.wording import counted, error_document, size
from deltacompact.delta_streams.sizes import sizes_of
from deltacompact.delta_streams.streams import Streams
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.reports.counting import Counting, silently
from deltacompact.reports.declared import keys_document
from deltacompact.reports.scale import Detail, worst_lines
from deltacompact.reports.size_cells import SIZE_COLUMNS, badness, size_cells, sizes_or_failed
from deltacompact.reports.sizes import added, compacted_words, sizes_document, waiting_words
from deltacompact.reports.words import Report, depth_lines, moment, position_text

if TYPE_CHECKING:
    from rich.console import Console

    from deltacompact.reports.plan_report import PlannedTotal


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
    document = {**keys_document(table), "depth": _depths(files, table.cluster_by), "streams": streams}
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
    for stream in detail.chosen(streams, badness):
        _print_stream(out, stream, detail)
    for line in detail.rest(len(streams), "partition"):
        out.print(line)


def table_as_html(shown: Report) -> str:
    """The partitions, the ten worst of many, as a table whose caption is what `show` says first."""
    document, streams = shown.document, shown.document["streams"]
    worst = Detail().chosen(streams, badness)
    rows = [(*sizes_or_failed(stream), named(stream["partition"])) for stream in worst]
    keys = ", ".join(document["primary_keys"] or ["not declared yet"])
    caption = f"{document['table']}: primary keys {keys}; {counted(len(streams), 'partition')}"
    return html_table(caption, (*SIZE_COLUMNS, "partition"), rows)


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


def _print_worst(out: Console, streams: Sequence[dict[str, Any]], detail: Detail) -> None:
    worst = detail.chosen(streams, badness)
    for stream in worst:
        if "error" in stream:
            _print_stream(out, stream, detail)
    head = (*SIZE_COLUMNS, "partition")
    rows = [(*size_cells(stream["sizes"]), named(stream["partition"])) for stream in worst if "sizes" in stream]
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
