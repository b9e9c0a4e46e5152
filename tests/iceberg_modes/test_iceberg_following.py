"""Others delete rows while a group is written: the rows are marked where they went, and nothing is written again.

planned    a: 1 2 3    b: 4 5 6      written   y: 1 2 3 4 5 6
meanwhile  a: row 1 is deleted       committed y in the place of a and b, and a mark of row 1 of y
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from budgets import examples
from conversions import convert, once
from dead_sessions import Death, Died, Unheard, dying, journals, live_rows_of_another_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iceberg_lake import CERTIFYING, SETTINGS, Lake
from live_writers import losing, racing
from naive_reader import NaiveReader
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType
from table_t import rows
from version_3 import delete_by_vector, known_rows, live_rows

from deltacompact.base.errors import ConflictError, OutcomeUnknownError
from deltacompact.base.events import GroupsCommitted
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg.table import manifests
from deltacompact.iceberg.table.content_files import Content, ManifestContent
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.journal import journal
from deltacompact.iceberg_modes.rewrite import following, stored_row_map
from deltacompact.index import number_blocks
from deltacompact.planning.within_memory import within_memory
from deltacompact.storage.local import LocalStore

T = "ns.t"
ID = pa.schema([("id", pa.int64())])
IN_THREE = {"output_spec_id": 1}
"""Rows go to three partitions."""
ORDERS = [
    {},
    {"cluster_by": "id"},
    {"strategy": "sort", "sort_order": "id DESC"},
    IN_THREE,
    {"strategy": "sort", "sort_order": "id DESC", **IN_THREE},
]


def places(lake):
    """The path, the position and the id of each live row."""
    if lake.state(T).metadata.format_version >= 3:
        return [(row.path, row.position, row.values["id"]) for row in live_rows(lake, T)]
    live = NaiveReader(lake, T).live(lake.catalog.load_table(T), MAIN)
    return [(path, position, row[1]) for (path, position), row in live]


def ids(lake):
    return sorted(number for _, _, number in places(lake))


def table_of(lake, *appends, version=2, **properties):
    """Its spec 1 has three partitions; its files lie in one."""
    lake.create(T, ID, properties=properties)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_field("id", BucketTransform(3), "part")
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("part")
    if version == 3:
        lake.upgrade(T)
    for numbers in appends:
        lake.append(T, rows(*numbers))


def path_with(lake, number):
    """The data file that has a row, and the row's position."""
    return next((path, position) for path, position, found in places(lake) if found == number)


def delete(lake, number):
    """As an engine does that has read the branch."""
    path, position = path_with(lake, number)
    if lake.state(T).metadata.format_version >= 3:
        delete_by_vector(lake, T, {path: [position]})
    else:
        lake.delete_by_position(T, {path: [position]})


def copied_on_write(lake, number):
    """The other rows of the file are written anew: by PyIceberg, where it can."""
    if lake.state(T).metadata.format_version < 3 and not any(map(_is_by_key, lake.state(T).deletes)):
        lake.catalog.load_table(T).delete(EqualTo("id", number))
        return
    path, _ = path_with(lake, number)
    kept = rows(*(found for where, _, found in places(lake) if where == path and found != number))
    table = IcebergTable.load(lake.catalog, T)
    data = pa.Table.from_pylist(kept, schema=table.metadata.schema)
    copy = [lake._file(table, data, Content.DATA, (), None, ())] if kept else []
    vectors = {entry.file.key for entry in lake.state(T).deletes if entry.file.referenced_data_file == path}
    lake.commit(table, copy, MAIN, "overwrite", {path, *vectors})


def added_again(lake, number):
    """The file that has a row is removed, and added once more: by a rollback and a cherry-pick, or `add_files`."""
    path, _ = path_with(lake, number)
    (file,) = (entry.file for entry in lake.state(T).data if entry.file.path == path)
    vectors = {entry.file.key for entry in lake.state(T).deletes if entry.file.referenced_data_file == path}
    lake.commit(IcebergTable.load(lake.catalog, T), [], MAIN, "delete", {path, *vectors})
    lake.commit(IcebergTable.load(lake.catalog, T), [replace(file, first_row_id=None)], operation="append")


@pytest.mark.parametrize("others", [copied_on_write, added_again])
def test_the_writers_of_these_tests_take_no_vector_of_another_file_away(lake, others):
    """A conversion writes the vectors of several data files into one Puffin file."""
    table_of(lake, [1, 2, 3], [4, 5, 6])
    lake.delete_by_key(T, {"id": [1, 4]})
    lake.upgrade(T)
    convert(lake)
    assert len({entry.file.path for entry in lake.state(T).deletes}) == 1 < len(lake.state(T).deletes)
    others(lake, 2)
    assert {4, 5, 6} & set(ids(lake)) == {5, 6}


