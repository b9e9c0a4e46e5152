"""The only module that imports PyIceberg: catalogs, table metadata, column metrics and the commit.

    open_named("prod")          the catalog that .pyiceberg.yaml or PYICEBERG_CATALOG__PROD__… describes
    IcebergTable.load(…)        a table; `metadata` is what it said when it was loaded, as our own plain values
    table.commit(…)             one snapshot, by the public `Catalog.commit_table`, under requirements

We use PyIceberg for what it does right: catalogs, types, and metrics from Parquet footers. Its manifests drop fields,
its producers know neither `replace` nor delete files, its validation misses deletes; those are our own. What we use is
not all public, so `check_behaviour` tries it once in a process and refuses a release that behaves otherwise.

Its models of version 3 are whole, and its updates count row ids. But it refuses to write a metadata file of version 3,
which catalogs other than REST have the client do: its own producers would assign no row ids. Ours do, so we write it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import __version__ as pyiceberg_version
from pyiceberg.catalog import Catalog, MetastoreCatalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
    ValidationException,
)
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse as parse_expression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, expression_evaluator, inclusive_projection
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import Compressor
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV3
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as PySnapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
    update_table_metadata,
)
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import IcebergBaseModel, Record
from pyiceberg.types import DecimalType, DoubleType, FloatType, LongType, NestedField, PrimitiveType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from deltacompact.base.errors import ConflictError, DeltaCompactError, InputError, NotFoundError, StoreError
from deltacompact.base.wording import text_of
from deltacompact.catalog.iceberg.table import locations
from deltacompact.catalog.iceberg.table.column_metrics import Measured, metrics_of
from deltacompact.catalog.iceberg.table.content_files import (
    ContentFile,
    PartitionTuple,
    PartitionValue,
    Spec,
    SpecField,
)
from deltacompact.catalog.iceberg.table.metadata import MAIN, Column, Ref, Snapshot, StatisticsFile, TableMetadata
from deltacompact.catalog.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.field_ids import field_id

_LINEAGE = tuple(NestedField(field_id(column), column.name, LongType()) for column in (ROW_ID, LAST_UPDATED))

NAME_MAPPING = "schema.name-mapping.default"


class CommitUnansweredError(StoreError):
    """The catalog did not say whether a commit took effect. Whoever reads the table again can see."""


def open_named(name: str) -> Catalog:
    """The catalog that PyIceberg's configuration describes under this name. Raises InputError for an unknown one."""
    check_behaviour()
    if not name:
        raise InputError("iceberg:// names no catalog: iceberg://NAME, configured as PyIceberg does")
    try:
        with _answering(name):
            return load_catalog(name)
    except (ValueError, KeyError) as error:
        raise InputError(
            f"Iceberg catalog {name!r} is not configured (.pyiceberg.yaml, PYICEBERG_CATALOG__{name.upper()}__URI): "
            f"{text_of(error)}"
        ) from None


def is_catalog(value: object) -> bool:
    """Whether it is a loaded catalog of PyIceberg."""
    return isinstance(value, Catalog)


@contextlib.contextmanager
def _answering(name: str) -> Iterator[None]:
    """Errors of a catalog that does not answer, in one line. Ours, and errors of what was asked, pass."""
    try:
        yield
    except (DeltaCompactError, ValueError, KeyError, NoSuchTableError, NoSuchNamespaceError, CommitFailedException):
        raise
    except (ValidationError, FileNotFoundError):  # the catalog has answered: it is the table's metadata file
        raise
    except Exception as error:  # of requests, SQLAlchemy, botocore or Thrift, whichever catalog it is
        raise StoreError(f"Iceberg catalog {name!r} does not answer: {text_of(error)}") from error


