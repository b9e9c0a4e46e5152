"""Rows of CSV and of JSON lines, compressed or not.

id,day                     CSV with a header line; the table's schema gives the types of its columns
id<tab>day                 the same in a .tsv file; if its header has only commas, it is read as CSV
2,"b<newline>3,c           an open quote, which would pull the following lines into one value: refused
2,"b",<end>                no line break, and a null: the parser would take it for a text, because "b" has quotes
id<newline><newline>       an empty line in a file of one column, a null or nothing: refused
{"id": 1, "day": null}     one JSON object a line; the file has each column that an object names
{"day": null}              so this file has no column id, even if the table has one
{"s": {"a": 1, "b": 2}}    b is kept, although earlier files have a struct of a alone
{"m": {"k": 1}}            refused where the table has a map m: a key that a line lacks cannot be told from a null
id;day                     one column, whose name has another program's separator: refused
"""

from __future__ import annotations

import codecs
import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.tabular import column_types, parquet_read, schemas
from deltacompact.tabular.conversion import is_list
from deltacompact.tabular.formats import COMPRESSIONS, delimiter_of, extensions

TEXT_BLOCK_BYTES = 16 << 20
_BLOCK_BYTES_MAX = (1 << 31) - 1
_HEAD_BYTES = 4 << 10
_NO_SUCH_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to ([^:]+): "
    r"(?:invalid value|expected (?:no|a) zone offset in) ('.*')(?:\. If these timestamps.*)?",
    re.DOTALL,
)
_NO_SUCH_JSON_VALUE = re.compile(r"Failed to convert JSON to [^,]+, couldn't parse:(.*)", re.DOTALL)
_COARSE = re.compile(r"(timestamp|time32|time64)\[")
_QUOTED = re.compile(r'"[^"]*"')
_LINE_BREAK = re.compile(rb"\r\n|\r|\n")
_EMPTY_LINE = re.compile(rb"(?>\r\n|\r|\n)(?=[\r\n])")
_CSV_NULLS = ["", "#N/A", "#N/A N/A", "#NA", "N/A", "NA", "NULL", "n/a", "null"]
"""Nulls without quotes. pyarrow's own list includes NaN, but NaN is a number: its key differs from null's."""


def read_text(
    source: pa.NativeFile, path: str, content_type: ContentType, known: pa.Schema | None, columns: list[str] | None
) -> pa.Table:
    """The rows of CSV with a header line, or of one JSON object a line. `columns` None: those that the text has.

    `known` gives types, but never adds a column: a file that lacks a key column must not get it from here.
    """
    if not parquet_read.is_near(source):
        source = pa.BufferReader(source.read_buffer())  # it is read more than once
    text = _FileText(source, path)
    types = {field.name: field.type for field in known or ()}

    def parsed(types: dict[str, pa.DataType]) -> pa.Table:
        given = types
        if columns is None:  # what has no value yet has no type yet, so let the parser find one
            given = {name: known for name, type_ in types.items() if (known := _with_values(type_)) is not None}
        plain = {name: parsed_type(type_, content_type) for name, type_ in given.items()}
        table = (_csv if content_type is ContentType.CSV else _json)(text, plain, columns)
        changed = {}
        for number, name in enumerate(table.column_names):
            if name in types:
                found = table.column(number)
                type_ = column_types.stored_type(types[name])
                if columns is None:
                    type_ = column_types.grown(type_, found.type)
                if found.type != type_:
                    changed[number] = pa.field(name, type_), schemas.cast(found, type_, "text", name)
        return schemas.with_columns(table, changed)

    if columns is not None:
        return parsed(types).select(columns)
    try:
        return in_finer_units(types, parsed)
    except UnicodeDecodeError:  # of names; values are checked later
        raise InputError("a column's name is not UTF-8: save the file as UTF-8") from None
    except pa.ArrowInvalid as error:
        if content_type is ContentType.JSON and (named := _with_json_column_named(text, types, str(error))) is not None:
            raise InputError(named) from error
        raise


