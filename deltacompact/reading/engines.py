"""Live rows for other libraries, which ask for columns and filters and get no more than that.

dataset_of(scan)       a pyarrow Dataset       DuckDB and Polars know them: they hand down columns and filters
lazy_frame_of(scan)    a Polars LazyFrame      columns and limit are handed down; by the predicate files are skipped
relation_of(scan)      a DuckDB relation       reads through the dataset

`scan(columns=…, filter=…)` gives a RecordBatchReader. Rows are read as the other library takes them, and each time
anew. Polars and DuckDB are imported here alone, and only when they are asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.missing import importing
from deltacompact.reading.selection import expression_of
from deltacompact.reading.skipping import asked_by

if TYPE_CHECKING:
    import duckdb
    import polars


class Scanning(Protocol):
    """Reads live rows: these columns (None: all), and the rows for which the filter is true."""

    def __call__(self, *, columns: list[str] | None = None, filter: Any = None) -> pa.RecordBatchReader: ...


def scanning(scan: Any, selection: Mapping[str, Any]) -> Scanning:
    """A table's scan, limited to a selection: no other columns, and both filters apply.

    Raises InputError for a filter that is malformed.
    """
    chosen = dict(selection)
    of_user = chosen.pop("filter", None)
    known = of_user if callable(of_user) else expression_of(of_user)

    def scanned(*, columns: list[str] | None = None, filter: Any = None) -> pa.RecordBatchReader:
        others = {**chosen, "columns": columns or chosen.get("columns"), "filter": _both(known, filter)}
        return scan(**others)

    return scanned


def _both(of_user: Any, of_engine: pc.Expression | None) -> Any:
    if of_user is None or of_engine is None:
        return of_engine if of_user is None else of_user
    return (lambda columns: expression_of(of_user(columns)) & of_engine) if callable(of_user) else of_user & of_engine


class LiveDataset(ds.Dataset):
    """The live rows of a table as a `pyarrow.dataset.Dataset`. It has no fragments, because its files also have dead
    rows.

    Each scan reads the table as it is then.
    """

    def __init__(self, scan: Scanning, only: pc.Expression | None = None) -> None:  # the base class forbids it
        self._scan = scan
        self._only = only
        self._columns: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The table's columns when they were first asked for."""
        if self._columns is None:
            self._columns = self._scan().schema
        return self._columns

    def scanner(self, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> ds.Scanner:
        """A scan of these columns, and of the rows for which the filter is true."""
        both = filter if self._only is None else self._only if filter is None else self._only & filter
        names = list(columns) if isinstance(columns, list | tuple) else None
        if names == []:  # a count: some column has to be read
            names = self.schema.names[:1]
        reader = self._scan(columns=names, filter=both)
        known = {name: options[name] for name in ("batch_size", "use_threads", "memory_pool") if name in options}
        return ds.Scanner.from_batches(reader, columns=columns, **known)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """How many rows there are: some column has to be read."""
        return sum(batch.num_rows for batch in self.scanner(self.schema.names[:1], filter).to_reader())

    def filter(self, expression: pc.Expression) -> LiveDataset:
        """The rows for which it is true."""
        return LiveDataset(self._scan, expression if self._only is None else self._only & expression)

    def _no_files(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError("live rows have no files of their own: use scanner, to_table, to_batches or head")

    get_fragments = replace_schema = join = join_asof = sort_by = __reduce__ = _no_files

    @property
    def partition_expression(self) -> pc.Expression:
        """An expression that holds for all rows: just true."""
        return pc.scalar(True)

    def __repr__(self) -> str:
        return f"LiveDataset({', '.join(self.schema.names)})"


def dataset_of(scan: Scanning) -> LiveDataset:
    return LiveDataset(scan)


def relation_of(scan: Scanning, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
    """A DuckDB relation, of the default connection or of another.

    Raises InputError where duckdb is not installed, and for a table without columns, of which it makes no relation.
    """
    with importing("duckdb"):
        import duckdb
    live = LiveDataset(scan)
    if not live.schema.names:
        raise InputError("the table has no rows yet, so it has no columns, and DuckDB needs one")
    return (connection or duckdb).from_arrow(live)


def computed_by_duckdb(statement: str, name: str, rows: pa.RecordBatchReader) -> str | None:
    """The single text that an SQL statement over these rows (the relation `name`) returns; None: null. Raises
    InputError if duckdb is not installed, or cannot hold a value of these rows."""
    with importing("duckdb"):
        import duckdb
    with duckdb.connect() as connection:
        connection.register(name, rows)
        try:
            ((text,),) = connection.sql(statement).fetchall()
        except duckdb.Error as error:
            why = str(error).partition("\n")[0]
            raise InputError(f"DuckDB cannot read the rows ({why}): use another engine, as --by self") from error
    return None if text is None else str(text)


def lazy_frame_of(scan: Scanning) -> polars.LazyFrame:
    """A Polars LazyFrame. Raises InputError where polars is not installed."""
    with importing("polars"):
        import polars
        from polars.io.plugins import register_io_source

    def frame(rows: Any) -> polars.DataFrame:
        found = polars.from_arrow(rows)
        assert isinstance(found, polars.DataFrame)
        return found

    def read(
        with_columns: list[str] | None, predicate: polars.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[polars.DataFrame]:
        decided_by = list(dict.fromkeys(predicate.meta.root_names())) if predicate is not None else []
        names = None if with_columns is None else list(dict.fromkeys([*with_columns, *decided_by])) or None
        left = n_rows
        wanted = None if predicate is None else _in_arrow(predicate, arrow_schema)
        with asked_by(decided_by, wanted):
            batches = scan(columns=names)
        for batch in batches:
            rows = frame(pa.Table.from_batches([batch]))
            rows = rows if predicate is None else rows.filter(predicate)
            rows = rows if with_columns is None else rows.select(with_columns)
            rows = rows if left is None else rows.head(left)
            left = None if left is None else left - rows.height
            if rows.height:
                yield rows
            if left == 0:
                return

    arrow_schema = scan().schema
    schema = frame(arrow_schema.empty_table()).schema
    return register_io_source(read, schema=schema, validate_schema=True)


class _FilterDataset(ds.Dataset):
    """A dataset without rows that keeps the filter which Polars hands down."""

    def __init__(self, columns: pa.Schema) -> None:  # the base class forbids it
        self._columns = columns
        self.filter_: pc.Expression | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._columns

    def to_batches(self, filter: pc.Expression | None = None, **others: Any) -> Iterator[pa.RecordBatch]:
        self.filter_ = filter
        return iter(())


def _in_arrow(predicate: polars.Expr, columns: pa.Schema) -> pc.Expression | None:
    """An Arrow expression that holds for every row that a Polars predicate keeps. None: Polars cannot translate it.

    In Polars NaN is greater than all numbers; in Arrow no comparison with NaN is true. So the expression lets rows with
    NaN pass, and Polars filters them. Polars hands down times of zones other than UTC as wall-clock times.
    """
    import polars

    if any(_is_zoned(columns.field(name).type) for name in predicate.meta.root_names()):
        return None
    dataset = _FilterDataset(columns)
    with contextlib.suppress(polars.exceptions.PolarsError, pa.ArrowException):
        polars.scan_pyarrow_dataset(dataset).filter(predicate).collect()
    names = [name for name in predicate.meta.root_names() if pa.types.is_floating(columns.field(name).type)]
    if dataset.filter_ is None:
        return None
    return reduce(or_, (pc.is_nan(pc.field(name)) for name in names), dataset.filter_)


def _is_zoned(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.tz not in (None, "UTC")
