"""The independent judge: Spark recomputes a partition from its deltas and compares rows and index (paper, validation).

    history    deltas 80, 90, 95 …                    -> events, a digest each         history.py, frames.py, digests.py
    fold       the greatest (sort key, order) per key -> what should live, and which tombstones           fold.py
    compacted  files 14, 15                           -> what lives
    index      entries                                -> where it says that every key lives         index_frame.py
    all three side by side, by digest                 -> problems

Nothing here calls the kernels: digests, fold and bucket numbers are computed a second time. Where deltas are not
compacted yet, a merge-on-read is compared with the fold of all deltas, too. Reports name digests, never row values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import CompactedDelta, Delta
from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.model import ContentType, OperationType, Partition, PartitionLike, Table
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.wording import one_line
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.appending.advice import advising, with_advice
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.snapshots import everything
from deltacompact.index.live_bitmaps import LiveBits, live_mask
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.reading.live_rows import live_sources, schema_of
from deltacompact.spark import fold
from deltacompact.spark.comparable import comparison_of, sort_column
from deltacompact.spark.frames import FrameFile, FrameLayout, rows_frame
from deltacompact.spark.history import FoldedHistory, history
from deltacompact.spark.index_frame import index_frame
from deltacompact.spark.quiet_start import quiet_session
from deltacompact.tabular import schemas

DIGESTS_SHOWN = 5
_MEANING = pa.schema([("ordinal", pa.int64()), ("op", pa.int32()), ("position", pa.int64())])
"""For each file: the operation and the position of its rows."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What was found of one partition. `rows` live, `tombstones` are index entries beside those of the live rows."""

    table_id: str
    partition: Partition
    rows: int = 0
    tombstones: int = 0
    compacted: bool = True
    problems: tuple[str, ...] = ()
    note: str | None = None

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        where = f"{self.table_id}, partition {self.partition}"
        if self.problems:
            return f"{where}: NOT VALID: " + "; ".join(self.problems)
        index = "index sound" if self.compacted else "not compacted yet"
        return f"{where}: validated: {self.rows} rows identical, {index}" + (f" ({self.note})" if self.note else "")


def validate(
    catalog: DeltaStreamCatalog,
    table_id: str,
    spark: SparkSession | None = None,
    partition: PartitionLike = None,
) -> tuple[PartitionReport, ...]:
    """One report for each partition (default: all). Raises InputError where the table has no keys, and so no meaning.

    A destination is held against the deltas of its source. Files that cannot be read are a problem of the report.
    """
    table = catalog.described(table_id)
    if table.keys is None:
        raise InputError(f"table {table_id!r} has no primary keys yet: there is nothing to validate")
    chosen = catalog.chosen(table_id, partition)
    if not chosen:
        return ()
    spark = spark or quiet_session("deltacompact validate")
    return tuple(_validate_partition(spark, catalog, table, named) for named in chosen)


def _validate_partition(
    spark: SparkSession, catalog: DeltaStreamCatalog, table: Table, partition: Partition
) -> PartitionReport:
    report = PartitionReport(table.table_id, partition)
    try:
        state = catalog.state(table.table_id, partition)
        with advising(catalog, table.table_id, partition, state):
            past = history(catalog, table.table_id, partition, state)
            return _Judge(spark, catalog, table, partition, state, past).report()
    except NotFoundError as error:
        return replace(report, problems=(str(error),))
    except (PySparkException, Py4JError) as error:
        problem = with_advice(_cause(error), catalog, table.table_id, partition, state)
        return replace(report, problems=(f"Spark could not read it: {problem}",))
    except Exception as error:  # the other partitions are judged all the same
        return replace(report, problems=(one_line(error),))


@dataclass(frozen=True, slots=True)
class _Compared:
    """Rows and tombstones found, and the sentences that say what is wrong."""

    rows: int
    tombstones: int
    problems: tuple[str, ...]


