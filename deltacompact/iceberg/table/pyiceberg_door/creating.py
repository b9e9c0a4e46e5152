"""Creates tables for publications, and gives them the columns that come later.

Their files may lack field ids, so the table says by which name a column is found (`schema.name-mapping.default`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.table.name_mapping import NameMapping

from deltacompact.base.errors import ConflictError, InputError, NotFoundError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.table.pyiceberg_door.errors import answering

NAME_MAPPING = "schema.name-mapping.default"


def create_table(
    catalog: Catalog,
    table_id: str,
    columns: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
) -> None:
    """Create a table with these columns, partitioned by the values of some. One that exists stays as it is.

    Raises InputError where the namespace is not there or the catalog refuses the columns.
    """
    try:
        with (
            answering(catalog.name),
            contextlib.suppress(TableAlreadyExistsError, CommitFailedException),
            catalog.create_table_transaction(table_id, columns, properties=dict(properties)) as made,
        ):
            with made.update_spec() as spec:
                for name in partition_by:
                    spec.add_identity(name)
            made.set_properties({NAME_MAPPING: name_mapping(made.table_metadata)})
    except NoSuchNamespaceError:
        namespace = table_id.rpartition(".")[0]
        raise NotFoundError(f"Iceberg catalog {catalog.name!r} has no namespace {namespace!r}") from None
    except (ValueError, TypeError, ValidationException) as error:
        raise InputError(f"Iceberg table {table_id!r} cannot be created: {text_of(error)}") from error


def give_columns(table: Table, table_id: str, columns: pa.Schema, properties: Mapping[str, str]) -> None:
    """Add and widen columns so that the table has `columns`, and set properties.

    Raises InputError if Iceberg cannot widen a column so, ConflictError if another commit came first.
    """
    try:
        with answering(table.catalog.name), table.transaction() as change:
            with change.update_schema() as schema:
                schema.union_by_name(columns)
            # PyIceberg adds the new columns to a mapping that is there, unless it is empty.
            mapping = {} if table.name_mapping() else {NAME_MAPPING: name_mapping(change.table_metadata)}
            change.set_properties({**properties, **mapping})
    except CommitFailedException as error:
        raise ConflictError(f"{table_id}: {text_of(error)}") from error
    except (ValueError, TypeError, ValidationException) as error:
        raise InputError(f"Iceberg table {table_id!r} cannot take the columns: {text_of(error)}") from error


def name_mapping(metadata: PyTableMetadata) -> str:
    """The JSON by which readers find columns in files that have no field ids."""
    mapping: NameMapping = metadata.schema().name_mapping
    return mapping.model_dump_json()
