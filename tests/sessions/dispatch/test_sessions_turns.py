"""Two job runs on one stream: the second begins when the first has ended. One that cannot be launched is left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from holding import RUNS
from hypothesis import given
from hypothesis import strategies as st
from sessions_place import place  # noqa: F401
from sessions_processes import chain, until
from sessions_records import NOW_S, job_run

from sessions.base.model import JobRun, JobRunState, Lease, SessionState
from sessions.cli import run
from sessions.documents.streams import NamedStreams
from sessions.planning.turns import Line, Turn, held_up
from sessions.records.leases import NOBODY

pytestmark = pytest.mark.processes

ORDERS = {"version": 1, "catalog": "s3://lake/tables", "source_table_id": "orders"}


def streams(**fields: Any) -> NamedStreams:
    return NamedStreams.of({**ORDERS, **fields})


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ({}, {}, True),
        ({}, {"catalog": "s3://lake/tables/"}, True),
        ({}, {"catalog": "s3://lake/tables2"}, False),
        ({}, {"source_table_id": "visits"}, False),
        ({}, {"partitions": [{"day": "a"}]}, True),
        ({"partitions": [{"day": "b"}]}, {"partitions": [{"day": "a"}]}, False),
        ({"partitions": [{"day": "b"}, {"day": "a"}]}, {"partitions": [{"day": "a"}]}, True),
        ({"partitions": [{"day": 1, "hour": None}]}, {"partitions": [{"hour": None, "day": "1"}]}, True),
        ({}, {"destination_compacted_table_id": "folded"}, False),
        ({"destination_compacted_table_id": "folded"}, {"destination_compacted_table_id": "folded"}, True),
    ],
)
def test_documents_overlap_where_they_write_to_one_stream(one, other, overlap):
    assert streams(**one).overlap(streams(**other)) is streams(**other).overlap(streams(**one)) is overlap


@pytest.mark.parametrize("partitions", [7, "x", [7], {"day": "a"}, [{"day": []}]])
def test_partitions_in_a_way_of_another_release_are_all_of_them(partitions):
    """One such job run stopped all others, the page and status, with a traceback."""
    odd = {**ORDERS, "partitions": partitions}
    open_ = {"state": JobRunState.ACCEPTED, "lease": None}
    runs = [job_run("a", document=odd, **open_), job_run("b", accepted_s=NOW_S + 1, document=ORDERS, **open_)]
    assert list(held_up(runs, ())) == ["b"] and Turn.of(runs[0]).streams == streams()


def test_a_job_run_that_another_release_accepted_ends_and_holds_no_other_up(place):
    place.table("orders")
    document = {"version": 1, "catalog": place.lake, "source_table_id": "orders"}
    for name, partitions in (("odd", [7]), ("good", [{}])):
        run_ = JobRun(name, {**document, "partitions": partitions}, JobRunState.ACCEPTED, NOW_S)
        assert place.state.accept(run_)
    with place.dispatcher("--drain") as dispatcher:
        assert dispatcher.wait(60) == 1
    assert place.run("good").state is JobRunState.SUCCEEDED
    assert place.run("odd").error.startswith("partitions[0]: ")


turns = st.builds(
    Turn,
    st.sampled_from("abcdefgh"),
    st.integers(0, 3).map(float),
    st.booleans(),
    st.sampled_from([streams(), streams(partitions=[{"d": "1"}]), streams(partitions=[{"d": "2"}])]),
)


@given(st.lists(turns, min_size=1, max_size=6, unique_by=lambda turn: turn.job_run_id))
def test_somebody_may_always_begin_and_of_two_on_a_stream_one_waits(waiting: list[Turn]) -> None:
    free = [turn for turn in waiting if not any(other.goes_before(turn) for other in waiting if other is not turn)]
    assert free, "nobody waits in a circle"
    for number, turn in enumerate(free):
        assert not any(turn.streams.overlap(other.streams) for other in free[number + 1 :])


@given(st.lists(turns, min_size=1, max_size=6, unique_by=lambda turn: turn.job_run_id), turns)
def test_who_is_ahead_in_a_line_is_the_first_that_goes_before(others: list[Turn], turn: Turn) -> None:
    before = [other for other in others if other.job_run_id != turn.job_run_id and other.goes_before(turn)]
    line = Line(other for other in others if other.job_run_id != turn.job_run_id)
    assert line.ahead_of(turn) == min(before, key=lambda other: other.rank, default=None)


def test_why_thousands_wait_for_one_of_their_table_is_found_without_a_look_at_every_pair(monkeypatch):
    """10,000 open job runs of one table, each with its own partition, cost a minute for each refresh of the page."""
    compared = []
    monkeypatch.setattr(NamedStreams, "overlap", lambda *pair: compared.append(pair) or False)
    runs = [waiting(f"run-{day}", document={**ORDERS, "partitions": [{"d": str(day)}]}) for day in range(300)]
    runs.append(waiting("all", document=ORDERS, accepted_s=NOW_S + 1))
    assert list(held_up(runs, ("local",))) == ["all"] and len(compared) < 1000


def waiting(name: str, **changes: Any) -> JobRun:
    return job_run(name, **{"state": JobRunState.ACCEPTED, "lease": None, "started_s": None, **changes})


def why(*runs: JobRun, launchers: tuple[str, ...] = ("local",)) -> dict[str, str]:
    return {name: f"{delay.reason}: {delay.text}" for name, delay in held_up(runs, launchers).items()}


def test_people_are_told_why_nobody_works_on_a_job_run():
    first, second = waiting("run-1"), waiting("run-2", accepted_s=NOW_S + 1)
    assert why(first, second) == {"run-2": "stream: run-1 works on the same stream, or was accepted before it"}
    assert why(second, replace(first, state=JobRunState.SUCCEEDED)) == {}
    held = replace(second, lease=Lease("host-1.1.aa", 1, 60.0))
    assert set(why(first, held)) == {"run-1"}, "the other one has begun, by another clock"
    given_back = replace(first, state=JobRunState.RUNNING, lease=Lease(NOBODY, 1, 60.0), launchers=("kuberay",))
    assert why(given_back, launchers=("kuberay", "local")) == {}
    assert why(given_back) == {"run-1": "launcher: it is planned for kuberay, which no dispatcher here has"}
    assert why(replace(given_back, lease=held.lease)) == {}


def test_the_second_job_run_on_a_stream_begins_when_the_first_has_ended(place, capsys):
    place.table("orders")
    place.table("items")
    place.submit("orders", "run-1", settings={"executor": "local", "local_threads": 1})  # a CPU is left
    with place.dispatcher("--max-sessions", "2", held=RUNS) as dispatcher:
        until(place.hold.reached, "the first one runs")
        place.submit("orders", "run-2")
        place.submit("items", "run-3")
        assert place.ended("run-3").state is JobRunState.SUCCEEDED, "another table waits for nobody"
        assert place.run("run-2").state is JobRunState.ACCEPTED and place.run("run-2").lease is None
        assert not place.run("run-1").state.ended
        assert run(["status", "--state", place.state_uri]) == 0
        assert "waits: run-1 works on the same stream" in " ".join(capsys.readouterr().out.split())
        assert run(["status", "--state", place.state_uri, "--json"]) == 0
        told = {run["id"]: run["waits"] for run in json.loads(capsys.readouterr().out)["job_runs"]}
        assert told["run-1"] is None and told["run-2"]["reason"] == "stream"
        place.hold.release()
        first, second = place.ended("run-1"), place.ended("run-2")
        assert "run-2 waits: run-1" in dispatcher.log.read_text()
    assert first.state is second.state is JobRunState.SUCCEEDED
    assert first.finished_s <= second.started_s
    assert place.session("run-2").state is SessionState.NOTHING_TO_DO
    assert len(chain(place.catalog, "orders")) == 2


def test_a_dispatcher_leaves_job_runs_alone_that_it_cannot_launch(place, capsys):
    """What a dispatcher with KubeRay planned, and gave back."""
    place.table("orders")
    left = waiting("run-1", document={**ORDERS, "catalog": place.lake}, state=JobRunState.RUNNING)
    place.state.accept(replace(left, lease=Lease(NOBODY, 3, 60.0), launchers=("kuberay",)))
    place.table("items")
    place.submit("items", "run-2")
    with place.dispatcher() as dispatcher:
        assert place.ended("run-2").state is JobRunState.SUCCEEDED
        assert place.run("run-1").lease.epoch == 3, "it was not claimed"
        assert run(["status", "--state", place.state_uri]) == 0
        assert "waits: it is planned for kuberay" in " ".join(capsys.readouterr().out.split())
        assert dispatcher.log.read_text().count("run-1 waits: it is planned for kuberay") == 1
