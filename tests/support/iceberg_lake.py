"""A lake of Iceberg tables in a folder: PyIceberg's SQL catalog on sqlite, and writers of what PyIceberg cannot write.

    lake = Lake(tmp_path)
    lake.create("ns.t", schema)
    lake.append("ns.t", rows)                           PyIceberg writes the data
    lake.delete_by_key("ns.t", {"id": [1, 2]})          an equality-delete file, committed as Flink does
    lake.rows("ns.t")                                   PyIceberg reads; it refuses equality deletes

Our own manifest layer commits the delete files. Tests with Spark show that other engines understand them.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1, TableMetadataV2, TableMetadataV3
from pyiceberg.typedef import Identifier
from sqlalchemy import Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection

from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.numbers import Ordinal
from deltacompact.base.settings import Settings
from deltacompact.iceberg.deletes.dead_rows import DeadRowsTask, FileScan, PuffinVector, find_dead_rows
from deltacompact.iceberg.deletes.matching import PATH_COLUMN, POSITION_COLUMN, DeleteIndex
from deltacompact.iceberg.fingerprints import state_fingerprint
from deltacompact.iceberg.table import locations, manifests
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestContent, ManifestEntry, Status
from deltacompact.iceberg.table.manifests import Manifest, ManifestTerms
from deltacompact.iceberg.table.metadata import MAIN, Snapshot
from deltacompact.iceberg.table.parquet_files import StoredFile, tables
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.mode import Mode
from deltacompact.iceberg_modes.modes import REWRITE
from deltacompact.index.live_bitmaps import live_mask, read_masks
from deltacompact.storage.objects import ObjectStore

SETTINGS = Settings(executor="local", local_threads=1)
CERTIFYING = replace(SETTINGS, certify=True)
POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_COLUMN)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_COLUMN)}),
    ]
)


@event.listens_for(Engine, "connect")
def _never_synced(connection: DBAPIConnection, _: object) -> None:
    """Never sync the catalog to the disk: each commit would wait several times, and no test survives a crash."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def _itself(metadata: Any, memo: object = None) -> Any:
    """PyIceberg copies all of a table's metadata at each step of a commit. It is frozen, so itself is as good."""
    return metadata


for _version in (TableMetadataV1, TableMetadataV2, TableMetadataV3):
    _version.__deepcopy__ = _itself


class LakeCatalog(SqlCatalog):
    """PyIceberg's catalog with a prepared statement for finding a table: SQLAlchemy builds it slower than it runs it.

    Tests load tables so often that this saves a tenth of their time.
    """

    _FIND = (
        "SELECT metadata_location, previous_metadata_location FROM iceberg_tables WHERE catalog_name = ? AND "
        "table_namespace = ? AND table_name = ? AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
    )

    def _init_catalog(self) -> None:
        """Do nothing: the database of a lake exists and has this version."""
        self._schema_version = "v1"

    def load_table(self, identifier: str | Identifier) -> Table:
        namespace = self.namespace_to_string(self.namespace_from(identifier))
        name = self.table_name_from(identifier)
        with closing(self.engine.raw_connection()) as connection:
            found = connection.cursor().execute(self._FIND, (self.name, namespace, name)).fetchone()
        if found is None:
            raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        return self._convert_orm_to_iceberg(IcebergTables(self.name, namespace, name, *found))


class Kept:
    """A cache of what tests read from files, which never change. Some tests read a branch after each of fifty
    commits."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Any] = {}

    def of(self, location: str, *how: Hashable, read: Callable[[], Any]) -> Any:
        """The cached result of `read` for this file. Read again if the file was rewritten or is on another machine."""
        key = (location, written_ns(location), *how)
        if key[1] is None:
            return read()
        if key not in self._found:
            self._found[key] = read()
        return self._found[key]


class LakeReader(StateReader):
    """Reads each manifest once, and keeps its entries for all tests."""

    def __init__(self, store: ObjectStore, kept: Kept) -> None:
        super().__init__(store)
        self._kept = kept

    def entries_of(self, listed: Sequence[Manifest]) -> list[tuple[ManifestEntry, ...]]:
        read = super().entries_of
        return [self._kept.of(file.path, file.first_row_id, read=lambda file=file: read([file])[0]) for file in listed]


def local_path(location: str) -> str:
    return unquote(urlparse(location).path)


def written_ns(location: str) -> int | None:
    """When the file was written, in nanoseconds. None if the file is on another machine."""
    try:
        return os.stat(local_path(location)).st_mtime_ns
    except FileNotFoundError:
        return None


@functools.cache
def catalog_with_ns() -> bytes:
    """The database of a catalog with the namespace "ns", for every lake to copy: SQLAlchemy takes 20 ms to make it."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog("any", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder)
        catalog.create_namespace("ns")
        catalog.close()
        return (Path(folder) / "catalog.db").read_bytes()


