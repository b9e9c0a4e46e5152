"""Rows of CSV and of JSON lines, compressed or not.

id,day                     CSV with a header line; the table's schema gives the types of the columns that it has
{"id": 1, "day": null}     one JSON object a line
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.tabular import schemas
from deltacompact.tabular.conversion import is_list
from deltacompact.tabular.formats import COMPRESSIONS, extensions

_TEXT_BLOCK_BYTES = 16 << 20
_CSV_NULLS = ["", "#N/A", "#N/A N/A", "#NA", "N/A", "NA", "NULL", "n/a", "null"]
"""Nulls without quotes. pyarrow's own list includes NaN, but NaN is a number: its key differs from null's."""


def read_text(
    source: pa.NativeFile, path: str, content_type: ContentType, known: pa.Schema | None, columns: list[str] | None
) -> pa.Table:
    """CSV with a header line, or one JSON object a line."""
    text, is_empty = _decompressed(source, path)
    types = {field.name: schemas.stored_type(field.type) for field in known or ()}
    if columns is None:  # a column without any value yet has no type yet, so let the parser find one
        types = {name: type_ for name, type_ in types.items() if not pa.types.is_null(type_)}
    plain = {name: _parsed_type(type_, content_type) for name, type_ in types.items()}
    if content_type is ContentType.CSV:
        if is_empty:
            raise InputError("an empty CSV file has no header line")
        convert = pa.csv.ConvertOptions(
            column_types=plain,
            include_columns=columns,
            null_values=_CSV_NULLS,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        table = pa.csv.read_csv(
            text,
            read_options=pa.csv.ReadOptions(block_size=_TEXT_BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=convert,
        )
    elif is_empty:
        table = (known or pa.schema([])).empty_table()
    else:
        names = list(plain) if columns is None else columns
        explicit = pa.schema([(name, plain[name]) for name in names if name in plain])
        behavior = "infer" if columns is None else "ignore"
        try:
            table = pa.json.read_json(
                text,
                read_options=pa.json.ReadOptions(block_size=_TEXT_BLOCK_BYTES),
                parse_options=pa.json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior=behavior),
            )
        except pa.ArrowInvalid as error:
            if "changed from object to array in row 0" not in str(error):
                raise
            raise InputError("it holds a JSON array, but it must hold one JSON object a line") from None
    for number, name in enumerate(table.column_names):
        if name in types and table.column(number).type != types[name]:
            table = table.set_column(number, name, schemas.cast(table.column(number), types[name], "text", name))
    return table if columns is None else table.select(columns)


def _decompressed(source: pa.NativeFile, path: str) -> tuple[pa.NativeFile, bool]:
    """The text of a file, and whether it is empty."""
    codec, size = COMPRESSIONS.get(extensions(path)[1]), source.size()
    if codec is None or size == 0:
        return source, size == 0
    # Each compressed stream needs its own stream of the source, which it closes at its end.
    is_empty = not pa.CompressedInputStream(source.get_stream(0, size), codec).read(1)
    return pa.CompressedInputStream(source.get_stream(0, size), codec), is_empty


def _parsed_type(type_: pa.DataType, content_type: ContentType) -> pa.DataType:
    """The type that the text parser produces. The column is cast to the schema's own type afterwards."""
    type_ = schemas.plain_type(type_)
    if pa.types.is_float16(type_):
        return pa.float32()
    if content_type is ContentType.JSON and is_list(type_):
        return pa.list_(_parsed_type(type_.value_type, content_type))
    if content_type is ContentType.JSON and pa.types.is_struct(type_):
        return pa.struct([(field.name, _parsed_type(field.type, content_type)) for field in type_])
    as_text = pa.types.is_date(type_) or pa.types.is_time(type_)
    if pa.types.is_large_string(type_) or (as_text and content_type is ContentType.JSON):
        return pa.string()
    return type_
