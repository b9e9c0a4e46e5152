"""Rows of CSV (csv_files.py) and of JSON lines (json_files.py), compressed or not.

the table has      id int64, day string            types for the columns of the same names
the text has       id, note                        note gets the type that the parser finds, day is no column
"""

from __future__ import annotations

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.tabular import column_types, schemas
from deltacompact.tabular.csv_files import read_csv
from deltacompact.tabular.file_text import FileText
from deltacompact.tabular.json_files import broken_line, column_named, read_json
from deltacompact.tabular.text_types import in_finer_units, parsed_type, with_values


def read_text(
    source: pa.NativeFile, path: str, content_type: ContentType, known: pa.Schema | None, columns: list[str] | None
) -> pa.Table:
    """The rows of CSV with a header line, or of one JSON object a line. `columns` None: those that the text has.

    `known` gives types, but never adds a column: a file that lacks a key column must not get it from here.
    """
    text = FileText.of(source, path)
    types = {field.name: field.type for field in known or ()}

    def parsed(types: dict[str, pa.DataType]) -> pa.Table:
        given = types
        if columns is None:  # what has no value yet has no type yet, so let the parser find one
            given = {name: known for name, type_ in types.items() if (known := with_values(type_)) is not None}
        plain = {name: parsed_type(type_, content_type) for name, type_ in given.items()}
        table = (read_csv if content_type is ContentType.CSV else read_json)(text, plain, columns)
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
        if content_type is ContentType.JSON and (named := column_named(text, types, str(error))) is not None:
            raise InputError(named) from error
        if content_type is ContentType.JSON and (line := broken_line(text, str(error))) is not None:
            raise InputError(line) from error
        raise
