"""Which columns a reader returns, which it reads, and which rows it keeps: pure.

columns=["id"], filter=[("total", ">", 9)]        read id and total, keep rows with more than 9, return id
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base import compute as pc
from deltacompact.base import expect
from deltacompact.base.errors import InputError, UnknownColumnError
from deltacompact.base.wording import columns_shown, text_of
from deltacompact.tabular import partition_texts


@dataclass(frozen=True, slots=True)
class Selected:
    """The columns to return, in the wanted order; the columns to read, in the table's order; the filter of rows.

    `asked`: the columns that the filter uses, as far as we can tell.
    """

    wanted: pa.Schema
    needed: pa.Schema
    expression: pc.Expression | None = None
    asked: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        table_id: str,
        whole: pa.Schema,
        columns: Sequence[str] | None,
        filter: Any = None,
        partition_keys: Sequence[str] = (),
    ) -> Selected:
        """Raises InputError for an unknown column, and for a filter that is malformed or does not fit the columns.

        `filter`            an expression, a list of (column, operator, value), or a function of the columns that makes
                            an expression
        `partition_keys`    of a delta stream. If no file has them as columns, they are texts that one must ask for
        """
        known = partition_texts.with_partition_keys(whole, partition_keys)
        chosen = partial(_chosen, table_id, known)
        wanted = whole if columns is None else chosen(columns)
        if callable(filter):
            filter = filter(known)
        expression = expression_of(filter)
        if expression is None:
            return cls(wanted, _columns_named(known, wanted.names))
        names = _names(filter)
        asked = _columns_read_by(expression, known) if names is None else chosen(names).names
        needed = known if asked is None else _columns_named(known, [*wanted.names, *asked])
        return cls(wanted, needed, expression, tuple(dict.fromkeys(asked or ())))

    def kept(self, rows: pa.Table) -> pa.Table:
        """The rows that are kept, with the columns that are returned."""
        return self.filtered(rows).select(self.wanted.names)

    def filtered(self, rows: pa.Table) -> pa.Table:
        """The rows that are kept, with all columns."""
        if self.expression is None:
            return rows
        try:
            return rows.filter(self.expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InputError(f"filter {_shown(self.expression)}: {text_of(error)}") from None


def named_columns(columns: Any) -> tuple[str, ...] | None:
    """The names of columns, from any iterable. Raises InputError for anything else."""
    if columns is None:
        return None
    found = tuple(expect.several("columns", columns))
    for name in found:
        expect.text("a name in columns", name)
    return found


def _columns_named(whole: pa.Schema, names: Sequence[str]) -> pa.Schema:
    wanted = frozenset(names)
    return pa.schema([field for field in whole if field.name in wanted])


def _chosen(table_id: str, schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    if not columns:
        raise InputError("columns: name at least one column (leave them out for all)")
    for name in columns:
        if name not in schema.names:
            raise UnknownColumnError(f"table {table_id!r} has no column {name!r} ({columns_shown(schema.names)})")
    return pa.schema([schema.field(name) for name in columns])


def expression_of(wanted: Any) -> pc.Expression | None:
    """The expression of a filter.

    Raises InputError for a list that is malformed, for an expression that names a column by its position, since files
    have their columns in other places, and for anything else.
    """
    if wanted is None:
        return None
    if isinstance(wanted, pc.Expression):
        if _has_positions(wanted):
            raise InputError(f"filter {_shown(wanted)}: FieldPath is a column by its position: name it")
        return wanted
    _names(wanted)
    try:
        return pq.filters_to_expression(wanted)
    except (TypeError, ValueError) as error:
        raise InputError(f"{_shape(wanted)}: {error}") from None


_OPTIONS_OF_A_FIELD = pa.struct([("field_ref", pa.string()), ("_type_name", pa.binary())])


def _has_positions(expression: pc.Expression) -> bool:
    """Whether an expression names a column, or a field of a struct, by its position.

    Its text does not tell: Arrow prints literals and names without escapes. The form in which Arrow sends expressions
    does: it has no positions of columns, and those of fields are [0] in the path of a call's options, `.a[0]`.
    """
    try:
        _, (form,) = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return True
    literals = pa.ipc.open_file(form).get_batch(0).columns
    paths = [str(column.field("field_ref")[0]) for column in literals if column.type == _OPTIONS_OF_A_FIELD]
    return any("[" in path for path in paths)


def _shown(expression: pc.Expression) -> str:
    """The text of an expression, also if it holds bytes: Arrow prints these raw, and Python decodes only UTF-8."""
    try:
        return str(expression)
    except UnicodeDecodeError:
        return "with bytes"


def _names(wanted: Any) -> list[str] | None:
    """The columns that a list names; None: it is an expression."""
    if isinstance(wanted, pc.Expression):
        return None
    try:
        flat = [term for terms in wanted for term in (terms if isinstance(terms, list) else [terms])]
        return [name for name, _, _ in flat]
    except (TypeError, ValueError):
        raise InputError(_shape(wanted)) from None


def _shape(wanted: Any) -> str:
    return f"filter {wanted!r} is neither an expression of pyarrow.compute nor a list of (column, operator, value)"


def _columns_read_by(expression: pc.Expression, whole: pa.Schema) -> list[str] | None:
    """The columns that an expression needs. Arrow does not tell, so we try without some. None: it does not compute."""
    empty = whole.empty_table()
    return _with_needed(expression, empty, whole.names).column_names if _computes(expression, empty) else None


def _with_needed(expression: pc.Expression, rows: pa.Table, names: list[str]) -> pa.Table:
    """The rows, and of these columns those that the expression needs. Few are: tried by halves, most go together."""
    tried = frozenset(names)
    rest = rows.select([name for name in rows.column_names if name not in tried])  # `drop_columns` takes n * n steps
    if _computes(expression, rest):
        return rest
    if len(names) > 1:
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            rows = _with_needed(expression, rows, half)
    return rows


def _computes(expression: pc.Expression, rows: pa.Table) -> bool:
    try:
        rows.filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return True
