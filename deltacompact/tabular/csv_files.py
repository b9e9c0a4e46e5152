"""Rows of CSV.

id,day                     a header line; the table's schema gives the types of its columns
2,"b<newline>3,c           an open quote, which would pull the following lines into one value: refused
2,"b",<end>                no line break, and a null: the parser would take it for a text, because "b" has quotes
"2","",""                  an empty text in quotes is a null where the table has numbers: many programs quote all fields
id<newline><newline>       an empty line in a file of one column, a null or nothing: refused
id;day                     one column, whose name has another program's separator: refused
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.csv

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.tabular import column_types, schemas
from deltacompact.tabular.file_text import FileText, in_blocks
from deltacompact.tabular.text_types import not_of_type

_NO_SUCH_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to ([^:]+): "
    r"(?:invalid value|expected (?:no|a) zone offset in) ('.*')(?:\. If these timestamps.*)?",
    re.DOTALL,
)
_NO_SUCH_DECIMAL = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?(?:Rescaling Decimal value would cause data loss|"
    r"Error converting ('.*') to decimal.*|The string ('.*') is not a valid decimal\d+ number)",
    re.DOTALL,
)
_NO_TEXT = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to [^:]+: invalid UTF8 data")
_EMPTY_NUMBER = re.compile(r"In CSV column #\d+: .*(?:invalid value ''|Empty string cannot be converted)", re.DOTALL)
_LINE_BREAK = re.compile(rb"\r\n|\r|\n")
_EMPTY_LINE = re.compile(rb"(?>\r\n|\r|\n)(?=[\r\n])")
_NULLS = ["", "#N/A", "#N/A N/A", "#NA", "N/A", "NA", "NULL", "n/a", "null"]
"""Nulls without quotes. pyarrow's own list includes NaN, but NaN is a number: its key differs from null's."""


def read_csv(text: FileText, types: dict[str, pa.DataType], columns: list[str] | None) -> pa.Table:
    """Rows of CSV with a header line. `columns` None: those that the text has."""
    if not text.begins_with():
        raise InputError("an empty CSV file has no header line")
    delimiter = text.delimiter()

    def parsed(opened: Callable[[], pa.NativeFile]) -> pa.Table:
        try:
            return _parsed(opened, delimiter, types, columns)
        except pa.ArrowInvalid as error:
            if _EMPTY_NUMBER.match(str(error)) is None:
                raise
        return _with_quoted_nulls(opened, delimiter, types, columns)

    try:
        table = _with_last_null(text, delimiter, parsed)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            raise InputError("its header line does not end, so it may be cut off: end it with a line break") from None
        _check_quotes(text, delimiter)
        if (named := _with_column_named(str(error), text, delimiter, types)) is not None:
            raise InputError(named) from error
        raise
    if columns is None:
        _check_names(table, types, delimiter)
    if columns is None and (any(map(_has_lines, table.columns)) or _has_lines(pa.chunked_array([table.column_names]))):
        _check_quotes(text, delimiter)
    if columns is None and table.num_columns == 1:
        _check_lines(text, delimiter)
    return table


def _parsed(
    opened: Callable[[], pa.NativeFile],
    delimiter: str,
    types: Mapping[str, pa.DataType],
    columns: list[str] | None,
    quoted_nulls: bool = False,
) -> pa.Table:
    convert = pa.csv.ConvertOptions(
        column_types=types,
        include_columns=columns,
        null_values=_NULLS,
        strings_can_be_null=True,
        quoted_strings_can_be_null=quoted_nulls,
    )
    parse = pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)
    return in_blocks(
        lambda block_bytes: pa.csv.read_csv(
            opened(),
            read_options=pa.csv.ReadOptions(block_size=block_bytes),
            parse_options=parse,
            convert_options=convert,
        )
    )


def _with_quoted_nulls(
    opened: Callable[[], pa.NativeFile], delimiter: str, types: Mapping[str, pa.DataType], columns: list[str] | None
) -> pa.Table:
    """The rows, with null for an empty text in quotes in columns whose type is no text."""
    others = {name: type_ for name, type_ in types.items() if not _is_text(type_)}
    table = _parsed(opened, delimiter, {**types, **dict.fromkeys(others, pa.string())}, columns)
    nulled = _parsed(opened, delimiter, types, columns, quoted_nulls=True)
    numbers = [number for number, name in enumerate(table.column_names) if name in others]
    return schemas.with_columns(table, {number: (nulled.field(number), nulled.column(number)) for number in numbers})


def _with_last_null(
    text: FileText, delimiter: str, parse: Callable[[Callable[[], pa.NativeFile]], pa.Table]
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
    return _is_text(column.type) and len(column) > 0 and column[-1].as_py() in ("", b"")


def _is_text(type_: pa.DataType) -> bool:
    return column_types.is_string(type_) or column_types.is_binary(type_)


def _check_names(table: pa.Table, types: dict[str, pa.DataType], delimiter: str) -> None:
    """Raise InputError for columns that nobody means: bytes that are no UTF-8, fields that are not divided."""
    new = [name for name in table.column_names if name not in types]
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name not in types and pa.types.is_binary(column.type):
            raise InputError(_not_utf8(name))
    if len(new) == table.num_columns == 1 and (other := next((sign for sign in ";|\t" if sign in new[0]), None)):
        raise InputError(
            f"its header has {other!r} and no {delimiter!r}, which divides fields: write commas, or tabs in a .tsv file"
        )


def _with_column_named(said: str, text: FileText, delimiter: str, types: Mapping[str, pa.DataType]) -> str | None:
    """What the parser says of a value that is not of its column's type, with the column's name for its number."""
    match, of_decimal, no_text = (kind.fullmatch(said) for kind in (_NO_SUCH_VALUE, _NO_SUCH_DECIMAL, _NO_TEXT))
    found = match or of_decimal or no_text
    if found is None:
        return None
    header = io.BytesIO(text.header() + b"\n")
    names = pa.csv.read_csv(header, parse_options=pa.csv.ParseOptions(delimiter=delimiter)).column_names
    if int(found[1]) >= len(names):  # a line break in a name
        return None
    name = names[int(found[1])]
    if no_text:
        return _not_utf8(name)
    return not_of_type(name, match[2], match[3]) if match else not_of_type(name, str(types[name]), found[2] or found[3])


def _not_utf8(name: str) -> str:
    return f"column {name!r} has text that is not UTF-8: save the file as UTF-8"


def _has_lines(column: pa.ChunkedArray) -> bool:
    is_text = _is_text(column.type)
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


def _check_quotes(text: FileText, delimiter: str) -> None:
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


def _check_lines(text: FileText, delimiter: str) -> None:
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
