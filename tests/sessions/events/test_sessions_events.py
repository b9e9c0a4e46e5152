"""Events: each once in the record, at least once on the topic, nothing of a row in them."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import boto3
import jsonschema
import pytest
from counting_store import CountingStore
from sessions_records import NOW_S, OUTCOME, job_run, plan, session, succeeded
from sns_topic import topic  # noqa: F401
from stores import FailsAt, InterceptedStore

from deltacompact.base.errors import StoreError
from deltacompact.storage.memory import MemoryStore
from sessions.base.clock import StoreClock
from sessions.base.model import Estimate, JobRunState, Lease, Progress, SessionState
from sessions.cli import run, watched
from sessions.events.courier import Courier
from sessions.events.due import error_kind, events_of_job_run, events_of_session, is_news
from sessions.events.event import SCHEMA_PATH, EventType
from sessions.events.outbox import Outbox
from sessions.events.recording import EventRecorder
from sessions.records.state_store import StateStore

SCHEMA = jsonschema.Draft202012Validator(
    json.loads(SCHEMA_PATH.read_text()), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
)
ACCEPTED = job_run(state=JobRunState.ACCEPTED, started_s=None, lease=None, expected=None, expected_first=None)


def observed(store) -> StateStore:
    """A state whose changes are recorded as events."""
    return StateStore(store, EventRecorder(StateStore(store)))


def live_through(state: StateStore, name: str = "run-1", rehash: bool = False) -> None:
    """A job run of one session, from its acceptance to its end."""
    accepted = replace(ACCEPTED, id=name)
    state.accept(accepted)
    stored = state.job_run(name)
    running = replace(stored.value, state=JobRunState.RUNNING, started_s=NOW_S + 2, lease=Lease("a", 1, 60.0))
    stored = state.change_job_run(stored, running)
    made = session(run=name)
    planned = replace(
        made,
        state=SessionState.PLANNED,
        attempts=0,
        started_s=None,
        progress=Progress(),
        expected=None,
        plan=plan(made.partition, rehash=rehash),
    )
    state.add_session(planned)
    steps = [replace(planned, state=SessionState.RUNNING, attempts=1, started_s=NOW_S + 5)]
    if rehash:
        steps.append(replace(steps[-1], progress=Progress("rehash", 0, 5, updated_s=NOW_S + 6)))
    for number in range(1, 6):
        progress = Progress("dedupe", number, 5, 30, 64, number / 6, NOW_S + 60 * number)
        expected = Estimate(405.0 + number, 380.0, 430.0, NOW_S + 60 * number)
        steps.append(replace(steps[-1], progress=progress, expected=expected))
    steps.append(succeeded(steps[-1]))
    for step in steps:
        assert state.change_session(state.session(name, made.id), step)
    ended = replace(stored.value, state=JobRunState.SUCCEEDED, finished_s=NOW_S + 400, session_ids=(made.id,))
    assert state.change_job_run(stored, ended)


TOLD = sorted(
    ["job_run.accepted~~0", "job_run.succeeded~~0", "session.started~day=2024-01-01~1"]
    + [f"session.round_completed~day=2024-01-01~{number}" for number in range(1, 6)]
    + ["session.succeeded~day=2024-01-01~0", f"sla.updated~day=2024-01-01~{round((NOW_S + 60) * 1000)}"]
)


def test_a_job_run_is_told_from_end_to_end():
    store = MemoryStore()
    live_through(observed(store), rehash=True)
    names = Outbox(store).recorded("run-1")
    rehashed = [f"rehash.{what}~day=2024-01-01~0" for what in ("started", "completed")]
    assert sorted(names) == sorted(TOLD + rehashed)
    for name in names:
        SCHEMA.validate(json.loads(Outbox(store).read("run-1", name)))


def test_every_type_has_a_schema_that_holds_its_events():
    failing = session(state=SessionState.FAILED, error="SchemaError: 'John' is no int64", error_named="SchemaError: a")
    events = [
        *events_of_job_run(replace(job_run(), state=JobRunState.FAILED, finished_s=NOW_S + 9, error="x", unshown=True)),
        *events_of_session(failing, job_run()),
        *events_of_session(succeeded(session()), None),
        *events_of_session(session(state=SessionState.NOTHING_TO_DO, outcome=None), job_run()),
    ]
    for event in events:
        SCHEMA.validate(event.document())
    types = {f"deltacompact.{kind}" for kind in EventType}
    assert {told["properties"]["type"]["const"] for told in SCHEMA.schema["$defs"].values()} == types
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate({**events[0].document(), "catalog": "s3://lake"})
    damaged = events[0].document()
    damaged["data"]["row"] = {"name": "John"}
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(damaged)


def test_no_event_quotes_a_value_or_a_credential():
    secret = "s3cr3t"
    run = job_run(
        document={
            "catalog": f"s3://{secret}@lake",
            "source_table_id": "orders",
            "sns_event_topic_arn": secret,
            "primary_keys": [secret],
        },
        state=JobRunState.FAILED,
        error=f"SchemaError: '{secret}' is no int64",
        message=secret,
        finished_s=NOW_S,
    )
    failed = session(state=SessionState.FAILED, error=f"ValueError: {secret}", finished_s=NOW_S)
    said = json.dumps([event.document() for event in [*events_of_job_run(run), *events_of_session(failed, run)]])
    assert secret not in said and '"SchemaError"' in said and '"ValueError"' in said
    assert error_kind(f"{secret} is bad") == "Error"


def test_an_estimate_is_told_when_it_moves():
    estimate = lambda seconds: Estimate(seconds, 0.0, 0.0)  # noqa: E731
    assert is_news(None, estimate(400), None) and not is_news(None, None, None)
    assert not is_news(estimate(400), estimate(402), None)
    assert is_news(estimate(400), estimate(440), None)
    assert is_news(estimate(400), estimate(402), 401)


@pytest.mark.parametrize("after", [False, True])
def test_what_a_crash_kept_back_is_told_later_and_nothing_twice(after):
    """Every put of an event fails once, before or after it happened; the courier of the next dispatcher mends it."""
    complete = MemoryStore()
    live_through(observed(complete))
    whole = {name: Outbox(complete).read("run-1", name) for name in Outbox(complete).recorded("run-1")}
    for lost in range(len(whole)):
        inner = MemoryStore()
        failing = FailsAt(lost, kinds={"put_if_absent"}, after=after)

        def intercept(kind, path, act, failing=failing):
            return failing(kind, path, act) if "/events/" in path else act()

        live_through(observed(InterceptedStore(inner, intercept)))
        assert failing.failed
        Courier(StateStore(inner), clock=lambda: NOW_S).deliver()
        told = {name: Outbox(inner).read("run-1", name) for name in Outbox(inner).recorded("run-1")}
        estimates = {name for name in whole if name.startswith("sla.")}
        assert set(told) | estimates == set(whole)
        assert Outbox(inner).expected() == []


def test_the_topic_gets_every_event_in_order_and_once_where_nothing_fails(topic):
    arn, received = topic
    store = MemoryStore()
    live_through(observed(store))
    courier = Courier(StateStore(store), arn, clock=lambda: NOW_S)
    courier.deliver()
    courier.deliver()
    events = received()
    assert sorted(event["id"] for event in events) == [f"run-1/{name}" for name in TOLD]
    for event in events:
        SCHEMA.validate(event)


def test_a_courier_that_dies_after_sending_sends_again(topic):
    arn, received = topic
    store = MemoryStore()
    live_through(observed(store))

    def intercept(kind, path, act):
        if "events-sent" in path and kind == "put":
            raise StoreError("the process dies here")
        return act()

    Courier(StateStore(InterceptedStore(store, intercept)), arn, clock=lambda: NOW_S).deliver()
    first = {event["id"] for event in received()}
    assert first
    Courier(StateStore(store), arn, clock=lambda: NOW_S).deliver()
    again = [event["id"] for event in received()]
    assert sorted(again) == [f"run-1/{name}" for name in TOLD] and first <= set(again)


def test_events_of_a_large_job_run_go_out_while_others_are_read(topic):
    """All were read before the first went out, and one that could not be read held all of them up."""
    arn, received = topic
    memory = MemoryStore()
    live_through(observed(memory))
    late = [replace(event, ordinal=number) for event in events_of_job_run(ACCEPTED) for number in range(1, 400)]
    for event in late:
        assert Outbox(memory).record(event)
    fails = max(Outbox(memory).recorded("run-1").items(), key=lambda named: (named[1], named[0]))[0]

    def intercept(kind, path, act):
        if kind == "get" and path.endswith(f"/events/{fails}.json"):
            raise StoreError("no route")
        return act()

    store = CountingStore(memory, 0.002)
    Courier(StateStore(InterceptedStore(store, intercept)), arn, clock=lambda: NOW_S).deliver()
    first = {event["id"] for event in received()}
    assert len(first) >= 320 and store.at_once_max >= 4
    Courier(StateStore(memory), arn, clock=lambda: NOW_S).deliver()
    rest = {event["id"] for event in received()}
    again = CountingStore(memory, 0.002)
    assert len(Outbox(again).sent("run-1")) == len(TOLD) + len(late) and again.at_once_max >= 4
    assert not first & rest and len(first | rest) == len(TOLD) + len(late)


def test_a_courier_that_is_told_to_stop_waits_for_no_store_without_end(monkeypatch, caplog):
    monkeypatch.setattr("sessions.events.courier._STOP_WITHIN_S", 0.05)
    go_on = threading.Event()

    def intercept(kind, path, act):
        assert go_on.wait(60)
        return act()

    courier = Courier(StateStore(InterceptedStore(MemoryStore(), intercept)))
    courier.start()
    try:
        courier.stop()
        assert "events are left for other dispatchers" in caplog.text
    finally:
        go_on.set()
        courier._thread.join()


def test_a_topic_that_fails_is_tried_again_with_growing_waits_and_holds_nobody_up(topic):
    arn, received = topic
    missing = arn.rpartition(":")[0] + ":nobody-made-it"
    store, clock = MemoryStore(), [NOW_S]
    state = observed(store)
    live_through(state)
    live_through(state, "run-2")
    document = {**job_run().document, "sns_event_topic_arn": missing}
    state.accept(replace(ACCEPTED, id="run-0", document=document))
    courier = Courier(StateStore(store), arn, clock=lambda: clock[0])
    courier.deliver()
    assert {event["data"]["job_run_id"] for event in received()} == {"run-1", "run-2"}
    assert Outbox(store).expected() == ["run-0"]
    assert courier._deliveries["run-0"].not_before_s > clock[0]
    boto3.client("sns").create_topic(Name="nobody-made-it")
    courier.deliver()
    assert Outbox(store).sent("run-0") == set()  # not yet
    clock[0] += 300
    courier.deliver()
    assert Outbox(store).sent("run-0") == {"job_run.accepted~~0"}


def test_a_topic_that_fails_costs_no_reading_of_all_sessions_at_each_retry(topic):
    arn, _ = topic
    memory, clock = MemoryStore(), [NOW_S]
    live_through(observed(memory))
    store = CountingStore(memory)
    courier = Courier(StateStore(store), arn.rpartition(":")[0] + ":made-much-later", clock=lambda: clock[0])
    read = []
    for _ in range(3):
        store.reset()
        courier.deliver()
        read.append(sum("/sessions/" in path for _, path in store.requests))
        clock[0] += 300
    assert read[0] > 0 and read[1:] == [0, 0]
    boto3.client("sns").create_topic(Name="made-much-later")
    courier.deliver()
    assert len(Outbox(memory).sent("run-1")) == len(TOLD) and Outbox(memory).expected() == []


def test_the_more_events_an_open_job_run_has_the_more_rarely_they_are_listed(topic):
    arn, _ = topic
    memory, clock = MemoryStore(), [NOW_S]
    observed(memory).accept(ACCEPTED)
    events = [replace(event, ordinal=number) for event in events_of_job_run(ACCEPTED) for number in range(1, 5000)]
    for event in events:
        assert Outbox(memory).record(event)
    Outbox(memory).mark_sent("run-1", [event.name for event in events])
    store = CountingStore(memory)
    courier = Courier(StateStore(store), arn, clock=lambda: clock[0])
    for _ in range(30):
        courier.deliver()
        clock[0] += 2.0
    pages = sum("list" in kind and path.endswith("/events/") for kind, path in store.requests)
    assert 25 <= pages <= 45, "about one in each round"
    last = events_of_job_run(replace(ACCEPTED, nearest_sla_s=900.0))[-1]
    assert Outbox(memory).record(last)
    courier._stopping.set()
    courier.deliver()
    assert last.name in Outbox(memory).sent("run-1"), "a dispatcher that ends looks once more"


def test_events_do_not_wait_for_a_day_after_the_clock_was_set_back_by_one(topic):
    arn, _ = topic
    store, clock = MemoryStore(), [NOW_S]
    document = {**job_run().document, "sns_event_topic_arn": arn.rpartition(":")[0] + ":made-later"}
    observed(store).accept(replace(ACCEPTED, id="run-0", document=document))
    courier = Courier(StateStore(store), arn, clock=lambda: clock[0])
    courier.deliver()
    assert Outbox(store).sent("run-0") == set()
    boto3.client("sns").create_topic(Name="made-later")
    clock[0] -= 86_400
    courier.deliver()
    assert Outbox(store).sent("run-0") == {"job_run.accepted~~0"}


def test_of_two_dispatchers_the_one_that_claimed_a_job_run_delivers(topic):
    arn, received = topic
    store, clock = MemoryStore(), [NOW_S]
    accepting, claiming = EventRecorder(StateStore(store)), EventRecorder(StateStore(store))
    first = Courier(StateStore(store), arn, accepting, clock=lambda: clock[0])
    second = Courier(StateStore(store), arn, claiming, clock=lambda: clock[0])
    for courier in (first, second):
        courier.deliver()
    StateStore(store, accepting).accept(ACCEPTED)
    second.deliver()
    assert received() == []
    first.deliver()
    assert [event["type"] for event in received()] == ["deltacompact.job_run.accepted"]
    state = StateStore(store, claiming)
    stored = state.job_run("run-1")
    stored = state.change_job_run(stored, replace(stored.value, lease=Lease("b", 1, 60.0)))
    ended = replace(stored.value, state=JobRunState.SUCCEEDED, finished_s=NOW_S + 5)
    assert state.change_job_run(stored, ended)
    first.deliver()
    assert received() == []
    second.deliver()
    assert [event["type"] for event in received()] == ["deltacompact.job_run.succeeded"]
    assert Outbox(store).expected() == [] and not claiming.claimed
    clock[0] += 70
    first.deliver()
    for recorder in (accepting, claiming):  # the first one kept the job run, with its document, for ever
        assert not (recorder.accepted or recorder.claimed or recorder.latest or recorder._job_runs)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_an_open_job_run_is_read_and_listed_every_half_a_minute_or_where_we_recorded_an_event(topic, is_claimed):
    """Each job run that was accepted and waited was read every two seconds, and its events were listed, for days."""
    arn, received = topic
    memory, clock = MemoryStore(), [NOW_S]
    recorder, groups = EventRecorder(StateStore(memory)), observed(memory)
    store = CountingStore(memory)
    courier = Courier(StateStore(store), arn, recorder, clock=lambda: clock[0])
    courier.deliver()
    state = StateStore(memory, recorder)
    state.accept(ACCEPTED)
    if is_claimed:
        stored = state.job_run("run-1")
        assert state.change_job_run(stored, replace(stored.value, lease=Lease("a", 1, 60.0)))
    courier.deliver()
    assert len(received()) == 1
    store.reset()
    for _ in range(30):
        clock[0] += 2.0
        courier.deliver()
    read, listed = store.by_kind()["get"], store.by_kind()["list"]
    assert (read <= 2 if is_claimed else read == 2) and listed == 2, store.requests
    if not is_claimed:
        return
    groups.add_session(session())
    clock[0] += 2.0
    courier.deliver()
    assert received() == [], "a process of a group told it"
    stored = state.job_run("run-1")
    assert state.change_job_run(stored, replace(stored.value, nearest_sla_s=900.0))
    courier.deliver()
    kinds = {event["type"].removeprefix("deltacompact.") for event in received()}
    assert kinds >= {"session.started", "sla.not_promised"}, "our own is sent at once, and what else is there"
    groups.change_session(groups.session("run-1", session().id), succeeded(session()))
    clock[0] += 30.0
    courier.deliver()
    assert "deltacompact.session.succeeded" in {event["type"] for event in received()}


def test_a_job_run_that_waits_without_a_topic_is_seldom_read_and_forgotten_once_it_has_ended_elsewhere():
    """Its dispatcher read it every half a minute to tell nobody, for as long as it waited."""
    memory, clock = MemoryStore(), [NOW_S]
    recorder, store = EventRecorder(StateStore(memory)), CountingStore(memory)
    courier = Courier(StateStore(store), None, recorder, clock=lambda: clock[0])
    courier.deliver()
    StateStore(memory, recorder).accept(ACCEPTED)
    courier.deliver()
    store.reset()
    for _ in range(300):
        clock[0] += 2.0
        courier.deliver()
    assert store.by_kind()["get"] <= 2 and recorder.accepted == {"run-1"}
    other = observed(memory)
    stored = other.job_run("run-1")
    claimed = replace(stored.value, lease=Lease("b", 1, 60.0))
    stored = other.change_job_run(stored, claimed)
    ended = replace(claimed, state=JobRunState.SUCCEEDED, finished_s=clock[0])
    assert other.change_job_run(stored, ended)
    for _ in range(400):
        clock[0] += 2.0
        courier.deliver()
    assert not recorder.accepted and not courier._deliveries and Outbox(store).expected() == []


def test_what_a_dispatcher_that_died_left_is_delivered_some_minutes_later(topic):
    arn, received = topic
    store, clock = MemoryStore(), [NOW_S + 401]
    live_through(observed(store))
    courier = Courier(StateStore(store), arn, EventRecorder(StateStore(store)), clock=lambda: clock[0])
    courier.deliver()
    assert received() == []
    clock[0] += 301
    courier.deliver()
    assert len(received()) == len(TOLD)


def test_a_job_run_that_fails_a_thousand_times_holds_nobody_up():
    """After two days of failures the next wait overflowed, and no event of any job run went out any more."""
    store, clock = MemoryStore(), [NOW_S]
    observed(store).accept(ACCEPTED)
    courier = Courier(StateStore(store), "no arn", clock=lambda: clock[0])
    for _ in range(1100):
        courier.deliver()
        clock[0] += 301
    assert Outbox(store).expected() == ["run-1"]


def test_what_no_topic_takes_stays_in_the_record_a_day_after_the_end():
    store, clock = MemoryStore(), [NOW_S + 500]
    live_through(observed(store))
    courier = Courier(StateStore(store), "no arn", clock=lambda: clock[0])
    courier.deliver()
    assert Outbox(store).expected() == ["run-1"]
    clock[0] += 2 * 24 * 3600
    courier.deliver()
    assert Outbox(store).expected() == [] and len(Outbox(store).recorded("run-1")) == len(TOLD)


def test_a_dispatcher_judges_the_age_of_events_by_the_clock_by_which_job_runs_end(tmp_path, monkeypatch):
    """By its own calendar, which may be a day ahead, it would give up events at the first failure of a topic."""
    clocks = []

    class Seen(Courier):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            clocks.append(self._clock)

    monkeypatch.setattr(watched, "Courier", Seen)
    folders = {"--queue": tmp_path / "queue", "--state": tmp_path / "state"}
    run(["dispatch", *(str(word) for option in folders.items() for word in option), "--drain"])
    assert [type(clock) for clock in clocks] == [StoreClock]


def test_outcomes_tell_what_was_counted():
    (told,) = [event for event in events_of_session(succeeded(session()), job_run()) if event.ordinal == 0]
    assert told.data["live"] == OUTCOME.live and told.data["expected_s"] == 400.0


def test_a_topic_that_is_none_is_refused_before_a_dispatcher_starts(tmp_path, capsys):
    (tmp_path / "queue").mkdir()
    words = ["dispatch", "--queue", str(tmp_path / "queue"), "--state", str(tmp_path / "state"), "--drain"]
    assert run([*words, "--topic", "events"]) == 2
    assert "SNS topic 'events' is not an ARN like arn:aws:sns:" in capsys.readouterr().err