def _first_of(error: Exception) -> str:
    """What an error says. Of those of pydantic, which name every field with a link to its manual, the first."""
    errors = getattr(error.__cause__, "errors", None)
    return text_of(errors()[0]["msg"] if callable(errors) else error)


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A table, and its metadata when it was loaded."""

    _table: Table
    metadata: TableMetadata

    @classmethod
    def load(cls, catalog: Catalog, table_id: str) -> IcebergTable:
        """The table of now (rule 26: never from a metadata file that was pinned before).

        Raises NotFoundError, and InputError for a table whose metadata a commit would damage.
        """
        check_behaviour()
        if "." not in table_id.strip("."):
            raise InputError(f"Iceberg table {table_id!r}: name it as namespace.table")
        try:
            with _answering(catalog.name):
                table = catalog.load_table(table_id)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise NotFoundError(f"Iceberg catalog {catalog.name!r} has no table {table_id!r}") from None
        except (ValueError, KeyError, ValidationError) as error:
            raise InputError(f"Iceberg table {table_id!r}: its metadata cannot be read: {_first_of(error)}") from error
        except FileNotFoundError as error:
            raise NotFoundError(f"Iceberg table {table_id!r}: its metadata is missing: {text_of(error)}") from error
        _refuse_unknown_transforms(table_id, table.metadata)
        if table.metadata.format_version >= 3:
            _check_version_3(table_id, table)
        return cls(table, _metadata(table_id, table.metadata, table.metadata_location))

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

        Files without field ids are read by name (`schema.name-mapping.default`). Raises InputError where the namespace
        is not there or the catalog refuses the columns.
        """
        check_behaviour()
        try:
            with (
                _answering(catalog.name),
                contextlib.suppress(TableAlreadyExistsError, CommitFailedException),
                catalog.create_table_transaction(table_id, columns, properties=dict(properties)) as made,
            ):
                with made.update_spec() as spec:
                    for name in partition_by:
                        spec.add_identity(name)
                made.set_properties({NAME_MAPPING: _name_mapping(made.table_metadata)})
        except NoSuchNamespaceError:
            namespace = table_id.rpartition(".")[0]
            raise NotFoundError(f"Iceberg catalog {catalog.name!r} has no namespace {namespace!r}") from None
        except (ValueError, TypeError, ValidationException) as error:
            raise InputError(f"Iceberg table {table_id!r} cannot be created: {text_of(error)}") from error

    def with_columns(self, columns: pa.Schema, properties: Mapping[str, str]) -> IcebergTable:
        """The table with columns added or widened to be like these, and with more properties.

        Raises InputError where Iceberg cannot widen a column so, ConflictError where another commit came first.
        """
        table_id = self.metadata.table_id
        try:
            with _answering(self._table.catalog.name), self._table.transaction() as change:
                with change.update_schema() as schema:
                    schema.union_by_name(columns)
                known = NAME_MAPPING in self.metadata.properties  # then the new columns are in it
                mapping = {} if known else {NAME_MAPPING: _name_mapping(change.table_metadata)}
                change.set_properties({**properties, **mapping})
        except CommitFailedException as error:
            raise ConflictError(f"{table_id}: {text_of(error)}") from error
        except (ValueError, TypeError, ValidationException) as error:
            raise InputError(f"Iceberg table {table_id!r} cannot take the columns: {text_of(error)}") from error
        return self.reloaded()

    def reloaded(self) -> IcebergTable:
        """The same table, as it is now. Raises ConflictError if it was dropped and created again."""
        found = self.load(self._table.catalog, self.metadata.table_id)
        if found.metadata.uuid != self.metadata.uuid:
            raise ConflictError(f"table {self.metadata.table_id!r} was dropped and created again meanwhile")
        return found

    @property
    def store(self) -> ObjectStore:
        """The store of the table's location."""
        return locations.store_of(self.metadata.location, self.io_properties)

    @property
    def io_properties(self) -> Mapping[str, str]:
        """What the catalog says about reaching the files ("s3.endpoint", …)."""
        return dict(self._table.io.properties)

    def counted(self, snapshot_id: int) -> int | None:
        """The rows of a snapshot, counted by PyIceberg's own reader. None: it cannot read equality deletes."""
        try:
            return int(self._table.scan(snapshot_id=snapshot_id).count())
        except (ValueError, NotImplementedError):
            return None

    def commit(self, snapshot: Snapshot, branch: str) -> IcebergTable:
        """Add the snapshot and make it the head of the branch, if the head is still the one of `metadata`.

        Raises ConflictError if the catalog refused for another commit's sake, InputError if it refused us, so that
        nothing has happened, and CommitUnansweredError if it did not say what happened.
        """
        ref = self.metadata.refs.get(branch)
        requirements = (
            AssertTableUUID(uuid=uuid.UUID(self.metadata.uuid)),
            AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": ref.snapshot_id if ref else None}),
        )
        return self._commit(requirements, (_added(snapshot), _moved(branch, snapshot.snapshot_id, ref)))

    def expire(self, snapshots: Collection[int], refs: Collection[str]) -> IcebergTable:
        """Remove snapshots with their statistics, and refs, if all refs are still those of `metadata`.

        Raises as `commit` does. A REST catalog cannot be asked whether there is a new ref: it would remove one that
        names a removed snapshot. The caller compares.
        """
        requirements: list[TableRequirement] = [AssertTableUUID(uuid=uuid.UUID(self.metadata.uuid))]
        requirements += [
            AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
            for name, ref in self.metadata.refs.items()
        ]
        if isinstance(self._table.catalog, MetastoreCatalog):
            requirements.append(_SameRefs(refs={name: ref.snapshot_id for name, ref in self.metadata.refs.items()}))  # type: ignore[arg-type]
        updates: list[TableUpdate] = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in refs]
        gone = [found for found in self.metadata.statistics if found.snapshot_id in snapshots]
        for number in sorted({found.snapshot_id for found in gone if not found.of_partitions}):
            updates.append(RemoveStatisticsUpdate.model_validate({"snapshot-id": number}))
        for number in sorted({found.snapshot_id for found in gone if found.of_partitions}):
            updates.append(RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": number}))
        if snapshots:
            updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(snapshots)}))
        return self._commit(tuple(requirements), tuple(updates))

    def _commit(self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]) -> IcebergTable:
        catalog = self._table.catalog
        if isinstance(catalog, MetastoreCatalog):
            catalog = _building(catalog, self.metadata.last_sequence_number)
        try:
            done = catalog.commit_table(self._table, requirements, updates)
        except (CommitFailedException, ValidationException, NoSuchTableError) as error:
            raise ConflictError(f"{self.metadata.table_id}: {text_of(error)}") from error
        except (ForbiddenError, UnauthorizedError, AuthorizationExpiredError, OAuthError) as error:
            raise InputError(f"{self.metadata.table_id}: the catalog refuses the commit: {text_of(error)}") from error
        except Exception as error:  # a lost connection, a server's error: the commit may have been carried out
            raise CommitUnansweredError(f"{self.metadata.table_id}: {text_of(error)}") from error
        metadata = _metadata(self.metadata.table_id, done.metadata, done.metadata_location)
        return IcebergTable(self._table, metadata)

    def may_match(self, where: str) -> Callable[[ContentFile], bool]:
        """Tells of a data file, by its partition and its column bounds, whether it may have rows for which it is true.

        Raises InputError for an expression that cannot be parsed, or that does not fit the columns.
        """
        metadata = self._table.metadata
        schema: Schema = metadata.schema()
        try:
            expression = parse_expression(where)
            by_bounds = _InclusiveMetricsEvaluator(schema, expression)
        except Exception as error:  # of the parser, of a column, or of a value's type
            raise InputError(f"where {where!r} is not an expression about this table: {text_of(error)}") from None
        known = set(schema.field_ids)
        by_partition = {
            spec.spec_id: _of_partition(spec, schema, expression)
            for spec in metadata.partition_specs
            if {field.source_id for field in spec.fields} <= known
        }

        def may(file: ContentFile) -> bool:
            partition = by_partition.get(file.spec_id)
            if partition is not None and not partition(file.partition):
                return False
            counts: dict[str, Any] = {name: dict(getattr(file, name)) for name in _METRICS}
            return bool(by_bounds.eval(DataFile.from_args(record_count=file.rows, **counts)))

        return may

    def partition_in(self, spec_id: int) -> Callable[[ContentFile], PartitionTuple | None]:
        """Tells of a data file in which partition of a spec all its rows lie, by its own partition and its bounds.

        None: they lie in several, or nobody knows. Raises InputError for a spec that the table does not have.
        """
        metadata = self._table.metadata
        specs = {spec.spec_id: spec for spec in metadata.partition_specs}
        if spec_id not in specs:
            known = ", ".join(str(number) for number in sorted(specs))
            raise InputError(f"table {self.metadata.table_id!r} has no partition spec {spec_id} (specs: {known})")
        schema: Schema = metadata.schema()

        def partition(file: ContentFile) -> PartitionTuple | None:
            if file.spec_id == spec_id:
                return file.partition
            own_fields = specs[file.spec_id].fields
            own = {
                (field.source_id, str(field.transform)): value
                for field, value in zip(own_fields, file.partition, strict=True)
            }
            values: list[PartitionValue] = []
            for field in specs[spec_id].fields:
                if isinstance(field.transform, VoidTransform):
                    values.append(None)
                elif (name := (field.source_id, str(field.transform))) in own:
                    values.append(own[name])
                elif (found := _constant(file, field, schema)) is not None:
                    values += found
                else:
                    return None
            return tuple(values)

        return partition

    def with_metrics(self, file: ContentFile, footer: pq.FileMetaData) -> ContentFile:
        """The data file with the column counts and bounds that its Parquet footer gives, by the table's modes."""
        schema: Schema = self._table.metadata.schema()
        if self.metadata.format_version >= 3:
            schema = Schema(*schema.fields, *_LINEAGE)
        found = metrics_of(footer, _measured(schema, self.metadata.properties))
        return replace(
            file,
            column_sizes=found.column_sizes,
            value_counts=found.value_counts,
            null_value_counts=found.null_value_counts,
            lower_bounds=found.lower_bounds,
            upper_bounds=found.upper_bounds,
            split_offsets=found.split_offsets,
        )


