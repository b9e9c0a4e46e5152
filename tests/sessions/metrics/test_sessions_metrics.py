"""Overview, SLA report and metrics: read off the records, so a restart changes nothing."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from sessions_records import NOW_S, OUTCOME, job_run, session, succeeded
from stores import InterceptedStore

from deltacompact.storage.memory import MemoryStore
from deploy.monitoring import generate
from sessions.base.clock import StoreClock, lasted_s
from sessions.base.model import DispatcherSign, Estimate, JobRunState, SessionState
from sessions.cli.live import drawn
from sessions.metrics.collector import SLACKS_MAX, RecordsCollector, metrics_of
from sessions.metrics.families import exposition
from sessions.metrics.tables import TABLES_MAX, TablesCollector, TableSizes, TablesSeen, total
from sessions.overview.adherence import Outturn, adherence, outturns
from sessions.overview.overview import OverviewReader
from sessions.queues.opening import open_queue
from sessions.records.lives import retry
from sessions.records.state_store import StateStore
from sessions.runner.reporting import SessionReport

EVERYTHING = TableSizes(NOW_S - 60, 3, 30, 300, 100, 5, 4, 2, 7, NOW_S - 600, 4096)
TABLES = TablesSeen(NOW_S, {("/lake", "orders", ""): EVERYTHING})


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


def values(state: StateStore, queue=None, clock=None) -> dict[tuple, float]:
    reader = OverviewReader(state, queue, clock or (lambda: NOW_S + 60))
    text = exposition(RecordsCollector(reader.read)).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_say_what_the_records_say_whoever_reads_them(tmp_path):
    store = MemoryStore()
    state = written(store)
    end(state, "run-0")
    state.say(DispatcherSign("host-7.1.aa", "host-7", 1, NOW_S, NOW_S, "file:///q", 4))
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
    assert found["deltacompact_sla_slack_seconds", ("job_run", "run-1")] == 600 - (1 + 400)
    assert found["deltacompact_queue_messages", ("state", "ready")] == 1
    assert found["deltacompact_queue_oldest_message_age_seconds",] >= 0
    assert found["deltacompact_dead_letters",] == 0 and found["deltacompact_dispatchers",] == 1
    assert all(name.startswith("deltacompact_") for name, *_ in found)
    again = values(StateStore(store), queue)  # another process
    same = {key: value for key, value in found.items() if not key[0].endswith(("age_seconds", "silence_seconds"))}
    assert same == {key: again[key] for key in same}


def test_the_last_success_is_known_although_its_record_went():
    state = written(MemoryStore())
    overviews = [OverviewReader(state, None, lambda: NOW_S).read()]
    collector = RecordsCollector(lambda: overviews[-1])

    def told():
        metrics = {metric.name: metric.samples for metric in collector.collect()}
        return [sample.value for sample in metrics["deltacompact_last_success_timestamp_seconds"]]

    assert told() == [], "none has ended"
    end(state, "run-0")
    overviews.append(OverviewReader(state, None, lambda: NOW_S).read())
    assert told() == [NOW_S + 400]
    overviews.append(overviews[0])
    assert told() == [NOW_S + 400]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_last_failure_is_known_although_its_job_run_runs_again(is_restarted):
    """Alerts counted ends: a restarted dispatcher has fewer, which Prometheus took for as many new failures."""
    state = written(MemoryStore(), runs=1)
    collector = None

    def told(name):
        nonlocal collector
        if collector is None or is_restarted:
            collector = RecordsCollector(lambda: OverviewReader(state, None, lambda: NOW_S).read())
        metrics = {metric.name: metric.samples for metric in collector.collect()}
        return [sample.value for sample in metrics[f"deltacompact_last_{name}_timestamp_seconds"]]

    assert told("failure") == told("success") == []
    run = state.job_run("run-0")
    state.close(state.change_job_run(run, replace(run.value, state=JobRunState.FAILED, finished_s=NOW_S + 9)).value)
    assert told("failure") == [NOW_S + 9] and told("success") == []
    retry(state, "run-0")
    assert told("failure") == [NOW_S + 9]
    end(state, "run-0")
    assert told("failure") == [NOW_S + 9] and told("success") == [NOW_S + 400]


def test_counters_do_not_fall_when_a_job_run_runs_again():
    """Prometheus took the fall for a restart, so it counted all failures once more, and the alert fired."""
    state = written(MemoryStore(), runs=2, days=2)

    def fails(number):
        run = state.job_run("run-0")
        for stored in list(state.stored_sessions("run-0")):
            if stored.value.id == run.value.session_ids[0]:
                state.change_session(stored, replace(stored.value, state=SessionState.FAILED, attempts=number))
            elif not stored.value.state.ended:
                state.change_session(stored, succeeded(stored.value))
        failed = replace(run.value, state=JobRunState.FAILED, finished_s=NOW_S + number)
        state.change_job_run(run, failed)
        state.close(failed)

    def told():
        found = [metric for metric in collector.collect() if isinstance(metric, CounterMetricFamily)]
        return {(each.name, *each.labels.values()): each.value for metric in found for each in metric.samples}

    collector = RecordsCollector(lambda: OverviewReader(state, None, lambda: NOW_S + 60).read())
    fails(3)
    before = told()
    assert before["deltacompact_job_run_ends_total", "true"] == 1
    retry(state, "run-0")
    assert told() == before
    stored = state.session("run-0", state.job_run("run-0").value.session_ids[0])
    state.change_session(stored, replace(stored.value, state=SessionState.PLANNED, attempts=0, finished_s=None, life=1))
    assert told() == before
    fails(2)
    after = told()
    assert after["deltacompact_job_run_ends_total", "true"] == 2
    assert after["deltacompact_session_ends_total", "true"] == 2
    assert after["deltacompact_session_attempts_total",] == before["deltacompact_session_attempts_total",] + 2
    assert told() == after


def samples(text: bytes) -> list[tuple]:
    found = text_string_to_metric_families(text.decode())
    return [(sample.name, *sorted(sample.labels.items())) for family in found for sample in family.samples]


def test_alerts_and_dashboard_name_what_is_served(tmp_path):
    """Every metric and every label of their expressions, of dispatchers and of watchers."""
    state = written(MemoryStore())
    end(state, "run-0")
    failed = state.job_run("run-1")
    assert state.change_job_run(failed, replace(failed.value, state=JobRunState.FAILED, finished_s=NOW_S))
    state.say(DispatcherSign("host-7.1.aa", "host-7", 1, NOW_S, NOW_S, "file:///q", 4))
    queue = open_queue(str(tmp_path))
    queue.send("{}")
    labels = {}
    of_watcher = exposition(TablesCollector(lambda: TABLES, lambda: NOW_S))
    for name, *pairs in (*values(state, queue), *samples(of_watcher)):
        labels.setdefault(name, set()).update(label for label, _ in pairs)
    expressions = [(alert.name, alert.expression) for alert in generate.ALERTS]
    expressions += [(panel.title, expression) for panel in generate.PANELS for expression, _ in panel.expressions]
    for who, expression in expressions:
        names = re.findall(r"deltacompact_\w+", expression)
        assert names and set(names) <= labels.keys(), who
        grouped = re.findall(r"(?:by|without) \(([\w, ]+)\)", expression)
        asked = {label for group in grouped for label in group.split(", ")} | set(re.findall(r"\{(\w+)=", expression))
        for name in names:
            assert asked <= labels[name] or "without" in expression, f"{who}: {name}"
    served = {name.removesuffix("_total") for name in labels if name.startswith("deltacompact_table_")}
    drawn = {name for _, expression in expressions for name in re.findall(r"deltacompact_table_\w+", expression)}
    assert served - drawn == {"deltacompact_table_backlog_rows"}, "each gauge of a table is on the dashboard"


def test_a_table_is_the_sum_of_its_partitions():
    """Its oldest delta counts, and its last compaction; what nobody knows is no 0."""
    old = TableSizes(oldest_delta_s=NOW_S - 90, deltas=2, rows=10, dead_rows=1, compacted_s=NOW_S - 500)
    new = TableSizes(deltas=0, rows=5, dead_rows=0, compacted_s=NOW_S - 100)
    assert total([old, new, TableSizes()]) == TableSizes(NOW_S - 90, 2, rows=15, dead_rows=1, compacted_s=NOW_S - 100)
    assert total([]) == TableSizes()
    iceberg = {("iceberg://prod", "db.t", "main"): TableSizes(rows=7, delete_files=3, data_files=2, snapshots=9)}
    text = exposition(TablesCollector(lambda: TablesSeen(NOW_S, iceberg), lambda: NOW_S)).decode()
    assert 'deltacompact_table_delete_files{branch="main",catalog="iceberg://prod",table="db.t"} 3.0' in text
    assert "deltacompact_table_deltas{" not in text and "deltacompact_table_backlog_age_seconds{" not in text


def test_series_of_tables_stay_few_and_the_worst_are_among_them():
    aged = {
        ("/lake", f"t{number}", ""): TableSizes(oldest_delta_s=NOW_S - number, deltas=1, rows=9, dead_rows=number % 7)
        for number in range(3_000)
    }
    unread = ("/lake", "quiet", "")
    seen = TablesSeen(NOW_S, {unread: TableSizes(deltas=0, rows=1), **aged})
    ages = [name for name in samples(exposition(TablesCollector(lambda: seen, lambda: NOW_S + 60)))]
    of_tables = [name for name in ages if name[0] == "deltacompact_table_backlog_age_seconds"]
    assert len(of_tables) == TABLES_MAX
    assert {dict(pairs)["table"] for _, *pairs in of_tables} == {f"t{number}" for number in range(2_800, 3_000)}


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
    assert (
        (outturn.actual_s, outturn.executed_s) == (400, 398)
        and outturn.kept_desired
        and outturn.kept_expected
        and outturn.kept_interval
    )
    assert outturn.error == pytest.approx(398 / 412 - 1)
    assert [made.error for made in of_sessions] == [pytest.approx(391.5 / 400 - 1)] * 2
    shares = adherence(of_sessions)
    assert (shares.ended, shares.failed, shares.expected, shares.interval) == (2, 0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("actual_s", "failed", "kept"),
    [(400.0, False, True), (439.0, False, True), (441.0, False, False), (None, False, None), (10.0, True, None)],
)
def test_the_buffer_is_ten_percent(actual_s, failed, kept):
    outturn = Outturn("r", None, "t", "succeeded", 430, Estimate(400, 380, 420), None, actual_s, failed, actual_s)
    assert outturn.kept_expected is kept
    assert outturn.kept_desired is (False if failed else None if actual_s is None else actual_s <= 430)
    if failed:
        assert adherence([outturn]).expected == 0.0


def test_nothing_to_report_is_no_error():
    shares = adherence([])
    assert (shares.ended, shares.expected, shares.error_p90) == (0, None, None)
    assert b"deltacompact_job_runs" in exposition(RecordsCollector(OverviewReader(StateStore(MemoryStore())).read))


# --- lateness is seen ----------------------------------------------------------------------------------------------


def late(**changes):
    """A job run of which 600 s are desired."""
    ended = {"state": JobRunState.SUCCEEDED, "finished_s": NOW_S + 300, "expected": None, **changes}
    state = StateStore(MemoryStore())
    state.accept(job_run("run-1", **ended))
    return OverviewReader(state, clock=lambda: NOW_S + 20 * 3600).read()


def test_a_job_run_that_waited_for_hours_has_not_kept_what_was_desired():
    """From its acceptance it took 5 h, of which 300 s were work."""
    ((outturn,), _) = outturns(late(started_s=NOW_S + 5 * 3600, finished_s=NOW_S + 5 * 3600 + 300))
    assert outturn.kept_desired is False and outturn.kept_expected is True
    assert (outturn.actual_s, outturn.executed_s) == (5 * 3600 + 300, 300)


def test_a_session_counts_from_the_acceptance_of_its_job_run():
    state = written(MemoryStore(), runs=1, days=1)
    stored = next(iter(state.stored_sessions("run-0")))
    ran = replace(succeeded(stored.value), started_s=NOW_S + 7200, finished_s=NOW_S + 7300)
    state.change_session(stored, ran)
    _, (outturn,) = outturns(OverviewReader(state).read())
    assert outturn.kept_desired is False and outturn.executed_s == 100


@pytest.mark.parametrize(
    ("changes", "after_s", "slack_s"),
    [
        ({"state": JobRunState.ACCEPTED, "started_s": None, "expected": None}, 100, 500),
        ({"state": JobRunState.ACCEPTED, "started_s": None, "expected": None}, 1800, -1200),
        ({"started_s": NOW_S + 500}, 510, 600 - 500 - 400),  # it began late, and is expected to take 400 s
        ({"started_s": NOW_S + 2}, 5000, 600 - 5000),  # it runs for longer than expected
    ],
)
def test_an_open_job_run_has_slack_from_its_acceptance_on(changes, after_s, slack_s):
    state = StateStore(MemoryStore())
    state.accept(job_run("run-1", **changes))
    found = values(state, clock=lambda: NOW_S + after_s)
    assert found["deltacompact_sla_slack_seconds", ("job_run", "run-1")] == pytest.approx(slack_s)


@pytest.mark.parametrize(
    ("changes", "is_late"),
    [
        ({"state": JobRunState.ACCEPTED, "started_s": None, "accepted_s": NOW_S + 20 * 3600 - 601}, True),
        ({"state": JobRunState.ACCEPTED, "started_s": None, "accepted_s": NOW_S + 20 * 3600 - 100}, False),
        ({"started_s": NOW_S + 5 * 3600, "finished_s": NOW_S + 5 * 3600 + 300}, True),
        ({"started_s": NOW_S + 5, "finished_s": NOW_S + 305}, False),
    ],
)
def test_a_desired_sla_counts_from_the_acceptance_where_it_is_drawn_live(changes, is_late):
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(drawn(late(**changes)))
    assert (" late" in console.export_text()) is is_late


@pytest.mark.parametrize("changes", [{"accepted_s": NOW_S + 3600}, {"started_s": NOW_S + 3867}])
def test_an_end_before_the_beginning_keeps_nothing(changes):
    """Records of two hosts' clocks, an hour apart: -3,567 s were taken for kept."""
    (outturn,), _ = outturns(late(**changes))
    assert (outturn.actual_s if "accepted_s" in changes else outturn.executed_s) is None
    assert (outturn.kept_expected is None) == (outturn.executed_s is None)
    assert (outturn.kept_desired is None) == ("accepted_s" in changes)


