"""Envelopes: messages that hold the row before and after a change.

    op  before           after             source
    c   null             {id 1, v a}       {lsn 10}        upsert  id 1, v a, lsn 10
    u   {id 1, v a}      {id 2, v a}       {lsn 11}        delete  id 1, lsn 11, and then upsert  id 2, v a, lsn 11
    d   {id 2, v null}   null              {lsn 12}        delete  id 2, lsn 12
    null in all fields                                     a tombstone of Kafka: says nothing new

An update that changes the key, or moves the row to another partition, also deletes the row where it was. A sort key of
the table that the rows lack comes from the message: `ts_ms` from the envelope, `lsn` or any other name from `source`,
`source_ts_ms` from there too. Debezium's own flattening puts two underscores in front: both spellings are known. A row
of a snapshot is older than all changes, so its position may be null in part: SQL Server's has no `change_lsn`. If
the rows have the sort key, their deletes get none, and remove the key whatever its sort key is: the old row's value is
not the time of its delete, and PostgreSQL may have written 0 for it. Where all that a batch says of rows are the keys
of deletes, `ts_ms` may be either: only `__ts_ms` and positions of a log are certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.wording import columns_shown
from deltacompact.change_events.events import Events, Indices, Origin, Placed, first_null
from deltacompact.change_events.formats import Envelope
from deltacompact.change_events.partitions import check_fixed
from deltacompact.change_events.source_tables import SourceTable
from deltacompact.change_events.unavailable import check_available
from deltacompact.tabular import column_types, schemas

TOMBSTONE = "__tombstone__"
"""The field of what stands for a message `null`."""
PAYLOAD = "payload"
"""Where the message is if its schema comes with it."""
Mask = npt.NDArray[np.bool_]


def unwrapped(
    messages: pa.Table,
    envelope: Envelope,
    origin: Origin,
    keys: TableKeys,
    routed: Sequence[str],
    fixed: Mapping[str, str | None],
    source: SourceTable,
) -> Events:
    """The rows of the messages. `routed` are the partition columns that the rows must have, `fixed` has the others.

    Raises InputError naming the message that has no operation, no row, or no key, or that is of another partition, or
    of another table than those before.
    """
    messages, numbers = _without_tombstones(messages, envelope, origin)
    origin = origin.of(numbers)
    _check_envelope(messages, envelope, origin)
    identity = tuple(dict.fromkeys((*keys.primary, *routed)))
    rows = _MessageRows(messages, envelope, origin, keys, identity, {*identity, *fixed})
    deletes = rows.deletes()
    source.check(rows.details(), envelope.table, ~rows.ignored(), origin)
    gone, upserted = np.flatnonzero(deletes), np.flatnonzero(~deletes & ~rows.ignored())
    check_fixed(rows.found(gone, envelope.deleted), fixed, origin.of(gone), envelope.deleted)
    check_fixed(rows.found(upserted, envelope.before), fixed, origin.of(upserted), envelope.before)
    after = rows.after(upserted)  # first, because `left` asks the new rows for their keys
    left = rows.moved(upserted)
    parts = [Placed(rows.left(left), left * 2), Placed(rows.gone(gone), gone * 2 + 1)]
    return Events(origin.name, Placed(after, upserted * 2 + 1), _in_order(parts))


def _without_tombstones(messages: pa.Table, envelope: Envelope, origin: Origin) -> tuple[pa.Table, Indices]:
    """The messages that say something, out of the schema wrapper, and where each one stands."""
    messages = messages.combine_chunks()
    kept = np.ones(messages.num_rows, bool)
    if TOMBSTONE in messages.column_names:
        kept &= np.asarray(messages[TOMBSTONE].is_null())
    if PAYLOAD in messages.column_names and envelope.operations.column not in messages.column_names:
        wrapped = messages[PAYLOAD]
        kept &= np.asarray(wrapped.is_valid())
        if not kept.any():
            return messages.slice(0, 0), np.flatnonzero(kept)
        if not pa.types.is_struct(wrapped.type):
            raise InputError(f"{origin.name}: field {PAYLOAD!r} is {wrapped.type}, it must hold messages")
        messages = _fields(wrapped)
    elif set(envelope.names) <= set(messages.column_names):  # frames have no null rows, but rows of nulls
        kept &= ~np.logical_and.reduce([np.asarray(messages[name].is_null()) for name in messages.column_names])
    return messages.filter(pa.array(kept)), np.flatnonzero(kept)


def _check_envelope(messages: pa.Table, envelope: Envelope, origin: Origin) -> None:
    column, names = envelope.operations.column, messages.column_names
    if column in names and pa.types.is_nested(messages[column].type):
        raise InputError(f"{origin.name}: field {column!r} is {messages[column].type}, it must say an operation")
    missing = [name for name in (column, envelope.after) if name not in names]
    if missing == [envelope.after]:  # messages that do nothing to rows have none, nor those that empty the table
        rowless = pa.array([*envelope.ignored, *envelope.refused], pa.string())
        known = pc.is_in(messages[column].cast(pa.string()), value_set=rowless)
        missing = [] if pc.all(known).as_py() else missing
    if missing and messages.num_rows:
        raise InputError(
            f"{origin.name}: the messages have no field {missing[0]!r} ({columns_shown(names)}): they are not of this "
            "format; of flattened events, name the operation_column (--operation-column)"
        )


class _MessageRows:
    """The rows inside of messages. `identity` are the columns that say which row it is, and where.

    `declared` are all keys of the table but the sort keys.
    """

    def __init__(
        self,
        messages: pa.Table,
        envelope: Envelope,
        origin: Origin,
        keys: TableKeys,
        identity: Sequence[str],
        declared: Collection[str],
    ) -> None:
        self._messages = messages
        self._envelope = envelope
        self._origin = origin
        self._keys = keys
        self._identity = identity
        self._declared = declared

    def _operation(self) -> pa.ChunkedArray:
        return self._messages[self._envelope.operations.column].cast(pa.string())

    def ignored(self) -> Mask:
        """Messages that do nothing to rows."""
        if not self._messages.num_rows or not self._envelope.ignored:
            return np.zeros(self._messages.num_rows, bool)
        return np.asarray(pc.is_in(self._operation(), value_set=pa.array(self._envelope.ignored)))

    def deletes(self) -> Mask:
        """Deletes. Raises InputError for an operation that is refused or unknown."""
        if not self._messages.num_rows:
            return np.zeros(0, bool)
        operation = self._operation()
        for value, why in self._envelope.refused.items():
            found = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(operation, value), False)))
            if len(found):
                raise InputError(f"{self._origin.row(int(found[0]))}: operation {value!r} is refused: {why}")
        ignored = self.ignored()
        operations = pc.if_else(pa.array(ignored), self._envelope.operations.upsert_values[0], operation)
        return self._envelope.operations.deletes(operations, self._origin)

    def after(self, places: Indices) -> pa.Table:
        """The new rows, with the sort keys that only the messages have. Raises InputError for one without a key."""
        rows = self._of(places, self._envelope.after)
        self._check_keys(rows, places, self._envelope.after)
        check_available(rows, self._origin.of(places))
        return self._with_sort_keys(rows, places)

    def gone(self, places: Indices) -> pa.Table:
        """Key, sort and partition columns of the rows that these messages delete."""
        rows = self._of(places, self._envelope.deleted)
        self._check_keys(rows, places, self._envelope.deleted)
        if len(places) and self._sorts_by_messages:
            self._check_certain(places)
        return self._dead(rows, places)

    def left(self, places: Indices) -> pa.Table:
        """The same of rows where these updates found them; what the old row does not say is as in the new one."""
        if not len(places):
            return pa.table({})
        before, after = self._of(places, self._envelope.before), self._of(places, self._envelope.after)
        columns = {name: after[name] for name in self._identity}
        for name in self._identity:
            if name in before.column_names:
                columns[name] = pc.coalesce(*self._alike(name, before[name], after[name]))
        return self._dead(pa.table(columns), places)

    def _dead(self, rows: pa.Table, places: Indices) -> pa.Table:
        rows = rows.select([name for name in rows.column_names if name in self._identity])
        return self._with_sort_keys(rows, places) if self._sorts_by_messages else rows

    @property
    def _sorts_by_messages(self) -> bool:
        """Whether no sort key is a field of the rows, and the messages have all."""
        fields = {*self._field_names(self._envelope.after), *self._field_names(self._envelope.deleted)}
        return all(key.name not in fields and any(self._message_values(key.name)) for key in self._keys.sort)

    def _check_certain(self, places: Indices) -> None:
        """Raise InputError where a delete's row has keys only, and the sort key may be a field of the whole rows."""
        envelope = self._envelope
        if self._field_names(envelope.after) or {*self._field_names(envelope.deleted)} - {*self._declared}:
            return  # a whole row, without the sort key
        for name in [key.name for key in self._keys.sort if key.name not in envelope.positions]:
            if not name.startswith("__"):
                raise InputError(
                    f"{self._origin.row(int(places[0]))}: {envelope.deleted!r} has the key only, so it is not certain "
                    f"whether sort key {name!r} is a field of the rows or of the messages: call that of the messages "
                    f"{'__' + name!r} in the table, or set REPLICA IDENTITY FULL at the source"
                )

    def _field_names(self, field: str) -> list[str]:
        type_ = self._messages[field].type if field in self._messages.column_names else pa.null()
        return [child.name for child in type_] if pa.types.is_struct(type_) else []

    def moved(self, places: Indices) -> Indices:
        """The updates whose row had another key, or was in another partition."""
        if self._envelope.before not in self._messages.column_names or not len(places):
            return places[:0]
        column, new_rows = self._messages[self._envelope.before], self._messages[self._envelope.after]
        if not pa.types.is_struct(column.type) or not pa.types.is_struct(new_rows.type):
            return places[:0]
        before, after = _fields(column), _fields(new_rows)
        has_moved = np.zeros(self._messages.num_rows, bool)
        for name in self._identity:
            if name in before.column_names and name in after.column_names and not pa.types.is_null(before[name].type):
                differ = pc.not_equal(*self._alike(name, before[name], after[name]))
                has_moved |= np.asarray(pc.fill_null(differ, False))
        return places[has_moved[places]]

    def _alike(self, name: str, old: pa.ChunkedArray, new: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """The values of a field in old and new rows, in a type that holds both: a text may say 1 here and 1.5 there."""
        old, new = schemas.plain(old), schemas.plain(new)
        type_ = column_types.widened(old.type, new.type)
        if type_ is None or pa.types.is_nested(type_):
            raise InputError(
                f"{self._origin.name}: field {name!r} is {old.type} in {self._envelope.before!r} and {new.type} in "
                f"{self._envelope.after!r}, it must be values of one type"
            )
        return old.cast(type_), new.cast(type_)

    def found(self, places: Indices, field: str) -> pa.Table:
        """What a field of these messages says of rows. Where it has no row, all is null."""
        return _fields(self._messages[field].take(pa.array(places))) if self._field_names(field) else pa.table({})

    def details(self) -> pa.Table:
        """The fields that say where the messages come from."""
        source = self._envelope.source
        if source is None:
            return self._messages
        return _fields(self._messages[source]) if self._field_names(source) else pa.table({})

    def _of(self, places: Indices, field: str) -> pa.Table:
        """The rows in a field of these messages. Raises InputError where there is none."""
        column = self._messages[field].take(pa.array(places)) if field in self._messages.column_names else None
        holds_rows = column is not None and pa.types.is_struct(column.type)
        if not len(places):
            return _fields(column) if holds_rows else pa.table({})
        missing = 0 if column is None else first_null(column)
        if missing is not None:
            operation = self._operation()[int(places[missing])].as_py()
            hint = (
                ": without it nobody knows which row is gone (PostgreSQL: set REPLICA IDENTITY)"
                if field == "before"
                else ""
            )
            raise InputError(
                f"{self._origin.row(int(places[missing]))}: operation {operation!r} has no row in {field!r}{hint}"
            )
        if not holds_rows:
            raise InputError(f"{self._origin.name}: field {field!r} is {self._messages[field].type}, it must hold rows")
        return _fields(column)

    def _check_keys(self, rows: pa.Table, places: Indices, field: str) -> None:
        for name in self._identity if len(places) else ():
            what = "a key" if name in self._keys.primary else "a partition key"
            if name not in rows.column_names:
                raise InputError(
                    f"{self._origin.row(int(places[0]))}: {field!r} has no field {name!r}, {what} of the table "
                    f"(fields: {', '.join(rows.column_names)}){_advice(what, name)}"
                )
            if (index := first_null(rows[name])) is not None:
                raise InputError(
                    f"{self._origin.row(int(places[index]))}: field {name!r} in {field!r}, {what} of the table, is null"
                    f"{_advice(what, name)}"
                )

    def _with_sort_keys(self, rows: pa.Table, places: Indices) -> pa.Table:
        """The rows with those sort keys of the table that they lack, from the messages."""
        given: dict[str, pa.ChunkedArray] = {}
        absent: list[str] = []
        for key in self._keys.sort:
            if key.name in rows.column_names or not len(places):
                continue
            found = next(self._message_values(key.name), None)
            if found is None:
                absent.append(key.name)
                found = pa.chunked_array([pa.nulls(self._messages.num_rows)])
            given[key.name] = found.take(pa.array(places))
        if absent and (len(absent) == len(given) or not self._only_read()):
            raise InputError(
                f"{self._origin.name}: sort key {absent[0]!r} is neither a field of the rows nor of the messages "
                f"({columns_shown(self._messages.column_names)})"
            )
        if given:
            self._check_given(given, places)
        for name, values in given.items():
            rows = rows.append_column(name, values)
        return rows

    def _only_read(self) -> bool:
        """Whether these are rows of a snapshot alone. In JSON they may lack a field that changes have."""
        return bool(np.all(self._are_reads() | self.ignored()))

    def _are_reads(self) -> Mask:
        reads = pa.array(self._envelope.reads, pa.string())
        return np.asarray(pc.is_in(self._operation(), value_set=reads))

    def _check_given(self, given: Mapping[str, pa.ChunkedArray], places: Indices) -> None:
        """Raise InputError for a message without a sort key. One of a snapshot needs one of them: null loses to all."""
        lacking = {name: np.asarray(values.is_null()) for name, values in given.items()}
        needed = ~self._are_reads()[places] | np.logical_and.reduce(list(lacking.values()))
        for name, nulls in lacking.items():
            if len(refused := np.flatnonzero(nulls & needed)):
                row = self._origin.row(int(places[refused[0]]))
                raise InputError(f"{row}: the message has no {name!r}, a sort key")

    def _message_values(self, name: str) -> Iterator[pa.ChunkedArray]:
        """What the messages say under a name."""
        if name in self._envelope.descriptive:
            return
        bare = name.removeprefix("__")
        if bare in self._messages.column_names:
            yield self._messages[bare]
        if self._envelope.source is not None:
            details = self.details()
            for known in (bare, bare.removeprefix(f"{self._envelope.source}_")):
                if known in details.column_names:
                    yield details[known]


def _advice(what: str, name: str) -> str:
    if what == "a partition key":
        return f": give its value in partition (--partition {name}=VALUE), or set REPLICA IDENTITY FULL at the source"
    return ""


def _fields(column: pa.ChunkedArray) -> pa.Table:
    """The fields of structs as columns. Those of a null struct are null."""
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    return pa.table(dict(zip([f.name for f in column.type], column.flatten(), strict=True)))


def _in_order(parts: Sequence[Placed]) -> Placed:
    """Rows of two kinds by their places."""
    named = [placed for placed in parts if placed.rows.num_rows]
    if len(named) < 2:
        return named[0] if named else parts[-1]
    first, other = named[0].rows, named[1].rows
    places = np.concatenate([placed.places for placed in named])
    order = np.argsort(places, kind="stable")
    rows = pa.concat_tables([first, other.select(first.column_names).cast(first.schema)])
    return Placed(rows.take(pa.array(order)), places[order])
