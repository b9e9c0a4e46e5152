"""Planning a rewrite: which files, in which groups, why, and into how many files. Also: options and the document."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict, replace

import pyarrow as pa
import pytest
from hand_made_tables import data, equality, positions, state, vector
from hypothesis import given
from hypothesis import strategies as st
from plan_json import plan_to_json

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.iceberg_modes.convert.options import ConvertOptions, convert_options
from deltacompact.iceberg_modes.convert.plan import plan_conversion
from deltacompact.iceberg_modes.modes import mode_named
from deltacompact.iceberg_modes.options import stored_options
from deltacompact.iceberg_modes.rewrite.choosing import RewriteReason
from deltacompact.iceberg_modes.rewrite.options import JobOrder, RewriteOptions, rewrite_options
from deltacompact.iceberg_modes.rewrite.plan import expected_output_files, plan_rewrite
from deltacompact.iceberg_modes.rewrite.plan_document import plan_document, plan_from_json
from deltacompact.iceberg_modes.upsert.options import Reach, UpsertOptions, upsert_options
from deltacompact.iceberg_modes.upsert.plan import plan_upsert
from deltacompact.planning.driver_work import capacity_of
from deltacompact.storage.checksummed import checksum

UPSERTED = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
SIZES = {"target-file-size-bytes": "1000"}
"""Files below 750 or above 1,800 bytes are rewritten."""


def plan(*entries, **options):
    chosen = SIZES | {name.replace("_", "-"): str(value) for name, value in options.items()}
    return plan_rewrite(state(*entries), rewrite_options(chosen, {}))


def groups(planned):
    return [[source.entry.file.path for source in group.inputs] for group in planned.groups]


def reasons(planned):
    return {source.entry.file.path: source.reason for group in planned.groups for source in group.inputs}


def small(*names, day=None):
    return [data(name, 1, day=day, size=100) for name in names]


def test_small_files_of_a_partition_are_merged_when_there_are_enough():
    found = plan(*small(*"abcde", day=3), *small(*"fghi", day=4))
    assert groups(found) == [list("abcde")]
    assert set(reasons(found).values()) == {RewriteReason.TOO_SMALL}
    assert found.stays == ((RewriteReason.GROUP_TOO_SMALL, 4),)


def test_a_partition_is_named_as_a_path_names_it():
    assert (
        plan(*small(*"abcde", day=3)).lines()[0] == "partition day=3: 5 files (5 too small), 500 B, 50 rows -> 1 file"
    )


def test_files_of_the_right_size_stay():
    found = plan(*(data(name, 1, size=1000) for name in "abcdefg"))
    assert found.groups == ()
    assert found.nothing_to_do == "7 files: the right size, few deletes"


def test_a_file_that_is_too_large_is_divided():
    found = plan(data("a", 1, size=2500))
    assert reasons(found) == {"a": RewriteReason.TOO_LARGE}
    assert found.groups[0].output_files == 3


def test_two_files_above_the_target_together_are_worth_it():
    assert groups(plan(data("a", 1, size=600), data("b", 1, size=600))) == [["a", "b"]]


def test_a_file_with_many_delete_files_is_rewritten_alone():
    a = data("a", 1, size=1000)
    deletes = [equality("e", 2), positions("p", 3, of=["a"])]
    assert plan(a, *deletes).groups == ()
    found = plan(a, *deletes, delete_file_threshold=2)
    assert reasons(found) == {"a": RewriteReason.MANY_DELETE_FILES}
    assert plan(a, *deletes, delete_file_threshold=3).groups == ()


@pytest.mark.parametrize(("deleted", "reason"), [(2, None), (3, RewriteReason.MANY_ROWS_DELETED)])
def test_a_file_that_lost_many_rows_by_position_is_rewritten(deleted, reason):
    found = plan(data("a", 1, size=1000, rows=10), positions("p", 2, of=["a"], rows=deleted))
    assert reasons(found).get("a") is reason


def test_deletes_of_several_files_do_not_count_as_deleted_rows():
    found = plan(data("a", 1, size=1000), data("b", 1, size=1000), positions("p", 2, of=["a", "b"], rows=9))
    assert found.groups == ()


def test_partitions_and_specs_are_never_mixed():
    found = plan(*small("a", "b", day=3), *small("c", "d", day=4), *small("e", "f"), min_input_files=2)
    assert groups(found) == [["a", "b"], ["c", "d"], ["e", "f"]]


def test_rule_22_files_with_and_without_row_ids_never_share_a_group():
    numbered = [data(name, 1, size=100, first_row_id=0) for name in "cd"]
    assert groups(plan(*small("a", "b"), *numbered, min_input_files=2)) == [["a", "b"], ["c", "d"]]


def test_groups_are_packed_up_to_their_largest_size_and_count():
    five = small(*"abcde")
    assert groups(plan(*five, min_input_files=1, max_file_group_size_bytes=200)) == [["a", "b"], ["c", "d"]]
    assert groups(plan(*five, rewrite_all=True, max_file_group_input_files=3)) == [["a", "b", "c"], ["d", "e"]]


def test_a_run_stops_at_the_most_files_and_says_so():
    found = plan(*small("a", "b", day=3), *small("c", "d", day=4), min_input_files=2, max_files_to_rewrite=3)
    assert groups(found) == [["a", "b"]]
    assert found.stays == ((RewriteReason.BEYOND_MAX_FILES, 2),)


def test_of_a_partition_with_more_files_a_run_takes_a_part_that_is_worth_it():
    files = small(*"abcdef", day=3)
    found = plan(*files, min_input_files=2, max_files_to_rewrite=4)
    assert groups(found) == [["a", "b", "c", "d"]]
    assert found.stays == ((RewriteReason.BEYOND_MAX_FILES, 2),)
    assert plan(*files, min_input_files=5, max_files_to_rewrite=4).stays == ((RewriteReason.BEYOND_MAX_FILES, 6),)


def test_groups_come_in_the_wanted_order():
    entries = [*small("a", "b", "c", day=3), data("d", 1, day=4, size=700), data("e", 1, day=4, size=700)]
    orders = {order: groups(plan(*entries, min_input_files=2, rewrite_job_order=order)) for order in JobOrder}
    first, second = ["a", "b", "c"], ["d", "e"]
    assert orders[JobOrder.BYTES_ASC] == orders[JobOrder.FILES_DESC] == [first, second]
    assert orders[JobOrder.BYTES_DESC] == orders[JobOrder.FILES_ASC] == [second, first]


@pytest.mark.parametrize(
    ("size", "files"),
    [(999, 1), (1000, 1), (1099, 1), (1499, 1), (1500, 2), (1800, 2), (2150, 2), (2750, 3), (2751, 3), (10_500, 10)],
)
def test_the_number_of_outputs_follows_icebergs_rounding(size, files):
    """A small rest is spread over the others while they stay below 1.1 x the target."""
    assert expected_output_files(size, rewrite_options(SIZES, {})) == files


@given(st.integers(1, 10**7))
def test_outputs_are_neither_small_nor_too_large(size):
    """So a second run finds nothing to do."""
    options = rewrite_options(SIZES, {})
    count = expected_output_files(size, options)
    assert size / count <= options.max_file_bytes
    assert count == 1 or size / count >= options.min_file_bytes


def test_an_empty_branch_has_nothing_to_do():
    assert plan().nothing_to_do == "the branch has no data files"


# What cannot be rewritten is refused before any work


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (data("a.orc", 1, file_format="ORC"), "a.orc is ORC: only Parquet files can be read"),
        (data("a", 1, key_metadata=b"k"), "a is encrypted"),
        (equality("e", 2, by=[77]), "e deletes by field id 77, which no schema of 'ns.t' has"),
    ],
)
def test_files_that_cannot_be_read_are_refused(entry, message):
    with pytest.raises(InputError, match=message):
        plan(entry)


# Options


def test_defaults_are_icebergs():
    options = rewrite_options({}, {})
    assert options.target_file_bytes == 512 << 20
    assert options.min_file_bytes == 384 << 20
    assert options.max_file_bytes == (512 << 20) * 9 // 5
    assert (options.min_input_files, options.max_group_bytes) == (5, 100 << 30)
    assert (options.delete_file_threshold, options.delete_ratio_threshold) == (None, 0.3)
    assert (options.partial_progress, options.max_commits, options.use_starting_sequence_number) == (False, 10, True)


def test_the_tables_target_is_the_default():
    assert rewrite_options({}, {"write.target-file-size-bytes": "4000"}).min_file_bytes == 3000
    own = rewrite_options({"target-file-size-bytes": "1000"}, {"write.target-file-size-bytes": "4000"})
    assert own.min_file_bytes == 750


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("target-size", "1", "unknown option 'target-size': did you mean 'target-file-size-bytes'?"),
        ("min-input-files", "0", "'0' is not a whole number of at least 1"),
        ("min-input-files", "many", "'many' is not a whole number"),
        ("rewrite-all", "yes", "'yes' is neither true nor false"),
        ("delete-ratio-threshold", "1.5", "'1.5' is not a share above 0, up to 1"),
        ("rewrite-job-order", "up", "'up' is none of none, bytes-asc"),
        ("min-file-size-bytes", str(1 << 40), "must lie between min-file-size-bytes"),
    ],
)
def test_bad_options_are_refused_in_one_line(name, value, message):
    with pytest.raises(InputError, match=message) as caught:
        rewrite_options({name: value}, {})
    assert "\n" not in str(caught.value)


# What it is expected to take


def expected(planned, capacity):
    return mode_named(planned.mode).steps().expected(planned, capacity)


def test_the_expected_seconds_follow_rows_and_deleted_keys_and_slots():
    files = [data(name, 1, day=3, size=10**9, rows=10**7) for name in "abcd"]
    one, four = capacity_of(1, 1, 16 << 30), capacity_of(1, 4, 16 << 30)
    planned = plan(*files, rewrite_all=True, max_file_group_input_files=1, target_file_size_bytes=10**9)
    alone = expected(planned, one)
    assert len(alone.group_core_seconds) == 4
    assert alone.core_seconds == pytest.approx(sum(alone.group_core_seconds))
    assert expected(planned, four).seconds < alone.seconds / 2
    assert expected(planned, four).core_seconds == alone.core_seconds
    assert alone.usd(0.36) == pytest.approx(alone.core_seconds / 10_000)
    deleted = plan(*files, equality("e", 2, day=3), rewrite_all=True, target_file_size_bytes=10**9)
    assert expected(deleted, one).core_seconds > alone.core_seconds
    assert expected(plan(), one).seconds == 0.0
    divided = replace(planned, groups=tuple(replace(group, partition=None) for group in planned.groups))
    assert expected(divided, one).core_seconds == 2 * alone.core_seconds


def test_an_output_is_not_divided_among_slots():
    planned = plan(data("a", 1, size=10**9, rows=10**7), rewrite_all=True, target_file_size_bytes=10**9)
    many = expected(planned, capacity_of(1, 64, 256 << 30))
    assert many.seconds >= many.core_seconds


def test_a_file_whose_rows_got_ids_since_makes_a_plan_stale():
    """An upgrade to version 3: what is written by the old plan would lose them."""
    planned = plan_to_json(plan(*small("a", "b", day=3), rewrite_all=True))
    numbered = [data(name, 1, day=3, size=100, first_row_id=10) for name in "ab"]
    with pytest.raises(ConflictError, match="the plan is stale"):
        plan_from_json(planned, state(*numbered))


# The document

FILES = (*small("a", "b", day=3), equality("e", 2, day=3), positions("p", 3, day=3), vector("v", 3, of="b", day=3))


def test_a_plan_survives_json():
    planned = plan(*FILES, rewrite_all=True)
    assert plan_from_json(plan_to_json(planned), state(*FILES)) == planned


def test_a_plan_is_resolved_after_an_append():
    planned = plan(*FILES, rewrite_all=True)
    assert plan_from_json(plan_to_json(planned), state(*FILES, data("new", 9, day=3))) == planned


def test_an_edited_plan_is_refused():
    document = json.loads(plan_to_json(plan(*FILES, rewrite_all=True)))
    document["plan"]["groups"][0]["inputs"].pop()
    with pytest.raises(InputError, match="its SHA-256 differs"):
        plan_from_json(json.dumps(document), state(*FILES))


def test_a_stale_plan_is_refused():
    planned = plan_to_json(plan(*FILES, rewrite_all=True))
    with pytest.raises(ConflictError, match="the plan is stale: another commit removed e"):
        plan_from_json(planned, state(*(entry for entry in FILES if entry.file.path != "e")))


def test_a_plan_of_another_table_or_a_newer_release_is_refused():
    document = plan_document(plan(*FILES, rewrite_all=True))
    other = state(*FILES)
    other = dataclasses.replace(other, metadata=dataclasses.replace(other.metadata, uuid="other"))
    with pytest.raises(InputError, match=r"the plan is of branch 'main' of table 'ns\.t'"):
        plan_from_json(json.dumps(document), other)
    with pytest.raises(InputError, match="the plan has format 2, not 1"):
        plan_from_json(json.dumps(document | {"format": 2}), state(*FILES))
    assert document["sha256"] == checksum(document["plan"])


@pytest.mark.parametrize(
    "options",
    [
        rewrite_options({"rewrite-job-order": "bytes-desc", "delete-ratio-threshold": "0.5", "where": "id > 1"}, {}),
        convert_options({"max-files-to-convert": 7, "key-index": True}),
        upsert_options({}),
        upsert_options(
            {"key-columns": "a,b", "sort-columns": "c desc,d", "operation-column": "op", "scope": "partition"}
        ),
    ],
    ids=["rewrite", "convert", "upsert", "upsert by columns"],
)
def test_options_survive_json(options):
    stored = json.loads(json.dumps(asdict(options)))
    assert stored_options(type(options), stored) == options
    older = {name: value for name, value in stored.items() if value is not None}
    assert stored_options(type(options), older) == options
    with pytest.raises(InputError, match="the plan has the option 'newer', which is newer than this version"):
        stored_options(type(options), stored | {"newer": 7})
    assert stored_options(type(options), stored | {"newer": None}) == options


def test_a_word_of_a_newer_version_is_refused_by_name():
    with pytest.raises(InputError, match="the plan says 'by-heat', which is newer than this version"):
        stored_options(RewriteOptions, {"job_order": "by-heat"})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "compaction plan"}'])
def test_other_documents_are_no_plans(text):
    with pytest.raises(InputError, match="this is not an Iceberg rewrite plan"):
        plan_from_json(text, state())


def test_a_conversion_costs_what_the_rows_that_are_asked_cost():
    one, four = capacity_of(1, 1, 16 << 30), capacity_of(1, 4, 16 << 30)
    files = [data(name, 1, ids=(1, 9), rows=10**7) for name in "abcd"] + [data("e", 1, ids=(50, 60), rows=10**9)]
    progress = ConvertOptions(partial_progress=True, max_commits=2)
    planned = plan_conversion(state(*files, equality("d", 2, ids=(1, 9))), progress)
    alone = expected(planned, one)
    assert len(alone.group_core_seconds) == 2
    assert alone.core_seconds == pytest.approx(sum(alone.group_core_seconds), rel=0.01)
    assert expected(planned, four).seconds < alone.seconds / 2
    assert expected(plan_conversion(state(*files), progress), one).seconds == 0.0


def test_an_upsert_costs_what_the_rows_that_are_compared_cost():
    one, four = capacity_of(1, 1, 16 << 30), capacity_of(1, 4, 16 << 30)
    files = [data(name, 1, day=day, rows=10**7) for day in (1, 2) for name in (f"a{day}", f"b{day}")]
    made = state(*files)
    made = dataclasses.replace(made, metadata=dataclasses.replace(made.metadata, schema=UPSERTED))
    planned = plan_upsert(made, UpsertOptions(("id",), reach=Reach.PARTITION))
    alone = expected(planned, one)
    assert len(alone.group_core_seconds) == 2
    assert alone.core_seconds == pytest.approx(sum(alone.group_core_seconds))
    assert expected(planned, four).seconds < alone.seconds / 2
    assert expected(plan_upsert(made, planned.options, frozenset()), one).seconds == 0.0