def test_a_dispatcher_that_was_killed_counts_until_its_lease_is_over():
    store = MemoryStore()
    state = StateStore(store)
    now_s = state.say(DispatcherSign("host-7.1.aa", "host-7", 1, NOW_S, NOW_S, "file:///q", 4, lease_s=60.0))
    for after_s, there, lost in ((60, 1, 0), (77, 0, 1), (20 * 3600, 0, 1)):
        found = values(state, clock=lambda after_s=after_s: now_s + after_s)
        assert (found["deltacompact_dispatchers",], found["deltacompact_dispatchers_lost",]) == (there, lost)
        assert found["deltacompact_dispatcher_silence_seconds",] <= 76


def test_a_cancelled_job_run_keeps_and_misses_nothing():
    overview = late(state=JobRunState.CANCELLED)
    kept = adherence(outturns(overview)[0])
    assert (kept.ended, kept.failed, kept.desired) == (0, 0, None)


def test_the_clock_is_that_of_the_store_whatever_the_hosts_say():
    """A host whose calendar is an hour ahead, and is set back: times go on from what the store said."""
    monotonic, calendar = [50.0], [NOW_S + 3600]
    clock = StoreClock(lambda: calendar[0], lambda: monotonic[0])
    assert clock() == NOW_S + 3600
    clock.told(NOW_S)
    assert clock() == NOW_S
    monotonic[0], calendar[0] = 60.0, NOW_S - 7200
    assert clock() == NOW_S + 10
    clock.told(NOW_S + 9)  # rounded down
    assert clock() == NOW_S + 10
    assert lasted_s(5.0, 4.0) is None and lasted_s(4.0, 5.0) == 1.0


