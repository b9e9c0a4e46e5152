"""A user's script for the type checker: `make lint` checks it, and nobody runs it.

open_catalog("./lake") -> DeltaStreamCatalog          compact(…) -> CompactionResult
IcebergCatalog.at("iceberg://prod"), open_catalog(a loaded catalog) -> IcebergCatalog
                                                      compact(…) -> ModeResult, for every mode
                                                      rewrite, convert, upsert -> each its own result
"""

from typing import assert_type

import pyarrow as pa
from pyiceberg.catalog import load_catalog

import deltacompact
from deltacompact import (
    Appended,
    CompactionResult,
    ConvertResult,
    Delta,
    DeltaStreamCatalog,
    DeltaStreamTable,
    IcebergCatalog,
    IcebergCatalogTable,
    ModeResult,
    RewriteResult,
    Settings,
    TablePlan,
    UpsertResult,
    compact,
    open_catalog,
)

lake = open_catalog("./lake")
assert_type(lake, DeltaStreamCatalog)
lake.create_table(
    "visits", partition_keys=["day"], primary_keys=["id"], sort_keys=["updated", ("version", "descending")]
)
assert_type(lake.append("visits", pa.table({"id": [1]}), partition={"day": None}, token=("etl", 7)), Delta)
assert_type(lake.append("visits", pa.table({"id": [1]}), token=("etl", 8), operation_column="op"), Appended)
assert_type(lake.append_files("visits", "cdc.json", format="debezium", partition_by="day"), Appended)
lake.append_files("visits", "monday.csv", {"day": "2026-11-20"}, reference=True)
result = compact("visits", delta_catalog_client=lake, settings=Settings(executor="local"))
assert_type(result, CompactionResult)
for session in result.sessions:
    print(session.partition["day"], session.live + session.superseded, session.nothing_to_do or session.error)
print(deltacompact.check(lake, "visits")[0].problems, deltacompact.vacuum(lake, "visits", dry_run=True)[0].deleted)
print(lake.read("visits", columns=["id"], filter=[("updated", ">", 1)]).num_rows, deltacompact.__version__)

visits = lake.table("visits")
assert_type(visits, DeltaStreamTable)
assert_type(visits.append(pa.table({"id": [2]}), {"day": None}), Delta)
assert_type(visits.append_files("cdc.json", format="debezium"), Appended)
assert_type(visits.plan(purge=True), TablePlan)
assert_type(visits.compact(settings=Settings(executor="local"), partitions=[{"day": None}]), CompactionResult)
print(visits.history()[-1].operation, visits.versions()[-1].version, visits.read(columns=["id"]).num_rows)

prod = IcebergCatalog.at("iceberg://prod")
assert_type(prod.table("db.orders"), IcebergCatalogTable)
assert_type(prod.table("db.orders").compact("convert"), ModeResult)
assert_type(open_catalog(load_catalog("prod")), IcebergCatalog)
done = compact("db.events", delta_catalog_client=prod, mode="upsert", options={"key-columns": "id"}, branch="audit")
assert_type(done, ModeResult)
print(done.snapshots, done.nothing_to_do, done.refused, done.notes)
if isinstance(done, UpsertResult):
    print(done.rows_superseded)
assert_type(prod.rewrite("db.orders", {"min-input-files": 2}), RewriteResult)
assert_type(prod.convert("db.orders"), ConvertResult)
assert_type(prod.upsert("db.events", {"key-columns": "id"}), UpsertResult)
prod.maintain("db.orders", expire_snapshots=True, dry_run=True)
