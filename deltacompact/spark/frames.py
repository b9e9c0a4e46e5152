"""Files as DataFrames for the validator, with ordinal, row number and digest of each row:

    ordinal  row  digest    c0  c1   …        columns of the table by number: their names may be anything
    0        0    08f1…     1   "a"
    0        1    31aa…     2   null

Spark's own reader reads Parquet files on a local disk whose types Spark knows: a judge that shares no code with us.
All other files are read by pyarrow in the executors, so that S3 needs no Hadoop jar. So are columns that Spark would
round: a type that Spark lacks becomes a number that compares in the same way (timestamp[ns], time and duration their
count of units, uint64 a decimal).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as S

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType, Partition
from deltacompact.spark.comparable import comparable_type, is_native, native_type, spark_struct, spark_type
from deltacompact.spark.digests import in_sql, python_digests, sql_digest
from deltacompact.storage.identity import is_uri
from deltacompact.storage.local import LocalStore
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import column_types, files, schemas
from deltacompact.tabular.fingerprint_sql import spark_name

_ROWS_WORTH_A_TASK = 100_000
_PLACE = [("ordinal", pa.int64()), ("row", pa.int64()), ("digest", pa.binary())]


@dataclass(frozen=True, slots=True)
class FrameFile:
    """A file to read: `names` are the columns that count in it, `lives` the rows (None: all)."""

    ordinal: int
    file: DataFile
    names: tuple[str, ...]
    lives: bytes | None = None


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """The columns of all frames of a partition, and which of them are digested (in the order of their key bytes)."""

    partition: Partition
    columns: pa.Schema
    keys: tuple[str, ...]

    @property
    def comparable(self) -> pa.Schema:
        return pa.schema([(f"c{n}", comparable_type(field.type)) for n, field in enumerate(self.columns)])

    @property
    def sql_digests(self) -> bool:
        return all(in_sql(self.columns.field(name).type) for name in self.keys)

    def column(self, name: str) -> str:
        """What a column is called in the frames."""
        return f"c{self.columns.get_field_index(name)}"


def rows_frame(spark: SparkSession, store: ObjectStore, layout: FrameLayout, sources: Sequence[FrameFile]) -> DataFrame:
    """The rows of these files: ordinal, row, digest and the layout's columns."""
    if read_natively(store, layout, sources):
        frame = _native_frame(spark, store, layout, sources)
    else:
        frame = _arrow_frame(spark, store, layout, sources)
    if layout.sql_digests:
        keys = [(F.col(layout.column(name)), layout.columns.field(name).type) for name in layout.keys]
        frame = frame.withColumn("digest", sql_digest(keys))
    return frame


# Spark's own reader


def read_natively(store: ObjectStore, layout: FrameLayout, sources: Sequence[FrameFile]) -> bool:
    """Whether Spark's own Parquet reader serves all these files."""
    if not isinstance(store, LocalStore) or not layout.sql_digests or not sources:
        return False
    if not all(is_native(field.type) for field in layout.columns):
        return False
    file_names = {PurePosixPath(source.file.path).name for source in sources}
    if len(file_names) < len(sources) or any(name.startswith(("_", ".")) for name in file_names):
        return False
    return all(
        source.lives is None
        and not is_uri(source.file.path)
        and source.file.stored is None
        and source.file.content_type is ContentType.PARQUET
        and len({name.lower() for name in (*source.file.schema.names, "_metadata")}) > len(source.file.schema)
        and all(_read_as_it_is(source.file.schema.field(name), layout) for name in source.names)
        for source in sources
    )


def _read_as_it_is(field: pa.Field, layout: FrameLayout) -> bool:
    """Whether Spark reads a file's column; a nested one has to be of the union's type, as Spark casts by place."""
    stored = column_types.stored_type(field.type)
    same = not pa.types.is_nested(stored) or stored == layout.columns.field(field.name).type
    return is_native(field.type) and same


def _native_frame(
    spark: SparkSession, store: ObjectStore, layout: FrameLayout, sources: Sequence[FrameFile]
) -> DataFrame:
    """One scan for each distinct schema; file names tell the ordinals."""
    assert isinstance(store, LocalStore)
    file_names = [PurePosixPath(source.file.path).name for source in sources]
    ordinals = pa.array([source.ordinal for source in sources])
    known = F.broadcast(spark.createDataFrame(pa.table({"file_name": file_names, "ordinal": ordinals})))
    frames = []
    for (names, schema), group in _by_schema(sources):
        read_as = S.StructType([S.StructField(name, native_type(schema.field(name).type)) for name in names])
        # Paths are taken literally ("[" is no pattern), and calendars are not rebased: pyarrow has only one.
        reader = spark.read.schema(read_as).option("__globPaths__", "false").option("datetimeRebaseMode", "CORRECTED")
        scan = reader.parquet(*(str(store.root / source.file.path) for source in group))
        columns = [_native_column(layout, field, names).alias(f"c{n}") for n, field in enumerate(layout.columns)]
        place = [F.col("_metadata.file_name").alias("file_name"), F.col("_metadata.row_index").alias("row")]
        frames.append(scan.select(*place, *columns))
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionAll(frame)
    named = [F.col(name) for name in layout.comparable.names]
    return united.join(known, "file_name").select("ordinal", "row", F.lit(b"").alias("digest"), *named)


