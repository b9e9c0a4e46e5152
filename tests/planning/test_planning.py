"""Plans made by hand: a snapshot of files that lie nowhere goes in, and the plan says what a session will do.

base file 14 · upsert 80 of 2 files · delete 90 of 1 file
sources    0 = 14 | 1, 2 = upsert | 3 = delete       numbers 14, 100, 101, 102       outputs from 103 on
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hand_made import CAPACITY, MIB, SCHEMA, delete, file, index_of, planned, upsert

from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import OperationType
from deltacompact.base.settings import Options
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import CompactionPlan, Round
from deltacompact.planning.planner import FILE_NUMBER_MAX, AdoptedSizes
from deltacompact.planning.planner import plan as make_plan
from deltacompact.planning.sizing import index_sizes
from deltacompact.planning.terms import SessionTerms

BASE = file(1_000_000, 300 * MIB, number=14)


def three_deltas(**arguments: int) -> CompactionPlan:
    """Two files of 10 rows at position 80, one of 5 deletes at 90, one of 30 rows at 95."""
    deltas = [
        upsert(file(10, MIB, number=0), file(10, MIB, number=1), position=80),
        delete(file(5, MIB), position=90),
        upsert(file(30, MIB), position=95),
    ]
    return planned([BASE], deltas, options=Options(**arguments))


# --- sources, rounds, numbers ----------------------------------------------------------------------------------------


def test_sources_are_the_base_files_and_then_the_delta_files_in_fold_order() -> None:
    sources = three_deltas().sources
    assert [source.ordinal for source in sources] == [0, 1, 2, 3, 4]
    assert [source.in_base for source in sources] == [True, False, False, False, False]
    assert [source.position for source in sources[1:]] == [80, 80, 90, 95]
    assert [source.operation for source in sources[2:]] == [
        OperationType.UPSERT,
        OperationType.DELETE,
        OperationType.UPSERT,
    ]
    assert sources[0].position < min(source.position for source in sources[1:])


def test_rounds_divide_the_delta_files_and_tell_how_far_they_come() -> None:
    plan = three_deltas(rows_per_round=25)
    assert plan.rounds == (Round(1, 1, 4, 90, 0), Round(2, 4, 5, 95, 0))
    assert [plan.rows_of(round_) for round_ in plan.rounds] == [25, 30]
    assert plan.round_rows == 30


def test_a_delta_is_divided_between_its_files_and_a_file_is_never_divided() -> None:
    plan = three_deltas(rows_per_round=1)
    assert [(round_.position, round_.file_number) for round_ in plan.rounds] == [(80, 0), (80, 1), (90, 0), (95, 0)]


def test_a_session_without_deltas_has_one_empty_round() -> None:
    assert planned([BASE], options=Options(purge=True)).rounds == (Round(1, 1, 1, 70, 0),)


def test_delta_files_get_the_next_file_numbers_in_case_they_are_kept() -> None:
    plan = three_deltas()
    assert [plan.number_of(source) for source in plan.sources] == [14, 100, 101, 102, 103]
    assert plan.next_file_number == 104


def test_a_chain_that_has_used_up_its_file_numbers_says_so() -> None:
    last = FILE_NUMBER_MAX - 2
    assert planned([], [upsert(file(1))], next_file_number=last).next_file_number == last + 1
    with pytest.raises(InputError, match="'t' has used up its file numbers: restate it"):
        planned([], [upsert(file(1))], next_file_number=last + 1)


def test_files_that_do_not_fit_together_are_refused_before_any_work() -> None:
    other = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    with pytest.raises(SchemaError, match=r"t/data/7.parquet: column 'v' is int64, which does not fit string"):
        planned([], [upsert(file(1, number=6), file(1, number=7, schema=other))])
    without_key = pa.schema([("v", pa.string())])
    with pytest.raises(SchemaError, match=r"t/data/8.parquet.*'k'"):
        planned([BASE], [delete(file(1, number=8, schema=without_key))])


def test_the_schema_has_the_columns_of_all_upserts_and_of_none_of_the_deletes() -> None:
    wider = SCHEMA.append(pa.field("color", pa.string()))
    only_in_a_delete = SCHEMA.append(pa.field("reason", pa.string()))
    plan = planned([BASE], [upsert(file(1, schema=wider)), delete(file(1, schema=only_in_a_delete))])
    assert plan.schema.names == ["k", "v", "color"]


# --- the index -------------------------------------------------------------------------------------------------------


def test_a_first_compaction_has_buckets_for_its_rows() -> None:
    assert planned([], [upsert(file(10))]).hash_bucket_count == 1
    assert planned([], [upsert(file(10_000_000))]).hash_bucket_count == 8
    assert planned([], [upsert(file(10))], options=Options(hash_bucket_count=5)).hash_bucket_count == 5


def test_later_compactions_keep_the_buckets_until_one_outgrows_a_task() -> None:
    kept = planned([BASE], [upsert(file(10_000_000))])
    assert (kept.hash_bucket_count, kept.rehash) == (1, False)
    outgrown = planned([BASE], [upsert(file(100_000_000))])
    assert outgrown.rehash and outgrown.hash_bucket_count > 1
    rows_of_a_bucket = outgrown.pointed_rows / outgrown.hash_bucket_count
    assert rows_of_a_bucket <= index_sizes.rows_per_bucket(
        outgrown.encoding.entry_bytes, CAPACITY.memory_per_task_bytes
    )


def test_a_small_change_of_a_large_table_adds_a_run_to_the_index() -> None:
    assert planned([BASE], [upsert(file(10))]).changes_only


def test_the_index_is_merged_when_its_later_runs_are_many_or_large() -> None:
    quarter = [upsert(file(250_000))]
    assert planned([BASE], quarter).changes_only
    assert not planned([BASE], quarter, manifest=index_of(1_000_000, 1)).changes_only
    assert planned([BASE], [upsert(file(1))], manifest=index_of(1_000_000, *[1] * 6)).changes_only
    assert not planned([BASE], [upsert(file(1))], manifest=index_of(1_000_000, *[1] * 7)).changes_only


def test_the_index_is_merged_where_every_entry_is_read_anyway() -> None:
    delta = [upsert(file(10, number=0), file(10, number=1))]
    assert planned([BASE], delta).changes_only
    assert not planned([BASE], delta, options=Options(rows_per_round=10)).changes_only
    assert not planned([BASE], delta, options=Options(hash_bucket_count=2)).changes_only
    assert not planned([BASE], delta, tombstone_retention=3).changes_only
    assert not planned([BASE], delta, owned=False, destination_table_id="d").changes_only
    assert not planned([], delta).changes_only


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_whoever_resumes_adopts_the_sizes_that_depend_on_the_machine() -> None:
    begun = three_deltas(rows_per_round=25)
    adopted = AdoptedSizes(7, (1, 4), changes_only=False)
    terms = SessionTerms(begun.keys, (), begun.options)
    resumed = make_plan(begun.input, terms, begun.base_manifest, CAPACITY, adopted)
    assert resumed.hash_bucket_count == 7
    assert [(round_.first, round_.stop) for round_ in resumed.rounds] == [(1, 2), (2, 5)]
    assert resumed.sources == begun.sources


def test_a_larger_machine_divides_the_work_otherwise_but_the_files_alike() -> None:
    deltas = [upsert(file(100_000_000, 10_000 * MIB))]
    small = planned([], deltas)
    large = planned([], deltas, capacity=replace(CAPACITY, slots=64))
    assert large.task_rows < small.task_rows
    assert (large.target_file_bytes, large.sources) == (small.target_file_bytes, small.sources)


def test_rounds_hold_what_fits_the_object_store() -> None:
    deltas = [upsert(file(1_000_000), position=position) for position in range(80, 90)]
    two_files = replace(CAPACITY, object_store_bytes=2 * 2_000_000 * 32)
    assert [round_.stop - round_.first for round_ in planned([], deltas, capacity=two_files).rounds] == [2] * 5
    assert len(planned([], deltas).rounds) == 1


def test_files_grow_with_the_table_but_the_limit_of_a_small_one_does_not() -> None:
    tiny = planned([], [upsert(file(100, MIB))])
    huge = planned([], [upsert(*(file(10_000_000, 1 << 30) for _ in range(64)))])
    assert (tiny.target_file_bytes, huge.target_file_bytes) == (256 * MIB, 512 * MIB)
    for decided in (tiny, huge):
        assert decided.is_small(1_999_999, 128 * MIB - 1)
        assert not decided.is_small(2_000_000, 1) and not decided.is_small(1, 128 * MIB)
    chosen = planned([], [upsert(file(100, MIB))], options=Options(target_file_bytes=10 * MIB))
    assert not chosen.is_small(1, 5 * MIB) and chosen.is_small(1, 5 * MIB - 1)


def test_the_space_of_a_session_is_its_outputs_and_an_index_for_each_round() -> None:
    one = three_deltas()
    several = three_deltas(rows_per_round=25)
    rows = 1_000_055
    bitmaps = rows // 8
    assert Needs(one).space_bytes == 300 * MIB + 3 * MIB + rows * 32 + bitmaps
    assert Needs(several).space_bytes == Needs(one).space_bytes + 1_000_025 * 32
