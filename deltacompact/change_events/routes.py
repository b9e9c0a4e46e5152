"""Which partition a value means: a routed column has the type that the table's partitions have.

partitions     column there     rows            go to
day=1          int64            1.0             day=1: the value as int64
                                "x", 1.5        refused: they do not fit int64
day=01         no file has it   1               day=01: what its text says is the same value
day=01 day=1   no file has it   1               refused: both texts say it
day=x          no file has it   1               refused: the table could not be read any more
day=01         string           1               refused: no text of it is certain
none           none             1.0             day=1.0: rows that come later have this type
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError, SchemaError
from deltacompact.change_events.events import Events, Placed
from deltacompact.tabular import column_types, partition_texts, schemas

_REMEDY = "give the column the type of the table's partitions"


class Routes:
    """The types and texts of a table's partition columns. Rows of a batch add theirs."""

    def __init__(self, types: Mapping[str, pa.DataType], texts: Mapping[str, Sequence[str]]) -> None:
        self._types = dict(types)
        self._texts = {name: dict.fromkeys(known) for name, known in texts.items()}

    def typed(self, events: Events, names: Sequence[str]) -> Events:
        """The events with these columns in the types of the partitions. Raises InputError for what does not fit."""
        upserts, deletes = (self._typed(placed, names, events.name) for placed in (events.upserts, events.deletes))
        return Events(events.name, upserts, deletes)

    def _typed(self, placed: Placed, names: Sequence[str], origin: str) -> Placed:
        rows = placed.rows
        for name in names if rows.num_rows else ():
            column = self._fitting(schemas.plain(rows[name]), name, origin)
            if column.type != column_types.plain_type(rows[name].type):
                rows = rows.set_column(rows.column_names.index(name), name, column)
        return Placed(rows, placed.places)

    def _fitting(self, column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
        known = self._types.get(name)
        if known is None:
            self._check_texts(column.type, name, origin)
            self._types[name] = column.type
        if known is None or column_types.widened(known, column.type) is not None:
            return column
        refused = f"{origin}: partition column {name!r} is {column.type}, but in the table it is {known}"
        if column_types.is_string(known):
            raise InputError(f"{refused}: cast it to {known}, as its partitions are spelled")
        try:
            found = schemas.cast(column, known, origin, name)
            back = schemas.cast(found, column.type, origin, name) if not column_types.is_string(column.type) else column
        except SchemaError as error:
            raise InputError(f"{refused}, and values do not fit: {_REMEDY} ({error})") from None
        if not pc.all(pc.equal(back, column)).as_py():  # a timestamp loses its time of day without an error
            raise InputError(f"{refused}, and values do not fit: {_REMEDY}")
        return found

    def _check_texts(self, type_: pa.DataType, name: str, origin: str) -> None:
        """Raise InputError where a partition's text is no value of the type: then no reader could read both."""
        field = pa.field(name, type_)
        for text in self._texts.get(name, ()):
            try:
                partition_texts.partition_scalar(text, field)
            except SchemaError:
                raise InputError(
                    f"{origin}: partition column {name!r} is {type_}, which partition {name}={text} of the table does "
                    f"not fit: {_REMEDY}, such as a string"
                ) from None

    def texts(self, values: pa.Array, name: str) -> list[str | None]:
        """The text of the partition of each value. Raises InputError for a value without one certain text."""
        known = self._texts.setdefault(name, {})
        field = pa.field(name, values.type)
        said: dict[object, list[str]] = {}
        for text in known if not column_types.is_string(values.type) else ():
            if (value := partition_texts.value_of(text, field)) is not None:
                said.setdefault(value, []).append(text)
        found = [_text(value, field, said.get(value, ())) for value in values]
        known.update(dict.fromkeys(text for text in found if text is not None))
        return found


def _text(value: pa.Scalar, field: pa.Field, known: Sequence[str]) -> str | None:
    """A partition value's text, from which every reader gets the value back; the known one that says the value."""
    if len(known) > 1:
        shown = " and ".join(f"{field.name}={text}" for text in known[:2])
        raise InputError(f"partition column {field.name!r}: partitions {shown} are both {value}: write it as a string")
    if known:
        return known[0]
    return partition_texts.usual_text(value, field)