def rewrite(lake, meanwhile, **options):
    """Others act before its commit. An output is not written again by itself, however many of its rows are dead."""
    chosen = {"rewrite_all": True, "delete_ratio_threshold": 1, "before_commit": once(meanwhile)} | options
    return lake.rewrite(T, **chosen)


def killed(lake, **options):
    """A rewrite that has written everything, and dies before its commit."""
    with dying(lake, death := Death(-1)), pytest.raises(Died):

        def die():
            death.at = death.seen
            death.change("here")

        rewrite(lake, die, **options)


def resumed(lake, meanwhile, **options):
    """The rewrite dies before its commit, and the next run commits what it had written."""
    killed(lake, **options)
    meanwhile()
    settings = options.get("settings", SETTINGS)
    return lake.rewrite(T, MAIN, settings, min_input_files=100, delete_file_threshold=100, delete_ratio_threshold=1)


def files_of_ours(lake, suffix):
    return [path for path in Path(lake.folder, "warehouse").rglob(f"*{suffix}") if len(path.name.split("-")[0]) == 32]


@pytest.mark.parametrize("run", [rewrite, resumed])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_rows_that_others_delete_by_position_are_marked_in_the_output(lake, written, version, run):
    table_of(lake, [1, 2, 3], [4, 5, 6], version=version)
    result = run(lake, lambda: [delete(lake, number) for number in (2, 4, 6)])
    assert (result.groups, result.redone, result.dead_meanwhile, len(written)) == (1, 0, 3, 1)
    assert ids(lake) == [1, 3, 5]
    (data,) = lake.state(T).data
    assert data.file.rows == 6
    assert all(entry.file.referenced_data_file == data.file.path for entry in lake.state(T).deletes)


def test_no_mark_is_written_for_an_engine_that_reads_none(lake, written):
    """Databricks reads no position-delete file: its table had one after a rewrite that was asked for by its name."""
    table_of(lake, [1, 2, 3], [4, 5, 6])
    result = rewrite(lake, lambda: delete(lake, 2), readable_by="databricks")
    assert (result.redone, result.dead_by_position, result.dead_meanwhile, len(written)) == (1, 1, 0, 2)
    assert ids(lake) == [1, 3, 4, 5, 6] and lake.state(T).deletes == ()


@pytest.mark.parametrize("run", [rewrite, resumed])
@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_were_dead_at_the_plan_stay_dead_under_newer_deletes(lake, written, version, run):
    """In version 3 the former vectors are gone: the newer ones have their rows."""
    table_of(lake, [1, 2, 3, 4], version=version)
    delete(lake, 1)
    result = run(lake, lambda: [delete(lake, 2), delete(lake, 4)])
    assert (result.redone, result.dead_by_position, result.dead_meanwhile) == (0, 1, 2)
    assert ids(lake) == [3]


def test_vectors_and_keys_together(lake, written):
    """A row is dead by key at the plan, so the newer vector need not have it: the former one is read."""
    table_of(lake, [1, 2, 3, 4, 5])
    lake.delete_by_key(T, {"id": [5]})
    lake.upgrade(T)
    delete(lake, 1)
    result = rewrite(lake, lambda: delete(lake, 2))
    assert (result.redone, result.dead_by_key, result.dead_meanwhile) == (0, 1, 1)
    assert ids(lake) == [3, 4]


def test_a_lost_vector_whose_rows_live_again_makes_the_group_be_written_again(lake, written):
    table_of(lake, [1, 2, 3], version=3)
    delete(lake, 1)
    (former,) = lake.state(T).deletes

    def revived():
        lake.commit(IcebergTable.load(lake.catalog, T), [], MAIN, "overwrite", {former.file.path})
        delete(lake, 2)

    result = rewrite(lake, revived)
    assert (result.redone, len(written)) == (1, 2)
    assert ids(lake) == [1, 3]


def test_a_lost_position_delete_makes_the_group_be_written_again(lake, written):
    table_of(lake, [1, 2, 3])
    before = lake.catalog.load_table(T).current_snapshot().snapshot_id
    delete(lake, 1)
    undo = lambda: lake.catalog.load_table(T).manage_snapshots().rollback_to_snapshot(before).commit()  # noqa: E731
    result = rewrite(lake, undo)
    assert (result.redone, len(written)) == (1, 2)
    assert ids(lake) == [1, 2, 3]


@pytest.mark.parametrize("run", [rewrite, resumed])
@pytest.mark.parametrize("version", [2, 3])
def test_a_source_that_another_writer_copied_dies_in_the_output(lake, written, version, run):
    table_of(lake, [1, 2, 3], [4, 5, 6], version=version)
    result = run(lake, lambda: copied_on_write(lake, 2))
    assert (result.redone, result.dead_meanwhile, len(written)) == (0, 3, 1)
    assert ids(lake) == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("run", [rewrite, resumed])
