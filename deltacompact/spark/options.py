"""The options of a DataFrame writer, checked against the table before any row moves.

catalog=s3://lake/tables  table=orders                              rows go where their partition columns say
partition="day=2024-01-01,region=eu"  or  {"day": "2024-01-01"}     all rows go to (or: have this part fixed)
operation=delete                                                    default upsert
operation_column=op                                                 CDC: each row says it; needs sort keys
token=nightly  position=1704067200000                               as for catalog.append
schema_mode=fixed                                                   refuse new columns, whatever the table says
token=etl  token_sequence=7                                         batch 7 of a producer, which counts upwards

An unknown option is an error. Otherwise a typo like `operation_colum` would turn deletes into live rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltacompact.base.errors import InputError
from deltacompact.base.model import OperationType, Partition, SchemaMode, Table, partition_text
from deltacompact.base.tokens import Token
from deltacompact.base.wording import unknown_option
from deltacompact.catalog.delta_streams import DeltaStreamCatalog, open_catalog
from deltacompact.change_events.routes import Routes
from deltacompact.delta_streams.appending.known_partitions import known_partitions
from deltacompact.delta_streams.appending.positions import checked_position
from deltacompact.delta_streams.appending.stream_fit import StreamFit

READ_OPTIONS = ("catalog", "table", "partition")
_CHANGE_OPTIONS = ("changes", "to", "per_commit", "before")
STREAM_CHANGE_OPTIONS = (*READ_OPTIONS, *_CHANGE_OPTIONS)
BRANCH_CHANGE_OPTIONS = ("catalog", "table", "branch", *_CHANGE_OPTIONS)
"""The first of delta streams, the others of Iceberg tables."""
WRITE_OPTIONS = (
    *READ_OPTIONS,
    "operation",
    "operation_column",
    "position",
    "force_position",
    "token",
    "token_sequence",
    "schema_mode",
)
STREAM_OPTIONS = (
    *READ_OPTIONS,
    "operation",
    "operation_column",
    "token",
    "schema_mode",
    "checkpointLocation",
    "queryName",
)
"""Spark itself adds the last two to the options of a stream."""


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where rows go and what they mean. `fixed` are the partition values that the options give."""

    catalog: DeltaStreamCatalog
    table: Table
    fixed: tuple[tuple[str, str | None], ...]
    operation: OperationType
    operation_column: str | None
    position: int | None
    token: Token | None
    force_position: bool = False
    schema_mode: SchemaMode | None = None
    routes: Routes = field(default_factory=lambda: Routes({}, {}))
    """The table's partitions as they are when the job begins: tasks ask no more."""

    @property
    def routed(self) -> tuple[str, ...]:
        """Partition keys whose values are those of the rows."""
        fixed = dict(self.fixed)
        return tuple(name for name in self.table.partition_keys if name not in fixed)

    def delete_columns(self, columns: Sequence[str]) -> list[str]:
        """What a delete file holds of a row: its key and sort columns; everything while no keys are known."""
        keys = self.table.keys
        if keys is None:
            return [name for name in columns if name != self.operation_column]
        needed = set(keys.columns) - set(self.table.partition_keys)
        return [name for name in columns if name in needed]


def check_options(options: Mapping[str, str], known: Sequence[str]) -> None:
    """Raise InputError for an unknown option, and name the nearest known option. Case does not count."""
    for name in options:
        if name.lower() in {option.lower() for option in known}:
            continue
        if name.lower() in ("path", "paths"):
            raise InputError(f"{options[name]!r}: a path names no table: give options 'catalog' and 'table' instead")
        raise InputError(unknown_option(name, known))


def catalog_of(options: Mapping[str, str]) -> tuple[DeltaStreamCatalog, str]:
    """The catalog (default: $DELTACOMPACT_CATALOG) and the name of a table in it. Raises NotFoundError."""
    table_id = options.get("table")
    if not table_id:
        raise InputError("option 'table' is missing: it names the table in the catalog")
    catalog = open_catalog(options.get("catalog"))
    catalog.described(table_id)
    return catalog, table_id


