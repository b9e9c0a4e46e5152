"""Messages as lines of JSON, as Kafka Connect writes them: one message a line, with or without its schema.

    {"op": "c", "after": {"id": 1}, …}                          a message
    {"schema": {…}, "payload": {"op": "c", …}}                  the same with its schema, which is cut off
    null                                                        a tombstone

The types of the rows' fields come from the stream, where it knows them.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.wording import text_of
from deltacompact.change_events.envelopes import PAYLOAD, TOMBSTONE
from deltacompact.change_events.events import Origin
from deltacompact.change_events.formats import Envelope
from deltacompact.tabular import column_types, schemas
from deltacompact.tabular.file_text import FileText
from deltacompact.tabular.inferred_numbers import UNSIGNED, inexact_row, is_unsigned, refused
from deltacompact.tabular.json_files import inferred, refuse_array, typed
from deltacompact.tabular.text_types import in_finer_units, not_of_type, parsed_type

_WITH_SCHEMA = r'^\s*\{\s*"schema"\s*:\s*\{'
_NEXT_FIELD = re.compile(r'\s*,\s*"([^"]*)"\s*:')
_CHARACTERS_SHOWN = 80


def read_messages(
    text: bytes,
    name: str,
    envelope: Envelope,
    known: pa.Schema | None,
    keys: TableKeys,
) -> tuple[pa.Table, Origin]:
    """The messages as rows, and the line of each.

    The parser takes texts for times where it can. In rows they stay texts, whose later values may be others. Texts in
    sort keys of numbers stay texts, too: sort_texts.py reads them. Raises InputError naming the line that is no JSON
    object, or has a key that is not exact; and for an array.
    """
    text = text.removeprefix(codecs.BOM_UTF8)
    _check_utf_8(text, name)
    refuse_array(text.lstrip()[:1])
    lines = pc.split_pattern(pa.array([text], pa.large_binary()), pattern=b"\n").values
    said = pc.invert(pc.match_substring_regex(lines, pattern=r"^\s*$"))
    origin = Origin(name, np.flatnonzero(np.asarray(said)) + 1, "line")
    lines = lines.filter(said)
    if not len(lines):
        return pa.table({}), origin
    lines = pc.replace_substring_regex(lines, pattern=rb"^\s*null\s*$", replacement=b'{"%s":true}' % TOMBSTONE.encode())
    lines = _without_schemas(lines)

    def parsed(lines: pa.Array) -> pa.Table:
        # Kafka's console consumer prints keys before messages. Where a text begins with null, pyarrow ends the process.
        if pc.any(pc.match_substring_regex(lines, pattern=r"^\s*null")).as_py():
            raise pa.ArrowInvalid("some line begins with null")
        plain = FileText(pa.BufferReader(_joined(lines)), "")
        found = inferred(plain, {})
        if found.num_rows != len(lines):
            raise pa.ArrowInvalid("some line has several messages")
        positions = _positions(known, keys)
        _check_keys(found, envelope, known, keys, positions, origin)
        sorts, unsigned = {key.name for key in keys.sort}, _unsigned(plain, found, envelope)
        stored = _stored(found.schema, envelope, known, sorts, unsigned, positions)
        if stored is None:
            return found

        def in_types(types: dict[str, pa.DataType]) -> pa.Table:
            wanted = {name: parsed_type(type_, ContentType.JSON) for name, type_ in types.items()}
            of_others = {field.name: field.type for field in found.schema if field.name not in types}
            return _in_types(typed(plain, wanted | of_others), pa.schema(list(types.items())), name)

        return in_finer_units({field.name: field.type for field in stored}, in_types)

    try:
        return parsed(lines), origin
    except pa.ArrowInvalid as error:
        misfit = partial(_misfit, envelope=envelope, known=known, keys=keys)
        raise _unparsable(text, origin, error, lambda count: parsed(lines[:count]), misfit) from error


def _without_schemas(lines: pa.Array) -> pa.Array:
    """The lines, whose schemas are cut off: few differ, and what stands before a payload is equal in many lines."""
    waiting = pc.match_substring_regex(lines, pattern=_WITH_SCHEMA)
    while pc.any(waiting).as_py():
        start, next_field = _with_schema(lines[pc.index(waiting, True).as_py()].as_py())
        alike = pc.and_(waiting, pc.starts_with(lines, pattern=start))
        if next_field == PAYLOAD:
            cut = pc.binary_replace_slice(lines, 0, len(start), b'{"payload":')
            lines = pc.if_else(alike, cut, lines)
        waiting = pc.and_not(waiting, alike)
    return lines


def _with_schema(line: bytes) -> tuple[bytes, str]:
    """The line up to the value that follows the schema, and that field's name; or else the whole line."""
    text = line.decode()
    try:
        _, end = json.JSONDecoder().raw_decode(text, text.index("{", text.index("{") + 1))
    except ValueError:
        return line, ""
    found = _NEXT_FIELD.match(text, end)
    return (text[: found.end()].encode(), found[1]) if found else (line, "")


