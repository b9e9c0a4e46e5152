"""Turns types of compacted rows into a target's types: the part that all targets share. Pure.

dictionary<string>               string, the type of its values
struct, list, map                the same for their elements; an error names the place
timestamp[ms, UTC], large_binary timestamp[us, UTC], binary
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.wording import with_article
from deltacompact.tabular import conversion, schemas

_UTC = ("UTC", "+00:00", "Etc/UTC", "Z")


def _nothing(type_or_field: object, what: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ShownTypes:
    """The types of a target.

    primitive       the target's type for a type without elements. None: it has none
    why_not         says why it has none
    check_struct    raises SchemaError for fields that cannot be in one struct
    check_name      raises SchemaError for a name that the target cannot have
    """

    primitive: Callable[[pa.DataType], pa.DataType | None]
    why_not: Callable[[pa.DataType], str]
    check_struct: Callable[[pa.DataType, str], None] = _nothing
    check_name: Callable[[pa.Field, str], None] = _nothing

    def columns(self, schema: pa.Schema, where: str) -> pa.Schema:
        """The columns in the target's types. Raises SchemaError naming a column whose type or name it cannot have."""
        return pa.schema([self._field(field, f"{where}: column {field.name!r}") for field in schema])

    def _field(self, field: pa.Field, what: str) -> pa.Field:
        self.check_name(field, what)
        return pa.field(field.name, self._type(field.type, what))

    def _type(self, type_: pa.DataType, what: str) -> pa.DataType:
        t = pa.types
        if t.is_dictionary(type_):
            return self._type(type_.value_type, what)
        if t.is_struct(type_) and type_.num_fields:
            self.check_struct(type_, what)
            return pa.struct([self._field(field, f"{what}, {field.name!r}") for field in type_])
        if t.is_map(type_):
            return pa.map_(self._type(type_.key_type, what), self._type(type_.item_type, what))
        if conversion.is_list(type_):
            return pa.list_(self._type(type_.value_type, what))
        shown = self.primitive(type_)
        if shown is None:
            raise SchemaError(f"{what} is {with_article(str(type_))}, {self.why_not(type_)}")
        return shown


def without_values(target: str) -> str:
    """Why a column of nulls alone cannot be shown, and what to do."""
    return (
        f"because no row has had a value in it yet: {target} needs a type, which it gets with any appended Parquet "
        "row, even of null"
    )


def primitive_of_all(type_: pa.DataType) -> pa.DataType | None:
    """The type that every target shows for this type. None: no target has one, or each has its own."""
    t = pa.types
    if t.is_timestamp(type_):
        fits = type_.unit != "ns" and (type_.tz is None or type_.tz in _UTC)
        return pa.timestamp("us", None if type_.tz is None else "UTC") if fits else None
    if schemas.is_string(type_):
        return pa.string()
    if t.is_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= 38 and type_.scale >= 0 else None
    if schemas.is_binary(type_):
        return pa.binary()
    same = t.is_boolean(type_) or t.is_date32(type_) or t.is_float32(type_) or t.is_float64(type_)
    return type_ if same else None