def _with_values(type_: pa.DataType) -> pa.DataType | None:
    """The type without the parts that have had no value: nulls, structs without fields. None: nothing is left."""
    if pa.types.is_null(type_):
        return None
    if pa.types.is_struct(type_):
        fields = [field.with_type(known) for field in type_ if (known := _with_values(field.type)) is not None]
        return pa.struct(fields) if fields else None
    if is_list(type_) and not pa.types.is_fixed_size_list(type_):
        item = _with_values(type_.value_type)
        return None if item is None else type_ if item == type_.value_type else pa.list_(item)
    return type_


def in_finer_units(types: dict[str, pa.DataType], parse: Callable[[dict[str, pa.DataType]], pa.Table]) -> pa.Table:
    """What `parse` finds with these types; with finer times, if a value has more digits than its column.

    The parser infers seconds where no value has a fraction, and a later file may have some. Only the family in the
    error gets finer: the year 9999 has no nanoseconds.
    """
    try:
        return parse(types)
    except (pa.ArrowInvalid, InputError) as error:
        if (coarse := _COARSE.search(str(error))) is not None:
            family = pa.types.is_timestamp if coarse[1] == "timestamp" else pa.types.is_time
            for unit in ("us", "ns"):
                finer = {name: _in_unit(type_, unit, family) for name, type_ in types.items()}
                if finer != types:
                    try:
                        return in_finer_units(finer, parse)
                    except (pa.ArrowInvalid, InputError) as other:
                        if _COARSE.search(str(other)) is None:  # the times fit now, another value does not
                            raise
        raise


def _in_unit(type_: pa.DataType, unit: str, family: Callable[[pa.DataType], bool]) -> pa.DataType:
    """The type with times of the family in at least this unit, at every depth."""
    if family(type_):
        return column_types.widened(
            type_, pa.timestamp(unit, type_.tz) if pa.types.is_timestamp(type_) else pa.time64(unit)
        )
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_in_unit(field.type, unit, family)) for field in type_])
    return pa.list_(_in_unit(type_.value_type, unit, family)) if is_list(type_) else type_


def in_blocks(parse: Callable[[int], pa.Table]) -> pa.Table:
    """What `parse` finds in blocks of so many bytes: of more, where a row is longer, which the parser refuses."""
    size = TEXT_BLOCK_BYTES
    while True:
        try:
            return parse(size)
        except pa.ArrowInvalid as error:
            if "straddling object" not in str(error) or size == _BLOCK_BYTES_MAX:
                raise
        size = min(8 * size, _BLOCK_BYTES_MAX)


def whole_text(source: pa.NativeFile, path: str) -> bytes:
    """The decompressed text of a file."""
    if not parquet_read.is_near(source):
        source = pa.BufferReader(source.read_buffer())
    with _FileText(source, path).opened() as text:
        return bytes(text.read())