@pytest.mark.parametrize("version", [2, 3])
def test_a_source_that_was_removed_and_added_again_keeps_its_rows(lake, written, version, run):
    """It is another file of the same name: its rows are not those that were rewritten. One row of it was dead."""
    table_of(lake, [1, 2, 7], [3, 4], version=version)
    delete(lake, 7)
    result = run(lake, lambda: added_again(lake, 1))
    assert (result.redone, result.groups, result.dead_meanwhile, len(written)) == (0, 1, 2, 1)
    assert ids(lake) == [1, 2, 3, 4, 7]
    assert len(lake.state(T).data) == 2


def test_a_group_of_which_no_file_is_left_is_not_committed(lake, written):
    table_of(lake, [1, 2, 3], [4, 5, 6])
    result = rewrite(lake, lambda: [lake.catalog.load_table(T).delete(), lake.append(T, rows(7))])
    assert ids(lake) == [7]
    assert files_of_ours(lake, "-deletes.parquet") == []
    assert result.dead_meanwhile == 0


def test_a_partition_that_another_writer_overwrites_drops_its_outputs_and_costs_the_others_nothing(lake, written):
    lake.create(T, ID)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_field("id", IdentityTransform(), "part")
    for _ in range(2):
        lake.append(T, rows(1, 2, 3))
    events = []
    overwritten = pa.table({"id": [2]}, schema=ID)
    result = rewrite(
        lake, lambda: lake.catalog.load_table(T).overwrite(overwritten, EqualTo("id", 2)), emit=events.append
    )
    assert [event.attempts for event in events if isinstance(event, GroupsCommitted)] == [1]
    assert (result.groups, result.dead_meanwhile, len(written)) == (2, 0, 3)
    assert (ids(lake), len(lake.state(T).data)) == ([1, 1, 2, 3, 3], 3)
    ours = {path.name for path in files_of_ours(lake, ".parquet")}
    assert ours <= {Path(entry.file.path).name for entry in lake.state(T).data}, "what was dropped is gone"


@pytest.mark.parametrize("run", [rewrite, resumed])
@pytest.mark.parametrize("version", [2, 3])
def test_an_output_of_which_no_row_lives_is_left_out(lake, written, version, run):
    table_of(lake, [1, 2, 3], version=version)
    result = run(lake, lambda: [delete(lake, number) for number in (1, 2, 3)])
    assert (result.groups, result.redone, result.files_out, result.notes) == (1, 0, 0, [])
    state = lake.state(T)
    assert (state.data, state.deletes) == ((), ())
    assert files_of_ours(lake, "-deltacompact.parquet") == []


