"""The reports of `show`: the tables of a catalog, the streams of a table, the versions of each stream."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deltacompact.base.model import DataFile, LifecycleState, Partition, Table
from deltacompact.base.partitions import done_for_each
from deltacompact.base.wording import counted, error_document
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.cli.words import Shown, in_columns, named, size
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.versions import versions
from deltacompact.index.primary_key_index import read_manifest

if TYPE_CHECKING:
    from rich.console import Console


def declared(table: Table) -> str:
    """The declared keys of a table, in words."""
    primary = ", ".join(table.keys.primary) if table.keys else "not declared"
    sort = ", ".join(f"{key.name}:{key.direction.value}" for key in table.keys.sort) if table.keys else ""
    partitioned = ", ".join(table.partition_keys)
    retention = table.tombstone_retention
    return (
        f"primary keys {primary}; sort keys {sort or 'none'}; partition keys {partitioned or 'none'}; "
        f"tombstone retention {'for ever' if retention is None else retention}; schema mode {table.schema_mode}"
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


def _keys_document(table: Table) -> dict[str, Any]:
    return {
        "table": table.table_id,
        "partition_keys": table.partition_keys,
        "primary_keys": table.keys.primary if table.keys else None,
        "sort_keys": [f"{k.name}:{k.direction.value}" for k in table.keys.sort] if table.keys else None,
        "destination_of": table.source_table_id,
        "publication": table.publication,
        "schema_mode": table.schema_mode,
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
            out.print(f"{named(stream['partition'])}: failed: {stream['error']['message']}", style="red")
            continue
        versions = stream["versions"]
        active = next(version["version"] for version in versions if version["state"] == LifecycleState.ACTIVE.value)
        out.print(f"{named(stream['partition'])}: version {active} (of {len(versions)})", markup=False)
        if compacted := stream["compacted"]:
            out.print(
                f"  compacted up to position {compacted['watermark']}: {counted(compacted['rows'], 'row')} in "
                f"{counted(len(compacted['files']), 'file')}, {size(compacted['bytes'])}"
            )
        if index := stream["index"]:
            out.print(
                f"  index: {counted(index['rows'], 'row')} and {counted(index['tombstones'], 'tombstone')} in "
                f"{counted(index['hash_buckets'], 'hash bucket')}, {size(index['bytes'])}"
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
                "taken_out": _taken_out(info.state),
            }
            for info in versions(catalog, table_id, partition)
        ]

    found, errors = done_for_each(catalog.partitions(table_id), about)
    failed = [{"partition": dict(partition.values), "error": error_document(error)} for partition, error in errors]
    return Shown([row for rows in found for row in rows] + failed, tuple(error for _, error in errors))


def _taken_out(state: StreamState) -> dict[str, Any] | None:
    """The file that a version was written without, and its live rows then."""
    taken = state.opened.taken_out
    return None if taken is None else {"file": taken.path, "rows": taken.rows}


def print_versions(out: Console, document: list[dict[str, Any]]) -> None:
    if not document:
        out.print("no versions: the table holds no data")
    for version in document:
        if "error" in version:
            out.print(f"{named(version['partition'])}: failed: {version['error']['message']}", style="red")
            continue
        when = "active"
        if version["sealed_s"] is not None:
            when = f"sealed {datetime.fromtimestamp(version['sealed_s'], UTC):%Y-%m-%d %H:%M} UTC"
        kept = "" if version["retained"] else ", vacuumed"
        if taken := version["taken_out"]:
            kept += f", without {taken['file']} and its {counted(taken['rows'], 'row')}"
        out.print(
            f"{named(version['partition'])}: {version['version']}  {when}{kept}  {counted(version['rows'], 'row')} in "
            f"{counted(version['files'], 'file')}, {counted(version['deltas'], 'delta')} since",
            markup=False,
        )