def _measured(schema: Schema, properties: Mapping[str, str]) -> dict[str, Measured]:
    """What is to be said of each column, by its path in a Parquet file with the schema's names."""
    plan = compute_statistics_plan(schema, dict(properties))
    measured = {}
    for path, number in parquet_path_to_id_mapping(schema).items():
        column = plan[number]
        mode = column.mode.type
        counts, bounds = mode is not MetricModeTypes.NONE, mode in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)
        measured[path] = Measured(number, str(column.iceberg_type), counts, bounds, column.mode.length)
    return measured


def _name_mapping(metadata: PyTableMetadata) -> str:
    """The JSON by which readers find columns in files that have no field ids."""
    mapping: NameMapping = metadata.schema().name_mapping
    return mapping.model_dump_json()


class _SameRefs(ValidatableTableRequirement):
    """No ref came, went or moved. Catalogs that PyIceberg itself commits to ask it about the metadata they replace."""

    type: Literal["deltacompact-same-refs"] = "deltacompact-same-refs"
    refs: dict[str, int]

    def validate(self, base_metadata: PyTableMetadata | None) -> None:  # type: ignore[override]
        found = {} if base_metadata is None else base_metadata.refs
        if {name: ref.snapshot_id for name, ref in found.items()} != self.refs:
            raise CommitFailedException("a branch or tag has been changed")