def _joined(lines: pa.Array) -> pa.Buffer:
    ended = pc.binary_join_element_wise(lines, pa.scalar(b"", pa.large_binary()), pa.scalar(b"\n", pa.large_binary()))
    offsets = np.frombuffer(ended.buffers()[1], np.int64)[ended.offset : ended.offset + len(ended) + 1]
    return ended.buffers()[2].slice(offsets[0], offsets[-1] - offsets[0])


def _in_types(table: pa.Table, stored: pa.Schema, name: str) -> pa.Table:
    changed = {
        table.schema.get_field_index(field.name): (
            field,
            schemas.cast(table[field.name], field.type, name, field.name),
        )
        for field in stored
    }
    return schemas.with_columns(table, changed)


def _positions(known: pa.Schema | None, keys: TableKeys) -> dict[str, pa.DataType]:
    """The known types of sort keys that are numbers, by the names that the messages have for them."""
    types, positions = schemas.known_types(known), dict[str, pa.DataType]()
    for key in keys.sort:
        if column_types.is_number(type_ := types.get(key.name)):
            bare = key.name.removeprefix("__")
            positions |= dict.fromkeys((bare, bare.removeprefix("source_")), column_types.stored_type(type_))
    return positions


def _stored(
    found: pa.Schema,
    envelope: Envelope,
    known: pa.Schema | None,
    sorts: Set[str],
    unsigned: Set[str],
    positions: Mapping[str, pa.DataType],
) -> pa.Schema | None:
    """The columns of messages, with other types than the parser finds for fields of rows and for sort keys; None: there
    are none."""
    known, holding = known or pa.schema([]), {*envelope.names, envelope.source, *positions}
    typed_ = partial(_typed, envelope=envelope, known=known, sorts=sorts, unsigned=unsigned, positions=positions)
    if PAYLOAD in found.names and envelope.operations.column not in found.names:
        inner = found.field(PAYLOAD)
        if not pa.types.is_struct(inner.type):
            return None
        stored = [inner.with_type(pa.struct([typed_(field) for field in inner.type]))]
    else:
        stored = [typed_(field) for field in found if field.name in holding]
    return pa.schema(stored) if any(found.field(field.name) != field for field in stored) else None


def _typed(
    field: pa.Field,
    envelope: Envelope,
    known: pa.Schema,
    sorts: Set[str],
    unsigned: Set[str],
    positions: Mapping[str, pa.DataType],
) -> pa.Field:
    """A field of messages; one that holds rows with the stream's types, or as it was said."""
    if field.name in positions and pa.types.is_floating(field.type):  # an integer may be too large for int64
        return field.with_type(positions[field.name])
    if field.name == envelope.source and pa.types.is_struct(field.type):
        details = (_typed(child, envelope, known, sorts, unsigned, positions) for child in field.type)
        return field.with_type(pa.struct([child.with_type(_as_said(child.type)) for child in details]))
    if field.name not in (envelope.before, envelope.after) or not pa.types.is_struct(field.type):
        return field
    types = {name: column_types.stored_type(type_) for name, type_ in schemas.known_types(known).items()}
    types = dict.fromkeys(unsigned, UNSIGNED) | types
    said = [child.with_type(_as_said(child.type)) for child in field.type]
    for child in said:
        if child.name in sorts and column_types.is_string(child.type) and column_types.is_number(types.get(child.name)):
            del types[child.name]
    children = [child.with_type(column_types.grown(types.get(child.name, child.type), child.type)) for child in said]
    return field.with_type(pa.struct(children))


def _unsigned(text: FileText, found: pa.Table, envelope: Envelope) -> set[str]:
    """The fields of rows that are unsigned in all rows: those before changes and those after."""
    columns: dict[str, dict[tuple[str, ...], pa.ChunkedArray]] = {}
    for path, column in _leaves(found):
        if len(path) > 1 and path[-2] in (envelope.before, envelope.after) and pa.types.is_floating(column.type):
            columns.setdefault(path[-1], {})[path] = column
    unsigned = set()
    for name, places in columns.items():
        whole = pa.chunked_array([chunk for column in places.values() for chunk in column.chunks])
        if is_unsigned(whole, partial(_parse_fields, text, tuple(places))):
            unsigned.add(name)
    return unsigned


def _parse_fields(text: FileText, paths: Iterable[Sequence[str]], type_: pa.DataType) -> None:
    """Parse some fields of messages in a type. Raises ArrowInvalid for a value that has another one."""
    for path in paths:
        _parsed_field(text, path, type_)


def _parsed_field(text: FileText, path: Sequence[str], type_: pa.DataType) -> pa.Table:
    field = pa.field(path[-1], type_)
    for name in reversed(path[:-1]):
        field = pa.field(name, pa.struct([field]))
    return typed(text, {field.name: field.type})