def test_rows_find_their_way_into_one_of_several_outputs(lake, written):
    table_of(lake, range(5000), range(5000, 10000))
    dead = [3, 2500, 4999, 5000, 7001, 9999]
    size = sum(entry.file.file_bytes for entry in lake.state(T).data)

    def others():
        lake.delete_by_position(T, _places(lake, dead))

    result = rewrite(lake, others, target_file_size_bytes=size // 4, min_file_size_bytes=1, max_file_size_bytes=size)
    assert len(lake.state(T).data) > 2
    assert (result.redone, result.dead_meanwhile) == (0, len(dead))
    assert ids(lake) == sorted(set(range(10000)) - set(dead))


def _places(lake, numbers):
    found = {}
    for path, position, number in places(lake):
        if number in numbers:
            found.setdefault(path, []).append(position)
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_an_output_with_too_many_dead_rows_is_written_again_by_itself(lake, written, version):
    """The others stay. It has landed before that, so nobody waits for it."""
    table_of(lake, range(5000), range(5000, 10000), version=version)
    size = sum(entry.file.file_bytes for entry in lake.state(T).data)
    many, few = range(9000, 9500), [3]
    commits = lambda: [snapshot.snapshot_id for snapshot in lake.catalog.load_table(T).metadata.snapshots]  # noqa: E731
    result = rewrite(
        lake,
        lambda: (
            lake.delete_by_position(T, _places(lake, {*many, *few})) if version == 2 else _by_vectors(lake, many, few)
        ),
        target_file_size_bytes=size // 4,
        min_file_size_bytes=1,
        max_file_size_bytes=size,
        delete_ratio_threshold=0.05,
    )
    assert (result.redone, result.dead_meanwhile, result.dead_by_position) == (1, 501, 500)
    assert len(result.snapshots) == 2 and set(result.snapshots) <= set(commits())
    assert len(written) == result.files_out == len(lake.state(T).data) + 1
    assert {entry.file.rows for entry in lake.state(T).deletes} == {1}
    assert ids(lake) == sorted(set(range(10000)) - {*many, *few})


def _by_vectors(lake, *numbers):
    delete_by_vector(lake, T, _places(lake, {number for some in numbers for number in some}))


@pytest.mark.slow
@pytest.mark.parametrize(("version", "order"), [(2, ORDERS[0]), (3, ORDERS[0]), (3, ORDERS[2]), (2, ORDERS[4])])
def test_fifty_commits_during_a_group_cost_one_attempt(lake, version, order):
    table_of(lake, range(60), range(60, 120), version=version)
    result = rewrite(lake, lambda: [delete(lake, number) for number in range(0, 100, 2)], **order)
    assert (result.redone, result.dead_meanwhile, len(result.snapshots)) == (0, 50, 1)
    written = {path.name for path in files_of_ours(lake, "-deltacompact.parquet")}
    assert written == {Path(entry.file.path).name for entry in lake.state(T).data}  # no byte of data twice
    assert ids(lake) == sorted(set(range(120)) - set(range(0, 100, 2)))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_a_race_that_is_lost_leaves_no_marks_behind(lake, version):
    """Between our proposal and our commit another row dies: the first marks were not committed, so they go."""
    table_of(lake, [1, 2, 3], [4, 5, 6], version=version)
    named = lake.catalog
    lake.catalog = racing(lake, lambda: _with(lake, named, lambda: delete(lake, 5)))
    result = rewrite(lake, lambda: _with(lake, named, lambda: delete(lake, 2)))
    assert (result.redone, result.dead_meanwhile) == (0, 2)
    lake.catalog = named
    assert ids(lake) == [1, 3, 4, 6]
    live = {Path(entry.file.path).name for entry in lake.state(T).deletes}
    suffix = "-deletes.puffin" if version == 3 else "-deletes.parquet"
    assert {path.name for path in files_of_ours(lake, suffix)} == live


def _with(lake, catalog, act):
    racing_catalog, lake.catalog = lake.catalog, catalog
    act()
    lake.catalog = racing_catalog


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.slow
def test_marks_of_a_commit_whose_answer_nobody_heard_are_not_deleted(lake, version, carried_out):
    table_of(lake, [1, 2, 3], [4, 5, 6], version=version)
    named = lake.catalog

    def others():
        _with(lake, named, lambda: delete(lake, 2))

    lake.catalog = losing(lake, carried_out, answers_again=False)
    with pytest.raises(OutcomeUnknownError):
        rewrite(lake, others)
    lake.catalog = named
    assert ids(lake) == [1, 3, 4, 5, 6]
    lake.rewrite(T, min_input_files=2, delete_file_threshold=100, delete_ratio_threshold=1)
    assert ids(lake) == [1, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_a_kill_before_every_change_loses_no_mark(tmp_path, version):
    """Sessions that die while they follow are resumed, or done again, and no file stays that nobody names."""
    for at in itertools.count():
        lake = Lake(tmp_path / str(at), f"kill{version}{at}")
        table_of(lake, [1, 2, 3], [4, 5, 6], version=version)
        named, death = lake.catalog, Death(at)

        def others(lake=lake, named=named):
            _with(lake, named, lambda: delete(lake, 2))

        try:
            with dying(lake, death):
                rewrite(lake, others)
        except Died:
            pass
        lake.catalog = named
        may_be_under_way = any(path.name.startswith("commit-") for path in journals(lake))
        expected = ids(lake)
        assert expected in ([1, 2, 3, 4, 5, 6], [1, 3, 4, 5, 6]), death.where
        lake.rewrite(T, min_input_files=2, delete_file_threshold=100, delete_ratio_threshold=1)
        assert ids(lake) == expected, death.where
        assert journals(lake) == [], death.where
        live = {Path(entry.file.path).name for entry in (*lake.state(T).data, *lake.state(T).deletes)}
        ours = {path.name for path in (*files_of_ours(lake, ".parquet"), *files_of_ours(lake, ".puffin"))}
        assert ours <= live or may_be_under_way, death.where
        if death.where is None:
            break
    assert at > 15


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-60])


def numbers_of_others(path):
    """As a version might write them that knows another form."""
    store = LocalStore(path.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_blocks, "_SCHEMA", number_blocks._SCHEMA.with_metadata({b"deltacompact.numbers": b"2"}))
        with number_blocks.numbers_sink(store, path.name) as sink:
            sink(np.arange(3))


@pytest.mark.parametrize("run", [rewrite, resumed])
@pytest.mark.parametrize(
    ("kind", "damage", "why", "order"),
    [
        ("live-*.arrow", cut_short, "", ORDERS[0]),
        ("arranged-*.numbers", cut_short, " is damaged: ", ORDERS[1]),
        ("arranged-*.numbers", Path.unlink, "arranged-", ORDERS[1]),
        ("arranged-*.numbers", numbers_of_others, " in a form that we do not know", ORDERS[1]),
        ("split-*.numbers", cut_short, " is damaged: ", ORDERS[3]),
    ],
)
def test_a_map_that_is_damaged_makes_the_group_be_written_again(lake, run, kind, damage, why, order):
    table_of(lake, [1, 2, 3])

    def damaged():
        paths = list(Path(lake.folder, "warehouse").rglob(kind))
        assert paths
        for path in paths:
            damage(path)
        delete(lake, 2)

    result = run(lake, damaged, **order)
    assert (result.redone, result.resumed) == (1 if run is rewrite else 0, 0)
    assert ids(lake) == [1, 3]
    assert result.notes[0].startswith("deletes of others could not be followed, so groups are written again: ")
    assert why in result.notes[0]
    assert journals(lake) == []


