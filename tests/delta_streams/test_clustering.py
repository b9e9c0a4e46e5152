"""Compactions that lay rows out by columns: the same rows, files whose boxes do not overlap, and an index that follows.

test_feature_machine.py compacts by columns, too, between all else that a table can do.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from budgets import examples
from clustered import assert_ranges_hold, overlap, pairs_that_meet
from hypothesis import given, settings
from hypothesis import strategies as st
from remote_store import RemoteStore
from stores import CHANGES, Crash, FailsAt, InterceptedStore, copy_of
from tables import compacted_files, problems

import deltacompact
from deltacompact import DeltaStreamCatalog, InputError, SessionResult, Settings
from deltacompact.base.data_file import LayoutAccount
from deltacompact.base.limits import LIMITS
from deltacompact.base.model import Partition
from deltacompact.delta_streams.log.objects import LogLimits
from deltacompact.index.number_blocks import numbers_sink
from deltacompact.index.primary_key_index import read_index, read_manifest
from deltacompact.planning import arrangement, overlapping
from deltacompact.planning.decisions import FileReason
from deltacompact.planning.sizing.file_sizes import FULL
from deltacompact.reports.table_report import table_document
from deltacompact.session import arranging
from deltacompact.steps import cell_blocks
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.key_ranges import keyed_groups

LOCAL = Settings(executor="local", local_threads=1, row_group_rows=16)
BY = "x,y*2"


def created(by: str | None = BY, **more: Any) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], cluster_by=by, **more)
    return catalog


def rows(ids: Any, seed: int = 0, in_order: bool = False) -> pa.Table:
    ids = np.asarray(ids, np.int64)
    rng = np.random.default_rng(seed)
    x = ids if in_order else rng.integers(0, 10**9, len(ids))  # no two are equal, or a key must part them
    return pa.table({"id": ids, "x": x, "y": rng.choice(list("abcdefgh"), len(ids)), "v": rng.random(len(ids))})


def compacted(catalog: DeltaStreamCatalog, per_file: int = 40, **how: Any) -> SessionResult:
    how = {"settings": LOCAL, "rows_per_compacted_file": per_file, **how}
    (session,) = catalog.table("t").compact(**how).sessions
    return session


def live(catalog: DeltaStreamCatalog) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in catalog.read("t").to_pylist()}


def reasons(session: SessionResult) -> set[FileReason]:
    return {decision.reason for decision in session.decisions}


def of_rows(table: pa.Table) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in table.to_pylist()}


def test_row_groups_end_with_cells_so_their_boxes_do_not_meet():
    catalog = created("id,v")
    catalog.append("t", rows(np.random.default_rng(3).permutation(400)))
    compacted(catalog, per_file=1000, settings=replace(LOCAL, row_group_rows=64))
    (file,) = compacted_files(catalog)
    groups = keyed_groups(catalog.store, file, ["id", "v"])
    assert len(groups) == 8 and all(32 <= group.rows <= 64 for group in groups)
    for box, other in combinations([group.ranges for group in groups], 2):
        assert any(box[name][1] < other[name][0] or other[name][1] < box[name][0] for name in ("id", "v"))


def test_files_are_of_one_size_although_the_last_row_group_of_rows_in_order_is_a_small_rest(tmp_path):
    """As many rows of the rest were sampled as of all others: a file had a tenth or twice of what it should have."""
    catalog = created("x")
    written = tmp_path / "in-order.parquet"
    pq.write_table(rows(range(42_000), in_order=True), written, row_group_size=40_000)
    catalog.append_files("t", [written])
    compacted(catalog, per_file=1_250, settings=Settings(executor="local"))
    sizes = [file.rows for file in compacted_files(catalog)]
    assert len(sizes) == 42 and min(sizes) > 700


@pytest.mark.parametrize(("low", "high", "said"), [(5, 90, "5 to 90"), (0, 98, "0 to 98"), (None, None, "only null")])
def test_check_finds_a_range_in_the_log_that_rows_contradict(monkeypatch, low, high, said):
    catalog = created("id")
    catalog.append("t", rows(range(100)))
    with monkeypatch.context() as patch:
        patch.setattr("deltacompact.steps.arrange.ranges_of", lambda rows, names: {"id": (low, high)})
        compacted(catalog, per_file=1000)
    (found,) = catalog.table("t").check()
    (problem,) = found.problems
    assert f"column 'id' has 0 to 99, the log says {said}: readers that skip by it miss rows" in problem
    assert catalog.table("t").check(quick=True)[0].problems == ()


@pytest.mark.parametrize("content_type", ["parquet", "feather", "orc"])
def test_check_compares_ranges_in_the_units_of_the_log(content_type):
    """Parquet has no seconds, and ORC nothing but nanoseconds: check called these files wrong, as no others."""
    catalog = created("at,day")
    values = {"at": pa.array(range(100), pa.timestamp("s")), "day": pa.array(range(100), pa.timestamp("us", "UTC"))}
    catalog.append("t", rows(range(100)).append_column("at", values["at"]).append_column("day", values["day"]))
    compacted(catalog, compacted_file_content_type=content_type)
    assert problems(catalog) == []


def index_of(catalog: DeltaStreamCatalog) -> dict[bytes, tuple[int, int]]:
    """Where each key's row is, as the index says."""
    state = catalog.state("t", Partition())
    manifest = read_manifest(catalog.store, state.index)
    found = {}
    for bucket in range(manifest.hash_bucket_count):
        for entries in read_index(catalog.store, manifest, bucket):
            for entry in entries:
                pointer = entry[-12:].tobytes()
                found[entry[:20].tobytes()] = (
                    int.from_bytes(pointer[:4], "little"),
                    int.from_bytes(pointer[4:], "little"),
                )
    return found