_METRICS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def _of_partition(
    spec: PartitionSpec, schema: Schema, expression: BooleanExpression
) -> Callable[[PartitionTuple], bool]:
    """Whether rows of a partition may match. Manifests hold decimals as bytes, which are turned into numbers."""
    struct = spec.partition_type(schema)
    projected = inclusive_projection(schema, spec)(expression)
    matches = expression_evaluator(Schema(*struct.fields), projected, True)
    types = [field.field_type for field in struct.fields]

    def may(partition: PartitionTuple) -> bool:
        values = [
            from_bytes(type_, value) if isinstance(type_, DecimalType) and isinstance(value, bytes) else value
            for type_, value in zip(types, partition, strict=True)
        ]
        return bool(matches(Record(*values)))

    return may


class _Version3(TableMetadataV3):
    """Metadata of version 3 that can be written."""

    def model_dump_json(self, *args: Any, **options: Any) -> str:
        return IcebergBaseModel.model_dump_json(self, *args, **options)

    @classmethod
    def of(cls, metadata: PyTableMetadata) -> _Version3:
        return cls.model_construct(**dict(metadata))


def _building(catalog: MetastoreCatalog, last_sequence_number: int) -> MetastoreCatalog:
    """The same catalog, for which the client builds and writes the metadata files.

    A commit onto another branch takes the next sequence number and row ids, so ours must begin again. REST servers
    check this themselves; PyIceberg does not in version 3.
    """
    kind: Any = type(catalog)

    class Building(kind):  # type: ignore[misc]
        def _update_and_stage_table(self, current: Table | None, *others: Any) -> StagedTable:
            found = getattr(current and current.metadata, "last_sequence_number", 0)
            if current is not None and found != last_sequence_number:
                raise CommitFailedException(f"the last sequence number is {found}, not {last_sequence_number}")
            staged: StagedTable = super()._update_and_stage_table(current, *others)
            if isinstance(staged.metadata, TableMetadataV3):
                staged.metadata = _Version3.of(staged.metadata)
            return staged

    building: Any = object.__new__(Building)
    building.__dict__ = catalog.__dict__  # the same connections and state, not a copy of them
    return building  # type: ignore[no-any-return]


