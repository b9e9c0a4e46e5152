"""Which delete applies to which data file. The numbers are those of the rules that a compactor must honour."""

from __future__ import annotations

from dataclasses import replace

from budgets import examples
from hand_made_tables import BY_DAY, SPECS, data, equality, long, positions, state, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact.iceberg.deletes.matching import PATH_COLUMN, DeleteIndex, dangling
from deltacompact.iceberg.table.content_files import Spec, SpecField


def applying(to, *deletes, **others):
    """The names of the deletes that apply to a data file."""
    found = DeleteIndex(state(to, *deletes, **others)).applying_to(to)
    return [entry.file.path for entry in (*found.equality, *found.by_position)]


def useless(*entries, gone=(), written=()):
    return [entry.file.path for entry in dangling(state(*entries), gone, written)]


def test_rule_01_an_equality_delete_applies_to_older_data_only():
    assert applying(data("a", 5), equality("e4", 4), equality("e5", 5), equality("e6", 6)) == ["e6"]


def test_rule_01_a_position_delete_applies_to_data_of_its_own_commit_too():
    deletes = [positions(f"p{number}", number, of=["a"]) for number in (4, 5, 6)]
    assert applying(data("a", 5), *deletes) == ["p5", "p6"]


def test_rule_02_deletes_match_by_partition():
    deletes = (equality("e3", 9, day=3), equality("e4", 9, day=4), positions("p3", 9, day=3), positions("p4", 9, day=4))
    assert applying(data("a", 5, day=3), *deletes) == ["e3", "p3"]


def test_rule_02_deletes_match_by_spec_although_the_values_are_equal():
    other = Spec(2, SPECS[BY_DAY].fields, "[]")
    delete = replace(equality("e", 9, day=3), file=replace(equality("e", 9, day=3).file, spec_id=2))
    assert applying(data("a", 5, day=3), delete, specs=SPECS | {2: other}) == []


def test_rule_02_an_equality_delete_of_an_unpartitioned_spec_is_global():
    assert applying(data("a", 5, day=3), equality("everywhere", 9)) == ["everywhere"]


def test_rule_02_a_spec_of_void_fields_counts_as_unpartitioned():
    void = Spec(2, (SpecField(1000, 3, "day", "void", SPECS[BY_DAY].fields[0].avro),), "[]")
    found = equality("e", 9)
    delete = replace(found, file=replace(found.file, spec_id=2, partition=(None,)))
    assert applying(data("a", 5, day=3), delete, specs=SPECS | {2: void}) == ["e"]


def test_rule_02_a_position_delete_of_an_unpartitioned_spec_is_not_global():
    assert applying(data("a", 5, day=3), positions("p", 9)) == []
    assert applying(data("a", 5), positions("p", 9)) == ["p"]


def test_rule_13_null_equals_null_so_a_delete_of_null_needs_a_file_with_nulls():
    nulls = equality("nulls", 9)
    all_null = replace(nulls, file=replace(nulls.file, value_counts={1: 1}, null_value_counts={1: 1}))
    assert applying(data("a", 5, ids=(1, 9)), all_null) == []
    assert applying(data("a", 5, ids=(1, 9), null_value_counts={1: 2}), all_null) == ["nulls"]


def test_rule_16_a_delete_never_hits_data_of_its_own_commit():
    assert applying(data("a", 5), equality("e", 5)) == []


def test_rule_18_a_deletion_vector_supersedes_position_deletes():
    old, new = positions("p", 6, of=["a"]), vector("v", 7, of="a")
    assert applying(data("a", 5), old, new, equality("e", 8)) == ["e", "v"]
    assert applying(data("b", 5), vector("v", 7, of="a")) == []


def test_bounds_keep_a_delete_from_files_without_its_keys():
    deletes = (
        equality("below", 9, ids=(1, 9)),
        equality("within", 9, ids=(15, 15)),
        equality("above", 9, ids=(20, 30)),
    )
    assert applying(data("a", 5, ids=(10, 19)), *deletes) == ["within"]


def test_a_delete_without_bounds_applies_to_every_file():
    assert applying(data("a", 5, ids=(10, 19)), equality("e", 9)) == ["e"]


def test_bounds_of_a_column_that_was_widened_compare_by_value():
    old = data("a", 5, ids=(10, 19), lower_bounds={1: b"\x0a\0\0\0"}, upper_bounds={1: b"\x13\0\0\0"})
    assert applying(old, equality("within", 9, ids=(15, 15)), equality("negative", 9, ids=(-5, -1))) == ["within"]


def test_bounds_of_a_float_do_not_exclude_nan():
    bounds = {"lower_bounds": {4: b"\0" * 8}, "upper_bounds": {4: b"\0" * 8}}
    delete = equality("e", 9, by=[4])
    far = b"\0\0\0\0\0\0\x59\x40"
    delete = replace(delete, file=replace(delete.file, lower_bounds={4: far}, upper_bounds={4: far}))
    assert applying(data("a", 5, **bounds), delete) == ["e"]


