"""What was laid out stays known when snapshots have expired, and only of files that we wrote."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from deltacompact.iceberg.layout_memory import RECORD, RECORDS_MAX, SPENT, layouts_of, outdated_layouts
from deltacompact.iceberg_modes.rewrite.laid_out import ages_of

T = "ns.t"
SCHEMA = pa.schema([("part", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
ROWS = 400
CURVE = {"strategy": "sort", "sort_order": "hilbert(a, b)", "target_file_size_bytes": 4_000}
"""Files along a curve have boxes that overlap: only our word says that they lie as well as they can."""


def rows(seed, count=ROWS):
    a, b = np.random.default_rng(seed).integers(0, 10_000, (2, count))
    return pa.table([pa.array(["x", "y"] * (count // 2)), pa.array(a), pa.array(b)], schema=SCHEMA)


def filled(lake, files=5, version=2):
    lake.create(T, SCHEMA, version)
    for seed in range(files):
        lake.append(T, rows(seed))


def records(lake):
    return {name for name in lake.state(T).metadata.properties if name.startswith(RECORD)}


def expire(lake):
    """All snapshots but the head, as anybody may."""
    old = [number for number in lake.state(T).metadata.snapshots if number != lake.state(T).snapshot_id]
    lake.catalog.load_table(T).maintenance.expire_snapshots().by_ids(old).commit()


def set_property(lake, name, value):
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({name: value})


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_laid_out_is_not_written_again_after_every_expiry(lake, version):
    filled(lake, version=version)
    assert lake.rewrite(T, **CURVE).files_in == 5
    lake.append(T, rows(9, 20))
    expire(lake)
    assert lake.rewrite(T, **CURVE).nothing_to_do
    (record,) = records(lake)
    set_property(lake, record, "{}")
    assert lake.rewrite(T, **CURVE).files_in > 2  # nobody says any more that it lies well


def test_the_counts_of_a_branch_that_is_gone_go_with_the_next_layout(lake):
    filled(lake)
    lake.catalog.load_table(T).manage_snapshots().create_branch(lake.state(T).snapshot_id, "audit").commit()
    lake.rewrite(T, "audit", **CURVE)
    lake.rewrite(T, **CURVE)
    assert spent(lake) == {"audit", "main"}
    lake.catalog.load_table(T).manage_snapshots().remove_branch("audit").commit()
    lake.append(T, rows(9))
    lake.rewrite(T, **CURVE, rewrite_all=True)
    assert spent(lake) == {"main"}


def spent(lake):
    """The branches whose bytes are counted."""
    properties = lake.state(T).metadata.properties
    return {name.removeprefix(SPENT) for name in properties if name.startswith(SPENT)}


def test_what_a_group_costs_that_is_done_again_is_counted(lake):
    filled(lake)
    touched = iter([True])

    def delete_once():
        if next(touched, False):
            lake.delete_by_key(T, {"a": rows(0)["a"].to_pylist()[:1]})

    came = sum(entry.file.file_bytes for entry in lake.state(T).data)
    result = lake.rewrite(T, **CURVE, before_commit=delete_once, use_starting_sequence_number=False)
    assert result.redone == 1
    assert json.loads(lake.state(T).metadata.properties["deltacompact.layout-bytes.main"])["rewritten"] == came


def test_a_record_of_another_table_is_not_believed(lake):
    filled(lake)
    lake.rewrite(T, **CURVE)
    lake.append(T, rows(9, 20))
    (name,) = records(lake)
    body = json.loads(lake.state(T).metadata.properties[name])
    expire(lake)
    set_property(lake, name, json.dumps(body | {"table": "another"}))
    assert not layouts_of(lake.state(T).metadata)
    assert lake.rewrite(T, **CURVE).files_in > 2


def test_files_that_others_wrote_are_not_taken_for_ours(lake):
    """They rewrite ours, and all snapshots expire: rows may lie anywhere."""
    filled(lake)
    lake.rewrite(T, **CURVE)
    table = lake.catalog.load_table(T)
    table.overwrite(table.scan().to_arrow())
    for seed in (5, 6):
        lake.append(T, rows(seed))
    expire(lake)
    assert lake.rewrite(T, **CURVE).files_in == 3


def test_commits_of_one_session_stay_one_run(lake):
    lake.create(T, SCHEMA)
    with lake.catalog.load_table(T).update_spec() as change:
        change.add_identity("part")
    for seed in range(2):
        lake.append(T, rows(seed))
    result = lake.rewrite(T, **CURVE, rewrite_all=True, partial_progress_enabled=True)
    assert len(result.snapshots) == 2 == len(records(lake))
    lake.append(T, rows(9, 2))
    before = ages_of(lake.state(T)).tolist()
    expire(lake)
    assert len(lake.state(T).metadata.snapshots) == 1
    assert ages_of(lake.state(T)).tolist() == before and len(set(before)) == 2


def test_records_of_files_that_are_gone_go_too(lake):
    filled(lake)
    for _ in range(3):
        lake.rewrite(T, **CURVE, rewrite_all=True)
        expire(lake)
    assert len(records(lake)) <= 2


def test_a_run_on_one_branch_forgets_nothing_of_another(lake):
    filled(lake)
    table = lake.catalog.load_table(T)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    lake.rewrite(T, branch="audit", **CURVE)
    lake.catalog.load_table(T).append(rows(9, 20), branch="audit")
    lake.rewrite(T, **CURVE, rewrite_all=True)
    heads = {ref.snapshot_id for ref in lake.state(T).metadata.refs.values()}
    old = [number for number in lake.state(T).metadata.snapshots if number not in heads]
    lake.catalog.load_table(T).maintenance.expire_snapshots().by_ids(old).commit()
    lake.rewrite(T, **CURVE, rewrite_all=True)
    assert lake.rewrite(T, branch="audit", **CURVE).nothing_to_do


def test_of_many_runs_the_smallest_are_forgotten(lake):
    filled(lake, 1)
    lake.rewrite(T, **CURVE, rewrite_all=True)
    state = lake.state(T)
    (said,) = (state.metadata.properties[name] for name in records(lake))
    (entry,) = state.data
    numbers = range(1, RECORDS_MAX + 11)
    data = tuple(replace(entry, snapshot_id=n, file=replace(entry.file, file_bytes=n)) for n in numbers)
    metadata = replace(state.metadata, properties={f"{RECORD}{number}": said for number in numbers})
    gone = outdated_layouts(replace(state, metadata=metadata, data=data))
    assert set(gone) == {f"{RECORD}{number}" for number in range(1, 12)}