def _refuse_unknown_transforms(table_id: str, metadata: PyTableMetadata) -> None:
    """Such partitions must not be written (spec, "Partition Transforms"), and PyIceberg would lose the name."""
    for spec in metadata.partition_specs:
        for field in spec.fields:
            if isinstance(field.transform, UnknownTransform):
                raise InputError(
                    f"partition field {field.name!r} of Iceberg table {table_id!r} has an unknown transform"
                )


def _check_version_3(table_id: str, table: Table) -> None:
    """Refuse metadata of which something would be lost, and metadata that does not count row ids."""
    if getattr(table.metadata, "next_row_id", None) is None:
        raise InputError(f"Iceberg table {table_id!r} has format version 3 but no next-row-id")
    if not isinstance(table.catalog, MetastoreCatalog):
        return
    location = table.metadata_location
    with _answering(table.catalog.name), table.io.new_input(location).open() as source:
        stored = json.load(Compressor.get_compressor(location).stream_decompressor(source))
    if stored.get("current-snapshot-id") == -1:  # some engines write it for none
        del stored["current-snapshot-id"]
    try:
        lost = _lost(stored, json.loads(_Version3.of(table.metadata).model_dump_json()))
    except ValueError:  # of pydantic: a default value of bytes that are no text
        lost = "initial-default"
    if lost is not None:
        raise InputError(
            f"Iceberg table {table_id!r} has {lost!r} in its metadata, which PyIceberg {pyiceberg_version} would lose"
        )


def _lost(stored: Any, written: Any, name: str = "metadata") -> str | None:
    """The name of something in `stored` that `written` lacks or has otherwise. Nothing is lost with what is empty."""
    if isinstance(stored, dict) and isinstance(written, dict):
        known = [(key, value) for key, value in stored.items() if value not in (None, [], {})]
        return next((lost for key, value in known if (lost := _lost(value, written.get(key), key)) is not None), None)
    if isinstance(stored, list) and isinstance(written, list) and len(stored) == len(written):
        pairs = zip(stored, written, strict=True)
        return next((lost for one, other in pairs if (lost := _lost(one, other, name)) is not None), None)
    return None if stored == written else name


_MONOTONIC = (IdentityTransform, TruncateTransform, YearTransform, MonthTransform, DayTransform, HourTransform)


def _constant(file: ContentFile, field: PartitionField, schema: Schema) -> tuple[PartitionValue] | None:
    """The one partition value that all rows of a file have, in a tuple; None: they have several, or nobody knows.

    Equal bounds are exact, though a bound may be cut: it is cut so that lower stays below and upper above.
    """
    number = field.source_id
    nulls, values = file.null_value_counts.get(number), file.value_counts.get(number)
    if nulls is None or not values or number not in schema.field_ids:
        return None
    if nulls == values:
        return (None,)
    low, high = file.lower_bounds.get(number), file.upper_bounds.get(number)
    type_ = schema.find_field(number).field_type
    inexact = (FloatType, DoubleType, DecimalType)  # NaN, -0.0, and numbers that manifests hold as bytes
    if nulls or low is None or high is None or not isinstance(type_, PrimitiveType) or isinstance(type_, inexact):
        return None
    if not isinstance(field.transform, _MONOTONIC) and not (
        isinstance(field.transform, BucketTransform) and low == high
    ):
        return None
    transform: Any = field.transform.transform(type_)
    try:
        first, last = (transform(from_bytes(type_, bound)) for bound in (low, high))
    except (ValueError, struct.error):  # a bound of the type that the column had before
        return None
    if first != last:
        return None
    return (first.bytes if isinstance(first, uuid.UUID) else first,)


def _added(snapshot: Snapshot) -> AddSnapshotUpdate:
    others = {name: value for name, value in snapshot.summary.items() if name != "operation"}
    described = {
        "snapshot-id": snapshot.snapshot_id,
        "parent-snapshot-id": snapshot.parent_id,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "manifest-list": snapshot.manifest_list,
        "schema-id": snapshot.schema_id,
        "summary": Summary(Operation(snapshot.summary["operation"]), **others),
        "first-row-id": snapshot.first_row_id,
        "added-rows": snapshot.added_rows,
    }
    return AddSnapshotUpdate(snapshot=PySnapshot.model_validate(described))