def order_of_another_table(path):
    store = LocalStore(path.parent)
    with pa.OSFile(str(path)) as source:
        (numbers,) = number_blocks.read_numbers(source, path.name, 3)
    with number_blocks.numbers_sink(store, path.name) as sink:
        sink(numbers[::-1])


@pytest.mark.parametrize("run", [rewrite, resumed])
@pytest.mark.parametrize(
    ("kind", "exchanged", "why", "order"),
    [
        (
            "live-*.arrow",
            lambda path: live_rows_of_another_table(path, 4),
            "live-0.arrow has another live bitmap than was",
            ORDERS[0],
        ),
        ("arranged-*.numbers", order_of_another_table, "-0.numbers has other numbers than were", ORDERS[1]),
        ("split-*.numbers", order_of_another_table, "-0.numbers has other numbers than were", ORDERS[3]),
    ],
)
def test_a_map_of_another_table_with_as_many_rows_is_not_believed(lake, run, kind, exchanged, why, order):
    """Another row was marked as deleted, and the deleted one lived."""
    table_of(lake, [1, 2, 3, 4])
    delete(lake, 1)

    def with_another_map():
        (path,) = Path(lake.folder, "warehouse").rglob(kind)
        exchanged(path)
        delete(lake, 2)

    result = run(lake, with_another_map, **order)
    assert ids(lake) == [3, 4]
    assert result.redone == (1 if run is rewrite else 0)
    assert why in result.notes[0]


@pytest.mark.parametrize("order", [ORDERS[0], ORDERS[1], ORDERS[3]])
def test_a_map_of_the_version_before_is_followed_without_a_checksum(lake, written, order):
    table_of(lake, [1, 2, 3])
    killed(lake, **order)
    (record,) = (path for path in journals(lake) if path.name == "written-0.json")
    body = json.loads(record.read_text())["body"]
    assert all(type(crc32) is int for crc32 in body["groups"][0]["went"].pop("crc32s"))
    record.write_bytes(journal._sealed(body))
    delete(lake, 2)
    result = lake.rewrite(T, rewrite_all=True)
    assert (result.resumed, result.dead_meanwhile) == (1, 1)
    assert ids(lake) == [1, 3]


def test_a_journal_of_the_version_before_has_no_map_and_its_group_is_written_again(lake, written):
    table_of(lake, [1, 2, 3])
    killed(lake)
    (record,) = (path for path in journals(lake) if path.name == "written-0.json")
    body = json.loads(record.read_text())["body"]
    assert body["groups"][0].pop("went")
    record.write_bytes(journal._sealed(body))
    delete(lake, 2)
    result = lake.rewrite(T, rewrite_all=True)
    assert (result.resumed, len(written)) == (0, 2)
    assert ids(lake) == [1, 3]


def test_a_group_that_nobody_touched_is_resumed_when_its_snapshot_is_expired(lake, written):
    """One that others touched is written again: what it was made of cannot be told any more."""
    for number, meanwhile in enumerate(([], [2])):
        table_of(lake, [1, 2, 3]) if not number else lake.append(T, rows(5))
        killed(lake)
        lake.append(T, rows(4 + 2 * number))
        for change in meanwhile:
            copied_on_write(lake, change)
        with lake.catalog.load_table(T).maintenance.expire_snapshots() as expire:
            head = lake.catalog.load_table(T).current_snapshot().snapshot_id
            gone = [
                snapshot.snapshot_id
                for snapshot in lake.catalog.load_table(T).metadata.snapshots
                if snapshot.snapshot_id != head
            ]
            expire.by_ids(gone)
        result = lake.rewrite(T, rewrite_all=True)
        assert result.resumed == (0 if meanwhile else 1)
    assert ids(lake) == [1, 3, 4, 5, 6]


def test_no_file_is_left_of_a_resumed_session(lake, written):
    """Neither maps nor marks that were not committed."""
    table_of(lake, [1, 2, 3], [4, 5, 6])
    killed(lake)
    delete(lake, 2)
    named = lake.catalog
    lake.catalog = racing(lake, lambda: _with(lake, named, lambda: delete(lake, 5)))
    assert lake.rewrite(T, min_input_files=100, delete_ratio_threshold=1).dead_meanwhile == 2
    lake.catalog = named
    assert ids(lake) == [1, 3, 4, 6]
    live = {Path(entry.file.path).name for entry in (*lake.state(T).data, *lake.state(T).deletes)}
    assert {path.name for path in files_of_ours(lake, ".parquet")} == live
    assert journals(lake) == []