def assert_lies_well(catalog: DeltaStreamCatalog, by: str = BY) -> None:
    files = list(compacted_files(catalog))
    assert {file.clustered.by for file in files} == {by}
    assert not overlap(files, by).any()
    assert pairs_that_meet(files, by) == 0
    for file in files:
        assert_ranges_hold(catalog.store, file)


def test_a_full_compaction_divides_rows_into_files_that_do_not_overlap():
    catalog = created()
    catalog.append("t", [rows(range(1000)), rows(range(900, 1500), seed=1)])
    session = compacted(catalog)
    assert session.live == 1500
    assert session.files_after > 1500 / 40
    assert all(file.rows <= 40 for file in compacted_files(catalog))
    assert_lies_well(catalog)
    assert problems(catalog) == []
    assert live(catalog) == of_rows(rows(range(1000))) | of_rows(rows(range(900, 1500), seed=1))


def test_a_second_run_finds_nothing_and_says_so():
    catalog = created()
    catalog.append("t", rows(range(500)))
    compacted(catalog)
    assert compacted(catalog).nothing_to_do.endswith(", and no files to lay out by x,y*2")


def test_what_arrives_in_the_order_of_a_column_never_touches_what_is_there():
    catalog = created("x")
    catalog.append("t", rows(range(1000), in_order=True))
    compacted(catalog)
    base = {file.path for file in compacted_files(catalog)}
    for step in range(10):
        catalog.append("t", rows(range(1000 + 50 * step, 1050 + 50 * step), in_order=True))
        session = compacted(catalog)
        assert FileReason.OVERLAPS not in reasons(session)
        assert base <= {file.path for file in compacted_files(catalog)}
    assert_lies_well(catalog, "x")


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 16])
@pytest.mark.parametrize("behind", [0, 2000])
def test_what_arrives_in_the_order_of_a_column_is_divided_by_the_others(behind, steps):
    """Behind 2,000 rows, 160 lie close by x already: they are divided by v, at once or when runs are merged."""
    catalog, base, found = created("x,v"), set(), set()
    if behind:
        catalog.append("t", rows(range(behind), in_order=True))
        compacted(catalog)
        base = {file.path for file in compacted_files(catalog)}
    for first in range(behind, behind + 160, 160 // steps):
        catalog.append("t", rows(range(first, first + 160 // steps), seed=first, in_order=True))
        found |= reasons(compacted(catalog))
    assert (FileReason.OVERLAPS in found) == (steps > 1)
    files = [file for file in compacted_files(catalog) if file.path not in base]
    ranges = [{name: (low, high) for name, low, high in file.clustered.ranges} for file in files]
    length = np.median([high - low for low, high in (of_file["x"] for of_file in ranges)])
    assert length > 120 if behind else length < 100
    assert_lies_well(catalog, "x,v")


@pytest.mark.slow
def test_runs_are_merged_once_as_much_has_come_as_there_is():
    catalog = created()
    catalog.append("t", rows(range(1000)))
    compacted(catalog)
    base, merged_above_it = {file.path for file in compacted_files(catalog)}, False
    for step in range(12):
        catalog.append("t", rows(range(1000 + 200 * step, 1200 + 200 * step), seed=step + 1))
        session = compacted(catalog)
        stays = base <= {file.path for file in compacted_files(catalog)}
        merged_above_it |= stays and FileReason.OVERLAPS in reasons(session)
        assert stays or step > 2  # it is larger than what has come
    assert merged_above_it
    assert not stays
    assert problems(catalog) == []
    expected = of_rows(rows(range(1000)))
    for step in range(12):
        expected |= of_rows(rows(range(1000 + 200 * step, 1200 + 200 * step), seed=step + 1))
    assert live(catalog) == expected


def test_what_sessions_rewrite_is_bounded_over_time():
    """400 rows came and were written; 400 more may be written 1.2 times: the base waits, until more may be."""
    catalog, tight = created(), {"settings": replace(LOCAL, write_amplification_max=1.2)}
    catalog.append("t", rows(range(400)))
    compacted(catalog, **tight)
    base = {file.path for file in compacted_files(catalog)}
    catalog.append("t", rows(range(400, 800), seed=1))
    session = compacted(catalog, **tight)
    assert reasons(session) == {FileReason.TOO_LARGE, FileReason.OVERLAPS_WAITS}
    assert sum(decision.reason is FileReason.OVERLAPS_WAITS for decision in session.decisions) == len(base)
    assert base < {file.path for file in compacted_files(catalog)}
    assert catalog.state("t", Partition()).compacted.account == LayoutAccount(came=800, rewritten=800)
    nothing_left = replace(LOCAL, write_amplification_max=1.0)
    other = compacted(catalog, settings=nothing_left, cluster_by="v").nothing_to_do
    assert " files to lay out by v must wait: write_amplification_max allows no more until rows come" in other
    catalog.append("t", rows(range(800, 1200), seed=2))
    assert FileReason.OVERLAPS in reasons(compacted(catalog))  # 4 times by default, and what was not used is left
    assert catalog.state("t", Partition()).compacted.account == LayoutAccount(came=1200, rewritten=2000)
    catalog.append("t", rows(range(1200, 1300), seed=3))
    compacted(catalog, cluster_by="")
    assert catalog.state("t", Partition()).compacted.account == LayoutAccount(came=1300, rewritten=2000)
    assert problems(catalog) == []


def test_rows_without_destinations_keep_their_order_unrouted_and_do_not_count_as_laid_out(monkeypatch):
    """They were routed and thrown away, in each session until write_amplification_max was used up."""
    catalog = created("x")
    monkeypatch.setattr(arranging, "DESTINATIONS_MAX", 100)
    monkeypatch.setattr(arranging, "CellRouting", None)
    catalog.append("t", rows(range(400)))
    compacted(catalog)
    monkeypatch.undo()
    assert catalog.state("t", Partition()).compacted.account == LayoutAccount(came=400, rewritten=0)
    assert {file.clustered for file in compacted_files(catalog)} == {None}


def test_files_with_more_rows_than_a_session_lays_out_are_laid_out_by_several(monkeypatch):
    catalog = created("")
    catalog.append("t", rows(range(400)))
    compacted(catalog)
    monkeypatch.setattr(overlapping, "ROWS_CHOSEN_MAX", 220)
    for rewritten in (200, 400):
        assert reasons(compacted(catalog, cluster_by="x")) >= {FileReason.OVERLAPS}
        assert catalog.state("t", Partition()).compacted.account == LayoutAccount(came=400, rewritten=rewritten)
    assert live(catalog) == of_rows(rows(range(400)))


def test_a_large_delta_of_one_row_group_stays_until_runs_are_merged():
    catalog, whole = created("x"), replace(LOCAL, limits=replace(LIMITS, delta_kept_bytes_min=1))
    catalog.append("t", rows(range(400)))
    compacted(catalog)
    found = []
    for step in range(4):
        catalog.append("t", rows(range(400 + 40 * step, 440 + 40 * step), seed=step + 1))
        found.append(reasons(compacted(catalog, settings=whole)) - {FileReason.NO_ROW_DIED})
        for file in compacted_files(catalog):
            assert_ranges_hold(catalog.store, file)
            assert dict((name, (low, high)) for name, low, high in file.clustered.ranges).keys() == {"x"}
    assert found == [{FileReason.LARGE_AND_WHOLE}, {FileReason.OVERLAPS}] * 2
    written = 400 + 2 * 40 + 4 * 40  # what stays was not written
    assert catalog.state("t", Partition()).compacted.account == LayoutAccount(came=560, rewritten=written)
    assert problems(catalog) == []
    expected = of_rows(rows(range(400)))
    for step in range(4):
        expected |= of_rows(rows(range(400 + 40 * step, 440 + 40 * step), seed=step + 1))
    assert live(catalog) == expected


def test_a_file_that_stays_is_read_by_times_of_day():
    """Python has no 24:00, and pyarrow made 0:00 of it: a read after noon opened nothing."""
    catalog, whole = created("t"), replace(LOCAL, limits=replace(LIMITS, delta_kept_bytes_min=1))
    times = pa.array([0, 86_400_000_000], pa.time64("us"))
    catalog.append("t", pa.table({"id": [1, 2], "t": times}))
    assert reasons(compacted(catalog, per_file=2, settings=whole)) == {FileReason.LARGE_AND_WHOLE}
    noon = pa.scalar(43_200_000_000, pa.time64("us"))
    assert catalog.read("t", filter=pc.field("t") > noon)["id"].to_pylist() == [2]
    assert problems(catalog) == []


def test_a_large_delta_of_many_row_groups_is_laid_out(tmp_path):
    catalog, whole = created("x"), replace(LOCAL, limits=replace(LIMITS, delta_kept_bytes_min=1))
    pq.write_table(rows(range(40)), tmp_path / "many.parquet", row_group_size=10)
    catalog.append_files("t", [tmp_path / "many.parquet"])
    assert reasons(compacted(catalog, settings=whole)) == {FileReason.NOT_CLUSTERED}


def test_other_columns_lay_the_table_out_anew():
    catalog = created(None)
    catalog.append("t", rows(range(400)))
    compacted(catalog)
    assert {file.clustered for file in compacted_files(catalog)} == {None}
    session = compacted(catalog, cluster_by="x")
    assert reasons(session) == {FileReason.OVERLAPS}
    assert_lies_well(catalog, "x")
    assert compacted(catalog).nothing_to_do  # in that run alone
    catalog.declare_cluster_by("t", ["y", "v"])
    assert reasons(compacted(catalog)) == {FileReason.OVERLAPS}
    assert_lies_well(catalog, "y,v")
    catalog.declare_cluster_by("t", "")
    assert catalog.described("t").cluster_by is None
    assert live(catalog) == of_rows(rows(range(400)))


def test_the_index_follows_by_destinations_and_equals_one_that_is_built_anew():
    few = replace(LIMITS, masks_share_of_index=1.0, runs_share_max=10.0)
    catalog, how = created(), {"settings": replace(LOCAL, limits=few)}
    catalog.append("t", rows(range(600)))
    compacted(catalog, **how)
    for step in range(3):
        catalog.append("t", rows(range(600 + 300 * step, 900 + 300 * step), seed=step + 1))
        compacted(catalog, **how)
    manifest = read_manifest(catalog.store, catalog.state("t", Partition()).index)
    assert any(relocation.moves for relocation in manifest.relocations)
    assert b'"format":3' in catalog.store.get(catalog.state("t", Partition()).index.path)  # 0.1 refuses it
    assert problems(catalog) == []
    followed = index_of(catalog)
    catalog.append("t", rows([0]))
    compacted(catalog, settings=replace(LOCAL, limits=replace(LIMITS, runs_max=1)), cluster_by="")
    manifest = read_manifest(catalog.store, catalog.state("t", Partition()).index)
    assert (len(manifest.runs), manifest.relocations) == (1, ())
    again = index_of(catalog)
    assert followed.keys() == again.keys()
    kept = {file.number for file in compacted_files(catalog)}
    assert {key: place for key, place in again.items() if place in followed.values()} == {
        key: place for key, place in followed.items() if place[0] in kept and again[key] == place
    }


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("a,b,c,d,e", "cluster_by names 5 columns: at most 4 help readers"),
        ("x*fast", "cluster_by: the weight 'fast' of 'x*fast' is no number above 0"),
        ("x*-1", "cluster_by: the weight '-1' of 'x*-1' is no number above 0"),
        ("x,x", "cluster_by has 'x' twice"),
        ("day", "cluster_by names 'day', a partition key: it has one value in each partition"),
    ],
)
def test_bad_columns_are_refused_at_the_door(by, message):
    catalog = DeltaStreamCatalog(MemoryStore())
    with pytest.raises(InputError, match=message.replace("*", r"\*")):
        catalog.create_table("t", ["day"], primary_keys=["id"], cluster_by=by)
    assert catalog.tables() == []
    catalog.create_table("t", ["day"], primary_keys=["id"])
    with pytest.raises(InputError, match=message.replace("*", r"\*")):
        catalog.declare_cluster_by("t", by)
    catalog.append("t", rows(range(3)), partition={"day": "1"})
    before = set(catalog.store._objects)
    with pytest.raises(InputError, match=message.replace("*", r"\*")):
        catalog.table("t").compact(cluster_by=by, settings=LOCAL)
    assert set(catalog.store._objects) == before


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("dya", "cluster_by: table 't' has no column 'dya': it has id, list, s"),
        ("lists", "cluster_by: table 't' has no column 'lists': did you mean 'list'?"),
        ("s.a", "cluster_by: table 't' has no column 's.a': name one at the top level"),
        ("list", "cluster_by: column 'list' of table 't' is list<.*>, whose values have no order"),
    ],
)
def test_columns_that_no_row_has_or_that_have_no_order_are_refused_before_any_work(by, message):
    catalog = created(None)
    catalog.append("t", pa.table({"id": [1], "list": [[1]], "s": [{"a": 1}]}))
    before = set(catalog.store._objects)
    with pytest.raises(InputError, match=message):
        compacted(catalog, cluster_by=by)
    assert set(catalog.store._objects) == before
    assert compacted(catalog, cluster_by="").live == 1
    with pytest.raises(InputError, match=message):
        compacted(catalog, cluster_by=by)  # and where there is nothing else to do