def _moved(branch: str, snapshot_id: int, before: Ref | None) -> SetSnapshotRefUpdate:
    """The branch's new head. The update replaces the ref, so its retention is repeated."""
    described = {
        "ref-name": branch,
        "type": "branch",
        "snapshot-id": snapshot_id,
        "max-ref-age-ms": before.max_ref_age_ms if before else None,
        "max-snapshot-age-ms": before.max_snapshot_age_ms if before else None,
        "min-snapshots-to-keep": before.min_snapshots_to_keep if before else None,
    }
    return SetSnapshotRefUpdate.model_validate(described)


def _metadata(table_id: str, metadata: PyTableMetadata, location: str) -> TableMetadata:
    schema = metadata.schema()
    return TableMetadata(
        table_id=table_id,
        uuid=str(metadata.table_uuid),
        location=metadata.location,
        metadata_location=location,
        format_version=metadata.format_version,
        last_sequence_number=getattr(metadata, "last_sequence_number", 0) or 0,
        schema_id=schema.schema_id,
        schema_json=schema.model_dump_json(),
        schema=schema_to_pyarrow(schema),
        columns=_columns(metadata),
        specs={spec.spec_id: _spec(spec, metadata) for spec in metadata.partition_specs},
        default_spec_id=metadata.default_spec_id,
        properties=dict(metadata.properties),
        refs={
            name: Ref(
                ref.snapshot_id,
                str(ref.snapshot_ref_type.value),
                ref.max_ref_age_ms,
                ref.max_snapshot_age_ms,
                ref.min_snapshots_to_keep,
            )
            for name, ref in metadata.refs.items()
        },
        snapshots={found.snapshot_id: _snapshot(found) for found in metadata.snapshots},
        next_row_id=getattr(metadata, "next_row_id", None),
        statistics=tuple(
            StatisticsFile(found.snapshot_id, found.statistics_path, found.file_size_in_bytes, of_partitions)
            for files, of_partitions in ((metadata.statistics, False), (metadata.partition_statistics, True))
            for found in files
        ),
        metadata_log=tuple(entry.metadata_file for entry in metadata.metadata_log),
    )


def _snapshot(found: PySnapshot) -> Snapshot:
    summary: dict[str, str] = {}
    if found.summary is not None:
        summary = {"operation": found.summary.operation.value, **found.summary.additional_properties}
    return Snapshot(
        found.snapshot_id,
        found.parent_snapshot_id,
        found.sequence_number or 0,
        found.timestamp_ms,
        found.manifest_list,
        found.schema_id,
        summary,
        found.first_row_id,
        found.added_rows,
    )


def _columns(metadata: PyTableMetadata) -> dict[int, Column]:
    """Every field of every schema. The current schema wins, then the newest."""
    current = metadata.schema()
    newest: dict[int, tuple[NestedField, bool]] = {}
    for schema in [*sorted(metadata.schemas, key=lambda schema: schema.schema_id), current]:
        top_level = {field.field_id for field in schema.fields}
        newest |= {number: (schema.find_field(number), number in top_level) for number in schema.field_ids}
    arrow = dict(_fields_by_id(schema_to_pyarrow(current)))  # at once: a wide table takes long field by field
    columns: dict[int, Column] = {}
    for number, (field, is_top_level) in newest.items():
        in_arrow = arrow[number] if number in arrow else schema_to_pyarrow(Schema(field)).field(0)
        value = field.initial_default
        default = None if value is None else _scalar(value, in_arrow.type)
        is_dropped = number not in current.field_ids
        columns[number] = Column(in_arrow, str(field.field_type), is_top_level, value is not None, default, is_dropped)
    return columns


def _fields_by_id(fields: Iterable[pa.Field]) -> Iterator[tuple[int, pa.Field]]:
    """Fields at any depth, with their ids."""
    for field in fields:
        number = field_id(field)
        if number is not None:
            yield number, field
        yield from _fields_by_id(field.type.field(place) for place in range(field.type.num_fields))


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    """The value in Arrow's type; None: Arrow cannot hold it."""
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None


