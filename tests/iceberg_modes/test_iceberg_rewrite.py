"""Rewriting real tables on disk. PyIceberg writes the data and reads the result; delete files are written by hand."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iceberg_lake import Lake, sorted_rows
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType
from table_t import files_below

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError, SchemaError
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg.table.content_files import Status
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable, open_named
from deltacompact.iceberg_modes.modes import REWRITE

T = "ns.t"
ID_NAME = pa.schema([("id", pa.int64()), ("name", pa.string())])
TINY = Sizes(keys_per_bucket=1, delete_files_per_task=1, delete_rows_per_task=1, rows_at_once=2)


def rows(*ids, name="x"):
    return [{"id": number, "name": name} for number in ids]


def ids(lake, table_id=T, branch="main"):
    return sorted(row["id"] for row in lake.rows(table_id, branch))


def rewrite_all(lake, table_id=T, **options):
    return lake.rewrite(table_id, **{"rewrite_all": True} | options)


def test_data_without_deletes_is_merged(lake):
    lake.create(T, ID_NAME)
    for number in range(5):
        lake.append(T, rows(number))
    result = lake.rewrite(T)
    assert (result.files_in, result.files_out, result.rows_in, result.rows_out) == (5, 1, 5, 5)
    assert ids(lake) == [0, 1, 2, 3, 4]


def test_a_second_run_finds_nothing_to_do_and_says_why(lake):
    lake.create(T, ID_NAME)
    for number in range(5):
        lake.append(T, rows(number))
    lake.rewrite(T)
    before = lake.state(T).snapshot
    result = lake.rewrite(T)
    assert result.nothing_to_do == "1 file: too few in the partition to be merged"
    assert lake.state(T).snapshot == before


@pytest.mark.parametrize("sizes", [Sizes(), TINY])
def test_all_kinds_of_deletes_are_applied(lake, sizes):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2, 3, 4, 5))
    lake.append(T, rows(6, 7, 8))
    lake.delete_by_key(T, {"id": [2, 7]})
    lake.append(T, rows(2, name="again"))
    newest, *_ = lake.state(T).data
    oldest = lake.state(T).data[-1]
    assert oldest.file.rows == 5
    assert newest.file.rows == 1
    lake.delete_by_position(T, {oldest.file.path: [0, 4]})
    result = rewrite_all(lake, sizes=sizes)
    assert (result.rows_in, result.rows_out, result.dead_by_position, result.dead_by_key) == (9, 5, 2, 2)
    assert result.delete_files_removed == 2
    assert sorted_rows(lake.rows(T)) == sorted_rows([*rows(3, 4, 6, 8), *rows(2, name="again")])


def test_rule_03_outputs_carry_the_planned_sequence_number_and_inherit_the_files(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2))
    lake.append(T, rows(3))
    planned = lake.state(T).sequence_number
    rewrite_all(lake)
    state = lake.state(T)
    (entry,) = state.data
    assert (entry.status, entry.sequence_number) == (Status.ADDED, planned)
    assert entry.file_sequence_number == state.sequence_number == planned + 1


def test_rule_03_not_without_the_starting_sequence_number(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2))
    rewrite_all(lake, use_starting_sequence_number=False)
    state = lake.state(T)
    assert state.data[0].sequence_number == state.sequence_number == 2


def test_rule_06_an_equality_delete_that_comes_meanwhile_applies_to_the_output(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2, 3))
    rewrite_all(lake, before_commit=lambda: lake.delete_by_key(T, {"id": [2]}))
    state = lake.state(T)
    assert len(state.deletes) == 1
    assert state.data[0].sequence < state.deletes[0].sequence
    result = rewrite_all(lake)
    assert result.dead_by_key == 1
    assert ids(lake) == [1, 3]


def test_rule_12_sets_of_equality_ids_vary_and_extra_columns_do_not_count(lake):
    lake.create(T, ID_NAME)
    lake.append(T, [*rows(1, 2, name="a"), *rows(1, 2, name="b")])
    lake.delete_by_key(T, {"id": [1], "name": ["a"]})
    lake.delete_by_key(T, {"name": ["nobody", "b"], "id": [99, 99]}, equality_ids=[2])
    rewrite_all(lake)
    assert lake.rows(T) == rows(2, name="a")


def test_rule_13_null_equals_null_and_a_value_never_deletes_a_null(lake):
    lake.create(T, ID_NAME)
    lake.append(T, [*rows(1, None, 3), {"id": None, "name": None}])
    lake.delete_by_key(T, {"id": [3]})
    rewrite_all(lake)
    assert len(lake.rows(T)) == 3
    lake.delete_by_key(T, {"id": [None], "name": ["x"]})
    rewrite_all(lake)
    assert sorted_rows(lake.rows(T)) == sorted_rows([*rows(1), {"id": None, "name": None}])


def test_rule_13_nan_equals_nan_and_zero_is_not_minus_zero(lake):
    lake.create(T, pa.schema([("ratio", pa.float64()), ("single", pa.float32())]))
    values = [math.nan, 0.0, -0.0, 1.5, None]
    lake.append(T, [{"ratio": value, "single": 1.0} for value in values])
    lake.delete_by_key(T, {"ratio": [math.nan, -0.0]})
    rewrite_all(lake)
    left = [row["ratio"] for row in lake.rows(T)]
    assert sorted(map(str, left)) == ["0.0", "1.5", "None"]


def test_rule_14_a_dropped_equality_column_still_applies(lake):
    lake.create(T, ID_NAME)
    lake.append(T, [*rows(1, name="a"), *rows(2, name="b")])
    lake.delete_by_key(T, {"name": ["b"]})
    with lake.catalog.load_table(T).update_schema() as update:
        update.delete_column("name")
    with lake.catalog.load_table(T).update_schema() as update:
        update.add_column("name", LongType())  # another column of the same name
    rewrite_all(lake)
    assert lake.rows(T) == [{"id": 1, "name": None}]


def test_rule_14_a_column_that_older_files_lack_reads_as_null(lake):
    lake.create(T, pa.schema([("id", pa.int64())]))
    lake.append(T, [{"id": 1}])
    with lake.catalog.load_table(T).update_schema() as update:
        update.add_column("kind", StringType())
    lake.append(T, [{"id": 2, "kind": "a"}, {"id": 3, "kind": None}])
    lake.delete_by_key(T, {"kind": [None]})
    rewrite_all(lake)
    assert lake.rows(T) == [{"id": 2, "kind": "a"}]


def test_rule_14_columns_are_projected_by_field_id(lake):
    lake.create(T, pa.schema([("id", pa.int32()), ("name", pa.string()), ("left", pa.string())]))
    lake.append(T, [{"id": 1, "name": "a", "left": "l"}, {"id": 2, "name": "b", "left": "l"}])
    with lake.catalog.load_table(T).update_schema() as update:
        update.rename_column("id", "key")
        update.delete_column("left")
    with lake.catalog.load_table(T).update_schema() as update:
        update.update_column("key", LongType())
        update.rename_column("name", "id")
    lake.append(T, [{"key": 3, "id": "c"}])
    lake.delete_by_key(T, {"key": [2, 1 << 40]})
    rewrite_all(lake)
    assert sorted_rows(lake.rows(T)) == [{"key": 1, "id": "a"}, {"key": 3, "id": "c"}]
    (entry,) = lake.state(T).data
    assert [column.name for column in pq.read_schema(entry.file.path.removeprefix("file://"))] == ["key", "id"]


def test_rule_15_positions_count_the_rows_of_the_stored_file(lake):
    lake.create(T, ID_NAME, properties={"write.parquet.row-group-limit": "3"})
    lake.append(T, rows(*range(10)))
    path = lake.state(T).data[0].file.path
    assert pq.read_metadata(path.removeprefix("file://")).num_row_groups > 1
    lake.delete_by_key(T, {"id": [0, 1]})
    lake.delete_by_position(T, {path: [4, 9]})
    rewrite_all(lake)
    assert ids(lake) == [2, 3, 5, 6, 7, 8]


def test_a_position_beyond_the_end_is_refused(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2))
    lake.delete_by_position(T, {lake.state(T).data[0].file.path: [2]})
    with pytest.raises(CorruptionError, match="has 2 rows, but row 2 is deleted by position"):
        rewrite_all(lake)


# Partitions


def by_day(lake, spec=True):
    fields = [NestedField(1, "id", LongType()), NestedField(2, "day", IntegerType()), NestedField(3, "v", StringType())]
    parts = [PartitionField(2, 1000, IdentityTransform(), "day")] if spec else []
    lake.create(T, Schema(*fields), partition_spec=PartitionSpec(*parts))


def on_day(day, *numbers):
    return [{"id": number, "day": day, "v": f"v{number}"} for number in numbers]


def test_rule_02_a_delete_of_one_partition_leaves_the_others(lake):
    by_day(lake)
    lake.append(T, [*on_day(3, 1, 2), *on_day(4, 1, 2)])
    lake.delete_by_key(T, {"id": [1]}, partition=(3,))
    rewrite_all(lake)
    assert sorted_rows(lake.rows(T)) == sorted_rows([*on_day(3, 2), *on_day(4, 1, 2)])
    assert sorted(entry.file.partition for entry in lake.state(T).data) == [(3,), (4,)]


def test_rule_02_a_delete_under_an_unpartitioned_spec_is_global(lake):
    by_day(lake, spec=False)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    lake.append(T, [*on_day(3, 1, 2), *on_day(4, 1, 2)])
    lake.delete_by_key(T, {"id": [1]}, spec_id=0)
    lake.append(T, on_day(3, 1))
    result = rewrite_all(lake)
    assert result.delete_files_removed == 1
    assert sorted_rows(lake.rows(T)) == sorted_rows([*on_day(3, 1, 2), *on_day(4, 2)])


def test_rule_08_a_global_delete_stays_while_older_data_is_left(lake):
    by_day(lake, spec=False)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    lake.append(T, [*on_day(3, 1, 2), *on_day(4, 1, 2)])
    lake.append(T, on_day(3, 5))
    lake.delete_by_key(T, {"id": [1]}, spec_id=0)
    first = lake.rewrite(T, min_input_files=2)
    assert (first.groups, first.delete_files_removed) == (1, 0)
    assert rewrite_all(lake).delete_files_removed == 1
    assert sorted_rows(lake.rows(T)) == sorted_rows([*on_day(3, 2, 5), *on_day(4, 2)])


def test_rule_17_files_of_an_older_spec_keep_it(lake):
    by_day(lake, spec=False)
    lake.append(T, [*on_day(3, 1), *on_day(4, 2)])
    lake.append(T, on_day(3, 3))
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    lake.append(T, on_day(3, 4))
    lake.append(T, on_day(3, 5))
    result = rewrite_all(lake)
    assert result.groups == 2
    found = {(entry.file.spec_id, entry.file.partition, entry.file.rows) for entry in lake.state(T).data}
    assert found == {(0, (), 3), (1, (3,), 2)}
    assert sorted_rows(lake.rows(T)) == sorted_rows([*on_day(3, 1, 3, 4, 5), *on_day(4, 2)])


def test_groups_are_committed_in_several_snapshots_with_partial_progress(lake):
    by_day(lake)
    for day in range(4):
        lake.append(T, on_day(day, 1, 2))
    result = rewrite_all(lake, partial_progress_enabled=True, partial_progress_max_commits=2)
    assert (result.groups, len(result.snapshots)) == (4, 2)
    assert len(lake.rows(T)) == 8


@pytest.mark.parametrize("day", range(3))
@pytest.mark.parametrize("kind", ["damaged", "missing"])
def test_partial_progress_goes_on_past_a_group_that_cannot_be_read(lake, day, kind):
    """It stopped there, and so did each later run: the groups after it were never rewritten."""
    by_day(lake)
    for number in range(3):
        lake.append(T, on_day(number, 1, 2))
    bad = Path(lake.state(T).data[day].file.path.removeprefix("file://"))
    good = {entry.file.path for entry in lake.state(T).data} - {f"file://{bad}"}
    bad.write_bytes(b"nonsense") if kind == "damaged" else bad.unlink()
    with pytest.raises(InputError, match=f"{bad.name} {'cannot be read' if kind == 'damaged' else 'does not exist'}"):
        rewrite_all(lake, partial_progress_enabled=True)
    assert not good & {entry.file.path for entry in lake.state(T).data}
    assert sum(entry.file.rows for entry in lake.state(T).data) == 6
    with pytest.raises(InputError, match=bad.name):
        rewrite_all(lake)
    assert lake.state(T).snapshot.summary["total-data-files"] == "3"


# Branches


def test_a_branch_is_rewritten_and_main_stays(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2))
    table = lake.catalog.load_table(T)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    lake.append(T, rows(3), branch="audit")
    lake.delete_by_key(T, {"id": [1]}, branch="audit")
    main = lake.state(T)
    result = rewrite_all(lake, branch="audit")
    assert (result.rows_in, result.rows_out) == (3, 2)
    assert ids(lake, branch="audit") == [2, 3]
    assert lake.state(T).snapshot == main.snapshot
    assert ids(lake) == [1, 2]


def test_rule_26_the_plan_is_made_from_the_catalogs_head(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1))
    stale = lake.catalog.load_table(T)
    lake.append(T, rows(2))
    assert stale.metadata_location != lake.prepared(T).table.metadata.metadata_location
    rewrite_all(lake)
    assert ids(lake) == [1, 2]


# Outputs


def test_every_row_deleted_leaves_no_file(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2))
    lake.delete_by_key(T, {"id": [1, 2]})
    result = rewrite_all(lake)
    assert (result.files_out, result.rows_out) == (0, 0)
    state = lake.state(T)
    assert (state.data, state.deletes) == ((), ())
    assert lake.rows(T) == []


def test_outputs_have_field_ids_metrics_and_the_tables_codec(lake):
    lake.create(T, ID_NAME, properties={"write.parquet.compression-codec": "snappy"})
    lake.append(T, [*rows(1, 5), {"id": 9, "name": None}])
    rewrite_all(lake)
    (entry,) = lake.state(T).data
    file = entry.file
    assert (file.rows, file.value_counts, file.null_value_counts) == (3, {1: 3, 2: 3}, {1: 0, 2: 1})
    assert file.lower_bounds == {1: (1).to_bytes(8, "little"), 2: b"x"}
    footer = pq.read_metadata(file.path.removeprefix("file://"))
    assert footer.row_group(0).column(0).compression == "SNAPPY"
    assert [field.metadata[b"PARQUET:field_id"] for field in footer.schema.to_arrow_schema()] == [b"1", b"2"]


def test_rule_25_outputs_claim_no_sort_order(lake):
    """Inputs were sorted one by one; merged they are not."""
    fields = [NestedField(1, "id", LongType()), NestedField(2, "name", StringType())]
    lake.create(T, Schema(*fields), sort_order=SortOrder(SortField(source_id=1)))
    lake.append(T, rows(5, 6))
    lake.append(T, rows(1, 2))
    rewrite_all(lake)
    assert [entry.file.sort_order_id for entry in lake.state(T).data] == [None]


def test_a_large_file_becomes_several_near_the_target_and_they_stay(lake):
    lake.create(T, ID_NAME)
    lake.append(T, [{"id": number, "name": f"{number * 7919:x}"} for number in range(20_000)])
    rewrite_all(lake)
    (entry,) = lake.state(T).data
    target = entry.file.file_bytes // 3
    assert lake.rewrite(T, target_file_size_bytes=target).files_out == 3
    assert all(0.75 * target < found.file.file_bytes < 1.8 * target for found in lake.state(T).data)
    assert ids(lake) == list(range(20_000))
    assert lake.rewrite(T, target_file_size_bytes=target).nothing_to_do


def test_files_of_another_codec_become_files_of_the_right_size_at_once(lake):
    """With our codec the rows take half the bytes. Without a sample, ten files of half the target would come out."""
    lake.create(T, ID_NAME, properties={"write.parquet.compression-codec": "uncompressed"})
    words = [hashlib.sha1(str(number).encode()).hexdigest() for number in range(40_000)]
    lake.append(T, [{"id": number, "name": word} for number, word in enumerate(words)])
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "zstd"})
    (entry,) = lake.state(T).data
    target = entry.file.file_bytes // 10
    assert lake.rewrite(T, target_file_size_bytes=target).files_in == 1
    sizes = [found.file.file_bytes for found in lake.state(T).data]
    assert 1 < len(sizes) < 8
    assert all(0.75 * target < size < 1.8 * target for size in sizes)
    assert lake.rewrite(T, target_file_size_bytes=target).nothing_to_do


NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("town", pa.string()), ("at", pa.list_(pa.float64()))])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("hour", pa.time64("us")),
        ("price", pa.decimal128(12, 3)),
        ("key", pa.binary(4)),
        ("blob", pa.binary()),
        ("flag", pa.bool_()),
        ("single", pa.float32()),
    ]
)


def test_every_type_survives(lake):
    lake.create(T, NESTED)
    filled = pa.Table.from_pylist(
        [
            {
                "id": 1,
                "tags": ["a", None],
                "place": {"town": "Ulm", "at": [1.5]},
                "counts": [("a", 1)],
                "day": 1,
                "at": 1,
                "local": 1,
                "hour": 1,
                "key": b"abcd",
                "blob": b"x",
                "flag": True,
                "single": 0.5,
            },
            {"id": 2, "tags": [], "counts": [], "blob": b""},
        ],
        schema=NESTED,
    )
    lake.append(T, filled)
    lake.append(T, filled.slice(1))
    lake.delete_by_key(T, {"id": [7], "day": [None], "at": [None], "price": [None], "key": [b"abcd"], "flag": [True]})
    before = sorted_rows([*filled.to_pylist(), filled.to_pylist()[1]])
    rewrite_all(lake)
    assert lake.rows(T) == before


def test_work_files_are_gone_afterwards(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2))
    lake.delete_by_key(T, {"id": [1]})
    rewrite_all(lake)
    folders = {path.name for path in Path(lake.folder, "warehouse", "ns", "t").iterdir()}
    assert folders == {"data", "metadata"}


# Bad input: one clear line, nothing changed


def refused(lake, error, message, **options):
    before = files_below(lake)
    with pytest.raises(error, match=message) as caught:
        rewrite_all(lake, **options)
    assert "\n" not in str(caught.value)
    assert files_below(lake) <= before


def filled(lake):
    lake.create(T, ID_NAME)
    lake.append(T, rows(1, 2))
    return Path(lake.state(T).data[0].file.path.removeprefix("file://"))


def test_a_missing_data_file_is_named(lake):
    path = filled(lake)
    path.unlink()
    refused(lake, NotFoundError, f"{path} does not exist")


def test_a_damaged_data_file_is_named(lake):
    path = filled(lake)
    path.write_bytes(path.read_bytes()[:-9] + b"nonsense!")
    refused(lake, InputError, f"{path} cannot be read")


def test_a_data_file_with_other_rows_than_the_manifest_says_is_refused(lake):
    path = filled(lake)
    pq.write_table(pq.read_table(path).slice(0, 1), path)
    refused(lake, InputError, f"{path} holds 1 rows where the log says 2")


def test_a_data_file_without_field_ids_is_refused(lake):
    path = filled(lake)
    pq.write_table(pa.table({"id": [1, 2]}), path)
    refused(lake, SchemaError, f"{path}: column 'id' has no field id, and the table has no name mapping: set")


def test_a_missing_delete_file_is_named(lake):
    filled(lake)
    lost = lake.delete_by_key(T, {"id": [1]})
    path = Path(lost.path.removeprefix("file://"))
    path.unlink()
    refused(lake, NotFoundError, f"{path} does not exist")


def test_a_missing_manifest_is_named(lake):
    filled(lake)
    path = Path(lake.state(T).manifests[0].path.removeprefix("file://"))
    path.unlink()
    refused(lake, NotFoundError, f"{path} does not exist")


def test_unknown_tables_branches_and_catalogs_are_named(lake, monkeypatch):
    filled(lake)
    table = lake.catalog.load_table(T)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()
    with pytest.raises(NotFoundError, match=r"has no table 'ns\.nobody'"):
        IcebergTable.load(lake.catalog, "ns.nobody")
    with pytest.raises(InputError, match=r"Iceberg table 't': name it as namespace\.table"):
        IcebergTable.load(lake.catalog, "t")
    refused(lake, NotFoundError, "has no branch 'nobody' \\(branches: main\\)", branch="nobody")
    refused(lake, InputError, "'v1' of table 'ns.t' is a tag", branch="v1")
    with pytest.raises(InputError, match="Iceberg catalog 'nobody' is not configured"):
        open_named("nobody")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "prd",
            r"'prd' is not configured: .* \(did you mean 'prod'\?\)\. .* by PYICEBERG_CATALOG__PRD__URI and others$",
        ),
        ("east_1", r"\(did you mean 'east-1'\?\)\. .*__EAST_1__URI and others, which are for iceberg://east-1$"),
        ("wide-lake", r"by PYICEBERG_CATALOG__WIDE_LAKE__URI and others$"),
    ],
)
def test_a_mistyped_catalog_is_told_with_the_nearest_one_and_the_variable_of_its_name(monkeypatch, name, told):
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "sqlite://")
    monkeypatch.setenv("PYICEBERG_CATALOG__EAST_1__URI", "sqlite://")
    with pytest.raises(InputError, match=told):
        open_named(name)


# At random, beside an oracle


@st.composite
def histories(draw):
    """Commits of appends, deletes by key and by position, and rewrites."""
    keys = st.integers(0, 5)
    commits = []
    for _ in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["append", "append", "key", "position", "rewrite"]))
        if kind == "position":
            commits.append((kind, draw(st.integers(0, 9)), draw(st.integers(0, 9))))
        elif kind == "rewrite":
            commits.append((kind,))
        else:
            commits.append((kind, draw(st.lists(keys, min_size=1, max_size=4))))
    return [("append", draw(st.lists(keys, min_size=1, max_size=4))), *commits]


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.booleans(), st.sampled_from([1, 2, 1000]))
@pytest.mark.slow
def test_random_histories_end_in_the_rows_of_an_oracle(tmp_path_factory, history, tiny, keys_per_bucket):
    lake = Lake(tmp_path_factory.mktemp("lake"))
    lake.create(T, ID_NAME)
    sizes = TINY if tiny else Sizes(keys_per_bucket=keys_per_bucket)
    alive: list[tuple[int, str]] = []
    for number, (kind, *what) in enumerate(history):
        if kind == "append":
            lake.append(T, [{"id": key, "name": str(number)} for key in what[0]])
            alive += [(key, str(number)) for key in what[0]]
        elif kind == "key":
            lake.delete_by_key(T, {"id": what[0]})
            alive = [row for row in alive if row[0] not in what[0]]
        elif kind == "position":
            data = lake.state(T).data
            if not data:
                continue
            file = data[what[0] % len(data)].file
            place = what[1] % file.rows
            stored = pq.read_table(file.path.removeprefix("file://"), partitioning=None).slice(place, 1).to_pylist()[0]
            dead = _dead_positions(lake, file.path)
            lake.delete_by_position(T, {file.path: [place]})
            row = (stored["id"], stored["name"])
            if place not in dead and not _deleted_by_key(lake, file.path, stored["id"]):
                alive.remove(row)
        else:
            rewrite_all(lake, sizes=sizes)
    result = rewrite_all(lake, sizes=sizes)
    assert result.rows_in == result.rows_out + result.dead_by_key + result.dead_by_position
    if not lake.state(T).data:  # deletes that came when nothing was left may stay
        assert alive == []
        return
    assert sorted((row["id"], row["name"]) for row in lake.rows(T)) == sorted(alive)
    assert lake.state(T).deletes == ()


def _dead_positions(lake, path):
    found = set()
    for entry in lake.state(T).deletes:
        if not entry.file.equality_ids:
            table = pq.read_table(entry.file.path.removeprefix("file://"), partitioning=None)
            found |= {row["pos"] for row in table.to_pylist() if row["file_path"] == path}
    return found


def _deleted_by_key(lake, path, key):
    state = lake.state(T)
    written = next(entry.sequence for entry in state.data if entry.file.path == path)
    for entry in state.deletes:
        if entry.file.equality_ids and written < entry.sequence:
            keys = pq.read_table(entry.file.path.removeprefix("file://"), partitioning=None)["id"].to_pylist()
            if key in keys:
                return True
    return False


def test_ray_gives_the_same_rows(lake, ray_cluster):
    lake.create(T, ID_NAME)
    for part in range(3):
        lake.append(T, rows(*range(part * 10, part * 10 + 10)))
    lake.delete_by_key(T, {"id": [3, 13, 23]})
    lake.delete_by_position(T, {lake.state(T).data[0].file.path: [0]})
    result = rewrite_all(lake, settings=Settings(executor="ray", ray_address=ray_cluster), sizes=TINY)
    assert result.executor == "ray"
    assert ids(lake) == sorted(set(range(30)) - {3, 13, 23, 20})


def test_float_is_the_same_key_as_the_double_it_became(lake):
    lake.create(T, Schema(NestedField(1, "id", LongType()), NestedField(2, "ratio", FloatType())))
    lake.append(T, [{"id": 1, "ratio": 0.1}, {"id": 2, "ratio": 0.2}])
    with lake.catalog.load_table(T).update_schema() as update:
        update.update_column("ratio", DoubleType())
    single = pa.scalar(0.1, pa.float32()).as_py()
    lake.delete_by_key(T, {"ratio": [single]})
    rewrite_all(lake)
    assert ids(lake) == [2]


def test_a_plan_that_is_approved_after_a_rename_reports_the_tables_name_of_now(lake):
    lake.create(T, ID_NAME)
    for number in range(2):
        lake.append(T, rows(number))
    catalog = IcebergCatalog(lake.catalog)
    document = json.dumps(REWRITE.steps().document(catalog.plan(T, {"rewrite-all": "true"})))
    lake.catalog.rename_table(T, "ns.renamed")
    result = catalog.rewrite("ns.renamed", plan=document)
    assert (result.table_id, len(result.snapshots)) == ("ns.renamed", 1)