@dataclass(frozen=True, slots=True)
class _FileText:
    """The decompressed text of a file, which can be opened more than once."""

    source: pa.NativeFile
    path: str

    def opened(self) -> pa.NativeFile:
        """The text from its beginning."""
        codec, size = COMPRESSIONS.get(extensions(self.path)[1]), self.source.size()
        # Each reader needs its own stream of the source, which it closes at its end.
        stream = self.source.get_stream(0, size)
        return stream if codec is None or size == 0 else pa.CompressedInputStream(stream, codec)

    def delimiter(self) -> str:
        """The field separator, by the file's name; but a comma for a .tsv whose header has commas and no tab."""
        named = delimiter_of(self.path)
        if named == ",":
            return named
        header = _QUOTED.sub("", self.header().decode(errors="replace"))
        return "," if "," in header and named not in header else named

    def header(self) -> bytes:
        """The first line that is not blank."""
        with self.opened() as text:
            head = b""
            while b"\n" not in head.strip() and (more := bytes(text.read(_HEAD_BYTES))):
                head += more
        return head.strip().partition(b"\n")[0]

    def begins_with(self) -> bytes:
        """The first byte that is not blank; empty: the text is blank."""
        with self.opened() as text:
            head = bytes(text.read(_HEAD_BYTES)).removeprefix(codecs.BOM_UTF8)
            while head and not head.lstrip():
                head = bytes(text.read(_HEAD_BYTES))
            return head.lstrip()[:1]

    def ends_with(self, delimiter: str) -> bool:
        """Whether the last byte is the field separator, so that the last line ends with a null and no line break."""
        last = b""
        with self.opened() as text:
            while more := bytes(text.read(TEXT_BLOCK_BYTES)):
                last = more[-1:]
        return last == delimiter.encode()

    def ended(self) -> pa.NativeFile:
        """The text with a line break at its end."""
        with self.opened() as text:
            return pa.BufferReader(bytes(text.read()) + b"\n")


def _with_last_null(
    text: _FileText, delimiter: str, parse: Callable[[Callable[[], pa.NativeFile]], pa.Table]
) -> pa.Table:
    """What `parse` finds in the text, with null where its last field has no characters.

    The parser takes it for a text in quotes, if no line break follows and the field before it has quotes.
    """
    try:
        table = parse(text.opened)
    except pa.ArrowInvalid:
        if not text.ends_with(delimiter):
            raise
    else:
        if not any(map(_ends_with_empty_text, table.columns)) or not text.ends_with(delimiter):
            return table
    return parse(text.ended)


def _ends_with_empty_text(column: pa.ChunkedArray) -> bool:
    is_text = column_types.is_string(column.type) or column_types.is_binary(column.type)
    return is_text and len(column) > 0 and column[-1].as_py() in ("", b"")


def _csv(text: _FileText, types: dict[str, pa.DataType], columns: list[str] | None) -> pa.Table:
    if not text.begins_with():
        raise InputError("an empty CSV file has no header line")
    convert = pa.csv.ConvertOptions(
        column_types=types,
        include_columns=columns,
        null_values=_CSV_NULLS,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    delimiter = text.delimiter()

    def parsed(opened: Callable[[], pa.NativeFile]) -> pa.Table:
        return in_blocks(
            lambda block_bytes: pa.csv.read_csv(
                opened(),
                read_options=pa.csv.ReadOptions(block_size=block_bytes),
                parse_options=pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter),
                convert_options=convert,
            )
        )

    try:
        table = _with_last_null(text, delimiter, parsed)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            raise InputError("its header line does not end, so it may be cut off: end it with a line break") from None
        _check_quotes(text, delimiter)
        if (named := _with_column_named(str(error), text, delimiter)) is not None:
            raise InputError(named) from error
        raise
    if columns is None:
        _check_names(table, types, delimiter)
    if columns is None and (any(map(_has_lines, table.columns)) or _has_lines(pa.chunked_array([table.column_names]))):
        _check_quotes(text, delimiter)
    if columns is None and table.num_columns == 1:
        _check_lines(text, delimiter)
    return table


def _check_names(table: pa.Table, types: dict[str, pa.DataType], delimiter: str) -> None:
    """Raise InputError for columns that nobody means: bytes that are no UTF-8, fields that are not divided."""
    new = [name for name in table.column_names if name not in types]
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name not in types and pa.types.is_binary(column.type):
            raise InputError(f"column {name!r} has text that is not UTF-8: save the file as UTF-8")
    if len(new) == table.num_columns == 1 and (other := next((sign for sign in ";|\t" if sign in new[0]), None)):
        raise InputError(
            f"its header has {other!r} and no {delimiter!r}, which divides fields: write commas, or tabs in a .tsv file"
        )


