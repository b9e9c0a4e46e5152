"""Tries the parts of PyIceberg that we use and that are not public: once in a process, on a table in memory.

    schema_to_pyarrow gives no field ids      "field ids in Arrow schemas" differ: one line, before any work

A release is judged by what it does, not by its number. A name that is gone altogether is noticed when this room is
imported. Each probe names what it tries.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import update_table_metadata

from deltacompact.base.wording import text_of
from deltacompact.iceberg.table.content_files import Content, ContentFile
from deltacompact.iceberg.table.metadata import MAIN, Snapshot, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door.commits import SameRefs, added, adding, expiring, moved
from deltacompact.iceberg.table.pyiceberg_door.creating import name_mapping
from deltacompact.iceberg.table.pyiceberg_door.metrics import file_with_metrics
from deltacompact.iceberg.table.pyiceberg_door.partitions import partition_in_spec
from deltacompact.iceberg.table.pyiceberg_door.plain import plain_metadata
from deltacompact.iceberg.table.pyiceberg_door.release import unfit
from deltacompact.iceberg.table.pyiceberg_door.version_3 import WritableVersion3, what_is_lost
from deltacompact.iceberg.table.pyiceberg_door.views import view_of
from deltacompact.iceberg.table.pyiceberg_door.where import files_that_may_match

_DAY, _PRICE = 7, 8
_DAY_5, _DAY_6 = b"\5\0\0\0", b"\6\0\0\0"
_TABLE = {
    "format-version": 2,
    "table-uuid": str(uuid.UUID(int=1)),
    "location": "file:///nowhere",
    "last-sequence-number": 4,
    "last-updated-ms": 0,
    "last-column-id": _PRICE,
    "current-schema-id": 0,
    "schemas": [
        {
            "type": "struct",
            "schema-id": 0,
            "fields": [
                {"id": _DAY, "name": "day", "type": "date", "required": False},
                {"id": _PRICE, "name": "price", "type": "decimal(9, 2)", "required": False},
            ],
        }
    ],
    "default-spec-id": 0,
    "partition-specs": [
        {"spec-id": 0, "fields": [{"name": "price", "transform": "identity", "source-id": _PRICE, "field-id": 1000}]},
        {
            "spec-id": 1,
            "fields": [
                {"name": "day_month", "transform": "month", "source-id": _DAY, "field-id": 1001},
                {"name": "day_bucket", "transform": "bucket[4]", "source-id": _DAY, "field-id": 1002},
            ],
        },
    ],
    "last-partition-id": 1002,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "properties": {},
}
_SNAPSHOT = Snapshot(9, None, 5, 1, "file:///nowhere/list", 0, {"operation": "replace", "added-records": "3"})
_STATISTICS = {"snapshot-id": 9, "statistics-path": "s", "file-size-in-bytes": 1}


@functools.cache
def check_behaviour() -> None:
    """Try what we use of PyIceberg. Raises InputError, of one line, if a part behaves differently than we need."""
    check(_PROBES)


def check(probes: Mapping[str, Callable[[], bool]]) -> None:
    """Run all probes, by the names of what they try. Raises InputError for the first that does not hold."""
    for what, holds in probes.items():
        try:
            found = "" if holds() else "other values"
        except Exception as error:
            found = f"{type(error).__name__}: {text_of(error)}"
            if KeyboardInterrupt.__name__ in found:  # pydantic makes an error of Ctrl-C inside of its callbacks
                raise KeyboardInterrupt from error
        if found:
            raise unfit(f"{what} differ ({found})")


def _table(**changes: Any) -> PyTableMetadata:
    return TableMetadataUtil.parse_obj(_TABLE | {name.replace("_", "-"): value for name, value in changes.items()})


def _plain(metadata: PyTableMetadata) -> TableMetadata:
    return plain_metadata("probe.t", metadata, "")


def _committed(metadata: PyTableMetadata, snapshot: Snapshot = _SNAPSHOT) -> PyTableMetadata:
    return update_table_metadata(metadata, (added(snapshot), moved(MAIN, snapshot.snapshot_id, None)))


def _file(low: bytes = _DAY_5, high: bytes = _DAY_5, price: int = 150) -> ContentFile:
    """A file of three rows, in the partition of a price, with the bounds of its days."""
    return ContentFile(
        Content.DATA,
        "a.parquet",
        "PARQUET",
        0,
        (price,),
        3,
        9,
        value_counts={_DAY: 3},
        null_value_counts={_DAY: 0},
        lower_bounds={_DAY: low},
        upper_bounds={_DAY: high},
    )


def _arrow_schemas() -> bool:
    column = _plain(_table()).schema.field(0)
    return column.type == pa.date32() and (column.metadata or {}).get(b"PARQUET:field_id") == b"7"


def _avro_schemas() -> bool:
    price, month = (_plain(_table()).specs[number].fields[0] for number in (0, 1))
    decimals = [kind for kind in price.avro["type"] if isinstance(kind, dict)]
    return (
        price.avro.get("field-id") == 1000
        and [(kind["logicalType"], kind["precision"], kind["scale"]) for kind in decimals] == [("decimal", 9, 2)]
        and "int" in month.avro["type"]
        and month.transform == "month"
    )


def _metrics() -> bool:
    metadata = _table()
    columns = [pa.array([5, 3, None], pa.date32()), pa.array([Decimal("1.50")] * 3, pa.decimal128(9, 2))]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=_plain(metadata).schema), sink)
    found = file_with_metrics(_file(), pq.read_metadata(io.BytesIO(sink.getvalue())), metadata, {})
    return found.lower_bounds[_DAY] == b"\3\0\0\0" and found.null_value_counts == {_DAY: 1, _PRICE: 0}


def _where() -> bool:
    may = files_that_may_match("day > '1970-01-06' and price = 1.50", _table())
    return may(_file(high=_DAY_6)) and not may(_file()) and not may(_file(high=_DAY_6, price=9))


def _partitions() -> bool:
    within = partition_in_spec(1, _table(), "probe.t")
    month, bucket = within(_file()) or (None, None)
    return month == 0 and bucket in range(4) and within(_file(high=_DAY_6)) is None


def _snapshots() -> bool:
    after = _committed(_table())
    found = _plain(after)
    return (
        found.snapshots[9].summary == {"operation": "replace", "added-records": "3"}
        and found.refs[MAIN].snapshot_id == 9
        and found.last_sequence_number == 5
        and '"operation":"replace"' in after.model_dump_json()
    )


def _requests() -> bool:
    """Whether requests to REST catalogs have the form that servers expect."""
    requirements, updates = adding(_plain(_table()), replace(_SNAPSHOT, first_row_id=20, added_rows=5), MAIN)
    sent = [json.loads(part.model_dump_json()) for part in (*requirements, *updates)]
    kinds = [part.get("type") or part["action"] for part in sent]
    return (
        kinds == ["assert-table-uuid", "assert-ref-snapshot-id", "add-snapshot", "branch"]
        and sent[2]["snapshot"]["first-row-id"] == 20
        and sent[2]["snapshot"]["added-rows"] == 5
        and sent[3]["action"] == "set-snapshot-ref"
    )


def _requirements() -> bool:
    """Whether a catalog checks our requirements: same table, same head, same refs."""
    before, after = _table(), _committed(_table())
    (same_table, same_head), _ = adding(_plain(before), _SNAPSHOT, MAIN)
    other = _table(table_uuid=str(uuid.UUID(int=2)))
    asked: list[tuple[Any, PyTableMetadata]] = [
        (same_table, other),
        (same_head, after),
        (SameRefs(refs={}), after),
    ]
    return all(
        _holds(requirement, before) is not False and not _holds(requirement, changed) for requirement, changed in asked
    )


def _holds(requirement: Any, metadata: PyTableMetadata) -> bool:
    try:
        requirement.validate(metadata)
    except CommitFailedException:
        return False
    return True


def _expiry() -> bool:
    described = _STATISTICS | {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    metadata = _table(statistics=[described], partition_statistics=[_STATISTICS])
    after = _committed(metadata)
    _, updates = expiring(_plain(after), {9}, {MAIN})
    left = _plain(update_table_metadata(after, updates))
    return not left.snapshots and not left.refs and not left.statistics


def _version_3() -> bool:
    described = _TABLE | {"format-version": 3, "next-row-id": 20}
    before = TableMetadataUtil.parse_obj(described)
    kept = json.loads(WritableVersion3.of(before).model_dump_json())
    after = _committed(before, replace(_SNAPSHOT, first_row_id=20, added_rows=5))
    written = json.loads(WritableVersion3.of(after).model_dump_json())
    return (
        what_is_lost(described, kept) is None
        and written["next-row-id"] == 25
        and written["snapshots"][0]["first-row-id"] == 20
    )


def _stored_metadata() -> bool:
    stored = io.BytesIO(gzip.compress(b"{}"))
    compressor = Compressor.get_compressor("00001-a.gz.metadata.json")
    return bool(compressor.stream_decompressor(stored).read() == b"{}")


def _catalogs_that_build() -> bool:
    """Whether catalogs that build metadata themselves check all requirements, and write the metadata we give them."""
    kind: Any = type("Nowhere", (MetastoreCatalog,), {})
    kind.__abstractmethods__ = frozenset()
    catalog = kind("probe")
    before = _table(format_version=3, next_row_id=20)
    current = Table(("probe", "t"), before, "file:///nowhere/00001-a.metadata.json", PyArrowFileIO(), catalog)
    requirements, updates = adding(_plain(before), replace(_SNAPSHOT, first_row_id=20, added_rows=5), MAIN)

    def staged(last_sequence_number: int, *more: Any) -> Any:
        asked = (*requirements, *more)
        view: Any = view_of(catalog, current, last_sequence_number)
        return view._update_and_stage_table(current, ("probe", "t"), asked, updates)

    refused = 0
    for number, more in ((3, ()), (4, (SameRefs(refs={"gone": 1}),))):
        try:
            staged(number, *more)
        except CommitFailedException:
            refused += 1
    done = staged(4)
    return refused == 2 and isinstance(done.metadata, WritableVersion3)


def _name_mappings() -> bool:
    first = json.loads(name_mapping(_table()))[0]
    return bool(first["field-id"] == _DAY and first["names"] == ["day"])


_PROBES: dict[str, Callable[[], bool]] = {
    "field ids in Arrow schemas": _arrow_schemas,
    "field ids and types in Avro schemas": _avro_schemas,
    "column bounds": _metrics,
    "expressions about files": _where,
    "partitions by bounds": _partitions,
    "snapshots of the operation replace": _snapshots,
    "requests to REST catalogs": _requests,
    "requirements of a commit": _requirements,
    "snapshots that are removed": _expiry,
    "metadata of version 3": _version_3,
    "compressed metadata files": _stored_metadata,
    "catalogs that build metadata": _catalogs_that_build,
    "name mappings": _name_mappings,
}