def test_a_table_is_compacted_before_rows_bring_the_column_that_it_is_clustered_by():
    """Each compaction was refused until rows had the column."""
    catalog = created("x")
    ids = np.random.default_rng(5).permutation(300)
    for part in np.array_split(ids, 3):
        catalog.append("t", pa.table({"id": part}))
        assert compacted(catalog).error is None
    catalog.append("t", rows(range(300, 600)))
    compacted(catalog)
    assert_lies_well(catalog, "x")
    assert (len(live(catalog)), problems(catalog)) == (600, [])


def test_a_declared_column_that_no_row_has_yet_may_be_named():
    catalog = created(None, columns="id long, x long")
    catalog.append("t", pa.table({"id": [1, 2]}))
    assert compacted(catalog, cluster_by="x").live == 2
    with pytest.raises(InputError, match="has no column 'dya'"):
        compacted(catalog, cluster_by="dya")


@pytest.mark.parametrize("by", [None, "x"])
@pytest.mark.parametrize("chosen", ["one", "the others are idle", "another is damaged"])
def test_a_partition_that_lacks_the_column_is_compacted_alone(by, chosen):
    """Other partitions have the column. Those that were not opened were taken for ones that lack it."""
    store = RemoteStore()
    catalog = DeltaStreamCatalog(store, log_limits=LogLimits(streams_listed_min=1))
    catalog.create_table("t", ["day"], ["id"], cluster_by=None if by else "x")
    catalog.append("t", pa.table({"id": [1]}), {"day": "1"})
    if chosen != "one":
        catalog.append("t", pa.table({"id": [1], "x": [1]}), {"day": "2"})
    if chosen == "the others are idle":
        assert not catalog.table("t").compact(settings=LOCAL, cluster_by=by).errors
        catalog.append("t", pa.table({"id": [2]}), {"day": "1"})
        catalog = DeltaStreamCatalog(store, log_limits=LogLimits(streams_listed_min=1))
    elif chosen == "another is damaged":
        store.delete(["t/day=2/stream/hint.json"])
        store.put("t/day=2/stream/0/00000000000000000001.json", b"no entry")
        catalog = DeltaStreamCatalog(store, log_limits=LogLimits(streams_listed_min=1))
    partitions = [{"day": "1"}] if chosen == "one" else None
    sessions = catalog.table("t").compact(settings=LOCAL, partitions=partitions, cluster_by=by).sessions
    assert [session.error is None for session in sessions] == [True, chosen != "another is damaged"][: len(sessions)]