def _with_column_named(said: str, text: _FileText, delimiter: str) -> str | None:
    """What the parser says of a value that is not of its column's type, with the column's name for its number."""
    match = _NO_SUCH_VALUE.fullmatch(said)
    if match is None:
        return None
    header = io.BytesIO(text.header() + b"\n")
    names = pa.csv.read_csv(header, parse_options=pa.csv.ParseOptions(delimiter=delimiter)).column_names
    if int(match[1]) >= len(names):  # a line break in a name
        return None
    return _not_of_type(names[int(match[1])], match[2], match[3])


def _not_of_type(name: str, type_: str, value: str) -> str:
    if type_ == "null":  # see `parsed_type`
        return f"column {name!r} is nested in earlier files, and {value} in CSV cannot be read: write JSON or Parquet"
    declare = ": declare its type when you create the table (--columns, columns=)" if _is_wider(type_, value) else ""
    return f"column {name!r} is {type_} in earlier rows or files, and {value} is not{declare}"


def _is_wider(type_: str, value: str) -> bool:
    """Whether it is a number, in a column that earlier files made one of whole numbers."""
    with contextlib.suppress(ValueError):
        return "int" in type_ and isfinite(float(value.strip("'")))
    return False


def _has_lines(column: pa.ChunkedArray) -> bool:
    is_text = column_types.is_string(column.type) or column_types.is_binary(column.type)
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    return is_text and pc.any(pc.match_substring_regex(column, pattern=r"[\r\n]")).as_py() is True


def _quoted_value(delimiter: str) -> re.Pattern[bytes]:
    """Matches a quoted value. Group `open`: the text ends inside it. Group `goes_on`: text follows its last quote."""
    end = rb"[%s\r\n]" % re.escape(delimiter.encode())
    said = rb'"(?P<said>[^"]*+(?:""[^"]*+)*+)'
    return re.compile(
        rb'(?:\A(?:\xef\xbb\xbf)?|(?<=%s))%s(?:(?P<open>\Z)|"(?:(?=%s)|\Z|(?P<goes_on>)))' % (end, said, end)
    )


def _check_quotes(text: _FileText, delimiter: str) -> None:
    """Raise InputError for a quoted value of several lines that is not closed before the next field, naming its line.

    The parser would take all up to the next quote, or to the end, for one value, and lose these rows.
    """
    with text.opened() as opened:
        whole = bytes(opened.read())
    for value in _quoted_value(delimiter).finditer(whole):
        if value.lastgroup in ("open", "goes_on") and re.search(rb"[\r\n]", value["said"]):
            line = len(_LINE_BREAK.findall(whole[: value.start("said")])) + 1
            raise InputError(
                f"the quoted value that begins in line {line:,} is not closed before the next field: close it, or "
                "double the quotes inside of it"
            )


def _check_lines(text: _FileText, delimiter: str) -> None:
    """Raise InputError for an empty line below the header of a single column, naming it: the parser skips it.

    It may be a null, as most writers write it, and a null is a key like others.
    """
    with text.opened() as opened:
        whole = bytes(opened.read())
    plain = _quoted_value(delimiter).sub(lambda value: _LINE_BREAK.sub(rb"\n ", value[0]), whole)
    if (found := _EMPTY_LINE.search(plain, len(plain) - len(plain.lstrip()))) is not None:
        line = len(_LINE_BREAK.findall(plain[: found.end()])) + 1
        raise InputError(
            f"line {line:,} is empty, which in a file of one column may be a null: write null there, or take it out"
        )


