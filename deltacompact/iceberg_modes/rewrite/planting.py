"""Tasks: a split tree for some rows, or the ranges of a sort order, from a sample of them.

    1,200 row groups, 150 M rows      512 looks, one every 293 k rows: the row group there, 40 rows all over it
    20,480 rows of the sample         each stands for 7 k rows, and for the stored bytes that those have
    8 tasks for the sample            64 looks each; one task for the tree

Looks are spread over all rows, and sampled rows over a whole row group: files and row groups may be sorted, so their
first rows alone would show few values. Only the columns to order by are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base.data_file import DECODED_TIMES
from deltacompact.iceberg.table.parquet_files import aligned
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, Slice, in_slices, masks_of
from deltacompact.iceberg_modes.rewrite.row_order import ClusterBy, RowOrder
from deltacompact.index.live_bitmaps import Masks, live_mask
from deltacompact.layout.document import Layout, layout_document, layout_from_json
from deltacompact.layout.spread import SampleSize, looked_groups, looks_at, sampled_rows, spread
from deltacompact.storage.fetched_file import ReadAhead, begun_ahead
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import field_ids, parquet_read
from deltacompact.tabular.files import FileReader, Part
from deltacompact.tabular.loads import sample_of
from deltacompact.tabular.row_groups import cells_of

_SAMPLE_PER_CELL, _SAMPLE_ROWS_MAX = 16, 200_000
"""For ranges of a sort order, which must fit into memory: a cell may become twice as large as planned."""


@dataclass(frozen=True, slots=True)
class PlantTask:
    """The layout that divides the live rows into so many files. `live` has the columns of `by` alone.

    path              where it is stored, for the table of this identity
    row_group_rows    that cells of a split tree fit; where rows are sorted, those of a cell stay below `cell_bytes`
    """

    live: LiveSlices
    path: str
    table: str
    by: RowOrder
    files: int
    row_group_rows: int
    cell_bytes: int

    def cells(self, row_bytes: float) -> int:
        """Cells of a file, where a row takes so many bytes in memory."""
        rows = self.live.rows / self.files
        if isinstance(self.by, ClusterBy):
            return cells_of(rows, row_bytes, self.row_group_rows)
        return max(1, math.ceil(rows * row_bytes / self.cell_bytes))

    def sampling(self, tasks: int = 1) -> list[LookTask]:
        """At most so many tasks that take the sample together."""
        live, rows = self.live, self.live.rows
        stored_bytes = sum(slice_.file.bytes for slice_ in live.slices)
        cells = self.files * self.cells(DECODED_TIMES * stored_bytes / max(1, rows))
        wanted = max(sampled_rows(self.files), min(_SAMPLE_PER_CELL * cells, _SAMPLE_ROWS_MAX))
        size = SampleSize(wanted, looks_at(rows), live.reading.run_bytes)
        shares = (replace(live, slices=slices) for slices in in_slices(live.slices, -(-rows // size.tasks(tasks))))
        return [LookTask(own, size.part(own.rows / rows)) for own in shares]


@dataclass(frozen=True, slots=True)
class LookTask:
    """Takes a sample of these rows."""

    live: LiveSlices
    size: SampleSize


@dataclass(frozen=True, slots=True)
class Planted:
    """The tree, or the ranges of a sort order, and about the decoded bytes of a row with all its columns."""

    layout: Layout
    row_bytes: float


@dataclass(frozen=True, slots=True)
class _SampleShare:
    """For how many rows one look stands, how many it takes, and how many bytes these may have."""

    rows: float
    wanted: int
    sample_bytes: float


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of a sample, the stored bytes that each stands for, and about the decoded bytes of a row."""

    rows: pa.Table
    sizes: npt.NDArray[np.float64]
    row_bytes: float