def _spec(spec: PartitionSpec, metadata: PyTableMetadata) -> Spec:
    """The spec, with the Avro definition of its partition struct."""
    schemas = [metadata.schema(), *sorted(metadata.schemas, key=lambda schema: -schema.schema_id)]
    sources = {field.source_id for field in spec.fields}
    known = next((schema for schema in schemas if sources <= set(schema.field_ids)), schemas[0])
    struct = spec.partition_type(known)
    avro: Any = AvroSchemaConversion().iceberg_to_avro(Schema(*struct.fields), "r102")
    fields = tuple(
        SpecField(field.field_id, field.source_id, field.name, str(field.transform), dict(avro_field))
        for field, avro_field in zip(spec.fields, avro["fields"], strict=True)
    )
    described = [
        {"name": part.name, "transform": part.transform, "source-id": part.source_id, "field-id": part.field_id}
        for part in fields
    ]
    return Spec(spec.spec_id, fields, json.dumps(described))


@functools.cache
def check_behaviour() -> None:
    """Try what we use of PyIceberg on a table of one column. Raises InputError in one line if it behaves otherwise."""
    try:
        _try_it()
    except Exception as error:
        raise InputError(
            f"PyIceberg {pyiceberg_version} does not behave as deltacompact needs ({text_of(error)}): "
            "install a release that deltacompact's pyproject.toml allows"
        ) from error


def _try_it() -> None:
    fields = [{"id": 7, "name": "day", "type": "date", "required": False}]
    before = TableMetadataUtil.parse_obj(
        {
            "format-version": 2,
            "table-uuid": str(uuid.UUID(int=1)),
            "location": "memory://probe",
            "last-sequence-number": 4,
            "last-updated-ms": 0,
            "last-column-id": 7,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
            "default-spec-id": 0,
            "partition-specs": [
                {
                    "spec-id": 0,
                    "fields": [{"name": "day", "transform": "identity", "source-id": 7, "field-id": 1000}],
                }
            ],
            "last-partition-id": 1000,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {},
        }
    )
    read = _metadata("probe.t", before, "")
    _expect("field ids in Arrow schemas", (read.schema.field(0).metadata or {}).get(b"PARQUET:field_id") == b"7")
    part = read.specs[0].fields[0].avro
    _expect("field ids in Avro schemas", part.get("field-id") == 1000)
    _expect("dates in Avro schemas", {"type": "int", "logicalType": "date"} in part["type"])
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([5, 3, None], pa.date32())], schema=read.schema), sink)
    metrics = metrics_of(pq.read_metadata(io.BytesIO(sink.getvalue())), _measured(before.schema(), {}))
    _expect("column bounds", metrics.lower_bounds == {7: b"\3\0\0\0"} and metrics.null_value_counts == {7: 1})
    words = {"operation": "replace", "added-records": "3"}
    snapshot = Snapshot(9, None, 5, 1, "memory://list", 0, words)
    after = update_table_metadata(before, (_added(snapshot), _moved(MAIN, 9, None)))
    found = _metadata("probe.t", after, "")
    _expect("snapshots of the operation replace", found.snapshots[9].summary["operation"] == "replace")
    _expect("refs", found.refs[MAIN].snapshot_id == 9 and found.last_sequence_number == 5)
    described = json.loads(before.model_dump_json()) | {"format-version": 3, "next-row-id": 20}
    numbered = (_added(replace(snapshot, first_row_id=20, added_rows=5)), _moved(MAIN, 9, None))
    read_3 = TableMetadataUtil.parse_obj(described)
    _expect("metadata of version 3", _lost(described, json.loads(_Version3.of(read_3).model_dump_json())) is None)
    kept = json.loads(_Version3.of(update_table_metadata(read_3, numbered)).model_dump_json())
    _expect("row ids in metadata", kept["next-row-id"] == 25 and kept["snapshots"][0]["first-row-id"] == 20)
    _expect("catalogs that build metadata", hasattr(MetastoreCatalog, "_update_and_stage_table"))
    _expect("summaries as JSON", '"operation":"replace"' in after.model_dump_json())
    with contextlib.suppress(CommitFailedException):
        AssertRefSnapshotId.model_validate({"ref": MAIN, "snapshot-id": 8}).validate(after)
        raise AssertionError("a requirement about a branch's head was not checked")
    less = update_table_metadata(after, (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [9]}),))
    _expect("snapshots that are removed", not less.snapshots and not less.refs)


def _expect(what: str, holds: bool) -> None:
    if not holds:
        raise AssertionError(f"{what} differ")
