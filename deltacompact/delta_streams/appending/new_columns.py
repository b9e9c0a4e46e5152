"""The columns that an append would add to its partition: announced, or refused.

    the stream     id, region, total, s {x}
    incoming       id, regoin, s {x, y}              2 new columns: regoin, s.y         schema_mode "merge"
                                                     refused                            schema_mode "fixed"
    incoming       id, __index_level_0__             refused in both: pandas made the name up

A wrong file would change a schema for ever. The first append of a stream adds all of its columns, so these are not
announced; with "fixed" they are compared with those of the table's last other partition.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import SchemaError
from deltacompact.base.wording import columns_shown
from deltacompact.tabular import column_types, schemas
from deltacompact.tabular.conversion import is_list
from deltacompact.tabular.far_values import leaves

_OF_PANDAS = re.compile(r"__index_level_\d+__|Unnamed: \d+(_level_\d+)?")


def added(before: pa.Schema, after: pa.Schema) -> list[str]:
    """The columns, and the children of structs, that only `after` has."""
    return [path for path, type_ in _differences(before, after) if type_ is None]


def adding_to(columns: pa.Schema, files: Sequence[DataFile]) -> list[DataFile]:
    """The files that would add to these columns, with what is new alone: columns, wider types, and far values."""
    known, adding = schemas.decided_types(columns), list[DataFile]()
    for file in files:
        far = {path for path, _, _ in file.far or ()}
        new = [field for field in file.schema if _adds(field, known.get(field.name), far)]
        adding += [replace(file, schema=pa.schema(new))] if new else []
    return adding


def _adds(field: pa.Field, known: pa.DataType | None, far: set[str]) -> bool:
    """Whether the column is new, makes the known type wider, or has one of these paths of far values."""
    is_far = bool(far) and any(path in far for path, _ in leaves(pa.schema([field])))
    return is_far or not schemas.holds(known, field.type)


def check_names(names: Sequence[str], path: str, known: Collection[str] = ()) -> None:
    """Raise SchemaError for a column without a name, or with one of pandas, unless the stream has it already."""
    for number, name in enumerate(names, 1):
        if name in known:
            continue
        if not name.strip():
            raise SchemaError(f"{path}: column {number} has no name: name it, or leave it out")
        if _OF_PANDAS.fullmatch(name):
            raise SchemaError(
                f"{path}: column {name!r} is an index of pandas without a name: write the file with index=False, or "
                "name the index"
            )


def check_fixed(before: pa.Schema, after: pa.Schema, declared: Collection[str], path: str, table_id: str) -> None:
    """Raise SchemaError if a file would add a column that is not declared, or widen the type of a column."""
    for column, type_ in _differences(before, after):
        if type_ is None and column not in declared:
            why = f"is new ({columns_shown(before.names)})"
        elif type_ is not None:
            why = f"would become wider than {type_}"
        else:
            continue
        raise SchemaError(
            f"{path}: column {column!r} {why}, and the schema of table {table_id!r} is fixed: correct the file, "
            "append with schema_mode='merge' (--schema-mode merge), or declare that mode (create … --schema-mode merge)"
        )


def _differences(before: pa.Schema, after: pa.Schema) -> Iterator[tuple[str, pa.DataType | None]]:
    """(path, old type) of each column that has another type afterwards. Type None: the column is new."""
    places = {name: number for number, name in enumerate(before.names)}
    yield from ((field.name, None) for field in after if field.name not in places)
    for field, known in [(field, before.field(places[field.name])) for field in after if field.name in places]:
        if not schemas.is_promised(known):
            yield from _inside(field.name, known.type, field.type)


def _inside(path: str, before: pa.DataType, after: pa.DataType) -> Iterator[tuple[str, pa.DataType | None]]:
    if before == after or pa.types.is_null(before):
        return
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        for field in after:
            number = before.get_field_index(field.name)
            if number >= 0:
                yield from _inside(f"{path}.{field.name}", before.field(number).type, field.type)
            else:
                yield f"{path}.{field.name}", None
    elif is_list(before) and is_list(after):
        yield from _inside(path, before.value_type, after.value_type)
    elif pa.types.is_map(before) and pa.types.is_map(after):
        yield from _inside(path, before.item_type, after.item_type)
    elif column_types.plain_type(before) != column_types.plain_type(after):
        yield path, before