def test_a_runner_whose_host_is_an_hour_ahead_records_the_times_of_the_store(monkeypatch):
    state = StateStore(MemoryStore())
    made = session(state=SessionState.PLANNED, started_s=None, attempt="run-1/1/1")
    state.add_session(made)
    true_s = state.session("run-1", made.id).modified_s
    clock = StoreClock(lambda: true_s + 3600)
    report = SessionReport(state, state.session("run-1", made.id), lambda: None, clock)
    report.begin()
    report.write(state=SessionState.SUCCEEDED, finished_s=report.now_s())
    after = state.session("run-1", made.id).value
    assert abs(after.started_s - true_s) < 60 and after.finished_s >= after.started_s


def test_a_calendar_that_is_set_back_hides_nothing():
    """The page and /metrics read again, although what they know is of a time to come."""
    clock = [NOW_S + 86_400]
    state = StateStore(MemoryStore())
    reader = OverviewReader(state, clock=lambda: clock[0])
    assert not reader.read(15).job_runs
    state.accept(job_run("run-1"))
    state.accept(job_run("run-2", state=JobRunState.SUCCEEDED, finished_s=NOW_S + 9))
    state.close(state.job_run("run-2").value)
    clock[0] = NOW_S + 10
    assert {seen.run.id for seen in reader.read(15).job_runs} == {"run-1", "run-2"}
