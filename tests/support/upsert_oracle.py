"""Works out which rows an upsert must leave: row by row, in plain Python, from the files alone.

visible(lake, "ns.t")               every row that a reader sees, with its sequence number and place
newest(rows, ("id",), …)            for each key the row that wins, unless that row is a delete
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from iceberg_lake import Lake

from deltacompact.base.errors import InputError
from deltacompact.base.limits import Limits
from deltacompact.base.settings import Settings
from deltacompact.iceberg.table import deletion_vectors, locations
from deltacompact.iceberg.table.content_files import Content, ManifestEntry
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import TableState, scope_of
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.modes import UPSERT
from deltacompact.iceberg_modes.upsert.options import upsert_options
from deltacompact.iceberg_modes.upsert.result import UpsertResult

LAST_UPDATED = 2147483539
"""The id of the column that may give a row of version 3 its own sequence number."""
TINY = Settings(executor="local", local_threads=1, limits=Limits(task_rows_min=2, small_rows_per_bucket=3))
"""With these settings, tables of ten rows take several tasks of each kind, and several hash buckets."""


def prepared(lake: Lake, table_id: str = "ns.t", branch: str = "main", settings: Settings = TINY, **others: Any):
    """An upsert that is not planned yet. Option names have underscores: key_columns="id"."""
    own = {name: others.pop(name) for name in ("sizes", "before_commit") if name in others}
    options = upsert_options({name.replace("_", "-"): value for name, value in others.items()})
    return ModeRun(IcebergTable.load(lake.catalog, table_id), branch, options, settings, **own, mode=UPSERT)


def upsert(lake: Lake, table_id: str = "ns.t", branch: str = "main", **others: Any) -> UpsertResult:
    return prepared(lake, table_id, branch, **others).run()


@contextlib.contextmanager
def refusing_lost_order() -> Iterator[None]:
    """Allow only one error: an upsert refuses because a rewrite merged rows that no upsert had compared."""
    try:
        yield
    except InputError as error:
        assert "nothing says which of its rows are newer" in str(error)


@dataclass(frozen=True, slots=True)
class Row:
    """A row that readers see, and its place: file and position."""

    sequence: int
    path: str
    position: int
    values: dict[str, Any]


def visible(lake: Lake, table_id: str = "ns.t", branch: str = "main") -> list[Row]:
    """Every row of a branch that no delete hits, by the rules of the spec."""
    state = lake.state(table_id, branch)
    store = locations.store_of(state.metadata.location, {})
    hits = [_hits(store, state, entry) for entry in state.deletes]
    found = []
    for entry in state.data:
        rows = _by_id(store, entry)
        for position, values in enumerate(rows):
            if not any(hit(entry, position, values) for hit in hits):
                named = {
                    column.name: values.get(int(column.metadata[b"PARQUET:field_id"]))
                    for column in state.metadata.schema
                }
                sequence = values.get(LAST_UPDATED)
                found.append(Row(entry.sequence if sequence is None else sequence, entry.file.path, position, named))
    return found


def visible_ids(lake: Lake) -> list[int]:
    return sorted(row.values["id"] for row in visible(lake))


def visible_names(lake: Lake) -> list[tuple[int, str]]:
    return sorted((row.values["id"], row.values["name"]) for row in visible(lake))


def newest(
    rows: Iterable[Row],
    key: Sequence[str],
    order: Callable[[dict[str, Any]], Any] = lambda _: (),
    is_delete: Callable[[dict[str, Any]], bool] = lambda _: False,
) -> list[dict[str, Any]]:
    """The rows after an upsert, sorted by key: the newest row of each key, unless that row is a delete."""
    best: dict[Any, tuple[Any, Row]] = {}
    for row in rows:
        name = tuple(row.values[column] for column in key)
        rank = (row.sequence, order(row.values), row.path.encode(), row.position)
        if name not in best or rank > best[name][0]:
            best[name] = rank, row
    winners = [row.values for _, row in best.values() if not is_delete(row.values)]
    return sorted(winners, key=lambda values: repr([values[column] for column in key]))


def left(rows: Iterable[Row], key: Sequence[str]) -> list[dict[str, Any]]:
    """All rows, sorted by key."""
    return sorted((row.values for row in rows), key=lambda values: repr([values[column] for column in key]))


def _hits(store: Any, state: TableState, delete: ManifestEntry) -> Callable[[ManifestEntry, int, dict[int, Any]], bool]:
    """Whether a delete file hits a row of a data file."""
    file = delete.file
    if file.is_deletion_vector:
        blob = locations.fetched(store, file.path)[file.content_offset : file.content_offset + file.content_size]
        dead = set(deletion_vectors.positions(blob, file.path).tolist())
        return lambda data, position, _: data.file.path == file.referenced_data_file and position in dead
    rows = _by_id(store, delete)
    if file.content is Content.POSITION_DELETES:
        named = {(row[2147483546], row[2147483545]) for row in rows}
        return lambda data, position, _: (
            (data.file.path, position) in named
            and data.sequence <= delete.sequence
            and scope_of(data) == scope_of(delete)
        )
    keys = {tuple(row.get(number) for number in file.equality_ids) for row in rows}
    everywhere = state.metadata.specs[file.spec_id].is_unpartitioned
    return lambda data, _, values: (
        data.sequence < delete.sequence
        and (everywhere or scope_of(data) == scope_of(delete))
        and tuple(values.get(number) for number in file.equality_ids) in keys
    )


def _by_id(store: Any, entry: ManifestEntry) -> list[dict[int, Any]]:
    """The rows of a Parquet file, by field id."""
    found, name = locations.open_object(store, locations.readable(entry.file.path))
    with found.open(name) as source:
        table = pq.read_table(source)
    ids = [int(column.metadata[b"PARQUET:field_id"]) for column in table.schema]
    columns = [column.to_pylist() for column in table.columns]
    return [dict(zip(ids, values, strict=True)) for values in zip(*columns, strict=True)]