def write_target(
    options: Mapping[str, str], columns: Sequence[str], overwrite: bool, known: Sequence[str] = WRITE_OPTIONS
) -> WriteTarget:
    """The target of these options. Raises InputError or NotFoundError before anything is written."""
    check_options(options, known)
    if overwrite:
        raise InputError("deltacompact tables are appended to: use mode('append'); catalog.restate() replaces rows")
    catalog, table_id = catalog_of(options)
    table = catalog.described(table_id)
    if table.source_table_id is not None:
        raise InputError(f"table {table_id!r} is a destination of {table.source_table_id!r}: append there")
    target = WriteTarget(
        catalog,
        table,
        _fixed_partition(options.get("partition"), table),
        _operation(options),
        options.get("operation_column"),
        _whole_number(options, "position"),
        _token(options),
        flag(options, "force_position"),
        SchemaMode.of(options["schema_mode"]) if "schema_mode" in options else None,
    )
    checked_position(target.position, 1, target.force_position, catalog.clock())
    _check_columns(target, columns)
    partitions = known_partitions(StreamFit(catalog, table_id, Partition()), target.routed)
    return replace(target, routes=partitions.routes)


def parse_partition(text: str | None) -> dict[str, str | None] | None:
    """ "day=2024-01-01,region=eu", or a JSON object where a value is null or has a comma."""
    if text is None or not text.strip():
        return None
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except ValueError:
            raise InputError(f"option 'partition': {text!r} is not a JSON object") from None
        return {name: partition_text(value) for name, value in values.items()}
    pairs = [pair.partition("=") for pair in text.split(",")]
    for name, equals, _ in pairs:
        if not (name.strip() and equals):
            raise InputError(f"option 'partition': {text!r} is neither NAME=VALUE[,NAME=VALUE…] nor a JSON object")
    return {name.strip(): value for name, _, value in pairs}


def _fixed_partition(text: str | None, table: Table) -> tuple[tuple[str, str | None], ...]:
    fixed = parse_partition(text) or {}
    for name in fixed:
        if name not in table.partition_keys:
            known = ", ".join(table.partition_keys) or "none"
            raise InputError(f"unknown partition key {name!r} (the table's partition keys: {known})")
    return tuple((name, fixed[name]) for name in table.partition_keys if name in fixed)


def _operation(options: Mapping[str, str]) -> OperationType:
    operation = options.get("operation")
    if operation is not None and options.get("operation_column") is not None:
        raise InputError("options 'operation' and 'operation_column' exclude each other")
    return OperationType.of(operation or "upsert")


def _whole_number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    try:
        return None if text is None else int(text)
    except ValueError:
        raise InputError(f"option {name!r}: {text!r} is not a whole number") from None


def flag(options: Mapping[str, str], name: str) -> bool:
    """Raises InputError for what is neither true nor false."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InputError(f"option {name!r}: {text!r} is neither 'true' nor 'false'")
    return text == "true"


def _token(options: Mapping[str, str]) -> Token | None:
    name, sequence = options.get("token"), _whole_number(options, "token_sequence")
    if name is None and sequence is not None:
        raise InputError("option 'token_sequence' counts the batches of a producer: name it in option 'token'")
    return Token.of(name if name is None or sequence is None else (name, sequence))


def _check_columns(target: WriteTarget, columns: Sequence[str]) -> None:
    """Refuse columns that a compaction would refuse later, after the rows are committed."""
    table, keys = target.table, target.table.keys
    for name in target.routed:
        if name not in columns:
            raise InputError(f"partition key {name!r} is neither a column of the rows nor in option 'partition'")
    if target.operation_column is not None:
        if target.operation_column not in columns:
            raise InputError(f"operation column {target.operation_column!r} is not a column of the rows")
        if keys is None or not keys.sort:
            raise InputError(
                f"operation column {target.operation_column!r}: table {table.table_id!r} has no sort keys, "
                "which say what is the last operation of a key"
            )
        for key in keys.sort:
            if key.name not in columns:
                raise InputError(f"sort key {key.name!r} is not a column of the rows")
    for name in keys.primary if keys else ():
        if name not in columns and name not in table.partition_keys:
            raise InputError(f"key column {name!r} is not a column of the rows")
    if target.operation is OperationType.DELETE and keys and keys.sort:
        missing = [key.name for key in keys.sort if key.name not in columns]
        if 0 < len(missing) < len(keys.sort):
            raise InputError(f"a delete has all sort columns or none, {missing[0]!r} is missing")
