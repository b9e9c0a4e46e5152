"""What a file tells of itself, before it gets into a table: schema, rows, and what later readers need of it.

    inspect("orders.csv", known schema)     -> schema, 1,000 rows
    inspect("orders.csv") of a Parquet file -> refused: its first bytes say what it is

Parquet, ORC and Arrow files store their types. CSV and JSON lines get types from the table's schema. The log records
the types, so every later reader uses the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import DeltaCompactError, InputError, SchemaError
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.wording import columns_shown, text_of
from deltacompact.storage.objects import Fetches, ObjectStore
from deltacompact.storage.opening import open_object
from deltacompact.tabular import (
    far_values,
    feather_files,
    inferred_keys,
    inferred_numbers,
    int96,
    key_values,
    null_counts,
    parquet_read,
    partition_texts,
    schemas,
    stamps,
    whole_days,
)
from deltacompact.tabular.beginnings import BEGINNING_BYTES, contradiction
from deltacompact.tabular.damage import naming
from deltacompact.tabular.formats import EXTENSIONS, UNTYPED, extensions
from deltacompact.tabular.known_pages import known_groups
from deltacompact.tabular.text_files import read_text
from deltacompact.tabular.text_types import microseconds
from deltacompact.tabular.units import units_of


@dataclass(frozen=True, slots=True)
class Asked:
    """What a table asks of a file.

    known        the types of columns, for CSV and JSON
    partition    the values that the file's partition columns must have
    keys         key columns: their nulls are counted, and no two texts of CSV may become the same value
    sorts        sort columns, which get the types that their texts mean
    exact        columns in which texts with inexact numbers are refused
    texts        the texts of keys in other files of the same append
    """

    known: pa.Schema | None = None
    partition: Partition | None = None
    keys: Sequence[str] = ()
    sorts: Sequence[str] = ()
    exact: Collection[str] = ()
    texts: inferred_keys.KeyTexts | None = None

    @classmethod
    def of(
        cls,
        keys: TableKeys | None,
        in_partition: Collection[str],
        texts: inferred_keys.KeyTexts,
        known: pa.Schema | None = None,
        partition: Partition | None = None,
    ) -> Asked:
        """What a table with these keys asks. The partition decides the values of the columns `in_partition`."""
        keys = keys or TableKeys(())
        of_rows = keys.of_rows(in_partition)
        return cls(known, partition, of_rows.primary, [sort.name for sort in of_rows.sort], keys.columns, texts)


def inspect(
    store: ObjectStore,
    path: str,
    content_type: ContentType,
    asked: Asked = Asked(),
    *,
    managed: bool = True,
    hashed: bool = False,
    decoded: bool = False,
    logged: DataFile | None = None,
) -> DataFile:
    """Schema, rows and bytes of a file (number 0). Raises InputError for a file that is not as it is asked to be.

    Of a file that the log has, `logged` tells the unit of times and far values, so that no rows are read for these.

    A file that is not managed gets a stamp; with `hashed`, the stamp has all that later readers need, and the file must
    not change meanwhile. With `decoded`, all rows of a local file are decoded, except Parquet pages that are known to
    decode.
    """
    file_store, name = open_object(store, path)
    with naming(path):
        before = None if isinstance(file_store, Fetches) else stamps.settled(file_store, name, managed)
        with file_store.open(name) as source:
            stat = stamps.stat_of(file_store, name, source) if before is None else before
            if hashed and content_type in UNTYPED and not parquet_read.is_near(source):
                source = pa.BufferReader(source.read_buffer())  # download once, to parse and to hash
            with contradicted(file_store, name, content_type):
                file = _described(source, path, content_type, asked, logged)
            decodes = content_type in UNTYPED or _decodes(source, file, decoded)
            to_hash = source if hashed and (stat.etag is None or content_type in UNTYPED) else None
            stamp = None if managed else stamps.stamp_of(stat, to_hash)
        if hashed and stat.etag is None and file_store.stat(name) != stat:
            raise InputError(f"{path} was written to while it was read: append it when it is finished")
    schema = schemas.unmarked(file.schema)
    return replace(file, bytes=stat.bytes, schema=schema, stamp=stamp, managed=managed, decodes=decodes)


@contextlib.contextmanager
def contradicted(store: ObjectStore, name: str, content_type: ContentType) -> Iterator[None]:
    """Where a file cannot be read as what its name says: say what its first bytes say instead."""
    try:
        yield
    except (pa.ArrowException, InputError, OSError) as error:
        if EXTENSIONS.get(extensions(name)[0]) is content_type and (what := _what_it_is(store, name)) is not None:
            raise InputError(what) from error
        raise


def _what_it_is(store: ObjectStore, name: str) -> str | None:
    with contextlib.suppress(pa.ArrowException, OSError, DeltaCompactError), store.open(name) as source:
        return contradiction(name, bytes(source.read(BEGINNING_BYTES)))
    return None


def _decodes(source: pa.NativeFile, file: DataFile, decoded: bool) -> bool:
    """Whether all pages of an opened file are known to decode. `decoded`: decode the pages of a local file to find out.

    False for timestamps of 12 bytes: other engines wrap them, so that no compacted file may have any.
    Raises the errors of a reader: a file that cannot be read must not get into a table.
    """
    names, parquet, groups, wraps = list(file.schema.names), None, list[tuple[int, int]](), False
    if file.content_type is ContentType.PARQUET:
        parquet = parquet_read.described(source)
        wraps = int96.is_in(parquet.metadata)
        groups = parquet_read.unknown_rows(parquet, known_groups(parquet.footer, parquet.metadata.num_row_groups))
        if not groups:
            return not wraps
    if not decoded or not parquet_read.is_near(source):
        return False
    if parquet is None:
        source.seek(0)
        stored = [units_of(source, file, names, 0, file.rows)]
    else:
        stored = [parquet_read.batches(source, parquet, names, *rows, READ_LIMITS) for rows in groups]
    for units in stored:
        for _, table in units:
            whole_days.check_times(schemas.computable(table, file.path), file.path)
    return not wraps


def _described(
    source: pa.NativeFile,
    path: str,
    content_type: ContentType,
    asked: Asked,
    logged: DataFile | None,
) -> DataFile:
    """What an opened file tells of itself."""
    parquet = None
    match content_type:
        case ContentType.PARQUET:
            parquet = parquet_read.described(source)
            file = _of_parquet(source, path, parquet, asked.keys, logged)
        case ContentType.ORC:
            from deltacompact.tabular.orc_files import open_orc

            orc = open_orc(source)
            file = DataFile(UNNUMBERED, path, content_type, orc.nrows, 0, orc.schema)
        case ContentType.FEATHER:
            batches = feather_files.batches_of(source, None)
            file = DataFile(
                *(UNNUMBERED, path, content_type, sum(batches.rows), 0, batches.schema),
                group_bytes=batches.bytes_max,
            )
        case _:
            if not parquet_read.is_near(source):
                source = pa.BufferReader(source.read_buffer())  # it may be read more than once
            table = _text(source, path, content_type, asked)
            file = _of_text(table, path, content_type, asked)
            if content_type is ContentType.CSV:
                texts = asked.texts or inferred_keys.KeyTexts.of(asked.known)
                _check_texts(source, table, path, asked.keys, texts)
            return file
    schemas.check_columns(file.schema, path)
    return _with_measures(source, file, parquet, asked)


def _text(source: pa.NativeFile, path: str, content_type: ContentType, asked: Asked) -> pa.Table:
    """The rows of a text. Where a parser's guess would lose something, inferred_keys.py and inferred_numbers.py say
    the types."""
    table = read_text(source, path, content_type, asked.known, None)
    schemas.check_columns(table.schema, path)
    guessed = _guessed(table, asked.known)

    def parsed(name: str, type_: pa.DataType) -> pa.Table:
        return read_text(source, path, content_type, pa.schema([(name, type_)]), [name])

    unsigned = [
        pa.field(name, inferred_numbers.UNSIGNED)
        for name in sorted(guessed.difference(asked.exact))
        if inferred_numbers.is_unsigned(table[name], partial(parsed, name))
    ]
    coarse = {name: microseconds(table[name]) for name in sorted(guessed)}
    types = unsigned + [pa.field(name, type_) for name, type_ in coarse.items() if type_ is not None]
    sorts_only = guessed.intersection(asked.sorts).difference(asked.keys)
    if content_type is ContentType.JSON:
        types += inferred_keys.types_in_json(table, guessed.intersection(asked.keys), sorts_only)
    else:  # the parser tries seconds and nanoseconds, in which the year 9999 has no fraction
        of_times = inferred_keys.types_of_sorts(table, sorts_only).items()
        types += [pa.field(name, type_) for name, type_ in of_times if pa.types.is_timestamp(type_)]
    given = [field for field in asked.known or () if field.name not in guessed]
    return read_text(source, path, content_type, pa.schema([*given, *types]), None) if types else table


def _check_texts(
    source: pa.NativeFile, table: pa.Table, path: str, keys: Sequence[str], texts: inferred_keys.KeyTexts
) -> None:
    """Refuse keys of CSV whose types the parser found, if other texts have the same values."""
    new = {*table.column_names}.difference(texts.known)
    guessed = [name for name in keys if name in new and not pa.types.is_string(table[name].type)]
    if guessed and table.num_rows:
        as_texts = pa.schema([(name, pa.string()) for name in guessed])
        texts.check(read_text(source, path, ContentType.CSV, as_texts, guessed), table, path)


def _guessed(table: pa.Table, known: pa.Schema | None) -> set[str]:
    """The columns whose types the parser found."""
    return {*table.column_names} - {*schemas.known_types(known)}


def _of_text(table: pa.Table, path: str, content_type: ContentType, asked: Asked) -> DataFile:
    """The file of a text with these rows."""
    schemas.check_columns(table.schema, path)
    if content_type is ContentType.CSV and not table.num_rows:
        _check_header(table.schema.names, path, asked.keys)
    _check_text(table)
    inferred_numbers.check_keys(table, asked.exact, path)
    if asked.partition:
        partition_texts.check_partition_values(table, asked.partition, path)
    return DataFile(
        *(UNNUMBERED, path, content_type, table.num_rows, 0, table.schema),
        decoded_bytes=int(table.nbytes),
        far=far_values.of_table(table),
        nulls=null_counts.of_table(table, asked.keys),
        ranges=key_values.of_table(table, asked.keys),
    )


def _of_parquet(
    source: pa.NativeFile, path: str, parquet: parquet_read.Described, keys: Sequence[str], logged: DataFile | None
) -> DataFile:
    """The file as its footer tells. What no statistics tell is None."""
    schemas.check_columns(parquet.metadata.schema.to_arrow_schema(), path)
    unit = int96.unit_of(source, parquet) if logged is None else int96.recorded_unit(logged.schema)
    schema = parquet_read.stored_schema(source, parquet, unit)
    far = None if logged is None else logged.far
    return DataFile(
        *(UNNUMBERED, path, ContentType.PARQUET, parquet.metadata.num_rows, 0, schema),
        decoded_bytes=parquet_read.decoded_bytes(parquet, schema.names),
        group_bytes=parquet_read.group_bytes(parquet, schema.names),
        widest_row_bytes=parquet_read.widest_row_bytes(source, parquet),
        far=far_values.of_footer(parquet.metadata, schema) if far is None else far,
        nulls=null_counts.of_footer(parquet.metadata, schema, keys),
    )


def _with_measures(
    source: pa.NativeFile, file: DataFile, parquet: parquet_read.Described | None, asked: Asked
) -> DataFile:
    """The file with its far values and null keys, from its rows where the footer has none; checks its partition."""
    names, partition = file.schema.names, asked.partition
    near = parquet_read.is_near(source)
    named = [name for name in (partition.names if partition else ()) if name in names]
    ranged = far_values.ranged_columns(file.schema) if file.far is None else []
    counted = [name for name in asked.keys if name in names] if file.nulls is None else []
    far, nulls = file.far, file.nulls
    wanted = list(dict.fromkeys([*named, *ranged, *counted]))
    if wanted and (near or named):  # a remote file too: a row of another partition would block this partition
        of_parts = []
        source.seek(0)
        if parquet is None:
            source = source if near else pa.BufferReader(source.read_buffer())
            units = units_of(source, file, wanted, 0, file.rows)
        else:
            units = parquet_read.batches(source, parquet, wanted, 0, file.rows, READ_LIMITS)
        for _, table in units:
            if partition:
                partition_texts.check_partition_values(table, partition, file.path)
            of_parts.append((far_values.of_table(table), null_counts.of_table(table, counted)))
        far = far_values.merged(part for part, _ in of_parts) if far is None else far
        nulls = null_counts.merged(part for _, part in of_parts) if nulls is None else nulls
    far = () if far is None and not ranged else far
    nulls = () if nulls is None and not counted else nulls
    return replace(file, far=far, nulls=nulls)


def _check_header(names: list[str], path: str, keys: Sequence[str]) -> None:
    """Refuse CSV whose only line names no key: it may be a row, which would be taken for the names of columns."""
    for key in keys:
        if key not in names:
            raise SchemaError(
                f"{path}: key column {key!r} is missing ({columns_shown(names)}): the first line must name the columns"
            )


def _check_text(table: pa.Table) -> None:
    """Refuse text that is not UTF-8: Arrow's JSON parser takes any bytes, and later readers would fail."""
    for name in table.column_names:
        try:
            table[name].validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(f"column {name!r}: {text_of(error)}") from error