class _Judge:
    """One partition. Frames are lazy: nothing is read before problems are counted."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: DeltaStreamCatalog,
        table: Table,
        partition: Partition,
        state: StreamState,
        past: FoldedHistory,
    ) -> None:
        assert table.keys is not None
        self._spark = spark
        self._store = catalog.store
        self._live = LiveBits(catalog.store)
        self._table = table
        self._keys: TableKeys = table.keys
        self._partition = partition
        self._state = state
        self._snapshot = everything(table.table_id, partition, state)
        self._past = past
        source_id = state.compacted.source_table_id if state.compacted else table.table_id
        self._retention = catalog.described(source_id).tombstone_retention
        self._digested = tuple(name for name in self._keys.primary if name not in table.partition_keys)
        self._layout = self._make_layout()

    def report(self) -> PartitionReport:
        report = PartitionReport(
            self._table.table_id, self._partition, compacted=self._state.compacted is not None, note=self._past.note
        )
        compared = []
        if self._state.compacted is not None:
            compared.append(self._judge_compacted(self._state.compacted))
        if self._past.later:
            compared.append(self._judge_merge_on_read())
        if not compared:
            return report
        problems = tuple(problem for side in compared for problem in side.problems)
        return replace(report, rows=compared[-1].rows, tombstones=compared[0].tombstones, problems=problems)

    def _judge_compacted(self, compacted: CompactedDelta) -> _Compared:
        index_ref = self._state.index or compacted.index
        manifest = read_manifest(self._store, index_ref)
        expected = self._expected(self._past.folded, compacted.watermark)
        files = [self._frame_file(file.number, file, file.schema.names) for file in compacted.files]
        index = index_frame(self._spark, self._store, manifest)
        compared = self._compare(expected, self._rows(files), index, compacted.schema.names)
        problems = list(compared.problems)
        columns = set(self._schema_of(self._past.folded).names)
        if columns != set(compacted.schema.names):
            problems.append(f"columns differ: {', '.join(sorted(columns ^ set(compacted.schema.names)))}")
        if compared.rows != compacted.rows:
            problems.append(f"compacted files hold {compared.rows} rows where the log says {compacted.rows}")
        if (manifest.rows, manifest.tombstones) != (compacted.rows, compared.tombstones):
            problems.append(f"the index manifest says {manifest.rows} rows and {manifest.tombstones} tombstones")
        return replace(compared, problems=tuple(problems))

    def _frame_file(self, ordinal: int, file: DataFile, names: Sequence[str]) -> FrameFile:
        """These columns of a file, without the rows that its deletion vector takes away."""
        bits = self._live.of(file)
        lives = None if bits is None else np.packbits(live_mask(bits, file.rows)).tobytes()
        return FrameFile(ordinal, file, tuple(names), lives)

    def _judge_merge_on_read(self) -> _Compared:
        deltas = (*self._past.folded, *self._past.later)
        expected = self._expected(deltas, deltas[-1].position)
        files = []
        for source, bits in live_sources(self._store, self._snapshot, self._table):
            lives = np.packbits(live_mask(bits, source.file.rows)).tobytes()
            files.append(FrameFile(source.ordinal, source.file, tuple(source.file.schema.names), lives))
        compared = self._compare(expected, self._rows(files), None, schema_of(self._snapshot).names)
        return replace(compared, problems=tuple(f"merge on read: {problem}" for problem in compared.problems))

    # What should be

    def _expected(self, deltas: Sequence[Delta], watermark: int) -> DataFrame:
        """The deciding event of each key, with the row's columns: rows that live, and tombstones."""
        files: list[FrameFile] = []
        meaning: list[dict[str, int]] = []
        base = self._past.base
        for file in base.files if base else ():
            meaning.append({"ordinal": len(files), "op": fold.UPSERT, "position": base.watermark if base else 0})
            files.append(self._frame_file(len(files), file, file.schema.names))
        for delta in deltas:
            for file in delta.files:
                is_delete = delta.operation is OperationType.DELETE
                operation = fold.DELETE if is_delete else fold.UPSERT
                meaning.append({"ordinal": len(files), "op": operation, "position": delta.position})
                names = self._delete_schema(file).names if is_delete else file.schema.names
                files.append(self._frame_file(len(files), file, names))
        known = F.broadcast(self._spark.createDataFrame(pa.Table.from_pylist(meaning, _MEANING)))
        sort_columns = self._sort_columns()
        keyless = fold.is_keyless([column for column, _ in sort_columns])
        events = self._rows(files).join(known, "ordinal")
        events = events.withColumn(
            "op", F.when((F.col("op") == fold.DELETE) & keyless, fold.KEYLESS).otherwise(F.col("op"))
        )
        if base is not None:
            events = events.unionByName(self._base_tombstones())
        if self._retention is None:
            return fold.winners(events, sort_columns)
        return fold.winners_of_retention(events, sort_columns, self._retention, watermark)

    def _base_tombstones(self) -> DataFrame:
        """The tombstones of the history's oldest version come before its first delta, like its rows."""
        assert self._past.base_index is not None
        manifest = read_manifest(self._store, self._past.base_index)
        entries = index_frame(self._spark, self._store, manifest, self._layout).where("tombstone")
        return entries.select(
            F.lit(-1).cast("long").alias("ordinal"),
            F.lit(0).cast("long").alias("row"),
            "digest",
            *self._layout.comparable.names,
            F.lit(fold.DELETE).alias("op"),
            F.col("row").alias("position"),
        )

    def _sort_columns(self) -> list[tuple[Column, bool]]:
        columns = []
        for key in self._keys.sort:
            field = self._layout.columns.field(key.name)
            column = sort_column(F.col(self._layout.column(key.name)), field)
            columns.append((column, key.direction.value == "descending"))
        return columns

    # What is

    def _rows(self, files: Sequence[FrameFile]) -> DataFrame:
        return rows_frame(self._spark, self._store, self._layout, files)

    def _make_layout(self) -> FrameLayout:
        """The union over the rows of all deltas, and over the key and sort columns of deletes."""
        deltas = (*self._past.folded, *self._past.later)
        deletes = [
            replace(file, schema=self._delete_schema(file))
            for delta in deltas
            if delta.operation is OperationType.DELETE
            for file in delta.files
        ]
        missing = [pa.field(key.name, pa.null()) for key in self._keys.sort]
        described = DataFile(UNNUMBERED, "the sort keys", ContentType.PARQUET, 0, 0, pa.schema(missing))
        columns = schemas.union([*deletes, described], self._schema_of(deltas))
        return FrameLayout(self._partition, columns, self._digested)

    def _schema_of(self, deltas: Sequence[Delta]) -> pa.Schema:
        """Columns of the rows: those of upserts."""
        upserts = [file for delta in deltas if delta.operation is OperationType.UPSERT for file in delta.files]
        return schemas.union(upserts, self._past.base.schema if self._past.base else None)

    def _delete_schema(self, file: DataFile) -> pa.Schema:
        """The columns of a delete that mean anything."""
        names = {*self._digested, *(key.name for key in self._keys.sort)}
        return pa.schema([field for field in file.schema if field.name in names])

    # Side by side

    def _compare(
        self, expected: DataFrame, actual: DataFrame, index: DataFrame | None, names: Sequence[str]
    ) -> _Compared:
        """Everything by digest, joined in full: what one side alone has is a problem, and what differs."""
        joined = _side_by_side(expected, actual, index, self._layout.comparable.names)
        problems = _problems(self._same(names), index is not None)
        counts = [F.count(F.when(condition, 1)).alias(f"p{n}") for n, condition in enumerate(problems.values())]
        found = joined.agg(F.count("a_row").alias("rows"), F.count(F.when(F.col("i_tombstone"), 1)), *counts).first()
        assert found is not None
        failed = {n: sentence for n, sentence in enumerate(problems) if found[f"p{n}"]}
        digests = _examples(joined, {n: problems[sentence] for n, sentence in failed.items()}) if failed else {}
        sentences = [
            f"{sentence}: {found[f'p{n}']} (digests {', '.join(digests[n])}{', …' * (found[f'p{n}'] > DIGESTS_SHOWN)})"
            for n, sentence in failed.items()
        ]
        return _Compared(found["rows"], found[1], tuple(sentences))

    def _same(self, names: Sequence[str]) -> Column:
        """Whether the columns of the expected and the actual row are equal; null and NaN equal themselves."""
        equal = F.lit(True)
        for name in names:
            column = self._layout.column(name)
            type_ = self._layout.comparable.field(column).type
            sides = [comparison_of(F.col(f"{side}_{column}"), type_) for side in "ea"]
            equal = equal & sides[0].eqNullSafe(sides[1])
        return equal


