"""Rewrites that sort: by an order that is given, along a curve, or in the table's own order."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plan_json import plan_to_json
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType
from row_orders import compared
from value_columns import comparable

from deltacompact.base.errors import InputError
from deltacompact.base.limits import Limits
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan_document import plan_from_json
from deltacompact.layout.depth import depth_of
from deltacompact.layout.sort_order import sort_items

T = "ns.t"
SMALL_GROUPS = Settings(executor="local", local_threads=1, row_group_rows=100, certify=True)
SIZES = [Sizes(), Sizes(run_bytes=4_000), Sizes(run_bytes=4_000, held_bytes=0)]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
)
SORT = {"rewrite_all": True, "strategy": "sort", "settings": SMALL_GROUPS}


def table_of(lake, count=3_000, **others):
    lake.create(T, SCHEMA, **others)
    draw = np.random.default_rng(5)
    columns = {
        "id": pa.array(draw.permutation(count)),
        "name": pa.array(
            [f"name {number:03}" for number in draw.integers(0, 150, count)], mask=draw.random(count) < 0.1
        ),
        "at": pa.array(draw.integers(0, 40 * 86_400_000_000, count)).cast(pa.timestamp("us")),
    }
    rows = pa.table(columns, schema=lake.catalog.load_table(T).schema().as_arrow())
    for start in range(0, count, count // 3):
        lake.append(T, rows.slice(start, count // 3))
    return rows


def files(lake):
    return [(entry.file, pq.read_table(entry.file.path.removeprefix("file://"))) for entry in lake.state(T).data]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("order", ["name DESC NULLS LAST, id", "id", "name NULLS LAST, at DESC"])
@pytest.mark.slow
def test_all_files_together_are_sorted(lake, order, sizes):
    rows = table_of(lake)
    result = lake.rewrite(T, sort_order=order, target_file_size_bytes=15_000, sizes=sizes, **SORT)
    found = sorted(files(lake), key=lambda file: file[0].path)  # they are numbered in the order of the rows
    assert result.files_out == len(found) > 2
    whole = pa.concat_tables([table for _, table in found]).select(rows.column_names)
    items = sort_items("order", order)
    keys = list(zip(*(comparable(whole[item.name]) for item in items), strict=True))
    assert all(compared(items, key, other) <= 0 for key, other in itertools.pairwise(keys))
    assert sorted(whole["id"].to_pylist()) == list(range(3_000))
    assert {file.sort_order_id for file, _ in found} == {None}
    sizes_of = [file.rows for file, _ in found]
    assert max(sizes_of) < 1.6 * min(sizes_of)


def test_on_ray_rows_meet_in_its_object_store_or_in_the_tables(lake, ray_cluster):
    table_of(lake)
    limits = Limits(task_rows_min=700)
    settings = replace(SMALL_GROUPS, executor="ray", ray_address=ray_cluster, limits=limits, local_threads=None)
    for order, held_bytes in (("id", None), ("id DESC", 0)):
        sizes = Sizes(run_bytes=4_000, held_bytes=held_bytes)
        options = {"sort_order": order, "target_file_size_bytes": 15_000, "sizes": sizes}
        result = lake.rewrite(T, **SORT | options | {"settings": settings})
        assert (result.executor, result.files_out > 2) == ("ray", True)
        found = sorted(files(lake), key=lambda file: file[0].path)
        ids = [number for _, table in found for number in table["id"].to_pylist()]
        assert ids == sorted(range(3_000), reverse="DESC" in order)


@pytest.mark.parametrize("curve", ["hilbert", "zorder"])
@pytest.mark.slow
def test_rows_along_a_curve_are_skipped_by_each_column(lake, curve):
    table_of(lake)
    lake.rewrite(T, sort_order=f"{curve}(id, at)", target_file_size_bytes=3_000, **SORT)
    state = lake.state(T)
    found = boxes_of_files(state.metadata, state.data, ["id", "at"])
    assert len(state.data) > 8
    assert depth_of(found.of(0)).value_share < 0.5 and depth_of(found.of(1)).value_share < 0.5
    assert sorted(row["id"] for row in lake.rows(T)) == list(range(3_000))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.slow
def test_the_tables_own_order_with_its_transforms(lake, sizes):
    order = SortOrder(
        SortField(3, DayTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
        SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
    )
    rows = table_of(lake, sort_order=order)
    lake.rewrite(T, target_file_size_bytes=15_000, sizes=sizes, **SORT)
    found = sorted(files(lake), key=lambda file: file[0].path)
    whole = pa.concat_tables([table for _, table in found])
    assert whole.column_names == rows.column_names
    days = whole["at"].cast(pa.int64()).to_numpy() // 86_400_000_000
    keys = list(zip((-days).tolist(), whole["id"].to_pylist(), strict=True))
    assert keys == sorted(keys) and len(keys) == 3_000
    assert {file.sort_order_id for file, _ in found} == {1}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("days(at) DESC, id", lambda rows: list(zip((-rows["day"]).tolist(), rows["id"].tolist(), strict=True))),
        ("truncate(id, 500), name NULLS LAST", lambda rows: (rows["id"] // 500).tolist()),
    ],
)
def test_transforms_in_the_text_of_an_order(lake, text, key):
    """As Spark's procedure takes them."""
    table_of(lake, 900)
    lake.rewrite(T, sort_order=text, target_file_size_bytes=5_000, **SORT)
    found = sorted(files(lake), key=lambda file: file[0].path)
    whole = pa.concat_tables([table for _, table in found])
    days = whole["at"].cast(pa.int64()).to_numpy() // 86_400_000_000
    keys = key({"day": days, "id": whole["id"].to_numpy()})
    assert len(found) > 2 and whole.column_names == ["id", "name", "at"] and keys == sorted(keys)


