"""Files of healthy size that overlap are laid out anew, those that lie well stay, and a second run finds nothing."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_lake import local_path, sorted_rows
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import LongType, NestedField, TimestampType

from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.iceberg_modes.rewrite.choosing import FileFacts, RewriteReason
from deltacompact.iceberg_modes.rewrite.laid_out import _as_laid_out, badly_laid
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan_document import plan_document, plan_from_json
from deltacompact.reports.iceberg_table import branch_contents
from deltacompact.storage.checksummed import with_checksum

T = "ns.t"
SCHEMA = pa.schema([("day", pa.int64()), ("link", pa.string()), ("price", pa.float64())])
LINK = "https://www.example.com/a/long/common/beginning/"
ROWS = 400
TARGET = 4_600
"""About the bytes of so many rows."""
OPTIONS = {"target-file-size-bytes": TARGET}
BY_DAY_AND_PRICE = OPTIONS | {"cluster-by": "day,price"}


def rows(rng, days, count=ROWS):
    links = [f"{LINK}{number:05}" if number % 50 else None for number in rng.integers(0, 10**5, count)]
    prices = np.where(rng.random(count) < 0.02, np.nan, rng.random(count).round(2))
    return pa.table([pa.array(rng.integers(*days, count)), pa.array(links), pa.array(prices)], schema=SCHEMA)


def filled(lake, of_files):
    """A table with a file for each range of days. All have a healthy size, by OPTIONS."""
    rng = np.random.default_rng(len(of_files))
    lake.create(T, SCHEMA)
    for days in of_files:
        lake.append(T, rows(rng, days))
    return IcebergCatalog(lake.catalog).table(T)


def paths(lake):
    return {entry.file.path for entry in lake.state(T).data}


def rewrite(lake, by, **options):
    return lake.rewrite(T, cluster_by=by, target_file_size_bytes=TARGET, **options)


@pytest.mark.parametrize("by", ["day", "link", "price", "day,link", "link*2,price,day"])
@pytest.mark.slow
def test_healthy_files_over_each_other_are_parted_once(lake, by):
    table = filled(lake, [(0, 1000 + place) for place in range(8)])
    before = repr(sorted_rows(lake.rows(T)))
    assert table.plan(options=OPTIONS | {"cluster-by": ""}).nothing_to_do
    plan = table.plan(options=OPTIONS | {"cluster-by": by})
    assert {source.reason for source in plan.inputs} == {RewriteReason.OVERLAPS}
    assert rewrite(lake, by).files_in == 8
    assert repr(sorted_rows(lake.rows(T))) == before
    depth = table.advise(by)
    assert depth.rewrite_files == 0
    assert depth.outlooks[-1].now.mean < 1.5
    again = rewrite(lake, by)
    assert again.nothing_to_do == f"{len(paths(lake))} files: the right size, few deletes"


def test_a_value_that_fills_several_files_is_chosen_no_second_time(lake):
    filled(lake, [(5, 6)] * 6)
    for number in range(3):
        lake.append(T, rows(np.random.default_rng(number), (5, 6)))
    assert rewrite(lake, "day").nothing_to_do  # no cut by day would part them
    assert rewrite(lake, "day,price").files_in == 9
    assert rewrite(lake, "day,price").nothing_to_do


def test_what_arrives_in_the_order_of_days_never_touches_what_is_there(lake):
    filled(lake, [(day, day + 10) for day in range(0, 80, 10)])
    assert rewrite(lake, "day").nothing_to_do
    base = paths(lake)
    for days in ((80, 95), (85, 100)):
        lake.append(T, rows(np.random.default_rng(0), days))
    assert rewrite(lake, "day").files_in == 2
    assert base < paths(lake)


@pytest.fixture
def newest_overlap(lake):
    """A base of 4,000 rows by day and price, and 1,600 behind its last day: four files over each other."""
    filled(lake, [(first, first + 400) for first in range(0, 4000, 400)])
    rewrite(lake, "day,price", rewrite_all=True)
    for seed in range(4):
        lake.append(T, rows(np.random.default_rng(seed), (4000, 4080)))
    return IcebergCatalog(lake.catalog).table(T).plan(options=BY_DAY_AND_PRICE)


def shares_of_new_days(lake, plan):
    """A rewrite by a plan: of the newest 80 days, the share that each of its files has."""
    base = paths(lake)
    assert IcebergCatalog(lake.catalog).table(T).compact(plan=plan).files_in == 4
    files = [pq.read_table(local_path(path))["day"].to_numpy() for path in paths(lake) - base]
    return [(days.max() - days.min()) / 80 for days in files]


def test_what_arrives_in_the_order_of_days_is_divided_by_the_others(lake, newest_overlap):
    """It lies close by day already, and the plan says so: whatever comes after it, and whoever carries it out."""
    (group,) = newest_overlap.groups
    assert group.extents == {"day": 1600 / 5600, "price": 1.0}
    document = json.dumps(plan_document(newest_overlap))
    lake.append(T, rows(np.random.default_rng(3), (0, 4080)))
    assert [group.extents for group in plan_from_json(document, lake.state(T)).groups] == [group.extents]
    assert min(shares_of_new_days(lake, document)) > 0.9


def test_row_groups_are_divided_by_the_others_too(lake, newest_overlap):
    """Four files become one, whose tree nobody stores."""
    base, options = paths(lake), {"rewrite_all": True, "where": "day >= 4000", "cluster_by": "day,price"}
    assert lake.rewrite(T, settings=Settings(row_group_rows=400), **options).files_in == 4
    (path,) = paths(lake) - base
    file = pq.ParquetFile(local_path(path))
    days = [file.read_row_group(number)["day"].to_numpy() for number in range(file.num_row_groups)]
    assert len(days) > 3 and min(np.ptp(of_group) for of_group in days) > 70


def test_a_plan_that_says_nothing_of_extents_divides_rows_by_themselves(lake, newest_overlap):
    """So did all before there were extents."""
    body = plan_document(newest_overlap)["plan"]
    for group in body["groups"]:
        del group["extents"]
    older = json.dumps(with_checksum("plan", body, format=1, kind="iceberg rewrite plan"))
    assert max(shares_of_new_days(lake, older)) < 0.6


def test_rows_of_all_files_and_rows_that_move_have_no_extents(lake, newest_overlap):
    table = IcebergCatalog(lake.catalog).table(T)
    (group,) = table.plan(options=BY_DAY_AND_PRICE | {"rewrite-all": True}).groups
    assert set(group.extents.values()) == {1.0}
    (sorted_,) = table.plan(options=OPTIONS | {"strategy": "sort", "sort-order": "day", "rewrite-all": True}).groups
    assert sorted_.extents == {}
    with lake.catalog.load_table(T).update_spec() as change:
        change.add_identity("day")
    moved = table.plan(options=BY_DAY_AND_PRICE | {"output-spec-id": 1, "rewrite-all": True}).groups
    assert {repr(group.extents) for group in moved} == {"{}"}


@pytest.mark.slow
def test_a_large_base_waits_until_as_much_has_come(lake):
    filled(lake, [(0, 1000)] * 6)
    rewrite(lake, "day")
    base = paths(lake)
    for _ in range(2):
        lake.append(T, rows(np.random.default_rng(1), (0, 1000)))
        result = rewrite(lake, "day")
    assert result.files_in == 2
    assert base < paths(lake)
    while not result.files_in > 4:
        lake.append(T, rows(np.random.default_rng(1), (0, 1000)))
        result = rewrite(lake, "day")
    assert not base & paths(lake)
    assert rewrite(lake, "day").nothing_to_do


def test_what_runs_rewrite_is_bounded_over_time(lake):
    """2 files came and were rewritten; 2 more come: 1.2 x 4 - 2 files may be rewritten, and with 2 x all of them."""
    filled(lake, [(0, 1000)] * 2)
    assert rewrite(lake, "day", write_amplification_max=1).files_in == 2  # a first layout is never too large
    for _ in range(2):
        lake.append(T, rows(np.random.default_rng(1), (0, 1000)))
    base = len(paths(lake)) - 2
    result = rewrite(lake, "day", write_amplification_max=1.2)
    assert result.files_in == 2
    waits = f"{base} files: overlap, and wait: write-amplification-max allows no more until rows come"
    assert result.notes == [waits]
    assert rewrite(lake, "day", write_amplification_max=1).nothing_to_do
    for _ in range(2):
        lake.append(T, rows(np.random.default_rng(1), (0, 1000)))
    assert rewrite(lake, "day", write_amplification_max=4).files_in > 2


def test_tiers_are_told_by_rows_since_ordered_rows_are_compressed_better(lake):
    def append(seed):
        days = np.random.default_rng(seed).integers(0, 4, 40 * ROWS)
        lake.append(T, pa.table([pa.array(days), pa.array(days.astype(str)), pa.array(days / 7)], schema=SCHEMA))

    lake.create(T, SCHEMA)
    append(1)
    append(2)
    options = {"cluster_by": "day", "target_file_size_bytes": lake.state(T).data[0].file.file_bytes}
    assert lake.rewrite(T, **options).files_in == 2
    base = paths(lake)
    append(3)
    sizes = {entry.file.path: entry.file.file_bytes for entry in lake.state(T).data}
    assert sum(sizes[path] for path in base) < 1.5 * sum(sizes[path] for path in sizes.keys() - base)
    plan = (
        IcebergCatalog(lake.catalog).table(T).plan(options={name.replace("_", "-"): v for name, v in options.items()})
    )
    assert RewriteReason.OVERLAPS not in {source.reason for source in plan.inputs}  # the base has twice the rows


def test_another_layout_converges_over_runs_which_say_what_is_left(lake):
    """8 files came and were rewritten once: of 1.5 x 8 are 4 left. Then 2 more come, and so on."""
    filled(lake, [(0, 1000)] * 8)
    rewrite(lake, "day")
    files = len(paths(lake))
    first = rewrite(lake, "price", write_amplification_max=1.5)
    assert 2 <= first.files_in <= 4 and first.notes[0].startswith(f"{files - first.files_in} files: overlap, and wait")
    assert rewrite(lake, "price", write_amplification_max=1.5).files_in == 0
    files = len(paths(lake))
    assert rewrite(lake, "price", rewrite_all=True).files_in == files  # who asks for all gets all,
    files = len(paths(lake))
    assert rewrite(lake, "day", write_amplification_max=2.6).files_in == files  # and it costs nothing of what is left


@pytest.mark.parametrize("order", ["day", "price DESC, day", "hilbert(day, price)", "link, day"])
@pytest.mark.slow
def test_a_sort_chooses_healthy_files_that_overlap_and_a_second_one_finds_nothing(lake, order):
    filled(lake, [(0, 1000 + place) for place in range(8)])
    before = repr(sorted_rows(lake.rows(T)))
    options = {"strategy": "sort", "sort_order": order, "target_file_size_bytes": TARGET}
    assert lake.rewrite(T, **options).reasons == {"overlaps": 8}
    assert repr(sorted_rows(lake.rows(T))) == before
    assert lake.rewrite(T, **options).nothing_to_do


def test_the_same_order_in_other_words_is_the_same_layout(lake, monkeypatch):
    filled(lake, [(0, 1000 + place) for place in range(8)])
    options = {"strategy": "sort", "target_file_size_bytes": TARGET}
    with monkeypatch.context() as older:  # it stored what was given
        older.setattr("deltacompact.iceberg_modes.rewrite.laid_out.in_one_spelling", lambda text: text)
        assert lake.rewrite(T, **options, sort_order="hilbert(day, price)").reasons == {"overlaps": 8}
    assert lake.rewrite(T, **options, sort_order='hilbert("day",price)').nothing_to_do
    assert lake.rewrite(T, **options, sort_order="day").reasons["overlaps"] >= 7
    assert lake.rewrite(T, **options, sort_order="day asc nulls first").nothing_to_do


def test_the_tables_own_order_is_enough(lake):
    fields = [NestedField(1, "day", LongType()), NestedField(2, "at", TimestampType())]
    for name, by in (("ns.bucket", BucketTransform(4)), ("ns.day", DayTransform())):
        lake.create(name, Schema(*fields), sort_order=SortOrder(SortField(source_id=2, transform=by)))
        at = pa.array(np.arange(ROWS) * 10**11, pa.timestamp("us"))
        for _ in range(3):
            lake.append(name, pa.table({"day": pa.array(range(ROWS)), "at": at}))
        size = max(entry.file.file_bytes for entry in lake.state(name).data)
        options = {"strategy": "sort", "target_file_size_bytes": size}
        chosen = lake.rewrite(name, **options).files_in
        assert chosen == (3 if name == "ns.day" else 0)  # values of a bucket lie everywhere
        assert "overlaps" not in lake.rewrite(name, **options).reasons  # but sorted they take fewer bytes


def test_other_columns_are_another_layout(lake):
    filled(lake, [(0, 1000)] * 6)
    rewrite(lake, "day")
    assert rewrite(lake, "link").files_in > 3
    assert rewrite(lake, "link").nothing_to_do


def test_a_terabyte_is_shared_by_the_rows_of_its_files():
    """Rows by bytes of all files exceeded 64 bits, so that every file had to wait for ever."""
    files = [SimpleNamespace(file=SimpleNamespace(rows=10_000_000, file_bytes=500_000_000))] * 2_000
    assert set(_as_laid_out(SimpleNamespace(data=files)).tolist()) == {500_000_000}


def test_runs_of_a_few_files_take_the_oldest_first(lake):
    """Each run took what the one before had written."""
    filled(lake, [(0, 1000)] * 8)
    first = paths(lake)
    for left in (5, 2, 0):
        rewrite(lake, "day", max_files_to_rewrite=3)
        assert len(first & paths(lake)) == left


def test_files_that_overlap_only_those_that_stay_are_chosen_once(lake):
    """Four files that stay meet the outputs by price in each run."""
    filled(lake, [(0, 10)] * 4)
    staying = frozenset(paths(lake))
    for seed in range(4):
        lake.append(T, rows(np.random.default_rng(seed), (10, 20)))
    assert rewrite(lake, "price", where="day >= 10").files_in == 4
    assert rewrite(lake, "price", where="day >= 10").nothing_to_do
    options = rewrite_options(OPTIONS | {"cluster-by": "price"}, {})
    assert badly_laid(lake.state(T), options, FileFacts(busy=staying)).chosen == frozenset()
    assert badly_laid(lake.state(T), options).chosen >= staying


def test_small_files_of_a_layout_are_merged_with_neighbours_only(lake):
    """A large file lies between the tiny ones."""
    options = {"cluster_by": "day", "target_file_size_bytes": 10_000}
    lake.create(T, SCHEMA)
    for first, last, count in [*((day, day + 1, 40) for day in (0, 1, 2, 7, 8, 9)), (3, 7, 3 * ROWS)]:
        lake.append(T, rows(np.random.default_rng(first), (first, last), count))
        lake.rewrite(T, **options, rewrite_all=True, where=f"day >= {first} and day < {last}")
    assert lake.rewrite(T, **options, min_input_files=3).files_in == 6
    days = [set(pq.read_table(local_path(path))["day"].to_pylist()) for path in paths(lake)]
    assert sorted(map(sorted, days)) == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    assert lake.rewrite(T, **options, min_input_files=2).nothing_to_do


def test_a_second_run_takes_no_file_that_is_small_because_ordered_rows_take_fewer_bytes(lake):
    rng = np.random.default_rng(1)
    links = np.array([rng.bytes(20).hex() for _ in range(1000)])
    lake.create(T, SCHEMA)
    for _ in range(8):
        days = rng.integers(0, 1000, 4 * ROWS)
        prices = pa.array(rng.random(4 * ROWS).round(3))
        lake.append(T, pa.table([pa.array(days), pa.array(links[days]), prices], schema=SCHEMA))
    options = {"cluster_by": "day", "target_file_size_bytes": lake.state(T).data[0].file.file_bytes}
    assert lake.rewrite(T, **options).files_in == 8
    sizes = [entry.file.file_bytes / options["target_file_size_bytes"] for entry in lake.state(T).data]
    assert min(sizes) > 0.38 and max(sizes) < 0.75
    assert lake.rewrite(T, **options).nothing_to_do


def test_show_has_the_depth_of_a_clustered_table(lake):
    table = filled(lake, [(0, 1000)] * 3)
    assert branch_contents(lake.state(T)).depth == {}
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"deltacompact.cluster-by": "day*2,price"})
    depth = branch_contents(lake.state(T)).depth
    assert depth["day"] == pytest.approx(3, abs=0.1)
    assert "  depth: day 3.0, price 3.0, together " in str(table)
    table.compact(options=OPTIONS)
    assert branch_contents(lake.state(T)).depth["day"] < 1.6
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"deltacompact.cluster-by": "nobody"})
    assert branch_contents(lake.state(T)).depth == {}


def test_a_plan_document_has_the_reason(lake):
    table = filled(lake, [(0, 1000)] * 3)
    plan = table.plan(options=OPTIONS | {"cluster-by": "day"})
    document = json.dumps(plan_document(plan))
    assert '"overlaps"' in document
    assert "write_amplification_max" not in document
    assert plan_from_json(document, lake.state(T)).inputs == plan.inputs
