"""A loaded table: its metadata when it was loaded, and all that we ask of its catalog.

table = IcebergTable.load(catalog, "ns.t")      head 8
table.commit(snapshot, "main")                  refused, if the head is another one by now
table.reloaded()                                head 9
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchPropertyException, NoSuchTableError
from pyiceberg.schema import index_name_by_id
from pyiceberg.table import Table, TableProperties
from pyiceberg.utils.properties import property_as_int

from deltacompact.base.backoff import wait_s
from deltacompact.base.errors import (
    ConflictError,
    CredentialsError,
    DeltaCompactError,
    InputError,
    NotFoundError,
    StoreError,
)
from deltacompact.base.wording import table_meant, text_of
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.content_files import ContentFile, PartitionTuple
from deltacompact.iceberg.table.metadata import Snapshot, StatisticsFile, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door.behaviour import check_behaviour
from deltacompact.iceberg.table.pyiceberg_door.catalogs import make_ready
from deltacompact.iceberg.table.pyiceberg_door.commits import Change, adding, commit, expiring, moving, tagging
from deltacompact.iceberg.table.pyiceberg_door.creating import create_table, give_columns
from deltacompact.iceberg.table.pyiceberg_door.errors import UNREADABLE, answering, first_of
from deltacompact.iceberg.table.pyiceberg_door.metrics import counted_for_nan, file_with_metrics
from deltacompact.iceberg.table.pyiceberg_door.neighbours import Neighbour, neighbours
from deltacompact.iceberg.table.pyiceberg_door.partitions import partition_in_spec, refuse_unknown_transforms
from deltacompact.iceberg.table.pyiceberg_door.plain import plain_metadata
from deltacompact.iceberg.table.pyiceberg_door.version_3 import check_version_3
from deltacompact.iceberg.table.pyiceberg_door.views import read_once, view_of, writes_metadata
from deltacompact.iceberg.table.pyiceberg_door.where import files_that_may_match
from deltacompact.iceberg.table.unknown_types import with_stored_types
from deltacompact.storage.identity import file_name
from deltacompact.storage.objects import ObjectStore

ENCRYPTION_KEY = "encryption.key-id"
"""The table property that names the key of an encrypted table. Manifest lists are encrypted then, too."""
_DELETES_VERSIONS = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED
SILENT_S = 30.0
"""How long we ask again if the catalog does not answer any more."""


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A table, and its metadata when it was loaded."""

    _table: Table
    metadata: TableMetadata

    @classmethod
    def load(cls, catalog: Catalog, table_id: str, former: IcebergTable | None = None) -> IcebergTable:
        """The current table (rule 26: never from a metadata file that was pinned before).

        `former`: the same table, loaded before; it comes back if the catalog still has its metadata file. Raises
        NotFoundError, and InputError for a table that is encrypted, or whose metadata a commit would damage.
        """
        check_behaviour()
        if "." not in table_id.strip("."):
            raise InputError(f"Iceberg table {table_id!r}: name it as namespace.table")
        make_ready(catalog)
        with read_once() as read:
            return cls._loaded(catalog, table_id, former, read)

    @classmethod
    def _loaded(
        cls, catalog: Catalog, table_id: str, former: IcebergTable | None, read: Mapping[str, bytes]
    ) -> IcebergTable:
        try:
            with answering(catalog.name, f"the request for {table_id!r}"):
                table = view_of(catalog, former._table if former else None).load_table(table_id)
        except (NoSuchTableError, NoSuchNamespaceError):
            meant = _meant(catalog, table_id)
            raise NotFoundError(f"Iceberg catalog {catalog.name!r} has no table {table_id!r}{meant}") from None
        except NoSuchPropertyException as error:
            raise InputError(
                f"{table_id!r} of Iceberg catalog {catalog.name!r} is no Iceberg table: {text_of(error)}"
            ) from error
        except UNREADABLE as error:
            which = " ".join(["metadata", *list(read)[-1:]])
            raise InputError(f"Iceberg table {table_id!r}: its {which} cannot be read: {first_of(error)}") from error
        except FileNotFoundError as error:
            raise NotFoundError(f"Iceberg table {table_id!r}: its metadata is missing: {text_of(error)}") from error
        if former is not None and table is former._table and former._is_as_loaded:
            return former
        table.catalog = catalog
        if table.metadata.properties.get(ENCRYPTION_KEY):
            raise InputError(
                f"Iceberg table {table_id!r} is encrypted ({ENCRYPTION_KEY}): deltacompact writes plain files"
            )
        refuse_unknown_transforms(table_id, table.metadata)
        if table.metadata.format_version >= 3:
            check_version_3(table_id, table)
        found = cls(table, plain_metadata(table_id, table.metadata, table.metadata_location))
        return replace(found, metadata=with_stored_types(found.metadata, lambda: found.store))

    @classmethod
    def create(
        cls,
        catalog: Catalog,
        table_id: str,
        columns: pa.Schema,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
    ) -> None:
        """Create a table with these columns, partitioned by the values of some. One that exists stays as it is.

        Files without field ids are read by name. Raises InputError where the namespace is not there or the catalog
        refuses the columns.
        """
        check_behaviour()
        create_table(catalog, table_id, columns, partition_by, properties)

    def with_columns(self, columns: pa.Schema, properties: Mapping[str, str]) -> IcebergTable:
        """The table with columns added or widened to be like these, and with more properties.

        Raises InputError where Iceberg cannot widen a column so, ConflictError where another commit came first.
        """
        give_columns(self._table, self.metadata.table_id, columns, properties)
        return self.reloaded()

    def reloaded(self) -> IcebergTable:
        """The same table, as it is now. Raises ConflictError if it was dropped and created again.

        A catalog that does not answer is asked again for half a minute: servers restart while we work.
        """
        deadline_s = time.monotonic() + SILENT_S
        for tried in itertools.count():
            try:
                found = self.load(self._table.catalog, self.metadata.table_id, self)
                break
            except StoreError:
                pause_s = wait_s(tried, 0.1, 5.0, least=0.5)
                if time.monotonic() + pause_s > deadline_s:
                    raise
            time.sleep(pause_s)
        if found.metadata.uuid != self.metadata.uuid:
            raise ConflictError(f"table {self.metadata.table_id!r} was dropped and created again meanwhile")
        return found

    @property
    def _is_as_loaded(self) -> bool:
        """Whether `metadata` is the loaded one, not that after a commit of ours."""
        return self.metadata.metadata_location == self._table.metadata_location

    @property
    def store(self) -> ObjectStore:
        """The store of the table's location."""
        return locations.store_of(self.metadata.location, self.io_properties)

    @property
    def io_properties(self) -> Mapping[str, str]:
        """The catalog's properties for reaching the files ("s3.endpoint", …)."""
        return dict(self._table.io.properties)

    def neighbours(self, say: Callable[[str], None]) -> Iterator[Neighbour]:
        """The other tables of the catalog. Raises UnlistedError where it does not show them all."""
        return neighbours(self._table.catalog, self._table.name(), say)

    def counted(self, snapshot_id: int) -> int | None:
        """The rows of a snapshot, counted by PyIceberg's own reader. None: it cannot read equality deletes."""
        try:
            return int(self._table.scan(snapshot_id=snapshot_id).count())
        except (ValueError, NotImplementedError):
            return None

    def check_versions_kept(self) -> None:
        """Raises InputError where the catalog's client cannot read how many metadata files stay: no commit succeeds."""
        try:
            if writes_metadata(self._table.catalog):
                property_as_int(self._table.metadata.properties, TableProperties.METADATA_PREVIOUS_VERSIONS_MAX)
        except ValueError as error:
            raise InputError(f"Iceberg table {self.metadata.table_id!r}: {text_of(error)}") from error

    def commit(
        self,
        snapshot: Snapshot,
        branch: str,
        properties: Mapping[str, str] = MappingProxyType({}),
        properties_gone: Collection[str] = (),
        statistics: StatisticsFile | None = None,
        *,
        staged: Callable[[str], None],
    ) -> IcebergTable:
        """Add the snapshot and make it the head of the branch, if the head is still the one of `metadata`.

        `staged` is told the new metadata file before it is written, if the catalog's client writes it.
        Properties and statistics change in the same commit. Raises ConflictError if another commit came first,
        InputError if the catalog refused us (nothing has happened then), and CommitUnansweredError if it did not say
        what happened.
        """
        change = adding(self.metadata, snapshot, branch, properties, properties_gone, statistics)
        return self._after(commit(self._table, self.metadata, change, staged))

    def expire(self, snapshots: Collection[int], refs: Collection[str]) -> IcebergTable:
        """Remove snapshots with their statistics, and refs, if all refs are still those of `metadata`.

        Raises as `commit` does. A REST catalog does not check for new refs: it would remove a new ref together with its
        snapshot. So the caller compares refs before.
        """
        return self._committed(expiring(self.metadata, snapshots, refs), all_refs=True)

    def move(self, branch: str, snapshot_id: int) -> IcebergTable:
        """Make a snapshot of the table the head of a branch, if the head is still the one of `metadata`.

        Raises as `commit` does.
        """
        return self._committed(moving(self.metadata, branch, snapshot_id))

    def tag(self, tags: Mapping[str, int | None], until_ms: int, properties: Mapping[str, str | None]) -> IcebergTable:
        """Set tags, which expire at `until_ms`, or (None) remove them, if all are still those of `metadata`.

        Properties that go with them are set or removed, too.

        Raises as `commit`.
        """
        change = tagging(self.metadata, tags, until_ms, properties)
        return self._committed(change) if change[1] else self

    def unnamed(self, staged: Sequence[str]) -> list[str]:
        """The metadata files of a refused commit that the table has not come to after all."""
        named = set(map(file_name, (self.metadata.metadata_location, *self.metadata.metadata_log)))
        return [location for location in staged if file_name(location) not in named]

    def _committed(self, change: Change, all_refs: bool = False) -> IcebergTable:
        """The table after a change. The metadata file of a refused one is deleted once the table, loaded again, does
        not name it: a refusal may answer a second sending."""
        staged: list[str] = []
        try:
            return self._after(commit(self._table, self.metadata, change, staged.append, all_refs))
        except (ConflictError, InputError, CredentialsError):
            if staged:
                with contextlib.suppress(DeltaCompactError):  # then it is an orphan, which maintain removes
                    locations.discard_all(self.store, self.reloaded().unnamed(staged))
            raise

    def _after(self, metadata: TableMetadata) -> IcebergTable:
        """The table after our commit. It changes no spec, so types that manifests told are kept."""
        if metadata.properties.get(_DELETES_VERSIONS, "").lower() == "true" and writes_metadata(self._table.catalog):
            gone = set(self.metadata.metadata_log) - {metadata.metadata_location, *metadata.metadata_log}
            with contextlib.suppress(DeltaCompactError):  # then they are orphans, which maintain removes
                locations.discard_all(self.store, sorted(gone))
        return IcebergTable(self._table, replace(metadata, specs={**metadata.specs, **self.metadata.specs}))

    def may_match(self, where: str) -> Callable[[ContentFile], bool]:
        """A function that tells, by partition and column bounds, whether a data file may have rows that match `where`.

        Raises InputError for an expression that cannot be parsed, or that does not fit the columns.
        """
        return files_that_may_match(where, self._table.metadata)

    def partition_in(self, spec_id: int) -> Callable[[ContentFile], PartitionTuple | None]:
        """A function that gives the partition of this spec with all rows of a data file, by its partition and bounds.

        None: several, or unknown. Raises InputError for a spec that the table does not have.
        """
        return partition_in_spec(spec_id, self._table.metadata, self.metadata.table_id)

    def field_ids(self, snapshot: Snapshot) -> frozenset[int]:
        """The field ids of a snapshot's schema; of today's schema if the snapshot names none."""
        schemas = {schema.schema_id: schema for schema in self._table.metadata.schemas}
        found = schemas.get(snapshot.schema_id) if snapshot.schema_id is not None else None
        return frozenset((found or self._table.metadata.schema()).field_ids)

    def renamed(self, schema_id: int) -> list[tuple[str, str]]:
        """The columns of today whose values stood under another name by that schema: (that name, today's).

        Under the same name: a column of that name was dropped, and made anew with other values or a default. Empty
        where the schema is forgotten.
        """
        if schema_id == self.metadata.schema_id:
            return []
        schemas = {schema.schema_id: index_name_by_id(schema) for schema in self._table.metadata.schemas}
        was, now = schemas.get(schema_id), index_name_by_id(self._table.metadata.schema())
        if was is None:
            return []
        others = {(name, number) for schema in schemas.values() for number, name in schema.items()}
        ids: dict[str, set[int]] = {}
        for name, number in others:
            ids.setdefault(name, set()).add(number)
        return [
            (was.get(number, name), name)
            for number, name in now.items()
            if was.get(number, name) != name
            or (number not in was and (len(ids[name]) > 1 or self.metadata.columns[number].has_default))
        ]

    def counted_for_nan(self, bounded: Collection[str] = ()) -> Mapping[str, int]:
        """The field ids of columns whose NaN are to be counted, by path in a Parquet file with today's names."""
        return counted_for_nan(self._table.metadata, bounded)

    def with_metrics(
        self,
        file: ContentFile,
        footer: pq.FileMetaData,
        nan_counts: Mapping[int, int] | None = None,
        bounded: Collection[str] = (),
    ) -> ContentFile:
        """The data file with the column counts and bounds that its Parquet footer gives, by the table's modes.

        `nan_counts`: how many NaN a column has, by field id. A float column without a count has no bounds.
        `bounded`: columns that have bounds whatever the modes are, because rows are ordered by them.
        """
        return file_with_metrics(file, footer, self._table.metadata, nan_counts or {}, bounded)


def _meant(catalog: Catalog, table_id: str) -> str:
    with contextlib.suppress(Exception):  # who may not list is told no other name, whatever the catalog raises
        names = [".".join(name) for name in catalog.list_tables(table_id.rpartition(".")[0])]
        return table_meant(table_id, names)
    return ""
