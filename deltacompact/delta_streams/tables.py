"""The tables of a catalog, and what is declared about them. Some declarations may change.

orders/table.json     partition keys, keys, retention of tombstones          declare_table
orders/keys.json      the keys, if the first compaction declared them        declare_keys
orders/dropped.json   the table is being dropped                 declare_table refuses the name
orders/source.json    the table's source, or null: it has its own streams
table.json again      the other table that shows the rows                    declare_publication
                      who reads the compacted files                          declare_readers
                      whether appends may add columns                        declare_schema_mode
                      the id of the creation, new after a drop               current_table
                      the columns by which rows are laid out                 declare_cluster_by
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.base.errors import (
    BucketMissingError,
    ConflictError,
    DeltaCompactError,
    InputError,
    NotFoundError,
    StoreError,
)
from deltacompact.base.model import FORMAT_VERSION, INT64_MAX, Readers, SchemaMode, Table
from deltacompact.base.partitions import READ_AT_ONCE, both
from deltacompact.base.settings import at_least
from deltacompact.base.table_keys import SortKey, TableKeys
from deltacompact.base.wording import table_meant
from deltacompact.delta_streams.declared_columns import declared_columns
from deltacompact.delta_streams.log.entries import dump
from deltacompact.delta_streams.paths import TablePaths, check_path, table_name, table_root
from deltacompact.delta_streams.table_documents import (
    check_keys,
    check_sort_keys,
    clustering_of,
    document,
    keys_document,
    keys_from,
    no_keys_yet,
    of_source,
    table_document,
    table_from,
)
from deltacompact.storage.certain_put import Effect, put_certainly, telling_interrupts
from deltacompact.storage.objects import Fetches, ObjectStore, bytes_of
from deltacompact.storage.replacing import replace_object

_REPEAT = "deltacompact drop, catalog.drop_table"


class Tables:
    """Declares tables below the root of a store, and remembers what this process has read of them."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.is_remote = isinstance(store, Fetches)
        self.at_once = READ_AT_ONCE if self.is_remote else 1
        """How many partitions to open or read side by side: several, if the store is behind a network."""
        self._tables: dict[str, Table] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": {}}

    @property
    def uri(self) -> str:
        return self.store.uri

    @property
    def where(self) -> str:
        """The URI for people: a local folder is shown as its path."""
        return self.location.removeprefix("file://")

    @property
    def location(self) -> str:
        """The prefix of objects for engines that take locations literally: percent signs in it are not decoded."""
        return unquote(self.uri) if self.uri.startswith("file://") else self.uri

    def declare_table(
        self,
        table_id: str,
        partition_keys: Sequence[str],
        primary_keys: Sequence[str] = (),
        sort_keys: Sequence[SortKey | str | Sequence[str]] = (),
        *,
        tombstone_retention: int | None,
        schema_mode: SchemaMode | str | None = None,
        readers: Readers | str | None = None,
        cluster_by: str | Sequence[str] | None = None,
        columns: str | pa.Schema | None = None,
    ) -> Table:
        """Put table.json: see DeltaStreamCatalog.create_table. Raises ConflictError if the table is declared
        otherwise."""
        partition_keys = expect.names("partition_keys", partition_keys)
        for number, name in enumerate(partition_keys):
            if not name or name in partition_keys[:number]:
                raise InputError(f"partition key {name!r} is empty or named twice")
        primary_keys = () if primary_keys is None else expect.names("primary_keys", primary_keys)
        if sort_keys and not primary_keys:
            raise InputError("sort keys without primary keys: declare both or none")
        if tombstone_retention is not None and at_least("tombstone_retention", tombstone_retention, 0) > INT64_MAX:
            raise InputError(f"tombstone_retention is {tombstone_retention}, {INT64_MAX} at most")
        keys = TableKeys.of(primary_keys, sort_keys) if primary_keys else None
        check_path(f"table {str(table_id)[:40]!r}", table_root(table_id))
        if keys is not None:
            self._check_sort_keys(table_id, keys, partition_keys)
        mode = SchemaMode.MERGE if schema_mode is None else SchemaMode.of(schema_mode)
        read_by = None if readers is None else Readers.of(readers)
        by = None if cluster_by is None else clustering_of(cluster_by, partition_keys)
        table = Table(
            *(table_id, partition_keys, keys, tombstone_retention),
            schema_mode=mode,
            readers=read_by,
            creation=uuid.uuid4().hex,
            cluster_by=by or None,
            columns=None if columns is None else declared_columns(columns),
        )
        paths = TablePaths.of(table_id)
        effect = Effect(f"table {table_id!r}", "created", "repeat the command")
        self._refuse_dropped(table_id)
        with telling_interrupts():
            created = put_certainly(self.store, paths.table, dump(table_document(table)), effect)
        if created:
            with contextlib.suppress(StoreError):  # it is created: no later error may make the call fail
                self._refuse_dropped(table_id, paths.table)
        else:
            existing = self.described(table_id)
            if keys is None and table_from(table_id, self._table_document(table_id)).keys is None:
                table = replace(table, keys=existing.keys)  # of its first compaction, which may be under way
            said = {"schema_mode": schema_mode, "readers": readers, "cluster_by": cluster_by, "columns": columns}
            unsaid = {name: getattr(existing, name) for name, value in said.items() if value is None}
            table = replace(table, creation=existing.creation, **unsaid)
            if replace(existing, source_table_id=None, holds_streams=False, publication=None) != table:
                raise ConflictError(f"table {table_id!r} exists and is declared otherwise")
        return table

    def described(self, table_id: str) -> Table:
        """The table with its source, and its keys: declared, or of its first compaction. Raises NotFoundError."""
        path = TablePaths.of(table_id).source
        known = self._tables.get(table_id)
        if known is not None and (known.source_table_id is not None or known.holds_streams):
            return self._known(table_id)
        table, source = both(lambda: self._known(table_id), lambda: self._document_at(path), self.at_once)
        if source is not None:
            self._tables[table_id] = table = of_source(table, source["source_table_id"])
        return table

    def current_table(self, table_id: str) -> Table:
        """The table with its keys, after a look at table.json: is it still the one that this process remembers?

        Writers check before they append; compactions check before they plan. Without the check they would put their
        entry after the last entry that they know. In a dropped table nobody would read it; in a table that was created
        again, it would leave a hole in the log.
        """
        TablePaths.of(table_id)  # refuses what is not a name
        if table_id in self._tables:
            self._present(table_id)
        return self._known(table_id)

    def remembered_table(self, table_id: str) -> Table:
        """The table as this process last read it, without a request. Keys and source may be missing."""
        TablePaths.of(table_id)
        return self._tables.get(table_id) or self._known(table_id)

    def refuse_another(self, table: Table) -> None:
        """Raise ConflictError if another table has the name by now, NotFoundError if no table has it: one request."""
        if self.current_table(table.table_id).creation != table.creation:
            raise ConflictError(f"table {table.table_id!r} was dropped, and created again: start again")

    def _present(self, table_id: str) -> Table:
        """The table that table.json describes now. This process then remembers what was declared anew. It forgets the
        table that it knew if that was dropped, and another one created under its name."""
        try:
            found = table_from(table_id, self._table_document(table_id))
        except NotFoundError:
            self.forget(table_id)
            raise
        known = self._tables.get(table_id)
        if known is not None and known.creation != found.creation:
            self.forget(table_id)
        elif known is not None:
            self._tables[table_id] = replace(
                known, publication=found.publication, readers=found.readers, cluster_by=found.cluster_by
            )
        return found

    def _table_document(self, table_id: str) -> dict[str, Any]:
        path = TablePaths.of(table_id).table
        with self._saying_why_missing(table_id):
            data = self.store.get(path)
        return _own_document(table_id, data, path)

    @contextlib.contextmanager
    def _saying_why_missing(self, table_id: str) -> Iterator[None]:
        """Say of a table.json that is not there whether a drop has begun, or which table may be meant."""
        try:
            yield
        except BucketMissingError:
            raise
        except NotFoundError:
            begun = f": a drop of it has begun: repeat that ({_REPEAT})" if self._is_being_dropped(table_id) else ""
            why = begun or self._meant(table_id)
            raise NotFoundError(f"table {table_id!r} does not exist in {self.where}{why}") from None

    def _meant(self, table_id: str) -> str:
        with contextlib.suppress(DeltaCompactError):  # who may not list is told no other name
            folders = list(self.store.folders())
            return table_meant(table_id, map(table_name, folders)) if folders else ", where there are no tables"
        return ""

    def publication(self, table_id: str) -> str | None:
        """The URI to which the table is published today: "iceberg://prod/db.orders", "delta:///out". Raises
        NotFoundError."""
        declared = self._present(table_id)
        self._tables.setdefault(table_id, declared)
        return declared.publication

    def declare_publication(self, table_id: str, target: str | None, readers: Readers | None = None) -> None:
        """Record the table that shows the compacted rows from now on. None: no table does.

        `readers`: who reads the compacted files from now on, unless that was declared. Without a publication, readers
        may read plain files, with dead rows. The last writer wins.
        """
        if self.publication(table_id) == target:
            return
        known = self.remembered_table(table_id).readers
        if target is None and known is Readers.VECTORS:
            known = None
        self._declare_anew(table_id, publication=target, readers=known or readers)

    def declare_readers(self, table_id: str, readers: Readers | str) -> None:
        """Declare who reads the compacted files from now on, by `readers`: see Readers. The last writer wins.

        With "vectors", a compaction marks a few dead rows instead of rewriting their files.
        """
        self._declare_anew(table_id, readers=Readers.of(readers))

    def declare_cluster_by(self, table_id: str, cluster_by: str | Sequence[str]) -> None:
        """Lay rows out by `cluster_by` from the next compaction on. No columns: rows keep their order.

        The last writer wins. Raises InputError for unusable columns.
        """
        declared = table_from(table_id, self._table_document(table_id))
        by = clustering_of(cluster_by, declared.partition_keys)
        if (declared.cluster_by or "") != by:
            self._declare_anew(table_id, cluster_by=by or None)

    def declare_schema_mode(self, table_id: str, schema_mode: SchemaMode | str) -> None:
        """Let appends add columns from now on (`schema_mode` "merge"), or refuse those that would ("fixed").

        The last writer wins. Processes that have opened the table before go on as they have read it.
        """
        mode = SchemaMode.of(schema_mode)
        if table_from(table_id, self._table_document(table_id)).schema_mode is not mode:
            self._declare_anew(table_id, schema_mode=None if mode is SchemaMode.MERGE else mode)
        self._tables.pop(table_id, None)

    def _declare_anew(self, table_id: str, **facts: str | None) -> None:
        """Replace table.json by one with these facts. None: the fact is left out. Facts that others declare stay."""
        path = TablePaths.of(table_id).table

        def declared(data: bytes) -> bytes:
            known = _own_document(table_id, data, path) | facts
            return dump({name: fact for name, fact in known.items() if name not in facts or fact is not None})

        with self._saying_why_missing(table_id):
            replace_object(self.store, path, declared)
        self._present(table_id)

    def tables(self) -> list[str]:
        """Names of all tables."""
        return [table_name(folder) for folder in self.store.folders() if self._is_table(folder)]

    def declare_keys(self, table_id: str, keys: TableKeys | None) -> TableKeys:
        """Declare `keys` if the table has none. Returns the table's keys. Raises InputError if they differ."""
        table, paths = self._known(table_id), TablePaths.of(table_id)
        if table.keys is None:
            if keys is None:
                raise no_keys_yet(table)
            self.store.put_if_absent(paths.keys, dump({"format": FORMAT_VERSION, **keys_document(keys)}))
            table = self._known(table_id)
        assert table.keys is not None
        check_keys(table, keys)
        return table.keys

    def source_of(self, table_id: str) -> str | None:
        """The table whose destination this table is. None: it is not a destination."""
        source = self._document_at(TablePaths.of(table_id).source)
        if source is None or source["source_table_id"] is None:
            return None
        return str(source["source_table_id"])

    def forget(self, table_id: str) -> None:
        """Remember nothing of a table that was dropped."""
        self._tables.pop(table_id, None)

    # Inside

    def _known(self, table_id: str) -> Table:
        """The table as this process first read it, with its keys. It has its source only if a call has read that."""
        paths = TablePaths.of(table_id)
        known = self._tables.get(table_id)
        if known is None:
            known = table_from(table_id, self._table_document(table_id))
            self._tables[table_id] = known
        if known.keys is None:
            found = self._document_at(paths.keys)  # of the first compaction
            known = known.with_keys(None if found is None else keys_from(found))
        self._tables[table_id] = known  # keys never change; missing ones are looked up again next time
        return known

    def _check_sort_keys(self, table_id: str, keys: TableKeys, partition_keys: Sequence[str]) -> None:
        """Raise InputError for a sort key that no new table may have. Earlier releases created tables with it."""
        try:
            check_sort_keys(keys, partition_keys)
        except InputError:
            if not self._is_table(table_root(table_id)):
                raise

    def _refuse_dropped(self, table_id: str, created: str | None = None) -> None:
        """Raise ConflictError while a table of this name is being dropped. First delete `created`, if it is given."""
        if not self._is_being_dropped(table_id):
            return
        if created is not None:
            self.store.delete([created])
        raise ConflictError(
            f"table {table_id!r} is being dropped, or its drop was interrupted: repeat the drop ({_REPEAT}), then "
            "create the table"
        )

    def _is_being_dropped(self, table_id: str) -> bool:
        return bool(bytes_of(self.store, TablePaths.of(table_id).dropped))

    def _is_table(self, folder: str) -> bool:
        return bool(bytes_of(self.store, f"{folder}/table.json"))

    def _document_at(self, path: str) -> dict[str, Any] | None:
        """The JSON object in a file. None: there is no such file."""
        try:
            return document(self.store.get(path), path)
        except NotFoundError:
            return None


def _own_document(table_id: str, data: bytes, path: str) -> dict[str, Any]:
    """The content of table.json. Raises InputError if it is of another table."""
    found = document(data, path)
    if (named := found.get("table_id", table_id)) != table_id:  # its paths would lead to the files of that one
        raise InputError(
            f"{path} describes table {named!r}: a folder was copied or moved to another name, but its log has the "
            f"paths of {named!r}: give it that name again (a copy: in another catalog)"
        )
    return found