class Lake:
    """A catalog in a folder. `name` is the catalog's: catalogs that share the database file share the name."""

    def __init__(self, folder: Path, name: str = "lake") -> None:
        self.folder = folder
        self.name = name
        self.warehouse = (folder / "warehouse").as_uri()
        self.database = folder / "catalog.db"
        folder.mkdir(exist_ok=True)
        if not self.database.exists():
            self.database.write_bytes(catalog_with_ns())
            with closing(sqlite3.connect(self.database)) as connection, connection:
                connection.execute("UPDATE iceberg_namespace_properties SET catalog_name = ?", (name,))
        self.catalog = LakeCatalog(name, uri=f"sqlite:///{self.database}", warehouse=self.warehouse)
        self.kept = Kept()

    # Writing

    def create(self, table_id: str, schema: Schema | pa.Schema, version: int = 2, **others: Any) -> None:
        properties = {"format-version": str(min(version, 2))} | others.pop("properties", {})
        self.catalog.create_table(table_id, schema, properties=properties, **others)
        if version == 3:
            self.upgrade(table_id)

    def upgrade(self, table_id: str, **others: Any) -> None:
        """Set format version 3 in the metadata file, which PyIceberg cannot do. `others` are further fields to set."""
        self.edit_metadata(table_id, {"format-version": 3, "next-row-id": 0} | others)

    def edit_metadata(self, table_id: str, changes: Mapping[str, Any]) -> None:
        """Overwrite the metadata file in place, for what PyIceberg cannot write. No engine does this."""
        table = self.catalog.load_table(table_id)
        with table.io.new_input(table.metadata_location).open() as source:
            metadata = json.load(source)
        with table.io.new_output(table.metadata_location).create(overwrite=True) as sink:
            sink.write(json.dumps(metadata | dict(changes)).encode())

    def append(self, table_id: str, rows: pa.Table | Sequence[Mapping[str, Any]], branch: str = MAIN) -> None:
        """Append rows: with PyIceberg up to version 2, with our own layer (not partitioned) in version 3."""
        table = self.catalog.load_table(table_id)
        if not isinstance(rows, pa.Table):
            rows = pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow())
        if table.format_version < 3:
            table.append(rows, branch=branch)
        else:
            loaded = IcebergTable.load(self.catalog, table_id)
            self.commit(loaded, [self._file(loaded, rows, Content.DATA, (), None, ())], branch, "append")

    def append_files(self, table_id: str, *files: Sequence[Mapping[str, Any]]) -> None:
        """Append several data files (not partitioned) in one snapshot, with our own layer."""
        table = IcebergTable.load(self.catalog, table_id)
        data = [pa.Table.from_pylist(list(rows), schema=table.metadata.schema) for rows in files]
        self.commit(table, [self._file(table, rows, Content.DATA, (), None, ()) for rows in data], operation="append")

    def delete_by_key(
        self,
        table_id: str,
        keys: Mapping[str, Sequence[Any]],
        partition: tuple[Any, ...] = (),
        spec_id: int | None = None,
        branch: str = MAIN,
        equality_ids: Sequence[int] | None = None,
    ) -> ContentFile:
        """Commit one equality-delete file. It may hold columns beyond `equality_ids`, which readers ignore."""
        table = IcebergTable.load(self.catalog, table_id)
        metadata = table.metadata
        by_name = {
            column.field.name: (number, column.field)
            for number, column in metadata.columns.items()
            if column.is_top_level
        }
        schema = pa.schema([by_name[name][1].with_nullable(True) for name in keys])
        rows = pa.Table.from_pydict(dict(keys), schema=schema)
        ids = tuple(equality_ids or (by_name[name][0] for name in keys))
        file = self._file(table, rows, Content.EQUALITY_DELETES, partition, spec_id, ids)
        self.commit(table, [file], branch)
        return file

    def delete_by_position(
        self, table_id: str, positions: Mapping[str, Sequence[int]], branch: str = MAIN
    ) -> ContentFile:
        """Commit one position-delete file for data files of one partition."""
        table = IcebergTable.load(self.catalog, table_id)
        file = self._position_file(table, self.state(table_id, branch), positions)
        self.commit(table, [file], branch)
        return file

    def _position_file(
        self, table: IcebergTable, state: TableState, positions: Mapping[str, Sequence[int]]
    ) -> ContentFile:
        one = next(entry.file for entry in state.data if entry.file.path in positions)
        pairs = sorted((path, place) for path, places in positions.items() for place in places)
        columns = [pa.array([path for path, _ in pairs]), pa.array([place for _, place in pairs], pa.int64())]
        rows = pa.Table.from_arrays(columns, schema=POSITIONS)
        file = self._file(table, rows, Content.POSITION_DELETES, one.partition, one.spec_id, ())
        low, high = min(positions).encode(), max(positions).encode()
        return replace(file, lower_bounds={PATH_COLUMN: low}, upper_bounds={PATH_COLUMN: high})

    def _file(
        self,
        table: IcebergTable,
        rows: pa.Table,
        content: Content,
        partition: tuple[Any, ...],
        spec_id: int | None,
        equality_ids: tuple[int, ...],
    ) -> ContentFile:
        path = f"{table.metadata.data_folder}/{uuid.uuid4()}-deletes.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        data = sink.getvalue().to_pybytes()
        store = locations.store_of(table.metadata.location, {})
        locations.put(store, path, data)
        footer = pq.read_metadata(pa.BufferReader(data))
        described = ContentFile(
            content,
            path,
            "PARQUET",
            table.metadata.default_spec_id if spec_id is None else spec_id,
            partition,
            rows.num_rows,
            len(data),
            equality_ids=equality_ids,
        )
        return described if content is Content.POSITION_DELETES else table.with_metrics(described, footer)

    def convert(self, table_id: str, positions: Mapping[str, Sequence[int]], operation: str) -> None:
        """Turn all equality deletes into one position-delete file, in one snapshot."""
        table = IcebergTable.load(self.catalog, table_id)
        state = self.state(table_id)
        gone = {entry.file.path for entry in state.deletes if entry.file.content is Content.EQUALITY_DELETES}
        file = self._position_file(table, state, positions)
        self.commit(table, [file], MAIN, operation, gone)

    def add_data(self, table_id: str, rows: Sequence[Mapping[str, Any]], sequence_number: int) -> None:
        """Commit a data file with an old data sequence number, as compactors do."""
        table = IcebergTable.load(self.catalog, table_id)
        data = pa.Table.from_pylist(list(rows), schema=table.metadata.schema)
        file = self._file(table, data, Content.DATA, (), None, ())
        self.commit(table, [file], MAIN, "replace", sequence_number=sequence_number)

    def adopt(self, table_id: str, file: Path, partition: tuple[Any, ...] = (), **others: Any) -> ContentFile:
        """Commit an existing Parquet file without metrics. `others` are further fields of its manifest entry."""
        table = IcebergTable.load(self.catalog, table_id)
        described = {"content": Content.DATA, "file_format": "PARQUET", "spec_id": table.metadata.default_spec_id}
        described |= {"rows": pq.read_metadata(file).num_rows, "file_bytes": file.stat().st_size}
        adopted = ContentFile(**{"path": str(file), "partition": partition} | described | others)
        self.commit(table, [adopted], MAIN, "append" if adopted.content is Content.DATA else "delete")
        return adopted

    def commit(
        self,
        table: IcebergTable,
        files: Sequence[ContentFile],
        branch: str = MAIN,
        operation: str = "delete",
        gone: Collection[str | tuple[str, int | None]] = (),
        sequence_number: int | None = None,
    ) -> None:
        """Add files to a branch and remove others in one snapshot: by path, or by key where vectors share a file."""
        metadata = table.metadata
        store = locations.store_of(metadata.location, {})
        reader = LakeReader(store, self.kept)
        state = reader.read(metadata, branch)
        snapshot_id = secrets.randbits(62)
        sequence = metadata.last_sequence_number + 1
        terms = ManifestTerms(metadata.format_version, snapshot_id, metadata.schema_json)
        listed = []

        def goes(entry: ManifestEntry) -> bool:
            return entry.file.path in gone or entry.file.key in gone

        def write(entries: Sequence[ManifestEntry], spec_id: int, content: ManifestContent) -> None:
            path = f"{metadata.metadata_folder}/{uuid.uuid4()}-m.avro"
            data, line = manifests.write_manifest(entries, metadata.specs[spec_id], content, terms, path)
            locations.put(store, path, data)
            listed.append(line)

        for manifest, all_entries in zip(state.manifests, reader.entries_of(state.manifests), strict=True):
            entries = [entry for entry in all_entries if entry.status is not Status.DELETED]
            if any(map(goes, entries)):
                kept = [replace(entry, status=Status.DELETED if goes(entry) else Status.EXISTING) for entry in entries]
                write(kept, manifest.spec_id, manifest.content)
            else:
                listed.append(manifest)
        for content in ManifestContent:
            for spec_id in {file.spec_id for file in files if file.manifest_content is content}:
                entries = [
                    ManifestEntry(Status.ADDED, snapshot_id, sequence_number, None, file)
                    for file in files
                    if file.spec_id == spec_id and file.manifest_content is content
                ]
                write(entries, spec_id, content)
        path = f"{metadata.metadata_folder}/snap-{snapshot_id}.avro"
        version, first_row_id, added_rows = metadata.format_version, metadata.next_row_id, None
        if first_row_id is not None:
            listed, upcoming = manifests.with_row_ids(listed, first_row_id)
            added_rows = upcoming - first_row_id
        data = manifests.write_manifest_list(listed, version, snapshot_id, state.snapshot_id, sequence, first_row_id)
        locations.put(store, path, data)
        summary = {"operation": operation}
        now_ms = int(time.time() * 1000)
        row_ids = (first_row_id, added_rows)
        snapshot = Snapshot(
            snapshot_id, state.snapshot_id, sequence, now_ms, path, metadata.schema_id, summary, *row_ids
        )
        table.commit(snapshot, branch, staged=[].append)

    # Compacting and reading

    def rewrite(self, table_id: str, branch: str = MAIN, settings: Settings = SETTINGS, **others: Any):
        """Rewrite a branch. Options are named with underscores: delete_file_threshold=1."""
        return self.prepared(table_id, branch, settings, **others).run()

    def prepared(
        self,
        table_id: str,
        branch: str = MAIN,
        settings: Settings = SETTINGS,
        mode: Mode[Any, Any] = REWRITE,
        **others: Any,
    ) -> ModeRun:
        """A run of a mode that is not planned yet. Option names have underscores, or are as users write them."""
        table = IcebergTable.load(self.catalog, table_id)
        own = {name: others.pop(name) for name in ("sizes", "before_commit", "emit", "signs") if name in others}
        chosen = {_iceberg_name(name): value for name, value in others.items()}
        options = mode.read_options(chosen, table.metadata.properties)
        return ModeRun(table, branch, options, settings, **own, mode=mode)

    def store(self, table_id: str) -> ObjectStore:
        return locations.store_of(IcebergTable.load(self.catalog, table_id).metadata.location, {})

    def state(self, table_id: str, branch: str = MAIN) -> TableState:
        metadata = IcebergTable.load(self.catalog, table_id).metadata
        return LakeReader(locations.store_of(metadata.location, {}), self.kept).read(metadata, branch)

    def check_fingerprint(self, table_id: str, branch: str = MAIN) -> None:
        """If the head's snapshot records a fingerprint, compare it with the fingerprint of its rows."""
        table, state = IcebergTable.load(self.catalog, table_id), self.state(table_id, branch)
        if state.snapshot is not None and (told := table.metadata.recorded_fingerprint(state.snapshot)) is not None:
            assert told == str(state_fingerprint(table, state))

    def live_ids(self, table_id: str) -> list[int]:
        """The ids of live rows, by our own reader of deletion vectors and position deletes."""
        state = self.state(table_id)
        store = locations.store_of(state.metadata.location, {})
        index = DeleteIndex(state)
        found = []
        for number, entry in enumerate(state.data):
            vector = index.applying_to(entry).vector
            where = vector and PuffinVector(vector.file.path, vector.file.content_offset, vector.file.content_size)
            stored = StoredFile(entry.file.path, entry.file.rows, entry.file.file_bytes, entry.sequence)
            scan = FileScan(Ordinal(number), stored, vector=where)
            columns, path = state.metadata.schema, f"live-{number}"
            task = DeadRowsTask((scan,), (), columns, path, 3, READ_LIMITS)
            (one,) = find_dead_rows(store, task)
            lives = live_mask(read_masks(store, path)[Ordinal(number)], one.file.rows)
            for first, table in tables(store, one.file, columns):
                found += table.filter(lives[first : first + table.num_rows])["id"].to_pylist()
        return sorted(found)

    def rows(self, table_id: str, branch: str = MAIN) -> list[dict[str, Any]]:
        """The rows as PyIceberg reads them, sorted."""
        table = self.catalog.load_table(table_id)
        scan = table.scan() if branch == MAIN else table.scan().use_ref(branch)
        return sorted_rows(scan.to_arrow().to_pylist())


def _iceberg_name(name: str) -> str:
    return name.replace("partial_progress_", "partial-progress.").replace("_", "-")


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: tuple((value is not None, repr(value)) for value in row.values()))