def plant(store: ObjectStore, task: PlantTask, *samples: Sequence[SampledRows]) -> Planted:
    """Make the layout, and store it. If one is stored by now, that one counts: a task may run twice.

    `samples`: what the tasks of `task.sampling` took. Without them, the sample is read here.
    """
    found = grown(task, samples or [look(store, looking) for looking in task.sampling()])
    document = json.dumps(layout_document(found.layout, task.table)).encode()
    if not store.put_if_absent(task.path, document):
        return replace(found, layout=layout_from_json(store.get(task.path), task.table))
    return found


def grown(task: PlantTask, samples: Iterable[Sequence[SampledRows]]) -> Planted:
    """The layout by these samples. It is not stored."""
    sampled = [of_group for sample in samples for of_group in sample]
    rows = pa.concat_tables([task.live.columns.empty_table(), *(of_group.rows for of_group in sampled)])
    sizes = np.concatenate([np.empty(0), *(of_group.sizes for of_group in sampled)])
    decoded = float(np.mean([of_group.row_bytes for of_group in sampled])) if sampled else 0.0
    layout = task.by.layout(task.by.prepared(rows), sizes, task.files, task.cells(decoded))
    return Planted(layout, decoded)


def look(store: ObjectStore, task: LookTask) -> list[SampledRows]:
    """Read the rows, by row group."""
    live, size, found = task.live, task.size, list[SampledRows]()
    ahead, masks = ReadAhead(live.reading), masks_of(store, live)
    each = _SampleShare(live.rows / size.looks, -(-size.wanted // size.looks), size.bytes / size.looks)

    def begun(looked: tuple[Slice, list[int]]) -> tuple[Slice, list[int], FileReader]:
        file = field_ids.matched(looked[0].file, live.columns)
        return *looked, FileReader(store, Part(file, live.columns.names), ahead)

    for slice_, places, reader in begun_ahead(_places(live, size.looks), begun):
        with reader:
            found += _of_file(reader, slice_, places, masks, live.columns, each)
    return found


def _places(live: LiveSlices, count: int) -> Iterator[tuple[Slice, list[int]]]:
    """The rows at which to look, evenly spread."""
    ends = np.cumsum([stop - start for start, stop in (slice_.rows for slice_ in live.slices)])
    places = spread(live.rows, count)
    of_place = np.searchsorted(ends, places, side="right")
    for number in np.unique(of_place).tolist():
        slice_ = live.slices[number]
        within = places[of_place == number] - ends[number] + slice_.rows[1]
        yield slice_, within.tolist()


def _of_file(
    reader: FileReader,
    slice_: Slice,
    places: list[int],
    masks: Masks,
    columns: pa.Schema,
    each: _SampleShare,
) -> Iterator[SampledRows]:
    metadata, lives = reader.parquet.metadata, live_mask(masks[slice_.ordinal], slice_.file.rows)
    names = metadata.schema.to_arrow_schema().names
    decoded = parquet_read.decoded_bytes(reader.parquet, names) / max(1, metadata.num_rows)
    group_rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    looked = looked_groups(group_rows, places, slice_.rows)
    reader.announce([range_ for group in looked for range_ in reader.ranges(group.rows)])
    for group in looked:
        start, stop = group.rows
        living = np.flatnonzero(lives[start:stop])
        taken = living[spread(len(living), each.wanted * group.looks)]
        stored = (table for _, table in aligned(reader.file, reader.slices(group.rows), columns))
        tables = sample_of(stored, taken, each.sample_bytes * group.looks)
        if tables:
            rows = pa.concat_tables(tables)
            stand_for = each.rows * group.looks * len(living) / (stop - start) / rows.num_rows
            sizes = np.full(rows.num_rows, stand_for * _stored_row_bytes(metadata.row_group(group.group)))
            yield SampledRows(rows, sizes, decoded)


def _stored_row_bytes(group: pq.RowGroupMetaData) -> float:
    stored: int = sum(group.column(place).total_compressed_size for place in range(group.num_columns))
    return float(stored / max(1, group.num_rows))