def test_texts_in_views_are_laid_out_as_texts_are(tmp_path):
    catalog = created("w")
    texts = pa.array([f"{number * 7 % 100:02}" for number in range(100)])
    pq.write_table(rows(range(100)).append_column("w", texts.cast(pa.string_view())), tmp_path / "a.parquet")
    catalog.append_files("t", tmp_path / "a.parquet")
    compacted(catalog, 20)
    assert_lies_well(catalog, "w")
    assert len(live(catalog)) == 100


def test_a_column_that_came_later_is_null_where_it_lacks():
    catalog = created("w")
    catalog.append("t", rows(range(100)).append_column("w", pa.array([None] * 50 + list(range(50)), pa.int64())))
    catalog.append("t", rows(range(100, 200)))
    compacted(catalog, 20)
    assert_lies_well(catalog, "w")
    assert len(live(catalog)) == 200


def test_two_outputs_exchanged_are_found(monkeypatch):
    """The containment test can fail: rows of one file in the place of another's."""
    exchanged = arrangement.destinations

    def wrong(cells, first, stops, span):
        found = exchanged(cells, first, stops, span)
        return np.where(found // span == 0, found + span, np.where(found // span == 1, found - span, found)).astype(
            "u4"
        )

    monkeypatch.setattr("deltacompact.steps.move.destinations", wrong)
    catalog = created()
    catalog.append("t", rows(range(200)))
    compacted(catalog)
    assert problems(catalog) != []