def _json(text: _FileText, types: dict[str, pa.DataType], columns: list[str] | None) -> pa.Table:
    """The objects as rows. The first byte must be `{`: lines with `null` alone would make pyarrow end the process."""
    first = text.begins_with()
    if not first:
        return pa.schema([(name, types[name]) for name in columns or ()]).empty_table()
    if first != b"{":
        what = "a JSON array" if first == b"[" else "text that is no JSON object"
        raise InputError(f"it holds {what}, but it must hold one JSON object a line")
    if columns is not None:
        return _parsed(text, {name: types[name] for name in columns if name in types}, "ignore")
    table = _parsed(text, types, "infer")
    if all(column.null_count for column in table.columns):
        _check_objects(text)
    # The parser adds every column of the given types. A column with a value is in the text; a second pass, without the
    # types of the others, finds which of them are.
    doubtful = {name for name in types if table[name].null_count == table.num_rows}
    if not doubtful:
        return table
    certain = {name: type_ for name, type_ in types.items() if name not in doubtful}
    own = set(_parsed(text, certain, "infer").column_names)
    return table.select([name for name in table.column_names if name in own])


def _check_objects(text: _FileText) -> None:
    """Raise InputError for a line `null`: the parser takes it for a row of nulls, and a null is a key like others."""
    with text.opened() as opened:
        lines = bytes(opened.read()).splitlines()
    number = next((number for number, line in enumerate(lines, 1) if line.strip() == b"null"), None)
    if number is not None:
        raise InputError(f"line {number:,} holds null, but it must hold one JSON object")


def _with_json_column_named(text: _FileText, types: dict[str, pa.DataType], said: str) -> str | None:
    """What the parser says of a value that is not of the type that its column has, with the column's name.

    The parser names no column, so look for the one without which the text can be parsed. None: it is not one of these.
    """

    def fails(names: list[str]) -> bool:
        try:
            _parsed(text, {name: parsed_type(types[name], ContentType.JSON) for name in names}, "ignore")
        except pa.ArrowInvalid:
            return True
        return False

    names = list(types)
    if fails([]) or not fails(names):
        return None
    while len(names) > 1:
        half = names[: len(names) // 2]
        names = half if fails(half) else names[len(half) :]
    type_ = types[names[0]]
    if pa.types.is_map(type_) or "JSON to null from" in said:  # see `parsed_type`
        return (
            f"column {names[0]!r} is {type_} in earlier files, and JSON with a map in it cannot be read: "
            "write it as Parquet"
        )
    if (value := _NO_SUCH_JSON_VALUE.search(said)) is not None:
        return _not_of_type(names[0], str(type_), value[1])
    return f"column {names[0]!r} is {type_} in earlier rows or files, and this text has other values ({said})"


def _parsed(text: _FileText, types: dict[str, pa.DataType], unexpected: str) -> pa.Table:
    return in_blocks(
        lambda block_bytes: pa.json.read_json(
            text.opened(),
            read_options=pa.json.ReadOptions(block_size=block_bytes),
            parse_options=pa.json.ParseOptions(
                explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior=unexpected
            ),
        )
    )


def parsed_type(type_: pa.DataType, content_type: ContentType) -> pa.DataType:
    """The type to parse a column in, which the parser supports. It is cast to the schema's own type afterwards.

    Null where the text cannot hold a value: maps in JSON, all that is nested in CSV. The column may be absent, or null.
    """
    t = pa.types
    is_json = content_type is ContentType.JSON
    if is_json and is_list(type_):
        return pa.list_(parsed_type(type_.value_type, content_type))
    if is_json and t.is_struct(type_):  # one without fields, too: the text has `{}`
        return pa.struct([(field.name, parsed_type(field.type, content_type)) for field in type_])
    if t.is_map(type_) or (not is_json and t.is_nested(type_)):
        return pa.null()
    if (plain := column_types.plain_type(type_)) != type_:
        return parsed_type(plain, content_type)
    if is_json and t.is_duration(type_):
        return pa.int64()
    if is_json and t.is_fixed_size_binary(type_):
        return pa.binary()
    if t.is_float16(type_):
        return pa.float32()
    if t.is_large_string(type_) or (is_json and (t.is_date(type_) or t.is_time(type_))):
        return pa.string()
    return type_