def _misfit(line: bytes, envelope: Envelope, known: pa.Schema | None, keys: TableKeys) -> str | None:
    """What is said of the first value in a message that is not of its column's known type; None: there is none."""
    message, text = json.loads(line) or {}, FileText(pa.BufferReader(line), "")
    above = [] if envelope.operations.column in message else [PAYLOAD]
    fields = message.get(PAYLOAD) if above else message
    types, sorts = schemas.known_types(known), {key.name for key in keys.sort}
    of_rows = {name: column_types.stored_type(type_) for name, type_ in types.items()}
    positions = _positions(known, keys)
    for field, wanted in ((envelope.before, of_rows), (envelope.after, of_rows), (envelope.source, positions)):
        values = fields.get(field) if isinstance(fields, dict) else None
        for name, value in values.items() if isinstance(values, dict) else ():
            if name not in wanted or (name in sorts and isinstance(value, str)):  # sort_texts.py reads these
                continue
            if not _fits(text, [*above, str(field), name], wanted[name]):
                return not_of_type(name, str(wanted[name]), repr(value))
    return None


def _fits(text: FileText, path: Sequence[str], type_: pa.DataType) -> bool:
    """Whether a field of messages can be read in a type, or in a finer one of times."""

    def parse(types: dict[str, pa.DataType]) -> pa.Table:
        return _parsed_field(text, path, parsed_type(types[path[-1]], ContentType.JSON))

    try:
        in_finer_units({path[-1]: type_}, parse)
    except pa.ArrowInvalid:
        return False
    return True


def _as_said(type_: pa.DataType) -> pa.DataType:
    """The type with texts instead of times, at every depth: JSON has no times."""
    if pa.types.is_timestamp(type_):
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_as_said(field.type)) for field in type_])
    return pa.list_(_as_said(type_.value_type)) if pa.types.is_list(type_) else type_


def _check_keys(
    found: pa.Table,
    envelope: Envelope,
    known: pa.Schema | None,
    keys: TableKeys,
    positions: Mapping[str, pa.DataType],
    origin: Origin,
) -> None:
    """Raise InputError for keys in rows, or sort keys in messages, whose numbers Arrow cannot hold exactly."""
    sort_names = {key.name.removeprefix("__") for key in keys.sort}
    names = {*keys.columns, *sort_names, *(name.removeprefix("source_") for name in sort_names)}
    types = schemas.known_types(known)
    for path, column in _leaves(found):
        of_rows = envelope.before in path or envelope.after in path
        type_ = (types if of_rows else positions).get(path[-1], column.type)
        if path[-1] in names and (row := inexact_row(column, type_)) is not None:
            raise refused(origin.row(row), path[-1], type_)


def _leaves(table: pa.Table, *above: str) -> Iterator[tuple[tuple[str, ...], pa.ChunkedArray]]:
    """Path and values of all fields that are no structs themselves."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_struct(field.type):
            yield from _leaves(
                pa.table(column.flatten(), names=[inner.name for inner in field.type]), *above, field.name
            )
        else:
            yield (*above, field.name), column


def _check_utf_8(text: bytes, name: str) -> None:
    """Arrow's parser takes any bytes for text, which other readers would refuse later."""
    try:
        codecs.utf_8_decode(text, "strict", True)
    except UnicodeDecodeError as error:
        number = text.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}, line {number:,} is not UTF-8: byte 0x{text[error.start]:02x}") from None


def _unparsable(
    text: bytes,
    origin: Origin,
    error: pa.ArrowInvalid,
    parse: Callable[[int], pa.Table],
    misfit: Callable[[bytes], str | None],
) -> InputError:
    """The error that names the first line that is no JSON object, or else the first one that the parser cannot take.

    `parse`: the first lines, so many of them. `misfit`: what to say of the value in a line that is not of a known type.
    """
    lines: Sequence[bytes] = text.split(b"\n")
    assert origin.numbers is not None
    for number in origin.numbers:
        line = lines[number - 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as why:
            return InputError(
                f"{origin.name}, line {number:,} is no JSON, as each line must be ({why}): {_start(line)}"
            )
        if not isinstance(message, dict) and message is not None:
            return InputError(f"{origin.name}, line {number:,} is no JSON object, as each line must be: {_start(line)}")
    taken, count = 0, len(origin.numbers)
    while count - taken > 1:
        middle = (taken + count) // 2
        try:
            parse(middle)
            taken = middle
        except pa.ArrowInvalid as nearer:
            count, error = middle, nearer
    where, line = origin.row(count - 1), lines[origin.numbers[count - 1] - 1]
    if (unfit := misfit(line)) is not None:
        return InputError(f"{where}: {unfit}")
    return InputError(f"{where} cannot be read: {text_of(error)}: {_start(line)}")


def _start(line: bytes) -> str:
    shown = line.decode(errors="replace").strip()
    return shown if len(shown) <= _CHARACTERS_SHOWN else f"{shown[:_CHARACTERS_SHOWN]}…"