def test_an_order_with_transforms_that_equals_the_tables_is_recorded(lake):
    fields = [SortField(1, BucketTransform(4), null_order=NullOrder.NULLS_FIRST)]
    fields += [SortField(1, IdentityTransform(), null_order=NullOrder.NULLS_FIRST)]
    table_of(lake, 90, sort_order=SortOrder(*fields))
    for text, found in (("bucket(4, id), id", 1), ("bucket(8, id), id", None)):
        lake.rewrite(T, sort_order=text, **SORT)
        assert {file.sort_order_id for file, _ in files(lake)} == {found}


def test_nulls_lie_where_the_tables_order_has_them(lake):
    order = SortOrder(SortField(2, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST))
    for table, own in (("ns.last", {"sort_order": order}), ("ns.first", {})):
        lake.create(table, SCHEMA, **own)
        names = pa.array([None if number % 4 == 0 else f"{number:04}" for number in range(800)])
        columns = [pa.array(range(800)), names, pa.array([0] * 800, pa.timestamp("us"))]
        lake.append(table, pa.table(columns, schema=lake.catalog.load_table(table).schema().as_arrow()))
        options = {"cluster_by": "name", "target_file_size_bytes": 3_000, "rewrite_all": True}
        lake.rewrite(table, settings=SMALL_GROUPS, **options)
        entries = sorted(lake.state(table).data, key=lambda entry: entry.file.path)
        nulls = [pq.read_table(entry.file.path.removeprefix("file://"))["name"].null_count for entry in entries]
        assert len(nulls) > 1 and (nulls[-1] if table == "ns.last" else nulls[0]) > 0
        assert (nulls[0] if table == "ns.last" else nulls[-1]) == 0


def test_an_order_that_equals_one_of_the_tables_is_recorded(lake):
    order = SortOrder(SortField(2, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    table_of(lake, sort_order=order)
    for text, found in (("name DESC", 1), ("name DESC NULLS FIRST", None), ("hilbert(name)", None)):
        lake.rewrite(T, sort_order=text, **SORT)
        assert {file.sort_order_id for file, _ in files(lake)} == {found}
    lake.rewrite(T, rewrite_all=True)  # rows keep their order, and nobody says which it is
    assert {file.sort_order_id for file, _ in files(lake)} == {None}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sort_order": "id"}, "option sort-order: give strategy=sort as well"),
        ({"strategy": "sort", "cluster_by": "id"}, "options cluster-by and strategy: rows have one order"),
        ({"cluster_by": "id", "sort_order": "id"}, "options cluster-by and sort-order: rows have one order"),
        ({"strategy": "sort", "sort_order": "color"}, "column 'color' is not in table 'ns.t': it has id, name, at"),
        ({"strategy": "sort", "sort_order": "hilbert(id, color)"}, "column 'color' is not in table 'ns.t'"),
        ({"strategy": "sort", "sort_order": "swirl(4, id)"}, "'swirl\\(4, id\\)' cannot be read"),
        ({"strategy": "sort", "sort_order": "days(name)"}, "column 'name' has type string, of which day makes nothing"),
        ({"strategy": "sort"}, "table 'ns.t' has no sort order: give the option sort-order"),
        ({"strategy": "range"}, "option strategy: 'range' is none of binpack, sort"),
    ],
)
@pytest.mark.slow
def test_bad_orders_are_refused_before_any_work(lake, options, why):
    table_of(lake, 30)
    before = sorted(str(path) for path in lake.folder.rglob("*"))
    with pytest.raises(InputError, match=why) as error:
        lake.rewrite(T, rewrite_all=True, **options)
    assert "\n" not in str(error.value)
    assert sorted(str(path) for path in lake.folder.rglob("*")) == before


def test_an_order_with_a_transform_that_nobody_knows_is_refused(lake):
    order = SortOrder(SortField(1, BucketTransform(4), SortDirection.ASC, NullOrder.NULLS_FIRST))
    table_of(lake, 30, sort_order=order)
    lake.delete_by_key(T, {"id": [1]})
    fields = [{"source-id": 1, "transform": "swirl[3]", "direction": "asc", "null-order": "nulls-first"}]
    lake.edit_metadata(T, {"sort-orders": [{"order-id": 1, "fields": fields}]})
    before = lake.state(T).snapshot_id
    modes = (("rewrite", {"strategy": "sort"}), ("rewrite", {}), ("convert", {}), ("upsert", {"key-columns": "id"}))
    for mode, options in modes:
        with pytest.raises(InputError, match=r"table 'ns.t' has a transform that we do not know \(swirl\[3\]\)"):
            IcebergCatalog(lake.catalog).table(T).compact(mode, options, settings=SMALL_GROUPS)
    for transform in ("bucket[0]", "truncate[0]"):  # nothing is divided by 0
        lake.edit_metadata(T, {"sort-orders": [{"order-id": 1, "fields": [{**fields[0], "transform": transform}]}]})
        with pytest.raises(InputError, match="a transform that we do not know"):
            lake.rewrite(T, rewrite_all=True, strategy="sort")
    assert lake.state(T).snapshot_id == before


def test_a_plan_keeps_its_order_and_a_strategy_undoes_the_property(lake):
    property_ = {"deltacompact.cluster-by": "name"}
    assert rewrite_options({"strategy": "binpack"}, property_).cluster_by == ()
    table_of(lake, 30, properties=property_)
    plan = lake.prepared(T, rewrite_all=True, strategy="sort", sort_order="id").plan()
    assert plan_from_json(plan_to_json(plan), lake.state(T)) == plan
    assert plan.lines()[0] == "sorted by id"
    assert str(plan) == "\n".join(plan.lines())