def _side_by_side(expected: DataFrame, actual: DataFrame, index: DataFrame | None, columns: Sequence[str]) -> DataFrame:
    """Joined by digest: e_* should be, a_* is, i_* is what the index says; `*_n` counts a key's rows and entries."""
    should = expected.select(
        "digest",
        (F.col("op") == fold.UPSERT).alias("e_lives"),
        F.col("position").alias("e_position"),
        *(F.col(name).alias(f"e_{name}") for name in columns),
    )
    lives = actual.select(
        "digest",
        F.col("ordinal").alias("a_file"),
        F.col("row").alias("a_row"),
        F.count("*").over(Window.partitionBy("digest")).alias("a_n"),
        *(F.col(name).alias(f"a_{name}") for name in columns),
    )
    joined = should.join(lives, "digest", "full_outer")
    if index is None:
        return joined.withColumn("i_tombstone", F.lit(None).cast("boolean"))
    says = index.groupBy("digest").agg(
        F.count("*").alias("i_n"),
        *(F.first(name).alias(f"i_{name}") for name in ("file", "row", "tombstone")),
        F.max("misplaced").alias("i_misplaced"),
    )
    return joined.join(says, "digest", "full_outer")


def _examples(joined: DataFrame, failed: Mapping[int, Column]) -> dict[int, list[str]]:
    """A few digests of each problem, in one pass."""
    kinds = F.filter(F.array(*(F.when(when, F.lit(n)) for n, when in failed.items())), lambda kind: kind.isNotNull())
    each = joined.select(F.explode(kinds).alias("kind"), F.lower(F.hex("digest")).alias("digest")).distinct()
    place = F.row_number().over(Window.partitionBy("kind").orderBy("digest"))
    shown = each.withColumn("place", place).where(F.col("place") <= DIGESTS_SHOWN).collect()
    return {n: sorted(row["digest"] for row in shown if row["kind"] == n) for n in failed}


