"""Writers and a reader of format version 3: deletion vectors, rows that move, and each live row with its lineage.

    delete_by_vector(lake, "ns.t", {path: [0, 4]})          one vector for each file, with the positions of the old one
    update(lake, "ns.t", {path: [0]}, rows)                 vectors, and a file with the rows' new values and old ids
    live_rows(lake, "ns.t")                                 [Lived(path, 1, {"id": 7}, row_id 101, last_updated 2), …]

The reader follows the spec. It shares only the readers of manifests and vectors with the product.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from iceberg_lake import Lake, local_path

from deltacompact.iceberg.table import deletion_vectors, locations
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestEntry
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID
from deltacompact.iceberg.table.table_state import TableState, scope_of
from deltacompact.tabular.field_ids import field_id

T = "ns.t"


@dataclass(frozen=True, slots=True)
class Lived:
    """A live row: where it lies, its values, and its lineage."""

    path: str
    position: int
    values: Mapping[str, Any]
    row_id: int | None
    last_updated: int | None

    @property
    def known(self) -> tuple[Any, ...]:
        """Values and lineage, which a compaction must not change."""
        return (*self.values.values(), self.row_id, self.last_updated)


def known_rows(lake: Lake, table_id: str, branch: str = MAIN) -> Counter[tuple[Any, ...]]:
    return Counter(row.known for row in live_rows(lake, table_id, branch))


def live_rows(lake: Lake, table_id: str, branch: str = MAIN) -> list[Lived]:
    state = lake.state(table_id, branch)
    return [row for entry in state.data for row in _live_rows(state, entry)]


def _live_rows(state: TableState, entry: ManifestEntry) -> Iterator[Lived]:
    file, table = entry.file, _table(entry)
    by_id = _names_by_id(table)
    dead = _dead_positions(state, entry)
    keys = [_keys(delete) for delete in _equality_deletes(state, entry)]
    for position, stored in enumerate(table.to_pylist()):
        values = {
            column.name: stored[by_id[number]] if number in by_id else _default(state, number)
            for column in state.metadata.schema
            for number in [field_id(column)]
        }
        of_ids = {number: stored[by_id[number]] for number in by_id} | {
            number: _default(state, number) for number in state.metadata.columns if number not in by_id
        }
        killed = any(tuple(of_ids[number] for number in ids) in found for ids, found in keys)
        if position in dead or killed:
            continue
        row_id = last_updated = None
        if file.first_row_id is not None:
            row_id, last_updated = stored.get(ROW_ID.name), stored.get(LAST_UPDATED.name)
            row_id = file.first_row_id + position if row_id is None else row_id
            last_updated = entry.sequence if last_updated is None else last_updated
        yield Lived(file.path, position, values, row_id, last_updated)


def _default(state: TableState, number: int) -> Any:
    default = state.metadata.columns[number].default
    return None if default is None else default.as_py()


def _dead_positions(state: TableState, entry: ManifestEntry) -> set[int]:
    """The positions in the file's vector; without a vector, the positions in its position deletes."""
    positions = [delete for delete in state.deletes if delete.file.content is Content.POSITION_DELETES]
    of_file = [delete.file for delete in positions if delete.file.referenced_data_file == entry.file.path]
    vectors = [file for file in of_file if file.is_deletion_vector]  # position deletes of version 2 name a file, too
    assert len(vectors) <= 1, "a data file has two deletion vectors"
    if vectors:
        blob = Path(local_path(vectors[0].path)).read_bytes()[vectors[0].content_offset :][: vectors[0].content_size]
        return set(deletion_vectors.positions(blob, vectors[0].path).tolist())
    older = [delete for delete in positions if delete.sequence >= entry.sequence]
    files = [_table(delete) for delete in older if not delete.file.is_deletion_vector]
    return {row["pos"] for table in files for row in table.to_pylist() if row["file_path"] == entry.file.path}