def test_two_leaves_exchanged_do_not_contain_their_rows(monkeypatch):
    from deltacompact.layout.split_tree import SplitTree

    cells_of = SplitTree.cells_of

    def wrong(tree, table):
        cells = cells_of(tree, table)
        return np.where(cells == 0, tree.cells - 1, np.where(cells == tree.cells - 1, 0, cells)).astype(np.int32)

    monkeypatch.setattr(SplitTree, "cells_of", wrong)
    catalog = created("x")
    catalog.append("t", pa.concat_tables([rows(range(200)), rows(range(200, 400))]))
    compacted(catalog, 100)
    files = list(compacted_files(catalog))
    ranges = [file.clustered.ranges[0] for file in files]
    assert sorted(ranges, key=lambda one: one[1]) != ranges  # files are in the order of their cells, of one column


# Histories


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, Any]]:
    ids = st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True)
    step = st.one_of(
        st.tuples(st.just("upsert"), ids),
        st.tuples(st.just("upsert"), ids),
        st.tuples(st.just("delete"), ids),
        st.tuples(st.just("compact"), st.sampled_from([None, None, None, "", "x", "v,y", "y*2"])),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("rollback"), st.integers(0, 3)),
        st.tuples(st.just("full"), st.none()),
    )
    return draw(st.lists(step, min_size=3, max_size=14))


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(
    history=steps(),
    readers=st.sampled_from(["files", "vectors"]),
    per_file=st.sampled_from([2, 5, 12]),
    share=st.sampled_from([0.125, 1.0]),
    in_files=st.booleans(),
    certify=st.booleans(),
    groups=st.sampled_from([None, 2]),
)
def test_histories_against_a_dictionary(history, readers, per_file, share, in_files, certify, groups):
    catalog = created(BY, readers=readers)
    small = replace(
        LIMITS,
        masks_share_of_index=share,
        runs_share_max=10.0,
        groups=groups,
        exchange_share=0.0 if in_files else LIMITS.exchange_share,
    )
    how = {"settings": replace(LOCAL, certify=certify, row_group_rows=3, limits=small), "per_file": per_file}
    expected: dict[int, dict[str, Any]] = {}
    versions: dict[str, dict[int, dict[str, Any]]] = {}
    for seed, (what, value) in enumerate([*history, ("full", None)]):
        if what == "upsert":
            catalog.append("t", rows(value, seed))
            expected = expected | of_rows(rows(value, seed))
        elif what == "delete":
            catalog.append("t", pa.table({"id": value}), operation="delete")
            expected = {key: row for key, row in expected.items() if key not in value}
        elif what == "rollback" and versions:
            version = list(versions)[value % len(versions)]
            if version != catalog.state("t", Partition()).version:
                catalog.table("t").rollback(version)
                expected = versions[version]
        elif what == "compact" and catalog.partitions("t"):
            compacted(catalog, cluster_by=value, **how)
        elif what == "full" and catalog.partitions("t"):
            compacted(catalog, cluster_by="id", **how)
            compacted(catalog, cluster_by=BY, **how)
            files = list(compacted_files(catalog))
            runs = {file.clustered and (file.clustered.by, file.clustered.run) for file in files}
            # A leaf of a few rows is one cell. If equal values give it more rows than a file may have, then it becomes
            # one more file than was planned, and the rows are divided by their position alone.
            as_planned = len(files) <= math.ceil(sum(file.rows for file in files) / max(1, int(per_file * FULL)))
            # A file that is alone waits until as much has come.
            if len(runs) == 1 and (runs.pop() or ("",))[0] == BY and as_planned:
                assert_lies_well(catalog, BY)
        if catalog.partitions("t"):
            assert live(catalog) == expected
            assert problems(catalog) == []
            versions[catalog.state("t", Partition()).version] = expected  # with the deltas of a version


