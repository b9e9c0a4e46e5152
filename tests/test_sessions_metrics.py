"""Overview, SLA report and metrics: read off the records, so a restart changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sessions_records import NOW_S, OUTCOME, job_run, session, succeeded
from stores import InterceptedStore

from deltacompact.storage.memory import MemoryStore
from sessions.base.model import Dispatcher, Estimate, JobRunState, SessionState
from sessions.metrics.collector import SLACKS_MAX, RecordsCollector, exposition, metrics_of
from sessions.overview.adherence import Outturn, adherence, outturns
from sessions.overview.overview import OverviewReader
from sessions.queues.queue import open_queue
from sessions.records.state_store import StateStore


def written(store, runs=3, days=4) -> StateStore:
    state = StateStore(store)
    for number in range(runs):
        run = job_run(f"run-{number}", accepted_s=NOW_S + number, takeovers=number)
        made = [session(f"2024-01-{day + 1:02d}", run.id) for day in range(days)]
        state.accept(replace(run, session_ids=tuple(each.id for each in made)))
        for each in made:
            state.add_session(each)
    return state


def end(state: StateStore, run_id: str) -> None:
    for stored in list(state.stored_sessions(run_id)):
        state.change_session(stored, succeeded(stored.value))
    stored = state.job_run(run_id)
    ended = replace(stored.value, state=JobRunState.SUCCEEDED, finished_s=NOW_S + 400)
    state.change_job_run(stored, ended)
    state.close(ended)


def values(state: StateStore, queue=None) -> dict[tuple, float]:
    text = exposition(RecordsCollector(OverviewReader(state, queue).read)).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_say_what_the_records_say_whoever_reads_them(tmp_path):
    store = MemoryStore()
    state = written(store)
    end(state, "run-0")
    state.say(Dispatcher("host-7.1.aa", "host-7", 1, NOW_S, NOW_S, "file:///q", 4))
    queue = open_queue(str(tmp_path))
    queue.send("{}")
    found = values(state, queue)
    assert found["deltacompact_job_runs", ("state", "running")] == 2
    assert found["deltacompact_job_runs", ("state", "failed")] == 0
    assert found["deltacompact_sessions", ("state", "succeeded")] == 4
    assert found["deltacompact_session_rows_total", ("kind", "live")] == 4 * OUTCOME.live
    assert found["deltacompact_session_bytes_total", ("direction", "in")] == 4 * OUTCOME.bytes_in
    assert found["deltacompact_stage_seconds_total", ("stage", "dedupe")] == 4 * 90.0
    assert found["deltacompact_takeovers_total",] == 3
    assert found["deltacompact_sla_slack_seconds", ("job_run", "run-1")] == 200
    assert found["deltacompact_queue_messages", ("state", "ready")] == 1
    assert found["deltacompact_queue_oldest_message_age_seconds",] >= 0
    assert found["deltacompact_dead_letters",] == 0 and found["deltacompact_dispatchers",] == 1
    assert all(name.startswith("deltacompact_") for name, *_ in found)
    again = values(StateStore(store), queue)  # another process
    same = {key: value for key, value in found.items() if not key[0].endswith(("age_seconds", "silence_seconds"))}
    assert same == {key: again[key] for key in same}


def test_labels_stay_few_with_a_thousand_job_runs():
    state = written(MemoryStore(), runs=60, days=1)
    slacks = [key for key in values(state) if key[0] == "deltacompact_sla_slack_seconds"]
    assert len(slacks) == SLACKS_MAX
    assert sum(1 for _ in metrics_of(OverviewReader(state).read())) < 30


def test_an_overview_reads_only_what_changed():
    inner = MemoryStore()
    state = written(inner, runs=3, days=20)
    end(state, "run-0")
    reads: list[str] = []

    def intercept(kind, path, act):
        if kind == "get":
            reads.append(path)
        return act()

    reader = OverviewReader(StateStore(InterceptedStore(inner, intercept)))
    first = reader.read()
    assert len(first.sessions) == 60 and [seen.run.id for seen in first.job_runs] == ["run-2", "run-1", "run-0"]
    reads.clear()
    assert [seen.run for seen in reader.read().job_runs] == [seen.run for seen in first.job_runs]
    assert len(reads) == 2  # the two open job runs
    stored = state.session("run-1", "day=2024-01-03")
    state.change_session(stored, replace(stored.value, state=SessionState.FAILED))
    reads.clear()
    states = {made.id: made.state for made in reader.read().job_runs[1].sessions}
    assert states["day=2024-01-03"] == "failed" and len(reads) == 3
    end(state, "run-2")
    assert reader.read().job_runs[0].run.state == "succeeded"
    assert reader.read(at_most_s=60) is reader.read(at_most_s=60)


def test_what_was_expected_is_held_against_what_it_took():
    state = written(MemoryStore(), runs=1, days=2)
    end(state, "run-0")
    of_runs, of_sessions = outturns(OverviewReader(state).read())
    (outturn,) = of_runs
    assert outturn.actual_s == 398 and outturn.kept_desired and outturn.kept_expected and outturn.kept_interval
    assert outturn.error == pytest.approx(398 / 412 - 1)
    assert [made.error for made in of_sessions] == [pytest.approx(391.5 / 400 - 1)] * 2
    shares = adherence(of_sessions)
    assert (shares.ended, shares.failed, shares.expected, shares.interval) == (2, 0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("actual_s", "failed", "kept"),
    [(400.0, False, True), (439.0, False, True), (441.0, False, False), (None, False, None), (10.0, True, None)],
)
def test_the_buffer_is_ten_percent(actual_s, failed, kept):
    outturn = Outturn("r", None, "t", "succeeded", 430, Estimate(400, 380, 420), None, actual_s, failed)
    assert outturn.kept_expected is kept
    assert outturn.kept_desired is (False if failed else None if actual_s is None else actual_s <= 430)
    if failed:
        assert adherence([outturn]).expected == 0.0


def test_nothing_to_report_is_no_error():
    shares = adherence([])
    assert (shares.ended, shares.expected, shares.error_p90) == (0, None, None)
    assert b"deltacompact_job_runs" in exposition(RecordsCollector(OverviewReader(StateStore(MemoryStore())).read))