def _equality_deletes(state: TableState, entry: ManifestEntry) -> list[ManifestEntry]:
    deletes = [delete for delete in state.deletes if delete.file.content is Content.EQUALITY_DELETES]
    return [
        delete
        for delete in deletes
        if entry.sequence < delete.sequence and (state.is_global(delete) or scope_of(delete) == scope_of(entry))
    ]


def _keys(delete: ManifestEntry) -> tuple[tuple[int, ...], set[tuple[Any, ...]]]:
    table = _table(delete)
    by_id = _names_by_id(table)
    names = [by_id[number] for number in delete.file.equality_ids]
    return delete.file.equality_ids, {tuple(row[name] for name in names) for row in table.to_pylist()}


def _names_by_id(table: pa.Table) -> dict[int, str]:
    """Column names by field id. A file without ids has all columns, in the order of the table's first schema."""
    ids = [int((column.metadata or {}).get(b"PARQUET:field_id", 0)) for column in table.schema]
    return dict(zip(ids if any(ids) else range(1, len(ids) + 1), table.column_names, strict=True))


def _table(entry: ManifestEntry) -> pa.Table:
    return pq.ParquetFile(local_path(entry.file.path)).read()


def delete_by_vector(lake: Lake, table_id: str, positions: Mapping[str, Sequence[int]], branch: str = MAIN) -> None:
    """Commit a new vector for each of these data files. Each vector has its own Puffin file."""
    table = IcebergTable.load(lake.catalog, table_id)
    _commit_vectors(lake, table, positions, [], branch)


def update(
    lake: Lake,
    table_id: str,
    positions: Mapping[str, Sequence[int]],
    rows: Sequence[Mapping[str, Any]],
    branch: str = MAIN,
    spec_id: int | None = None,
) -> None:
    """Replace rows of a table without partitions. Rows with `_row_id` keep their id; rows without are new."""
    table = IcebergTable.load(lake.catalog, table_id)
    columns = pa.schema([*table.metadata.schema, ROW_ID, LAST_UPDATED])
    file = lake._file(table, pa.Table.from_pylist(list(rows), schema=columns), Content.DATA, (), spec_id, ())
    _commit_vectors(lake, table, positions, [file], branch)


def _commit_vectors(
    lake: Lake,
    table: IcebergTable,
    positions: Mapping[str, Sequence[int]],
    files: Sequence[ContentFile],
    branch: str,
) -> None:
    state = lake.state(table.metadata.table_id, branch)
    store = locations.store_of(table.metadata.location, {})
    data = {entry.file.path: entry for entry in state.data}
    former = {
        entry.file.referenced_data_file: entry.file.key for entry in state.deletes if entry.file.is_deletion_vector
    }
    vectors = []
    for path, places in positions.items():
        dead = pa.array(sorted({*places, *_dead_positions(state, data[path])}), pa.uint64()).to_numpy()
        blob = deletion_vectors.blob_of(dead)
        puffin = f"{table.metadata.data_folder}/{uuid.uuid4()}-deletes.puffin"
        locations.put(store, puffin, b"PFA1" + blob)
        file = data[path].file
        vector = ContentFile(
            Content.POSITION_DELETES, puffin, "PUFFIN", file.spec_id, file.partition, len(dead), 4 + len(blob)
        )
        vectors.append(replace(vector, referenced_data_file=path, content_offset=4, content_size=len(blob)))
    gone = {former[path] for path in positions if path in former}
    lake.commit(table, [*files, *vectors], branch, "overwrite" if files else "delete", gone)


def add_column(lake, type_, value):
    """Add an optional column with a default value."""
    schema = json.loads(lake.catalog.load_table(T).schema().model_dump_json())
    field = {"id": 3, "name": "added", "required": False, "type": type_, "initial-default": value}
    added = schema | {"schema-id": 1, "fields": [*schema["fields"], field]}
    lake.edit_metadata(T, {"schemas": [schema, added], "current-schema-id": 1, "last-column-id": 3})