# Kills


def prepared() -> tuple[MemoryStore, dict[int, dict[str, Any]]]:
    """Four files that are laid out, and deltas that are larger: the next session lays out all of them."""
    catalog = created()
    catalog.append("t", rows(range(40)))
    compacted(catalog, 12)
    catalog.append("t", rows(range(30, 100), seed=1))
    catalog.append("t", pa.table({"id": [1, 2]}), operation="delete")
    expected = of_rows(rows(range(40))) | of_rows(rows(range(30, 100), seed=1))
    return catalog.store, {key: row for key, row in expected.items() if key not in (1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_session_that_dies_anywhere_is_resumed(in_memory):
    """Rows are in memory on their way, or in runs."""
    store, expected = prepared()
    share = LIMITS.exchange_share if in_memory else 0.0
    few = replace(LIMITS, masks_share_of_index=1.0, runs_share_max=10.0, exchange_share=share)
    how = {"settings": replace(LOCAL, limits=few), "per_file": 12}
    for change in range(1000):
        killed, crashing = copy_of(store), FailsAt(change, kinds=CHANGES, error=Crash)
        with contextlib.suppress(Crash):
            compacted(DeltaStreamCatalog(InterceptedStore(killed, crashing)), **how)
        catalog = DeltaStreamCatalog(killed)
        assert live(catalog) == expected, change
        compacted(catalog, **how)
        assert live(catalog) == expected, change
        assert problems(catalog) == [], change
        assert_lies_well(catalog)
        if crashing.failed is None:
            break
    assert change > 10


IN_RUNS = replace(LOCAL, limits=replace(LIMITS, exchange_share=0.0))


@pytest.mark.parametrize(("first", "then"), [(IN_RUNS, LOCAL), (LOCAL, LOCAL), (LOCAL, IN_RUNS)])
def test_another_process_writes_the_outputs_from_the_recorded_runs_or_routes_the_rows_again(first, then):
    """It dies between the record of the last round and the first batch of outputs."""
    store, expected = prepared()

    def fails_at_outputs(kind: str, path: str, act: Any) -> Any:
        if kind == "put_if_absent" and "/outputs-" in path:
            raise Crash
        return act()

    with pytest.raises(Crash):
        compacted(DeltaStreamCatalog(InterceptedStore(store, fails_at_outputs)), 12, settings=first)
    sessions = [stat.path for stat in store.list("t/sessions/")]
    assert len([path for path in sessions if "/round-" in path]) == 2  # of both sessions
    assert sum(b'"blocks"' in store.get(path) for path in sessions) == (first is IN_RUNS)
    catalog = DeltaStreamCatalog(store)
    session = compacted(catalog, 12, settings=then)
    assert session.rounds_resumed == 1
    assert (live(catalog), problems(catalog)) == (expected, [])
    assert_lies_well(catalog)
    left = [stat.path for stat in store.list("t/index/") if b"deltacompact.cells" in store.get(stat.path)]
    assert left == []  # the rows on their way are gone


@pytest.mark.parametrize("damage", [None, b"{}", b"no json", b'{"format": 1, "kind": "split tree", "tree": {}}'])
def test_an_attempt_that_resumes_goes_on_with_the_recorded_tree(monkeypatch, damage):
    store, expected = prepared()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr("deltacompact.session.cell_routing.route_held", lambda *inputs: (_ for _ in ()).throw(Crash()))
        compacted(DeltaStreamCatalog(store), 12)
    trees = [stat.path for stat in store.list("t/sessions/") if stat.path.endswith("/tree.json")]
    first = next(path for path in trees if b'"codec"' in store.get(path))
    if damage:
        store.put(first, damage)
    else:
        monkeypatch.setattr("deltacompact.session.cell_routing.plant", lambda *inputs: pytest.fail("it has a tree"))
    catalog = DeltaStreamCatalog(store)
    compacted(catalog, 12)
    assert (live(catalog), problems(catalog)) == (expected, [])
    assert_lies_well(catalog)


def test_a_damaged_row_map_is_found():
    few = replace(LIMITS, masks_share_of_index=1.0, runs_share_max=10.0)
    store, _ = prepared()
    catalog = DeltaStreamCatalog(store)
    compacted(catalog, 12, settings=replace(LOCAL, limits=few))
    (path,) = {stat.path for stat in store.list("t/index/") if stat.path.endswith(".moves.arrow")}
    with numbers_sink(store, path) as sink:
        sink(np.arange(3))
    assert any("has the numbers of 3 rows, not of " in problem for problem in problems(DeltaStreamCatalog(store)))


def test_rows_that_only_moved_are_no_change():
    catalog = created(None)
    catalog.append("t", rows(range(300)))
    compacted(catalog)
    table = catalog.table("t")
    before, fingerprint = table.versions()[-1].version, table.fingerprint()
    compacted(catalog, cluster_by="x", settings=replace(LOCAL, certify=True))
    after = table.versions()[-1].version
    assert before != after
    assert table.fingerprint() == fingerprint
    assert table.changes(before, after).read_all().num_rows == 0


def test_a_plan_says_which_files_overlap():
    catalog = created(None)
    catalog.append("t", rows(range(100)))
    compacted(catalog)
    (planned,) = catalog.table("t").plan(cluster_by="x", settings=LOCAL, rows_per_compacted_file=40).document
    assert {file["reason"] for file in planned["files"]} == {"overlaps"}


def test_show_has_the_depth_of_a_clustered_table():
    """Of all partitions together: three files of one, each of which may hold any value, and one of another."""
    catalog = DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table("t", ["p"], ["id"])
    for seed, partition in enumerate(["a", "a", "a", "b"]):
        catalog.append("t", rows(range(100 * seed, 100 * seed + 100), seed), {"p": partition})
        table.compact(partitions=[{"p": partition}], settings=LOCAL, rows_per_compacted_file=100)
    assert table_document(catalog, "t").document["depth"] == {}
    assert "depth" not in str(table)
    table.declare_cluster_by("x,y")
    depth = table_document(catalog, "t").document["depth"]
    assert depth == pytest.approx({"x": 2.5, "y": 2.5, "together": 2.5}, abs=0.01)
    assert "\nclustered by x,y; depth: x 2.5, y 2.5, together 2.5\n" in str(table)
    table.compact(settings=LOCAL, rows_per_compacted_file=40)
    depth = table_document(catalog, "t").document["depth"]
    assert 1 <= depth["together"] < 1.3 and depth["x"] < 5
    table.declare_cluster_by("w")
    assert table_document(catalog, "t").document["depth"] == {}


def test_rows_of_eight_times_the_memory_are_laid_out_a_part_at_a_time(tmp_path, monkeypatch):
    """What is in memory meanwhile is a fraction of the rows: they go through runs, with blocks of 1 MiB at most."""
    monkeypatch.setattr("deltacompact.planning.sizing.layout_sizes.run_bytes", lambda memory_bytes: 1 << 20)
    table = deltacompact.open_catalog(tmp_path).create_table("t", primary_keys=["id"], cluster_by="x")
    draw, count, before = np.random.default_rng(1), 64_000, pa.total_allocated_bytes()
    for part in np.array_split(draw.permutation(count), 8):
        texts = pa.array([draw.bytes(128) for _ in part], pa.binary())
        table.append(pa.table({"id": part, "x": draw.random(len(part)), "v": texts}))
        size = texts.nbytes * 8
    peaks, written = [0], cell_blocks.stream_of

    def watched(rows: pa.Table, *others: Any) -> pa.Buffer:
        peaks.append(pa.total_allocated_bytes() - before)
        return written(rows, *others)

    monkeypatch.setattr("deltacompact.steps.cell_blocks.stream_of", watched)
    reading = replace(LIMITS.reading, batch_bytes=1 << 20, run_bytes=1 << 20, read_ahead_bytes=1 << 20)
    small = replace(LIMITS, reading=reading, task_rows_min=count // 8)
    how = replace(LOCAL, object_store_bytes=size // 8, row_group_rows=4_000, limits=small)
    (session,) = table.compact(settings=how, rows_per_compacted_file=count // 4).sessions
    assert session.live == count and len(peaks) > 8
    assert max(peaks) < size / 2
    files = list(compacted_files(deltacompact.open_catalog(tmp_path)))
    assert not overlap(files, "x").any()


def test_a_declared_column_in_a_struct_is_refused_too():
    """Every compaction would cluster by a column of nulls."""
    catalog = created("s.a")
    catalog.append("t", pa.table({"id": [1], "s": [{"a": 1}]}))
    with pytest.raises(InputError, match=r"no column 's\.a': name one at the top level"):
        compacted(catalog)
