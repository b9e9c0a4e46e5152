"""The default catalog: tables of delta streams as objects in a store. It needs no other service.

catalog = open_catalog("s3://lake/tables")
orders = catalog.create_table("orders", partition_keys=["day"], primary_keys=["id"])
orders.append(rows, {"day": "1995-04-03"})      one commit, one delta, one file
catalog.table("orders").read()                  the live rows
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import CATALOG_VARIABLE, Readers, SchemaMode
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.table_keys import SortKey
from deltacompact.base.user_calls import users_calls
from deltacompact.catalog.delta_stream_calls import DeltaStreamCalls
from deltacompact.catalog.delta_stream_table import DeltaStreamTable
from deltacompact.storage.opening import open_store
from deltacompact.storage.s3_access import S3Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from deltacompact.maintenance.drop import DropResult


def open_catalog(uri: str | os.PathLike[str] | None = None, *, s3: S3Settings | None = None) -> DeltaStreamCatalog:
    """The catalog at "file:///path", "s3://bucket/prefix" or a local path; default: $DELTACOMPACT_CATALOG."""
    uri = uri if uri is not None else os.environ.get(CATALOG_VARIABLE)
    if s3 is not None:
        expect.instance("s3", s3, S3Settings)
    if uri is None or uri == "":
        raise InputError(f"no catalog: give its URI or set {CATALOG_VARIABLE}")
    expect.path("the catalog's URI", uri)
    return DeltaStreamCatalog(open_store(uri, s3))


@users_calls
class DeltaStreamCatalog(DeltaStreamCalls, UsersWords):
    """Tables of partition streams below the root of a store. Safe to use from several threads and processes.

    `table_id` is the name of a table. A call that is about one takes the arguments of the method of `DeltaStreamTable`
    that has its name, and raises NotFoundError for an unknown table.
    """

    _words = (
        "append",
        "append_files",
        "compacted_files",
        "create_table",
        "declare_cluster_by",
        "declare_readers",
        "declare_schema_mode",
        "drop_table",
        "partitions",
        "publish",
        "read",
        "restate",
        "scan",
        "stop_publishing",
        "table",
        "tables",
        "uri",
    )

    def __repr__(self) -> str:
        return f"open_catalog({self.where!r})"

    def __str__(self) -> str:
        """What `show` prints: a line for each table."""
        from deltacompact.reports.catalog_report import catalog_document, print_catalog
        from deltacompact.reports.shown import printed

        tables = catalog_document(self).document
        return printed(lambda out: print_catalog(out, self.where, tables))

    def _repr_html_(self) -> str:
        """The tables, the ten worst of many: for notebooks."""
        from deltacompact.reports.catalog_report import catalog_as_html, catalog_document

        return catalog_as_html(self.where, catalog_document(self).document)

    def table(self, table_id: str) -> DeltaStreamTable:
        """The table of this name, with what can be done with it. Raises NotFoundError.

        Examples:
            >>> catalog.table("orders").keys.primary
            ('id',)
        """
        self.described(expect.text("table_id", table_id))
        return DeltaStreamTable(self, table_id)

    def create_table(
        self,
        table_id: str,
        partition_keys: Sequence[str] = (),
        primary_keys: Sequence[str] = (),
        sort_keys: Sequence[SortKey | str | Sequence[str]] = (),
        *,
        tombstone_retention: int | None = None,
        schema_mode: SchemaMode | str | None = None,
        readers: Readers | str | None = None,
        cluster_by: str | Sequence[str] | None = None,
        columns: str | pa.Schema | None = None,
    ) -> DeltaStreamTable:
        """Create a table, and return what `table` returns. Declare keys here, or the first compaction declares them.

        partition_keys         names, in order
        primary_keys           names of the columns that identify a row
        sort_keys              names, or (name, "ascending" or "descending"): of two rows of a key, the one with the
                               greater value is kept (default: the later one)
        tombstone_retention    for how many stream positions a keyed delete blocks older upserts (default: for ever)
        schema_mode            "fixed" refuses appends that would add or widen columns (default: "merge", or what the
                               table has); declare_schema_mode changes it
        readers                "vectors": whoever reads compacted files leaves out the rows that a deletion vector
                               marks, so a few dead rows are marked (default: "files", or what the table has)
        cluster_by             columns by which compactions lay rows out, "day*3,customer" (default: none, or what the
                               table has); declare_cluster_by changes it
        columns                types of columns, "id long, amount double" or a pyarrow Schema: text takes them, and rows
                               that do not fit them are refused (default: the types of the first rows)

        Raises ConflictError where the table exists with another declaration; one with the same stays as it is.

        Examples:
            >>> catalog.create_table("visits", primary_keys=["id"], sort_keys=[("at", "descending")]).partition_keys
            ()
        """
        self.declare_table(
            table_id,
            partition_keys,
            primary_keys,
            sort_keys,
            tombstone_retention=tombstone_retention,
            schema_mode=schema_mode,
            readers=readers,
            cluster_by=cluster_by,
            columns=columns,
        )
        return DeltaStreamTable(self, table_id)

    def drop_table(self, table_id: str, *, dry_run: bool = False) -> DropResult:
        """Delete a table for good: its declaration, its rows, its history. Repeat it if it was interrupted.

        Its writers, readers and compactions must have stopped. Files that were appended by reference stay, and so does
        an Iceberg or Delta table that showed the rows: its data files go, so drop it, too. What others put into the
        table's folder stays (`left`). `dry_run` deletes nothing. Raises NotFoundError for an unknown table, InputError
        for one that is published or has a destination.

        Examples:
            >>> catalog.drop_table("orders", dry_run=True).streams
            1
        """
        from deltacompact.maintenance.drop import drop

        return drop(self, expect.text("table_id", table_id), dry_run=dry_run)