@pytest.mark.parametrize("carried_out", [True, False])
def test_marks_of_a_resumption_whose_answer_nobody_heard_are_not_deleted(lake, carried_out):
    table_of(lake, [1, 2, 3], [4, 5, 6])
    killed(lake)
    delete(lake, 2)
    named, lake.catalog = lake.catalog, losing(lake, carried_out, answers_again=False)
    with pytest.raises(OutcomeUnknownError):
        lake.rewrite(T, min_input_files=100)
    lake.catalog = named
    assert ids(lake) == [1, 3, 4, 5, 6]
    result = lake.rewrite(T, min_input_files=100, delete_file_threshold=100, delete_ratio_threshold=1)
    assert ids(lake) == [1, 3, 4, 5, 6]
    assert result.resumed == (0 if carried_out else 1)


def test_a_delete_file_that_names_rows_of_many_files_is_held_once(lake, written, monkeypatch):
    """Rows of both sources are named by one file of two positions, and no more than two may be held."""
    monkeypatch.setattr(following, "POSITIONS_MAX", 2)
    table_of(lake, [1, 2, 3], [4, 5, 6])
    result = rewrite(lake, lambda: lake.delete_by_position(T, _places(lake, [1, 4])))
    assert (result.redone, len(written)) == (0, 1)
    assert ids(lake) == [2, 3, 5, 6]


def test_a_rewrite_that_gives_up_says_that_too_many_positions_were_deleted(lake, monkeypatch):
    monkeypatch.setattr(following, "POSITIONS_MAX", 1)
    table_of(lake, range(1, 12))
    dead = iter(range(1, 9))
    why = r"more rows by position than are held in memory \(done again 3 times, and no more\)"
    with pytest.raises(ConflictError, match=why):
        lake.rewrite(T, rewrite_all=True, before_commit=lambda: [delete(lake, next(dead)), delete(lake, next(dead))])
    assert ids(lake) == [9, 10, 11]


@pytest.mark.parametrize("mode", ["rewrite", "convert"])
@pytest.mark.parametrize(("version", "deleted"), [(2, delete), (3, delete), (2, copied_on_write), (3, copied_on_write)])
def test_a_writer_that_deletes_before_every_commit_costs_a_second_attempt(lake, mode, version, deleted):
    """Rows die before our first attempt, and between what it proposes and its commit."""
    table_of(lake, [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], version=version)
    lake.delete_by_key(T, {"id": [1, 6]})
    events, named, others = [], lake.catalog, []
    dead = iter([2, 3])

    def other():
        _with(lake, named, lambda: others.append(deleted(lake, next(dead))))

    lake.catalog = racing(lake, other)
    own = {"before_commit": other, "emit": events.append}
    if mode == "rewrite":
        result = lake.rewrite(T, rewrite_all=True, delete_ratio_threshold=1, **own)
    else:
        result = convert(lake, catalog=lake.catalog, **own)
    lake.catalog = named
    assert [event.attempts for event in events if isinstance(event, GroupsCommitted)] == [2]
    assert (result.redone, len(others)) == (0, 2)
    assert ids(lake) == [4, 5, 7, 8, 9, 10]
    assert not any(map(_is_by_key, lake.state(T).deletes))


def test_a_delete_file_is_read_once_and_not_at_every_attempt(lake, monkeypatch):
    read, deleted_positions = [], following.deleted_positions

    def counted(store, scans, reading):
        read.extend(Path(file.path).name for scan in scans for file in (*scan.own, *scan.shared))
        return deleted_positions(store, scans, reading)

    monkeypatch.setattr(following, "deleted_positions", counted)
    table_of(lake, [1, 2, 3, 4, 5])
    named = lake.catalog
    lake.catalog = racing(lake, lambda: _with(lake, named, lambda: delete(lake, 5)))
    rewrite(lake, lambda: _with(lake, named, lambda: [delete(lake, 1), delete(lake, 2)]))
    lake.catalog = named
    assert (len(read), len(set(read))) == (3, 3)
    assert ids(lake) == [3, 4]


@pytest.mark.parametrize("order", [ORDERS[0], ORDERS[2]])
def test_rows_that_die_while_others_are_read_cost_no_second_attempt(lake, monkeypatch, order):
    """Its first look took so long that the commit after it was always too late: ten attempts under a busy writer."""
    events, read, dead_rows = [], [], following.Follower._read
    dead = iter([2, 3])

    def slowly(follower, tasks):
        read.append([delete(lake, number) for number in itertools.islice(dead, 1)])
        return dead_rows(follower, tasks)

    monkeypatch.setattr(following.Follower, "_read", slowly)
    table_of(lake, [1, 2, 3, 4, 5])
    rewrite(lake, lambda: delete(lake, 1), emit=events.append, **order)
    assert [event.attempts for event in events if isinstance(event, GroupsCommitted)] == [1]
    assert len(read) == 3
    assert ids(lake) == [4, 5]