def _problems(same: Column, indexed: bool) -> dict[str, Column]:
    """What can be wrong with a key, and when it is."""
    lives, should = F.col("a_row").isNotNull(), F.coalesce(F.col("e_lives"), F.lit(False))
    problems = {
        "rows are missing": should & ~lives,
        "rows live that should not": lives & ~should,
        "rows differ from what was written": should & lives & ~same,
        "keys live more than once": F.col("a_n") > 1,
    }
    if not indexed:
        return problems
    entry, dead = F.col("i_n").isNotNull(), F.coalesce(F.col("i_tombstone"), F.lit(False))
    buried = F.col("e_lives").isNotNull() & ~should
    there = (F.col("i_file") == F.col("a_file")) & (F.col("i_row") == F.col("a_row"))
    return problems | {
        "rows have no index entry": lives & ~(entry & ~dead),
        "index entries are of no live row": entry & ~dead & ~lives,
        "index entries point to another place than the row's": lives & entry & ~dead & ~there,
        "keys have more than one index entry": F.col("i_n") > 1,
        "index entries are in the wrong bucket": F.col("i_misplaced"),
        "tombstones are missing": buried & ~dead,
        "tombstones that no delete left": dead & ~buried,
        "tombstones are at another position": dead & buried & (F.col("i_row") != F.col("e_position")),
    }


def _cause(error: BaseException) -> str:
    """The line of a Spark error that says what happened: the last cause, Python's or Java's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if ("Error: " in line or "Exception: " in line) and not line.startswith("at ")]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0].removeprefix("Caused by: ")[:500]
