"""Reading in Spark: the live rows of each partition's active version, equal to catalog.read.

    driver      compacted files 14, 15 and deltas folded (merge on read)  ->  file 14: bits 1101…, file 3: bits 01…
    executors   decode their file's rows, keep those whose bit is set

Files go to tasks in pieces of about a million rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import ContentType, OperationType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import text_of
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.appending.advice import advising
from deltacompact.delta_streams.scan import with_keys_of
from deltacompact.delta_streams.snapshots import everything
from deltacompact.index.live_bitmaps import LiveBits, live_mask
from deltacompact.reading.live_rows import Bits, live_sources, schema_of
from deltacompact.spark import arrow_types
from deltacompact.spark.options import READ_OPTIONS, catalog_of, check_options, parse_partition
from deltacompact.tabular import files, formats, partition_texts, schemas

PIECE_ROWS = 1 << 20
_FOLDED_AT_ONCE = 8
"""Partitions whose deltas the driver folds at a time: each takes memory for its keys."""


@dataclass(frozen=True)
class FileSplit(InputPartition):
    """Rows [first, stop) of a file; `lives` has a bit for each of them, the least significant first; None: all live."""

    partition: Partition
    file: DataFile
    first: int
    stop: int
    lives: bytes | None


class LiveRows(DataSourceReader):
    """Reads one snapshot of each partition, taken when the query is planned."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        check_options(options, READ_OPTIONS)
        self._catalog, self._table_id = catalog_of(options)
        self._given = parse_partition(options.get("partition"))
        self._schema = to_arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        places = self._catalog.chosen(self._table_id, self._given)

        def pieces(place: Partition) -> list[FileSplit]:
            found = live_files(self._catalog, self._table_id, place)
            return [piece for file, bits in found for piece in _pieces(place, file, bits)]

        return list(chain.from_iterable(side_by_side(places, pieces, min(_FOLDED_AT_ONCE, self._catalog.at_once))))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None:  # Spark's word for: there is no partition
            return
        assert isinstance(partition, FileSplit)
        yield from piece_rows(self._catalog, partition, self._schema)


def table_schema(options: Mapping[str, str]) -> StructType:
    """The union over the partitions that are read, in Spark's types."""
    check_options(options, READ_OPTIONS)
    catalog, table_id = catalog_of(options)

    def described(partition: Partition) -> DataFile:
        state = catalog.state(table_id, partition)
        with advising(catalog, table_id, partition, state):
            schema = schema_of(everything(table_id, partition, state))
        return DataFile(UNNUMBERED, f"{table_id}/{partition}", ContentType.PARQUET, 1, 0, schema)

    places = catalog.chosen(table_id, parse_partition(options.get("partition")))
    union = arrow_types.spark_schema(schemas.union(side_by_side(places, described, catalog.at_once)))
    result: StructType = from_arrow_schema(union, prefer_timestamp_ntz=True)
    return result


def live_files(catalog: DeltaStreamCatalog, table_id: str, partition: Partition) -> list[tuple[DataFile, Bits | None]]:
    """Every file with a live row, and a bit for each of its rows (None: all live)."""
    table, state = catalog.described(table_id), catalog.state(table_id, partition)
    table = with_keys_of(catalog, table, [state])
    if table.keys is None or not state.deltas:
        upserts = [file for delta in state.deltas if delta.operation is OperationType.UPSERT for file in delta.files]
        whole = [*(state.compacted.files if state.compacted else ()), *upserts]
        live = LiveBits(catalog.store, catalog.read_limits)
        return [(file, live.of(file)) for file in whole]
    with advising(catalog, table_id, partition, state):
        sources = live_sources(catalog.store, everything(table_id, partition, state), table)
    return [(source.file, bits) for source, bits in sources]


def _pieces(partition: Partition, file: DataFile, bits: Bits | None, rows_max: int = PIECE_ROWS) -> Iterator[FileSplit]:
    """`rows_max`: a multiple of eight, so that the bits of a piece begin with a byte."""
    # A file of an untyped format is read whole for any of its rows, so it is not split.
    step = file.rows if file.content_type in formats.UNTYPED else rows_max
    for first in range(0, file.rows, max(1, step)):
        stop = min(file.rows, first + step)
        here = None if bits is None else live_mask(bits[first // 8 :], stop - first)
        if here is None or here.all():
            yield FileSplit(partition, file, first, stop, None)
        elif here.any():
            yield FileSplit(partition, file, first, stop, np.packbits(here, bitorder="little").tobytes())


def piece_rows(catalog: DeltaStreamCatalog, piece: FileSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The live rows of a piece in the schema's columns and types."""
    lives = None
    if piece.lives is not None:
        lives = live_mask(np.frombuffer(piece.lives, np.uint8), piece.stop - piece.first)
    for first, table in files.read(catalog.store, piece.file, schema.names, (piece.first, piece.stop)):
        if lives is not None:
            table = table.filter(pa.array(lives[first - piece.first :][: table.num_rows]))
        partition_texts.check_partition_values(table, piece.partition, piece.file.path)
        if table.num_rows:
            yield from _aligned(table, schema, piece).to_batches()


def _aligned(table: pa.Table, schema: pa.Schema, piece: FileSplit) -> pa.Table:
    columns = []
    constants, has = dict(piece.partition.values), frozenset(table.column_names)
    for field in schema:
        if field.name in has:
            columns.append(to_type(table[field.name], field.type, piece.file.path, field.name))
        elif field.name in constants:
            constant = partition_texts.partition_scalar(constants[field.name], field)
            columns.append(pa.chunked_array([pa.repeat(constant, table.num_rows)]))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return pa.Table.from_arrays(columns, names=schema.names)


def to_type(column: pa.ChunkedArray, type_: pa.DataType, path: str, name: str) -> pa.ChunkedArray:
    """Like schemas.cast, but cut off digits that Spark's coarser time units cannot hold. Raises SchemaError as it does.

    A stream keeps its first schema: numbers that are wider later must fit.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type) or pa.types.is_nested(column.type):
        try:
            return column.cast(options=pc.CastOptions(type_, allow_time_truncate=True))
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{path}: column {name!r} does not fit {type_}: {text_of(error)}") from None
    return schemas.cast(column, type_, path, name)
