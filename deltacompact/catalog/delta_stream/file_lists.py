"""Publishing a compacted version to engines that know nothing of deltacompact.

    <table>/published/symlink/day=2024-01-01/manifest         Hive, Athena, Presto, Redshift Spectrum: a symlink table
    <table>/published/files/day=2024-01-01/2-77b1….txt        DuckDB, Polars: a file a line, once for each version
    <table>/published/files/day=2024-01-01/latest.txt

Hadoop's engines take the URIs of a manifest as they are written. Others decode a file:// URI, or do not, so lists of
local files have plain paths, which all of them take alike.

Each is one object that lists every live file, so a reader sees one version or the next, never a mix. What is published
is what was compacted: deltas since then are for the next time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from deltacompact.base.errors import InputError
from deltacompact.base.model import Partition
from deltacompact.base.partitions import all_done
from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog
from deltacompact.catalog.delta_stream.paths import TablePaths, partition_folder


@dataclass(frozen=True, slots=True)
class Published:
    """What was published of a partition: URIs of manifest and list; deltas that are not in it."""

    partition: Partition
    version: str
    manifest: str
    files: str
    rows: int
    deltas_left_out: int


def publish(
    catalog: DeltaStreamCatalog, table_id: str, partition: Mapping[str, Any] | Partition | None = None
) -> list[Published]:
    """Publish the active version of every partition that was compacted, or of one.

    Raises InputError where nothing was compacted, or where a file has dead rows in it, once the other partitions are
    published.
    """
    return all_done(catalog.chosen(table_id, partition), lambda chosen: _publish_stream(catalog, table_id, chosen))


def _publish_stream(catalog: DeltaStreamCatalog, table_id: str, partition: Partition) -> Published:
    state = catalog.state(table_id, partition)
    if state.compacted is None:
        raise InputError(f"table {table_id!r}, partition {partition}: nothing was compacted yet")
    if any(file.deletions for file in state.compacted.files):
        raise InputError(
            f"table {table_id!r}, partition {partition}: files have dead rows under deletion vectors, which other "
            "engines would see: compact with --purge first"
        )
    root = f"{TablePaths.of(table_id).root}/published"
    where = unquote(catalog.uri) if catalog.uri.startswith("file://") else catalog.uri
    folder = partition_folder(partition)
    below = f"{folder}/" if folder else ""
    uris = [where + file.path for file in state.compacted.files]
    plain = [uri.removeprefix("file://") for uri in uris]
    names = [f"files/{below}{state.version}.txt", f"files/{below}latest.txt", f"symlink/{below}manifest"]
    for name, listed in zip(names, (plain, plain, uris), strict=True):
        catalog.store.put(f"{root}/{name}", "".join(f"{file}\n" for file in listed).encode())
    _, files, manifest = (f"{catalog.uri}{root}/{name}" for name in names)
    return Published(partition, state.version, manifest, files, state.compacted.rows, len(state.deltas))
