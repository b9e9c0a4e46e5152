"""Plans are values: what is folded, what is kept, what is rewritten, and why."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deltacompact import Settings, compact
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.snapshots import choose
from deltacompact.storage.memory import MemoryStore
from deltacompact.table.ports import NothingToDo

LOCAL = Settings(executor="local")


@pytest.fixture
def catalog():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    return catalog


def append(catalog, *ids, v="x", **arguments):
    return catalog.append("t", pa.table({"id": list(ids), "v": [v] * len(ids)}), **arguments)


def run(catalog, **arguments):
    (session,) = compact("t", delta_catalog_client=catalog, settings=LOCAL, **arguments).sessions
    return session


def files(catalog):
    state = catalog.state("t", catalog.partitions("t")[0])
    return {file.number: file for file in state.compacted.files}


def test_a_file_of_which_every_row_lives_is_kept_as_it_is(catalog):
    append(catalog, *range(8))
    run(catalog, rows_per_compacted_file=2)
    before = files(catalog)
    append(catalog, 7, 8, v="y")
    session = run(catalog, rows_per_compacted_file=2)
    assert (session.files_kept, session.files_rewritten, session.files_new) == (3, 1, 2)
    after = files(catalog)
    kept = before.keys() & after.keys()
    assert len(kept) == 3 and all(before[number] == after[number] for number in kept)
    assert min(after.keys() - kept) > max(before)
    assert sorted(catalog.read("t")["id"].to_pylist()) == list(range(9))


def test_numbers_are_never_used_again_in_a_chain(catalog):
    seen = set()
    for round_ in range(4):
        append(catalog, *range(4), v=str(round_))
        run(catalog, rows_per_compacted_file=2)
        now = set(files(catalog))
        assert not now & seen
        seen |= now


def test_small_files_are_merged_where_there_are_two(catalog):
    append(catalog, 1)
    run(catalog)
    append(catalog, 2)
    session = run(catalog)
    assert (session.files_kept, session.files_rewritten, session.files_after) == (0, 1, 1)


def test_a_delete_of_every_row_leaves_a_version_without_files_that_knows_its_schema(catalog):
    append(catalog, 1, 2)
    catalog.append("t", pa.table({"id": [1, 2]}), operation="delete")
    session = run(catalog)
    assert (session.live, session.files_after) == (0, 0)
    assert catalog.read("t").schema == pa.schema([("id", pa.int64()), ("v", pa.string())])
    append(catalog, 3)
    assert run(catalog).live == 1


def test_few_large_files_are_cut_evenly(catalog):
    append(catalog, *range(9))
    run(catalog, rows_per_compacted_file=4)
    assert [file.rows for file in files(catalog).values()] == [3, 3, 3]


def test_nothing_to_do_says_why(catalog):
    append(catalog, 1, stream_position=5)
    run(catalog)
    assert run(catalog).nothing_to_do == "no delta since position 5"
    state = catalog.state("t", catalog.partitions("t")[0])
    assert isinstance(choose("t", "t", catalog.partitions("t")[0], state, state), NothingToDo)


def test_a_table_without_partitions_compacts_to_nothing(catalog):
    assert compact("t", delta_catalog_client=catalog, settings=LOCAL).sessions == ()


def test_a_session_stays_in_process_when_it_is_small(catalog):
    append(catalog, 1)
    (session,) = compact("t", delta_catalog_client=catalog).sessions
    assert session.executor == "local"


def test_the_space_that_a_plan_asks_for_is_enough(tmp_path):
    """What appears during a session, at its peak, is no more than was planned (records and manifests aside)."""
    import os

    import numpy as np

    import deltacompact
    from deltacompact.base.events import RoundCompleted, StageFinished
    from deltacompact.base.settings import Options
    from deltacompact.executors.local import LocalExecutor
    from deltacompact.job import Request, plan_work, prepare
    from deltacompact.planning.needs import Needs

    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("t", primary_keys=["id"])
    rng = np.random.default_rng(1)
    for position in range(3):
        ids = rng.permutation(100_000)
        catalog.append("t", pa.table({"id": ids, "v": rng.random(len(ids))}), stream_position=position)

    def used():
        return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(tmp_path) for name in names)

    job = prepare(catalog, Request("t", options=Options(rows_per_round=100_000)))
    decided = plan_work(job, job.work[0], job.snapshots[0], LocalExecutor(LOCAL).capacity)
    before, peak = used(), [0]

    def watch(event):
        if isinstance(event, StageFinished | RoundCompleted):
            peak[0] = max(peak[0], used() - before)

    settings = Settings(executor="local", rows_per_round=100_000)
    compact("t", delta_catalog_client=catalog, settings=settings, event_sinks=[watch])
    assert 0 < peak[0] <= Needs(decided).space_bytes + 100_000
