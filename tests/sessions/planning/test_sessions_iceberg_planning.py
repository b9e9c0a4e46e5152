"""What a job run on a branch of an Iceberg table is expected to read and write, and what it is planned to run on."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hand_made_tables import data, equality, positions, state
from iceberg_lake import Lake

import deltacompact
from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan import plan_rewrite
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import JobRunSession, Outcome, SessionState
from sessions.documents.instruction import of_values
from sessions.planning.branches import branch_statistics
from sessions.planning.learning import RateStore
from sessions.planning.plan import settings_of
from sessions.planning.planner import Planner
from sessions.planning.prices import offers_here, offers_of_clusters, read_prices
from sessions.planning.starts import StartStore
from sessions.records.swapping import SwappedRecords

GIB = 1 << 30
MIB = 1 << 20


class HandMade:
    """A catalog with one table, of a state that was made by hand."""

    def __init__(self, *entries):
        self._state = state(*entries)

    def state(self, table_id, branch):
        return self._state

    def planned(self, mode, table_id, options, branch):
        return plan_rewrite(self._state, rewrite_options(options or {}, {}))


def asked(**fields):
    return of_values({"version": 1, "catalog": "iceberg://prod", "source_table_id": "ns.t", **fields})


def entries():
    """Of two files one has equality deletes, and of these two one is newer than all data."""
    return (
        data("a", 1, size=600 * MIB, rows=1_000_000, ids=(0, 99)),
        data("b", 2, size=500 * MIB, rows=2_000_000, ids=(100, 199), split_offsets=(4, 200 * MIB)),
        data("c", 3, size=MIB, rows=10, ids=(200, 299)),
        equality("e", 9, ids=(0, 10)),
        equality("f", 9, ids=(20, 120)),
        positions("p", 9, of=["a"], rows=3),
    )


def test_a_rewrite_is_expected_by_its_plan():
    found = branch_statistics(HandMade(*entries()), asked(options={"delete-file-threshold": 1}))
    assert (found.base_rows, found.base_bytes) == (3_000_010, 1101 * MIB)
    assert found.delete_files == 3 and found.key_rows == 2
    rows = [0, 1, 1, 3, 1_000_000, 2_000_000]
    assert sorted(found.delta_file_rows) == rows, "all are opened; two may be hit by key, so they are asked for keys"
    assert found.read_bytes == 3 * 600 * MIB and found.delta_bytes == 30
    assert found.stream == "ns.t (main, rewrite)" and found.read_through == 4
    nothing = branch_statistics(HandMade(*entries()), asked())
    assert nothing.base_rows == nothing.delta_files == 0


def test_a_conversion_reads_keys_and_writes_no_data():
    found = branch_statistics(HandMade(*entries()), asked(mode="convert", branch="audit"))
    assert (found.base_rows, found.base_bytes) == (0, 0)
    assert sorted(found.delta_file_rows) == [1, 1, 3, 1_000_000, 2_000_000]
    assert found.partition == {"branch": "audit"} and found.stream == "ns.t (audit, convert)"


def test_vectors_that_share_a_file_count_their_own_bytes():
    data_files = (data("a", 1, size=MIB, rows=10, ids=(0, 9)), data("b", 1, size=MIB, rows=10, ids=(10, 19)))
    vectors = [
        replace(
            positions("v.puffin", 2, of=[of], rows=3),
            file=replace(
                positions("v.puffin", 2, of=[of], rows=3).file,
                file_format="PUFFIN",
                file_bytes=9_000,
                content_offset=offset,
                content_size=40,
                referenced_data_file=of,
            ),
        )
        for of, offset in (("a", 4), ("b", 44))
    ]
    found = branch_statistics(HandMade(*data_files, *vectors), asked(options={"delete-file-threshold": 1}))
    assert found.delta_bytes == 80


def test_an_upsert_asks_every_file():
    found = branch_statistics(HandMade(*entries()), asked(mode="upsert"))
    assert (found.base_rows, sum(found.delta_file_rows)) == (0, 3_000_015), "it writes no data either"


@pytest.fixture
def records():
    return SwappedRecords(MemoryStore())


def planner(records, catalog, cpus=4, memory=16 * GIB, others=()):
    offers = (*offers_here(cpus, memory), *others)
    return Planner(RateStore(records), StartStore(records), offers, 4, open_catalog=lambda uri: catalog)


def lake_of(tmp_path, files=5):
    lake = Lake(tmp_path, "prod")
    lake.create("ns.t", pa.schema([("id", pa.int64())]))
    for number in range(files):
        lake.append("ns.t", [{"id": number}])
    lake.delete_by_key("ns.t", {"id": [0]})
    return lake


def test_a_job_run_has_one_session_on_this_machine_and_its_memory_is_planned(tmp_path, records):
    """No cluster has the catalog's configuration."""
    clusters = offers_of_clusters(read_prices(), "ray_cluster", 8)
    catalog = deltacompact.open_catalog(lake_of(tmp_path).catalog)
    (plan,) = planner(records, catalog, others=clusters)(asked(options={"delete-file-threshold": 1}, desired_sla=5))
    assert (plan.partition, plan.mode, plan.node_type) == ({"branch": "main"}, "rewrite", "local")
    assert plan.base_rows == 5 and plan.expected.seconds > 0 and 0 < plan.peak_bytes < 16 * GIB
    assert set(settings_of(plan)) == {"executor", "concurrent_tasks", "memory_per_task_bytes", "memory_bytes"}
    assert "hash_buckets" not in {choice.what for choice in plan.choices}, "that is for an index"
    assert {choice.what: choice.reason for choice in plan.choices}["desired_sla"] == "met"


