"""The default catalog: tables of delta streams as objects in a store. It needs no other service.

catalog = open_catalog("s3://lake/tables")
orders = catalog.create_table("orders", partition_keys=["day"], primary_keys=["id"])
orders.append(rows, {"day": "1995-04-03"})      one commit, one delta, one file
catalog.table("orders").read()                  the live rows
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, Unpack

from deltacompact.base import expect
from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Delta
from deltacompact.base.errors import InputError
from deltacompact.base.model import CATALOG_VARIABLE, OperationType, Partition, Readers, SchemaMode
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.shared_arguments import AppendTerms
from deltacompact.base.table_keys import SortKey
from deltacompact.base.tokens import TokenLike
from deltacompact.base.user_calls import users_calls
from deltacompact.catalog.delta_stream_table import DeltaStreamTable
from deltacompact.delta_streams.streams import Streams
from deltacompact.storage.opening import open_store
from deltacompact.storage.s3_access import S3Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from deltacompact.maintenance.drop import DropResult

P = ParamSpec("P")
T = TypeVar("T")


def open_catalog(uri: str | os.PathLike[str] | None = None, *, s3: S3Settings | None = None) -> DeltaStreamCatalog:
    """The catalog at "file:///path", "s3://bucket/prefix" or a local path; default: $DELTACOMPACT_CATALOG."""
    uri = uri if uri is not None else os.environ.get(CATALOG_VARIABLE)
    if s3 is not None:
        expect.instance("s3", s3, S3Settings)
    if uri is None or uri == "":
        raise InputError(f"no catalog: give its URI or set {CATALOG_VARIABLE}")
    expect.path("the catalog's URI", uri)
    return DeltaStreamCatalog(open_store(uri, s3))


def _by_name(method: Callable[Concatenate[DeltaStreamTable, P], T]) -> Callable[Concatenate[Streams, str, P], T]:
    """The method of a table, as a call of the catalog that names the table."""

    def call(catalog: Streams, table_id: str, *given: P.args, **named: P.kwargs) -> T:
        return method(DeltaStreamTable(catalog, table_id), *given, **named)

    functools.update_wrapper(call, method)
    signature = inspect.signature(method)
    itself, *others = signature.parameters.values()
    named = inspect.Parameter("table_id", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str")
    call.__signature__ = signature.replace(parameters=[itself, named, *others])  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]  # a caller may write `table_id=`, of which the annotation cannot tell


@users_calls
class DeltaStreamCatalog(Streams, UsersWords):
    """Tables of partition streams below the root of a store. Safe to use from several threads and processes.

    `table_id` is the name of a table. A call that is about one takes the arguments of the method of `DeltaStreamTable`
    that has its name, and raises NotFoundError for an unknown table.

        catalog.append("orders", rows, token="a")      catalog.table("orders").append(rows, token="a")
    """

    append = _by_name(DeltaStreamTable.append)
    append_files = _by_name(DeltaStreamTable.append_files)
    restate = _by_name(DeltaStreamTable.restate)
    read = _by_name(DeltaStreamTable.read)
    scan = _by_name(DeltaStreamTable.scan)
    compacted_files = _by_name(DeltaStreamTable.compacted_files)
    publish = _by_name(DeltaStreamTable.publish)
    stop_publishing = _by_name(DeltaStreamTable.stop_publishing)

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

    def commit(
        self,
        table_id: str,
        partition: Partition,
        deltas: Sequence[tuple[OperationType, Sequence[DataFile]]],
        stream_position: int | None = None,
        token: TokenLike = None,
        begun_s: float | None = None,
        *,
        one_operation: bool = False,
        **asked: Unpack[AppendTerms],
    ) -> tuple[Delta, ...]:
        """Commit written files as one log entry; its deltas (a CDC batch: deletes, upserts) become visible together.

        `stream_position` is the position of the first delta; the others follow it. `begun_s` says when the write of the
        files began (store's clock, seconds): too old files are refused, because a vacuum may have deleted them. Raises
        InputError for a commit without deltas, and for a token that is known for another operation. `one_operation`
        says that the caller named the operation: then a token of upserts and deletes is another batch's, too. A delta
        without files is legal: its position and token count.
        """
        from deltacompact.delta_streams.appending.stream_writer import CommitTerms, writer_of

        if not deltas:
            raise InputError("a commit needs at least one delta")
        terms = CommitTerms.of(stream_position, token, self.clock(), deltas=len(deltas), **asked)
        self.current_table(table_id)
        writer = writer_of(self, table_id, partition)
        return writer.commit(deltas, replace(terms, one_operation=one_operation), begun_s)