def test_position_deletes_are_pruned_by_the_bounds_of_their_paths():
    deletes = (positions("of-a", 9, of=["a"]), positions("of-b-to-c", 9, of=["b", "c"]), positions("any", 9))
    assert applying(data("b", 5), *deletes) == ["of-b-to-c", "any"]


paths = st.sampled_from(["a", "b", "b/c", "c", "ä", "z"])


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(3, 7), st.none() | paths, st.none() | paths), max_size=8), paths)
def test_bounds_of_paths_are_compared_as_the_text_says(bounds, path):
    deletes = []
    for number, (sequence, low, high) in enumerate(bounds):
        delete = positions(f"p{number}", sequence)
        low, high = ({} if bound is None else {PATH_COLUMN: bound.encode()} for bound in (low, high))
        deletes.append(replace(delete, file=replace(delete.file, lower_bounds=low, upper_bounds=high)))
    assert {*applying(data(path, 5), *deletes)} == {
        f"p{number}"
        for number, (sequence, low, high) in enumerate(bounds)
        if sequence >= 5 and (low is None or low <= path) and (high is None or path <= high)
    }


def test_rule_08_an_equality_delete_dangles_when_no_older_data_is_left_in_its_partition():
    a, b, e = data("a", 3, day=3), data("b", 4, day=4), equality("e", 6, day=3)
    assert useless(a, b, e) == []
    written = data("y", 6, day=3)
    assert useless(a, b, e, gone=[a], written=[written]) == ["e"]
    assert useless(a, b, e, gone=[a], written=[data("y", 5, day=3)]) == []


def test_rule_08_a_global_equality_delete_needs_the_oldest_data_of_the_table():
    a, b, everywhere = data("a", 3, day=3), data("b", 4, day=4), equality("e", 6)
    assert useless(a, b, everywhere, gone=[a], written=[data("y", 6, day=3)]) == []
    written = [data("y", 6, day=3), data("z", 6, day=4)]
    assert useless(a, b, everywhere, gone=[a, b], written=written) == ["e"]


def test_rule_08_a_position_delete_of_the_same_sequence_number_still_applies():
    a, p = data("a", 6, day=3), positions("p", 6, day=3)
    assert useless(a, p) == []
    assert useless(data("a", 7, day=3), p) == ["p"]


def test_rule_10_a_position_delete_goes_only_with_every_file_that_it_names():
    a, b, p = data("a", 3), data("b", 4), positions("p", 6, of=["a", "b"])
    assert useless(a, b, p, gone=[a], written=[data("y", 6)]) == []
    assert useless(a, b, p, gone=[a, b], written=[data("y", 6)]) == ["p"]


def test_rule_10_a_position_delete_of_one_file_goes_with_it():
    a, b, p, v = data("a", 3), data("b", 4), positions("p", 6, of=["a"]), vector("v", 6, of="b")
    assert useless(a, b, p, v, gone=[a], written=[data("y", 6)]) == ["p"]
    assert useless(a, b, p, v, gone=[b], written=[data("y", 6)]) == ["v"]


def test_deletes_of_an_empty_partition_dangle():
    assert useless(equality("e", 6, day=3), positions("p", 6, day=3), equality("all", 6)) == ["e", "p", "all"]


def test_bounds_are_compared_as_numbers():
    assert long(-1) > long(1)  # as bytes
    assert applying(data("a", 5, ids=(-5, 1)), equality("e", 9, ids=(0, 0))) == ["e"]


def test_bounds_of_strings_are_compared_byte_by_byte():
    def ranged(file, low, high):
        counts = {"value_counts": {2: 10}, "null_value_counts": {2: 0}}
        return replace(file, file=replace(file.file, lower_bounds={2: low}, upper_bounds={2: high}, **counts))

    a = ranged(data("a", 5), b"b\0", b"\xc3\xa4")
    deletes = [
        ranged(equality(f"{low!r}-{high!r}", 9, by=[2]), low, high)
        for low, high in [(b"a", b"b"), (b"b\0", b"b\0"), (b"z", b"zz"), (b"\xc3\xa5", b"\xff"), (b"", b"\xff")]
    ]
    assert applying(a, *deletes) == ["b'b\\x00'-b'b\\x00'", "b'z'-b'zz'", "b''-b'\\xff'"]


def test_deletes_by_several_columns_need_an_overlap_in_each():
    both = {"lower_bounds": {1: long(1), 3: b"\1\0\0\0"}, "upper_bounds": {1: long(9), 3: b"\2\0\0\0"}}
    counts = {"value_counts": {1: 1, 3: 1}, "null_value_counts": {1: 0, 3: 0}}
    delete = equality("e", 9, by=[1, 3])
    other = {"lower_bounds": {1: long(5), 3: b"\5\0\0\0"}, "upper_bounds": {1: long(5), 3: b"\5\0\0\0"}}
    delete = replace(delete, file=replace(delete.file, **other, **counts))
    assert applying(data("a", 5, **both, **counts), delete) == []
    assert applying(data("a", 5, **both, **counts), replace(delete, file=replace(delete.file, equality_ids=(1,)))) == [
        "e"
    ]