def test_a_map_is_read_once_and_not_at_every_attempt(lake, monkeypatch):
    read, session_object = [], stored_row_map.session_object

    def counted(store, path):
        read.append(path)
        return session_object(store, path)

    monkeypatch.setattr(stored_row_map, "session_object", counted)
    table_of(lake, [1, 2, 3, 4, 5])
    named = lake.catalog
    lake.catalog = racing(lake, lambda: _with(lake, named, lambda: delete(lake, 5)))
    rewrite(lake, lambda: _with(lake, named, lambda: delete(lake, 1)), **ORDERS[2])
    lake.catalog = named
    assert len(read) == 1
    assert ids(lake) == [2, 3, 4]


@pytest.mark.parametrize("version", [2, 3])
def test_the_second_attempt_writes_only_the_manifests_that_the_new_head_changes(lake, monkeypatch, version):
    """While a commit that was too late wrote all manifests again, one after the other, others came first again."""
    written, write_manifest = [], manifests.write_manifest

    def counted(entries, spec, content, terms, path):
        written.append((content, Path(path).name))
        return write_manifest(entries, spec, content, terms, path)

    monkeypatch.setattr(manifests, "write_manifest", counted)
    table_of(lake, [1, 2, 3, 4, 5], version=version)
    named, events = lake.catalog, []

    def meanwhile():
        written.append((None, ""))
        _with(lake, named, lambda: delete(lake, 5))

    lake.catalog = racing(lake, meanwhile)
    rewrite(lake, lambda: _with(lake, named, lambda: delete(lake, 1)), emit=events.append)
    lake.catalog = named
    (committed,) = (event for event in events if isinstance(event, GroupsCommitted))
    ours = [content for content, name in written if name.startswith(f"{committed.snapshot_id}-") or not name]
    data, deletes = ManifestContent.DATA, ManifestContent.DELETES
    assert (committed.attempts, ours[4:]) == (2, [None, deletes, deletes])
    assert Counter(ours[:4]) == {data: 2, deletes: 2}
    listed = {manifest.path.rpartition("/")[2] for manifest in lake.state(T).manifests}
    assert {path.name for path in _metadata(lake, f"{committed.snapshot_id}-*")} <= listed, "what was refused is gone"
    assert len(_metadata(lake, f"snap-{committed.snapshot_id}-*")) == 1
    assert ids(lake) == [2, 3, 4]


def _metadata(lake, pattern):
    return sorted(Path(lake.folder, "warehouse").rglob(f"metadata/{pattern}"))


@pytest.mark.parametrize("kept", [1 << 20, 0])
def test_a_row_that_lives_again_at_the_second_attempt_is_not_marked(lake, kept, monkeypatch):
    monkeypatch.setattr(following, "KeptNumbers", lambda _: stored_row_map.KeptNumbers(kept))
    table_of(lake, [1, 2, 3, 4, 5])
    named = lake.catalog

    def revived():
        (former,) = lake.state(T).deletes
        lake.commit(IcebergTable.load(lake.catalog, T), [], MAIN, "overwrite", {former.file.path})
        delete(lake, 3)

    lake.catalog = racing(lake, lambda: _with(lake, named, revived))
    result = rewrite(lake, lambda: _with(lake, named, lambda: delete(lake, 2)), **ORDERS[2])
    lake.catalog = named
    assert (result.redone, result.dead_meanwhile) == (0, 1)
    assert ids(lake) == [1, 2, 4, 5]


def test_bounded_memory_bounds_what_is_held_from_attempt_to_attempt(lake, monkeypatch):
    held = []
    monkeypatch.setattr(following, "KeptNumbers", lambda size: held.append(size) or stored_row_map.KeptNumbers(size))
    table_of(lake, [1, 2, 3])
    for chosen in (SETTINGS, within_memory(replace(SETTINGS, memory_bytes=256 << 20))):
        rewrite(lake, lambda: None, settings=chosen)
    assert held[0] == 64 << 20 and held[1] < 16 << 20


def test_too_many_positions_are_not_held_in_memory(lake, written, monkeypatch):
    monkeypatch.setattr(following, "POSITIONS_MAX", 1)
    table_of(lake, [1, 2, 3])
    result = rewrite(lake, lambda: [delete(lake, 2), delete(lake, 3)])
    assert (result.redone, len(written)) == (1, 2)
    assert ids(lake) == [1]