def _by_schema(sources: Sequence[FrameFile]) -> Iterator[tuple[tuple[tuple[str, ...], pa.Schema], list[FrameFile]]]:
    def kind(source: FrameFile) -> str:
        return f"{source.names} {source.file.schema.to_string(show_schema_metadata=False)}"

    for _, group in groupby(sorted(sources, key=kind), kind):
        members = list(group)
        yield (members[0].names, members[0].file.schema), members


def _native_column(layout: FrameLayout, field: pa.Field, names: Sequence[str]) -> Column:
    wanted = spark_type(comparable_type(field.type))
    if field.name in names:
        return F.col(spark_name(field.name)).cast(wanted)
    constant = _constant(layout, field)
    return F.lit(None if constant is None else str(constant)).cast(wanted)


# Through pyarrow


@dataclass(frozen=True, slots=True)
class _FrameReading:
    """What an executor needs to know."""

    store: ObjectStore
    layout: FrameLayout

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for source in tasks_of(batches):
            yield from self._rows(source)

    def _rows(self, source: FrameFile) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([*_PLACE, *self.layout.comparable])
        for first, table in files.read(self.store, source.file, source.names):
            rows = np.arange(first, first + table.num_rows)
            if source.lives is not None:
                lives = np.unpackbits(np.frombuffer(source.lives, np.uint8), count=source.file.rows).view(bool)
                wanted = lives[first : first + table.num_rows]
                rows, table = rows[wanted], table.filter(pa.array(wanted))
            united = self._united(table, source)
            place = [np.full(len(rows), source.ordinal, np.int64), rows, pa.array(self._digests(united), pa.binary())]
            columns = [united[field.name].cast(comparable_type(field.type)) for field in self.layout.columns]
            yield from pa.Table.from_arrays([*map(pa.array, place), *columns], schema=schema).to_batches(10_000)

    def _united(self, table: pa.Table, source: FrameFile) -> pa.Table:
        """The table's columns in the union's types; a missing one is null, or the partition's value."""
        columns = []
        for field in self.layout.columns:
            if field.name in source.names:
                decoded = schemas.cast(_storage(table[field.name]), _decoded(field.type), source.file.path, field.name)
                columns.append(decoded)
            elif (constant := _constant(self.layout, field)) is not None:
                columns.append(pa.chunked_array([pa.repeat(constant, table.num_rows)]).cast(_decoded(field.type)))
            else:
                columns.append(pa.chunked_array([pa.nulls(table.num_rows, _decoded(field.type))]))
        return pa.Table.from_arrays(columns, names=self.layout.columns.names)

    def _digests(self, table: pa.Table) -> list[bytes]:
        if self.layout.sql_digests:
            return [b""] * table.num_rows
        return python_digests([table[name] for name in self.layout.keys], table.num_rows)


def _arrow_frame(
    spark: SparkSession, store: ObjectStore, layout: FrameLayout, sources: Sequence[FrameFile]
) -> DataFrame:
    schema = spark_struct(pa.schema([*_PLACE, *layout.comparable]))
    rows = sum(source.file.rows for source in sources)
    return tasks_frame(spark, sources, rows).mapInArrow(_FrameReading(store, layout).read, schema)


def tasks_frame(spark: SparkSession, tasks: Sequence[Any], rows: int) -> DataFrame:
    """Pickled tasks for mapInArrow, spread over the executors; `rows` is what they hold together."""
    pickled = pa.array([pickle.dumps(task) for task in tasks], pa.binary())
    frame = spark.createDataFrame(pa.table({"task": pickled}))
    partitions = min(len(tasks), 4 * spark.sparkContext.defaultParallelism, 1 + rows // _ROWS_WORTH_A_TASK)
    return frame.repartition(partitions) if partitions > 1 else frame.coalesce(1)


def tasks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """The tasks in an executor's batches."""
    for batch in batches:
        yield from map(pickle.loads, batch.column(0).to_pylist())


def _constant(layout: FrameLayout, field: pa.Field) -> str | None:
    return dict(layout.partition.values).get(field.name)


def _storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column


def _decoded(type_: pa.DataType) -> pa.DataType:
    """Dictionaries and extension types are layouts of something simpler."""
    if pa.types.is_dictionary(type_):
        return _decoded(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return _decoded(type_.storage_type)
    return type_