def test_a_branch_with_nothing_to_do_is_planned_too(tmp_path, records):
    catalog = deltacompact.open_catalog(lake_of(tmp_path, files=1).catalog)
    (plan,) = planner(records, catalog)(asked())
    assert plan.base_rows == 0 and plan.expected.seconds < 1


def test_what_cannot_be_planned_says_so(tmp_path, records):
    ask = planner(records, deltacompact.open_catalog(lake_of(tmp_path).catalog))
    with pytest.raises(NotFoundError, match=r"has no table 'ns\.none'"):
        ask(asked(source_table_id="ns.none"))
    with pytest.raises(NotFoundError, match="has no branch 'none'"):
        ask(asked(branch="none"))
    with pytest.raises(InputError, match="unknown option 'nonsense'"):
        ask(asked(options={"nonsense": 1}))


def test_large_row_groups_get_fewer_tasks_at_a_time(records):
    large = HandMade(data("a", 1, size=3 * GIB, rows=10**8), data("b", 1, size=3 * GIB, rows=10**8))
    given = branch_statistics(large, asked(options={"rewrite-all": True}))
    from sessions.planning.plan import plan_job_run
    from sessions.planning.situation import Situation, Wish

    def planned(read_bytes):
        statistics = [replace(given, read_bytes=read_bytes)]
        (plan,) = plan_job_run(statistics, Wish(), Situation(offers_here(4, 16 * GIB), {}))
        return plan

    small, huge = planned(100 * MIB), planned(1 * GIB)
    assert huge.slots < small.slots == 4 and huge.memory_per_task_bytes > small.memory_per_task_bytes


def test_sessions_on_iceberg_tables_teach_rates_of_their_own(tmp_path, records):
    catalog = deltacompact.open_catalog(lake_of(tmp_path).catalog)
    ask = planner(records, catalog)
    document = asked(options={"delete-file-threshold": 1})
    (first,) = ask(document)
    rates = RateStore(records)
    for number in range(8):
        outcome = Outcome(seconds=40 * first.expected.seconds)
        rates.learn(
            [
                JobRunSession(
                    "branch=main",
                    f"run-{number}",
                    {"branch": "main"},
                    SessionState.SUCCEEDED,
                    plan=first,
                    outcome=outcome,
                )
            ]
        )
    (later,) = ask(document)
    (converted,) = ask(asked(mode="convert"))
    assert later.expected.seconds > 20 * first.expected.seconds
    assert converted.expected.seconds < 5 * first.expected.seconds, "another mode is another kind of work"
    assert rates.rates("local/local").observations == ()