@pytest.mark.parametrize("run", [rewrite, resumed])
@pytest.mark.parametrize("order", [ORDERS[3], ORDERS[4]])
@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_went_to_other_partitions_are_marked_there(lake, written, version, order, run):
    table_of(lake, range(40), range(40, 80), version=version)
    dead = [3, 39, 40, 71]
    result = run(lake, lambda: [delete(lake, number) for number in dead], **order, sizes=Sizes(run_bytes=100))
    assert (result.redone, result.dead_meanwhile, result.groups, result.files_out) == (0, 4, 1, 3)
    assert ids(lake) == sorted(set(range(80)) - set(dead))
    outputs = {entry.file.path: entry.file for entry in lake.state(T).data}
    for entry in lake.state(T).deletes:
        data = outputs[entry.file.referenced_data_file]
        assert (entry.file.spec_id, entry.file.partition) == (data.spec_id, data.partition)


def test_a_group_of_which_no_row_was_left_when_it_landed_unheard_is_told_as_committed(lake):
    """Nothing of what it wrote is in the snapshot: only its sources are gone."""
    table_of(lake, [1, 2, 3])

    def others():
        death.others = True
        for number in (1, 2, 3):
            delete(lake, number)
        death.others = False

    with dying(lake, death := Unheard(-1)), pytest.raises(Died):
        rewrite(lake, others)
    assert (lake.state(T).data, len(journals(lake)) > 0) == ((), True)
    (note,) = (note for note in lake.rewrite(T, rewrite_all=True).notes if "session" in note)
    assert note.endswith("had been committed")
    assert journals(lake) == []


def test_an_output_in_a_partition_of_which_no_row_lives_is_left_out(lake, written):
    """The others of the group are committed: only rows of one partition are deleted meanwhile."""
    table_of(lake, range(20))
    bucket = BucketTransform(3).transform(LongType())
    dead = [number for number in range(20) if bucket(number) == 1]
    result = rewrite(lake, lambda: [delete(lake, number) for number in dead], **IN_THREE)
    assert (result.redone, result.files_out, result.dead_meanwhile) == (0, 2, 0)
    assert ids(lake) == sorted(set(range(20)) - set(dead))
    assert lake.state(T).deletes == ()


deaths = st.lists(
    st.tuples(
        st.sampled_from(["delete", "delete", "delete", "copy", "again", "key", "append", "rewrite", "convert"]),
        st.integers(0, 30),
    ),
    max_size=6,
)


@pytest.mark.slow
@pytest.mark.timeout(max(300, 5 * examples(20)))
@pytest.mark.parametrize("version", [2, 3])
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=3),
    deaths,
    deaths,
    st.sampled_from(["file", "partition"]),
    st.sampled_from(ORDERS),
    st.booleans(),
    st.booleans(),
)
def test_random_histories_have_the_rows_that_a_naive_reader_saw(
    tmp_path_factory, version, appends, before, meanwhile, granularity, order, tiny, dies
):
    """Rows keep their order, get another one, or go to other partitions; a session dies before its commit, or not."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    unique = itertools.count()
    table_of(
        lake,
        *([next(unique) for _ in numbers] for numbers in appends),
        version=version,
        **{"write.delete.granularity": granularity},
    )
    for step in before:
        _do(lake, unique, *step)
    result = []

    def others():
        for step in meanwhile:
            _do(lake, unique, *step)
        result.append(ids(lake))

    def known():
        return known_rows(lake, T) if version == 3 else Counter(ids(lake))

    sizes = Sizes(run_bytes=40, held_bytes=0)
    small = {"target_file_size_bytes": 300, "min_file_size_bytes": 1, "sizes": sizes} if tiny else {}
    small |= {"settings": CERTIFYING}
    has_work = bool(lake.state(T).data)  # all rows may be dead and gone: nobody dies of that
    done = (resumed if dies and has_work else rewrite)(lake, others, **small, **order)
    if result:
        assert ids(lake) == result[0], (done, before, meanwhile)
    lake.check_fingerprint(T)
    expected = known()
    lake.rewrite(T, rewrite_all=True)
    lake.check_fingerprint(T)
    assert known() == expected


def _do(lake, unique, name, which):
    living = ids(lake)
    if name == "append":
        lake.append(T, rows(*(next(unique) for _ in range(which % 3 + 1))))
    elif name == "rewrite":
        lake.rewrite(T, rewrite_all=True)
    elif name == "convert":
        convert(lake)
    elif living:
        number = living[which % len(living)]
        if name == "key":
            if lake.state(T).metadata.format_version < 3:
                lake.delete_by_key(T, {"id": [number]})
            else:
                delete(lake, number)
        elif name == "copy" and not any(_is_by_key(entry) for entry in lake.state(T).deletes):
            copied_on_write(lake, number)
        elif name == "again":
            added_again(lake, number)
        else:
            delete(lake, number)


def _is_by_key(entry):
    return entry.file.content is Content.EQUALITY_DELETES
