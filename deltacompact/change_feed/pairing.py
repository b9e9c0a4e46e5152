"""Pairs a row that went with a row of the same key that came: together they are an update.

removed 2 y, 4 w      added 2 Y, 5 v      key id      update 2: y -> Y      delete 4      insert 5

If keys are not unique, rows of one key are paired in their order, as far as both sides have some. Rows that do not fit
into memory are divided by key, in files of a temporary folder.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.change_feed.cancelling import ranked
from deltacompact.change_feed.candidates import Candidates
from deltacompact.change_feed.columns import CODES, ChangeType
from deltacompact.change_feed.row_digests import row_digests
from deltacompact.iceberg.deletes.ranges import buckets_of
from deltacompact.reading.selection import Selected

_UNPAIRED = np.array([CODES[ChangeType.DELETE], CODES[ChangeType.INSERT]], np.int8)
_PAIRED = np.array([CODES[ChangeType.UPDATE_BEFORE], CODES[ChangeType.UPDATE_AFTER]], np.int8)
PAIRING_COPIES = 3
"""Pairing rows takes so many times their own memory."""
_BUCKETS_MAX = 256
"""Files that are open at a time."""
_SIDE = "_deltacompact_is_added"

Kinds = npt.NDArray[np.int8]


def paired(
    candidates: Sequence[Candidates], selected: Selected, key: Sequence[str], held_bytes: int
) -> Iterator[tuple[pa.Table, Kinds]]:
    """All rows with what became of each, updates side by side. Rows of equal keys come together."""
    size = sum(candidate.bytes for candidate in candidates)
    buckets = min(_BUCKETS_MAX, max(1, -(-size * PAIRING_COPIES // held_bytes)))
    if buckets == 1:
        yield from _paired(list(_with_sides(candidates, selected)), key)
        return
    with tempfile.TemporaryDirectory(prefix="deltacompact-") as folder:
        for path in _divided(candidates, selected, key, buckets, Path(folder)):
            with pa.memory_map(str(path)) as source:
                rows = [pa.ipc.open_stream(source).read_all()]
                yield from _paired(rows, key)


def _with_sides(candidates: Sequence[Candidates], selected: Selected) -> Iterator[pa.Table]:
    for candidate in candidates:
        for _, table in candidate.tables(selected):
            yield table.append_column(_SIDE, pa.repeat(pa.scalar(candidate.is_added), table.num_rows))


def _divided(
    candidates: Sequence[Candidates], selected: Selected, key: Sequence[str], buckets: int, folder: Path
) -> list[Path]:
    """Files of the rows of each bucket of keys."""
    writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
    with contextlib.ExitStack() as opened:
        for table in _with_sides(candidates, selected):
            prefixes = key_digests(table, key)[:, 0]
            of_row = buckets_of(prefixes, buckets)
            for bucket in np.unique(of_row).tolist():
                if bucket not in writers:
                    sink = opened.enter_context(pa.OSFile(str(folder / f"{bucket}.arrow"), "wb"))
                    writers[bucket] = opened.enter_context(pa.ipc.new_stream(sink, table.schema))
                writers[bucket].write_table(table.filter(pa.array(of_row == bucket)))
    return [folder / f"{bucket}.arrow" for bucket in sorted(writers)]


def key_digests(table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.uint64]:
    values = table.select(list(key))
    keys = pa.Table.from_arrays([_one_zero(column) for column in values.columns], names=values.column_names)
    digests = np.ascontiguousarray(row_digests(keys, "the change feed")[:, :16])
    return digests.view(">u8").astype(np.uint64)


def _one_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """-0.0 becomes 0.0: as keys they are equal, although rows with one and the other differ."""
    return pc.add(column.cast(pa.float64()), 0.0) if pa.types.is_floating(column.type) else column


def _paired(tables: Sequence[pa.Table], key: Sequence[str]) -> Iterator[tuple[pa.Table, Kinds]]:
    if not tables:
        return
    rows = pa.concat_tables(tables)
    sides = np.asarray(rows[_SIDE])
    order, groups, ranks, partners = ranked(key_digests(rows, key), sides)
    together = np.lexsort((sides[order], ranks, groups))
    order = order[together]
    is_update = (ranks < partners[groups])[together]
    of_side = sides[order].astype(np.int64)
    kinds = np.where(is_update, _PAIRED[of_side], _UNPAIRED[of_side]).astype(np.int8)
    yield rows.drop_columns([_SIDE]).take(pa.array(order)), kinds
