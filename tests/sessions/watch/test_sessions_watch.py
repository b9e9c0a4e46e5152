"""Triggers: what a policy decides and why, and that no restart and no second watcher submits a stream twice."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

import jsonschema
import pyarrow as pa
import pytest
from counting_store import CountingStore
from iceberg_fixtures import lake  # noqa: F401  (fixture)
from sessions_clock import clock  # noqa: F401
from sessions_records import job_run
from stores import InterceptedStore

import deltacompact
from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.base.errors import InputError, NotFoundError, StoreError
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import JobRunState
from sessions.dispatch.expiry import expire
from sessions.dispatch.intake import Intake
from sessions.documents.allow_list import AllowList
from sessions.documents.instruction import of_values
from sessions.metrics.tables import TablesSeen
from sessions.queues.opening import open_queue
from sessions.records.decisions import DecisionsReader
from sessions.records.state_store import StateStore
from sessions.watch import submissions
from sessions.watch.evaluate import TriggerAction, TriggerHistory, TriggerReason, evaluate, sealed_s, window_begin_s
from sessions.watch.orphans import OrphanCounts
from sessions.watch.policy import (
    SCHEMA_PATH,
    Policies,
    Policy,
    Schedule,
    SealedWindow,
    expand,
    json_schema,
    read_policies,
)
from sessions.watch.statistics import WatchedPartition, statistics_of
from sessions.watch.submissions import batches
from sessions.watch.watcher import Watcher

NOW_S = datetime(2026, 6, 10, 12, 0, tzinfo=UTC).timestamp()
HOUR_S, DAY_S, MIB = 3600.0, 86400.0, 1 << 20
FOUND = WatchedPartition(
    partition={"day": "2026-06-09"},
    mark="1-a/9",
    deltas=12,
    delta_rows=50_000,
    delta_bytes=12 * MIB,
    oldest_delta_s=NOW_S - 2 * HOUR_S,
    written_s=NOW_S - HOUR_S,
    files=20,
    bytes=200 * MIB,
)


def policy(**fields) -> Policy:
    given = {"name": "p", "catalog": "/lake", "source_table_id": "orders", "when": [{"deltas": 10}], **fields}
    return Policy.model_validate(given)


SUBMITS = [
    ({"deltas": 12}, TriggerReason.DELTAS),
    ({"delta_rows": 50_000}, TriggerReason.DELTA_ROWS),
    ({"delta_bytes": 12 * MIB}, TriggerReason.DELTA_BYTES),
    ({"oldest_delta_age": 2 * HOUR_S}, TriggerReason.DELTA_AGE),
    ({"files": 20}, TriggerReason.FILES),
    ({"average_file_bytes_below": 10 * MIB + 1, "idle": HOUR_S}, TriggerReason.AVERAGE_FILE),
    ({"idle": HOUR_S}, TriggerReason.IDLE),
    ({"deltas": 2, "delta_bytes": MIB}, TriggerReason.DELTAS),
]
BELOW = [
    {"deltas": 13},
    {"delta_rows": 50_001},
    {"delta_bytes": 12 * MIB + 1},
    {"oldest_delta_age": 2 * HOUR_S + 1},
    {"files": 21},
    {"average_file_bytes_below": 10 * MIB},
    {"average_file_bytes_below": 10 * MIB + 1, "idle": HOUR_S + 1},
    {"deltas": 2, "delta_bytes": 13 * MIB},
]


@pytest.mark.parametrize(("condition", "reason"), SUBMITS)
def test_a_condition_that_holds_submits_and_says_which(condition, reason):
    decision = evaluate(policy(when=[{"deltas": 99}, condition]), FOUND, TriggerHistory(), NOW_S)
    assert (decision.action, decision.reason) == (TriggerAction.SUBMIT, reason)
    assert "wanted" in decision.text


@pytest.mark.parametrize("condition", BELOW)
def test_a_threshold_that_is_not_reached_waits_and_says_what_lacks(condition):
    decision = evaluate(policy(when=[condition]), FOUND, TriggerHistory(), NOW_S)
    assert (decision.action, decision.reason) == (TriggerAction.WAIT, TriggerReason.BELOW_THRESHOLDS)
    assert "wanted" in decision.text


def test_what_forbids_comes_first():
    asks = policy(when=[{"deltas": 1}], cooldown=600)
    decide = lambda found=FOUND, history=TriggerHistory(), of=asks: evaluate(of, found, history, NOW_S).reason  # noqa: E731, B008
    assert decide(history=TriggerHistory(running="run-1")) is TriggerReason.RUNNING
    assert decide(replace(FOUND, deltas=0)) is TriggerReason.NOTHING_NEW
    assert decide(history=TriggerHistory(submitted_s={"p": NOW_S - 599})) is TriggerReason.COOLING_DOWN
    assert decide(history=TriggerHistory(submitted_s={"p": NOW_S - 600})) is TriggerReason.DELTAS
    assert decide(history=TriggerHistory(submitted_s={"another": NOW_S - 1})) is TriggerReason.DELTAS
    assert decide(history=TriggerHistory(submitted_s={"p": NOW_S - 1200 + 1}, failures=1)) is TriggerReason.COOLING_DOWN
    assert decide(history=TriggerHistory(submitted_s={"p": NOW_S - 1200}, failures=1)) is TriggerReason.DELTAS
    purging = policy(document={"purge": True})
    assert decide(replace(FOUND, deltas=0, dead_rows=5), of=purging) is TriggerReason.BELOW_THRESHOLDS
    assert decide(replace(FOUND, deltas=0), of=purging) is TriggerReason.NOTHING_NEW


def test_a_submission_by_a_clock_that_was_ahead_keeps_nobody_waiting_for_years():
    asks = policy(when=[{"deltas": 1}], cooldown=600)
    decide = lambda ahead_s: evaluate(asks, FOUND, TriggerHistory(submitted_s={"p": NOW_S + ahead_s}), NOW_S)  # noqa: E731
    assert decide(365 * DAY_S).reason is TriggerReason.DELTAS
    assert decide(599).reason is TriggerReason.COOLING_DOWN  # clocks of two machines that differ a little
    assert decide(599).text.startswith("submitted 0 s ago")
    hourly = policy(schedule=Schedule(cron="0 * * * *", window=3600.0), when=[])
    at = lambda ahead_s: evaluate(hourly, FOUND, TriggerHistory(submitted_s={"p": NOW_S + ahead_s}), NOW_S).reason  # noqa: E731
    assert at(365 * DAY_S) is TriggerReason.SCHEDULE
    assert at(1) is TriggerReason.ONCE_A_WINDOW


@pytest.mark.parametrize(("count", "letters"), [(0, 1), (3000, 10), (3000, 300), (10_001, 30)])
def test_thousands_of_partitions_go_into_documents_that_a_queue_takes(count, letters):
    partitions = [{"day": f"{number}", "shop": "é" * letters} for number in range(count)]
    found = list(batches(partitions, 10_000))
    assert [partition for batch in found for partition in batch] == partitions
    assert all(len(batch) <= 10_000 and len(json.dumps(batch)) < 256 << 10 for batch in found)


def test_files_that_lie_over_each_other_are_told_until_they_are_laid_out_even_without_deltas():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    table = catalog.table("t")
    table.append(pa.table({"k": range(400), "v": [(7 * k) % 400 for k in range(400)]}))
    how = {"settings": Settings(executor="local", local_threads=1), "rows_per_compacted_file": 100}
    table.compact(**how)
    watcher, asks = DeltaStreamCatalog(catalog.store), policy(when=[{"layout_depth": 3}], cooldown=0)

    def decided(**history):
        (found,) = statistics_of(watcher, "t", NOW_S, asks.asks_for_layout)
        return found, evaluate(asks, found, TriggerHistory(**history), NOW_S).reason

    assert decided()[1] is TriggerReason.NOTHING_NEW
    table.declare_cluster_by("v")  # the watcher has opened the table before
    found, reason = decided()
    assert (found.layout_depth, reason) == (4.0, TriggerReason.LAYOUT_DEPTH)
    assert decided(marks={"p": found.mark}, submitted_s={"p": 0})[1] is TriggerReason.NOTHING_NEW, "it was done"
    assert statistics_of(watcher, "t", NOW_S)[0].layout_depth == 0, "nobody asked"
    table.compact(**how)
    found, reason = decided()
    assert (found.layout_depth, reason) == (0.0, TriggerReason.NOTHING_NEW)


def test_a_layout_is_laid_out_once_the_reads_of_the_heat_pay_for_it():
    catalog = DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table("t", ["p"], ["k"], cluster_by="v")
    how = {"settings": Settings(executor="local", local_threads=1), "rows_per_compacted_file": 100}
    for partition, rows in (("a", 400), ("b", 1200)):
        table.append(pa.table({"k": range(rows), "v": [(7 * k) % rows for k in range(rows)]}), {"p": partition})
        table.compact(cluster_by="", **how)
    asks = policy(when=[{"layout_gain": 1}], cooldown=0)

    def gains() -> list[float]:
        return [statistics.layout_gain for statistics in statistics_of(catalog, "t", time.time(), asks.asks_for_layout)]

    assert gains() == [0, 0], "nobody reads it"
    read = {"table": "t", "columns": ["v"], "opened": 4, "skipped": 0, "rows": 1}
    table.heat(scan_reports=[{"at": time.time(), "read": read}] * 100)
    few, many = gains()
    assert 1 < few < many, "of the larger partition, more rows are asked for, and more files are not opened"
    (found,) = [
        statistics for statistics in statistics_of(catalog, "t", NOW_S, True) if statistics.partition == {"p": "b"}
    ]
    assert evaluate(asks, found, TriggerHistory(), NOW_S).reason is TriggerReason.LAYOUT_GAIN
    table.compact(**how)
    assert gains() == [0, 0]


def test_deltas_of_a_writer_whose_clock_is_ahead_grow_old():
    now_s = [1_000_000.0]
    writer = DeltaStreamCatalog(MemoryStore(clock=lambda: now_s[0]), clock=lambda: now_s[0] + 365 * DAY_S)
    writer.create_table("t", primary_keys=["k"])
    writer.append("t", pa.table({"k": [1]}))
    now_s[0] += 7200
    (found,) = statistics_of(DeltaStreamCatalog(writer.store), "t", now_s[0])
    measured = found.measured(now_s[0], None, None)
    assert measured["oldest_delta_age"] == measured["idle"] == 7200


def upsolver(files: int, average: int, idle_s: float) -> bool:
    """The three conditions in the words of the documentation."""
    return average < 32 * MIB and ((files >= 60 and idle_s > 2 * DAY_S) or files >= 1000 or idle_s > 35 * DAY_S)


@pytest.mark.parametrize("files", [1, 59, 60, 999, 1000])
@pytest.mark.parametrize("average", [32 * MIB - 1, 32 * MIB])
@pytest.mark.parametrize("idle_s", [DAY_S, 2 * DAY_S + 1, 35 * DAY_S + 1])
def test_the_preset_is_upsolvers_conditions(files, average, idle_s):
    (preset,) = expand(policy(preset="upsolver", when=[]))
    found = replace(FOUND, files=files, bytes=files * average, written_s=NOW_S - idle_s)
    decision = evaluate(preset, found, TriggerHistory(), NOW_S)
    assert (decision.action is TriggerAction.SUBMIT) == upsolver(files, average, idle_s)


def test_tiers_are_light_by_day_and_full_at_night():
    full, light = expand(policy(preset="tiers", when=[]))
    assert full.document["purge"] and "purge" not in light.document
    assert light.document == {} and light.cooldown == 300, "readers of plain files saw dead rows until the night"
    assert evaluate(light, FOUND, TriggerHistory(), NOW_S).reason is TriggerReason.DELTAS
    assert evaluate(full, FOUND, TriggerHistory(), NOW_S).reason is TriggerReason.OUTSIDE_WINDOW
    night_s = datetime(2026, 6, 11, 2, 30, tzinfo=UTC).timestamp()
    assert evaluate(full, FOUND, TriggerHistory(), night_s).reason is TriggerReason.SCHEDULE
    once = TriggerHistory(submitted_s={full.name: night_s - HOUR_S})
    assert evaluate(full, FOUND, once, night_s).reason is TriggerReason.ONCE_A_WINDOW
    dead = replace(FOUND, deltas=0, dead_rows=7)  # light compactions left them
    assert evaluate(full, dead, TriggerHistory(), night_s).reason is TriggerReason.SCHEDULE


def test_windows_follow_their_time_zone_and_its_changes_of_clocks():
    zone = ZoneInfo("Europe/Berlin")
    nightly = Schedule(cron="0 2 * * *", timezone="Europe/Berlin", window=2 * HOUR_S)

    def begins(*at):
        found = window_begin_s(nightly, datetime(*at, tzinfo=zone).timestamp())
        return None if found is None else datetime.fromtimestamp(found, zone).strftime("%d %H:%M")

    assert begins(2026, 6, 10, 1, 59) is None
    assert begins(2026, 6, 10, 2, 0) == "10 02:00"
    assert begins(2026, 6, 10, 3, 59) == "10 02:00"
    assert begins(2026, 6, 10, 4, 0) is None
    spring = begins(2026, 3, 29, 3, 30)  # 02:00 is skipped
    assert spring is not None and spring.startswith("29 03:")
    assert begins(2026, 10, 25, 2, 30) == "25 02:00"


@pytest.mark.parametrize(
    "cron, begin", [("0 * * * *", "00:00 01:00"), ("*/15 * * * *", "00:15 01:15"), ("20 2 * * *", "None 00:20")]
)
def test_windows_are_open_in_an_hour_that_comes_again(cron, begin):
    """The second time no window was open: its times were taken for those of the first."""
    windows = Schedule(cron=cron, timezone="Europe/Berlin", window=HOUR_S)
    twice = [datetime(2026, 10, 25, hour, 15, tzinfo=UTC).timestamp() for hour in (0, 1)]
    found = [window_begin_s(windows, at) for at in twice]
    assert " ".join((at and f"{datetime.fromtimestamp(at, UTC):%H:%M}") or "None" for at in found) == begin


def test_a_partition_is_left_alone_until_its_window_ended():
    by_day = SealedWindow(keys=["day"], window="day", delay=HOUR_S)
    watched = policy(when=[{"oldest_delta_age": 2 * HOUR_S}], sealed=by_day.model_dump())
    end_s = datetime(2026, 6, 10, tzinfo=UTC).timestamp()
    found = replace(FOUND, oldest_delta_s=end_s - 20 * HOUR_S)
    decide = lambda at_s: evaluate(watched, found, TriggerHistory(), at_s).reason  # noqa: E731
    assert decide(end_s + HOUR_S - 1) is TriggerReason.NOT_SEALED
    assert decide(end_s + HOUR_S) is TriggerReason.BELOW_THRESHOLDS  # its age counts from the end of its window
    assert decide(end_s + 2 * HOUR_S) is TriggerReason.DELTA_AGE
    assert (
        evaluate(watched, replace(found, partition={"day": None}), TriggerHistory(), end_s).reason
        is TriggerReason.DELTA_AGE
    )
    hourly = SealedWindow(keys=["day", "hour"], window="hour", timezone="America/New_York")
    at = datetime(2026, 6, 9, 8, tzinfo=ZoneInfo("America/New_York")).timestamp()
    assert sealed_s(hourly, {"day": "2026-06-09", "hour": "07"}) == at
    assert (
        sealed_s(SealedWindow(keys=["m"], window="month"), {"m": "2026-05"})
        == datetime(2026, 6, 1, tzinfo=UTC).timestamp()
    )
    assert sealed_s(SealedWindow(keys=["y"], window="year"), {"y": "9999"}) is None
    assert sealed_s(by_day, {"day": "tomorrow"}) is None
    zoned = SealedWindow(keys=["h"], format="%Y-%m-%dT%H%z", window="hour")
    assert sealed_s(zoned, {"h": "2026-06-09T07-0400"}) == at, "the zone of the value was lost"


@pytest.mark.parametrize("delay", [2 * DAY_S, math.inf])
def test_a_window_that_ends_after_all_calendars_holds_no_other_partition_up(delay):
    """Saying its time raised an error, and no partition of the table was submitted."""
    watched = policy(sealed=SealedWindow(keys=["day"], delay=delay).model_dump())
    decision = evaluate(watched, replace(FOUND, partition={"day": "9999-12-30"}), TriggerHistory(), NOW_S)
    assert decision.text == "it may still receive writes until a time after the year 9999 UTC"


# The file


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"when": []}, "policies[0]: a policy has conditions"),
        ({"when": [{}]}, "policies[0].when[0]: a condition names at least one thing"),
        ({"when": [{"delta": 3}]}, "policies[0].when[0].delta:"),
        ({"preset": "snowflake"}, "policies[0].preset:"),
        ({"schedule": {"cron": "61 * * * *"}}, "policies[0].schedule: '61 * * * *' is no cron"),
        ({"schedule": {"cron": "0 0 * * *", "timezone": "../etc"}}, "policies[0].schedule.timezone: no time zone"),
        ({"schedule": {"cron": "0 0 * * *", "timezone": "Mars/Sol"}}, "policies[0].schedule.timezone: no time zone"),
        ({"document": {"desired_sla": 0}}, "policies[0]: document.desired_sla:"),
        ({"document": {"catalog": "s3://other"}}, "policies[0]: document.catalog:"),
        ({"name": "../x"}, "policies[0].name:"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_field_in_one_line(tmp_path, changed, named):
    given = {"name": "p", "catalog": "/lake", "source_table_id": "orders", "when": [{"deltas": 3}], **changed}
    path = tmp_path / "policies.json"
    path.write_text(json.dumps({"version": 1, "policies": [given]}))
    with pytest.raises(InputError) as refused:
        read_policies(str(path))
    assert named in str(refused.value) and "\n" not in str(refused.value)


def test_the_schema_is_the_one_in_the_repository():
    assert SCHEMA_PATH.read_text() == json_schema()
    schema = json.loads(json_schema())
    given = {"name": "p", "catalog": "/lake", "source_table_id": "t", "when": [{"deltas": 3}]}
    jsonschema.validate({"version": 1, "policies": [given]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": 1, "policies": [{**given, "when": [{"delta": 3}]}]}, schema)


def test_the_policies_of_the_documents_are_read(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "watching.md").read_text()
    path = tmp_path / "policies.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    read = read_policies(str(path))
    names = ["orders", "visits, full", "visits, light", "orders in Iceberg", "clicks, at night"]
    assert [each.name for each in read.expanded()] == names


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "version: it is missing: write version = 1"),
        ('version = 1\n[[policies]]\nname = "p"', "policies[0].catalog: it is missing"),
    ],
)
def test_what_a_file_of_policies_lacks_is_told(tmp_path, text, told):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(InputError) as raised:
        read_policies(str(tmp_path / "p.toml"))
    assert str(raised.value).endswith(told)


# The watcher


class Place:
    """A lake, a queue and a state on disk, and a clock."""

    def __init__(self, folder):
        self.lake = str(folder / "lake")
        self.catalog = deltacompact.open_catalog(self.lake)
        self.catalog.create_table("orders", ["day"], ["id"])
        self.queue = open_queue(str(folder / "queue"))
        self.state = StateStore(str(folder / "state"))
        self.now_s = NOW_S

    def append(self, day="1", times=3):
        for _ in range(times):
            self.catalog.append("orders", pa.table({"id": [1]}), {"day": day})

    def policies(self, **fields) -> Policies:
        given = {"name": "p", "catalog": self.lake, "source_table_id": "orders", "when": [{"deltas": 3}], **fields}
        return Policies.model_validate({"version": 1, "policies": [given]})

    def watcher(self, state=None, queue=None, **fields) -> Watcher:
        return Watcher(self.policies(**fields), state or self.state, queue or self.queue, clock=lambda: self.now_s)

    def received(self) -> list[dict]:
        found = []
        for message in self.queue.receive(100, 0):
            found.append(json.loads(message.body))
            self.queue.acknowledge(message)
        return found

    def end(self, document: dict, failed: bool = False, failed_sessions: tuple[str, ...] = ()) -> None:
        """Compact what a document asks for, as a dispatcher does."""
        instruction = of_values(document)
        run = job_run(instruction.job_run_id, document=document)
        self.state.accept(run)
        if not failed:
            deltacompact.compact(
                instruction.source_table_id,
                delta_catalog_client=self.catalog,
                destination_compacted_table_id=instruction.destination_compacted_table_id,
                partitions=instruction.partition_values,
                settings=deltacompact.Settings(executor="local"),
            )
        stored = self.state.job_run(run.id)
        ended = replace(stored.value, state=JobRunState.FAILED if failed else JobRunState.SUCCEEDED)
        ended = replace(ended, failed_session_ids=failed_sessions)
        self.state.change_job_run(stored, ended)
        self.state.close(ended)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def reasons(decided) -> dict[str, str]:
    return {each.partition["day"]: each.decision.reason.value for each in decided}


def test_partitions_that_are_due_go_out_in_one_document_and_come_back_when_there_is_more(place):
    place.append("1"), place.append("2"), place.append("3", times=1)
    watcher = place.watcher()
    assert reasons(watcher.look()) == {"1": "deltas", "2": "deltas", "3": "below_thresholds"}
    (document,) = place.received()
    assert document["partitions"] == [{"day": "1"}, {"day": "2"}]
    assert reasons(watcher.look()) == {"1": "running", "2": "running", "3": "below_thresholds"}
    assert place.received() == []
    place.end(document)
    assert reasons(watcher.look()) == {"1": "nothing_new", "2": "nothing_new", "3": "below_thresholds"}
    place.append("1")
    assert reasons(watcher.look())["1"] == "cooling_down"
    place.now_s += 60
    assert reasons(watcher.look())["1"] == "deltas"
    (second,) = place.received()
    assert second["job_run_id"] != document["job_run_id"]
    kept = {each.partition["day"]: each for each in DecisionsReader(place.state.store).read()}
    assert kept["1"].action == "submit" and kept["1"].job_run_id == second["job_run_id"]
    assert kept["3"].reason == "below_thresholds" and kept["3"].text == "1 delta, 3 wanted"
    place.state.store.put("watch-decisions/other.json", b'{"decisions": [{}]}')
    assert {each.partition["day"] for each in DecisionsReader(place.state.store).read()} == set(kept), (
        "another release's"
    )


def test_decisions_are_written_where_one_changed_and_their_texts_now_and_then(place):
    """Each look wrote the decisions of a whole table anew: "submitted 61 s ago" was another text than the last."""
    store = CountingStore(MemoryStore())

    def written() -> int:
        puts = sum(kind == "put" and path.startswith("watch-decisions/") for kind, path in store.requests)
        store.reset()
        return puts

    place.state = StateStore(store)
    place.append("1")
    watcher = place.watcher(cooldown=HOUR_S)
    watcher.look()
    (document,) = place.received()
    place.end(document)
    place.append("1")
    assert written() == 1 and reasons(watcher.look()) == {"1": "cooling_down"} and written() == 1
    for _ in range(9):
        place.now_s += 60
        watcher.look()
    assert written() == 1
    (kept,) = DecisionsReader(store).read()
    assert kept.text.startswith("submitted 360 s ago") and kept.at_s == NOW_S
    place.append("2", times=1)
    watcher.look()
    assert written() == 1 and {each.text for each in DecisionsReader(store).read()} > {"1 delta, 3 wanted"}


def test_a_watcher_that_starts_again_sends_the_same_job_run_and_no_other(place):
    place.append()
    place.watcher().look()
    (document,) = place.received()
    for _ in range(3):
        (said,) = place.watcher().look()
        assert (said.decision.reason.value, said.decision.text) == (
            "running",
            f"job run {document['job_run_id']} waits in the queue: no dispatcher has accepted it yet",
        )
    assert {each["job_run_id"] for each in place.received()} == {document["job_run_id"]}
    place.end(document)
    assert reasons(place.watcher().look()) == {"1": "nothing_new"}
    assert place.received() == []


@pytest.mark.parametrize("failed", [False, True])
def test_a_watcher_that_starts_again_submits_nothing_anew_after_its_job_runs_expired(place, failed):
    place.append()
    watcher = place.watcher(cooldown=100)
    watcher.look()
    (document,) = place.received()
    place.end(document, failed)
    assert expire(place.state, 0.0).job_run_ids == [document["job_run_id"]]
    for starting in (watcher, place.watcher(cooldown=100), place.watcher(cooldown=100)):
        assert reasons(starting.look()) == {"1": "cooling_down" if failed else "nothing_new"}
    assert place.received() == []
    place.now_s += 199
    assert reasons(place.watcher(cooldown=100).look()) == {"1": "cooling_down" if failed else "nothing_new"}
    place.now_s += 1
    assert reasons(place.watcher(cooldown=100).look()) == {"1": "deltas" if failed else "nothing_new"}


def test_what_was_submitted_for_a_table_that_no_policy_names_any_more_expires(tmp_path, clock):
    """It stayed for ever, and the page showed its last decisions."""
    place = Place(tmp_path)
    place.state, place.now_s = StateStore(MemoryStore(clock=clock)), clock.now_s
    place.append()
    watcher = place.watcher()
    watcher.look()
    (document,) = place.received()
    place.end(document)
    watcher.look()
    of_triggers = lambda: [stat.path for stat in place.state.store.list("watch")]  # noqa: E731
    for _ in range(8):
        clock.now_s += 12 * HOUR_S + 1
        place.now_s = clock.now_s
        watcher.look()
        (kept,) = DecisionsReader(place.state.store).read()
        assert kept.reason == "nothing_new" and kept.at_s < clock.now_s - 12 * HOUR_S, "as of when it changed"
        assert not expire(place.state, DAY_S).unwatched and of_triggers(), "somebody looks at it"
    assert not list(place.state.store.list("job-runs/"))
    clock.now_s += 3 * DAY_S
    assert expire(place.state, 4 * DAY_S).unwatched == 0
    assert expire(place.state, 0.0, dry_run=True).unwatched == 1 and of_triggers()
    assert expire(place.state, 0.0).unwatched == 1 and not of_triggers()


def test_what_was_submitted_for_a_table_that_cannot_be_read_stays(tmp_path, clock):
    """Somebody watches it: what was forgotten would be submitted again."""
    place = Place(tmp_path)
    place.state, place.now_s = StateStore(MemoryStore(clock=clock)), clock.now_s
    place.append()
    place.watcher().look()
    of_triggers = lambda: {stat.path for stat in place.state.store.list("watch")}  # noqa: E731
    written = of_triggers()
    os.rename(place.lake, f"{place.lake}-away")
    watcher = place.watcher()
    for _ in range(8):
        clock.now_s += 12 * HOUR_S + 1
        place.now_s = clock.now_s
        watcher.look()
        assert [name for _, name in watcher.failed] == ["orders"] and not expire(place.state, DAY_S).unwatched
    assert of_triggers() == written


@pytest.mark.slow
def test_what_was_submitted_does_not_grow_for_ever_and_is_remembered_all_the_same(place, monkeypatch):
    """Two watchers take turns over a table, for many job runs; one of them starts again each time."""
    monkeypatch.setattr(submissions, "FOLDED_AT", 4)
    place.append("other")
    standing = place.watcher()
    seen, most = set(), 0
    for number in range(24):
        place.append()
        place.now_s += 3600
        watcher = standing if number % 3 == 0 else place.watcher()
        looked = reasons(watcher.look())
        assert looked["1"] == "deltas", number
        documents = place.received()
        assert len(documents) == 1 and documents[0]["job_run_id"] not in seen, "submitted once, under a new name"
        seen.add(documents[0]["job_run_id"])
        place.end(documents[0], failed=number % 5 == 4)
        assert reasons(place.watcher().look())["1"] in ("nothing_new", "deltas", "cooling_down")
        for document in place.received():  # one that had failed is asked for again
            seen.add(document["job_run_id"])
            place.end(document)
        expire(place.state, 0.0)
        most = max(most, len(list(place.state.store.list("watch/"))) + len(list(place.state.store.list("watch-ends/"))))
    assert most <= 16, "slots are folded, and ends that were said of them are forgotten"
    assert sum(len(table._sent_s) for table in standing._tables.values()) <= 4, "nor does the watcher grow"
    assert reasons(place.watcher().look()) == {"1": "nothing_new", "other": "nothing_new"}


def test_a_watcher_whose_slot_was_folded_meanwhile_has_not_submitted(monkeypatch):
    monkeypatch.setattr(submissions, "FOLDED_AT", 2)
    store = MemoryStore()
    asleep, awake = submissions.Submissions(store, "t"), submissions.Submissions(store, "t")

    def submission(log, number):
        return submissions.Submission("p", log.next_job_run_id(), ({"day": "1"},), float(number), "deltas", {})

    asleep.read(), awake.read()
    for number in range(5):
        assert awake.put(submission(awake, number))
    ended = {submitted.job_run_id: submissions.Ended(JobRunState.FAILED) for submitted in awake.read()[1:]}
    awake.fold(ended, {"day=1"})
    assert [submitted.at_s for submitted in awake.read()] == [0.0], "what has not ended stays"
    slot = asleep.next_job_run_id()
    assert not asleep.put(submission(asleep, 9))
    asleep._next = 1
    assert not asleep.put(submission(asleep, 9)), "slot 1 was free again"
    asleep.read()
    assert asleep.next_job_run_id() == awake.next_job_run_id() != slot
    for log in (asleep, awake, submissions.Submissions(store, "t")):
        assert [submitted.at_s for submitted in log.read()] == [0.0]
        assert log.submitted({})["day=1"] == submissions.SubmittedPartition({"p": 4.0}, {}, 4)
    awake.fold({**ended, awake.read()[0].job_run_id: submissions.Ended(JobRunState.SUCCEEDED)}, {"day=1"})
    for number in range(5, 8):
        assert asleep.put(submission(asleep, number)) and not awake.put(submission(awake, number))
        awake.read()


@pytest.mark.parametrize("after", [False, True])
def test_a_watcher_that_dies_between_slot_and_queue_loses_nothing(place, after):
    place.append()

    class Failing:
        def send(self, body, group=""):
            if after:
                place.queue.send(body, group)
            raise StoreError("the connection is gone")

    watcher = place.watcher(queue=Failing())
    watcher.look()
    assert len(place.received()) == after
    assert reasons(place.watcher().look()) == {"1": "running"}
    (document,) = place.received()
    place.end(document)
    assert reasons(place.watcher().look()) == {"1": "nothing_new"}


def test_of_two_watchers_one_submits(place):
    place.append()
    inner = MemoryStore()
    first = place.watcher(StateStore(inner))
    looked = []

    def intercept(kind, path, act):
        if kind == "put_if_absent" and path.startswith("watch/") and not looked:
            looked.append(True)
            assert reasons(first.look()) == {"1": "deltas"}  # right before the second one's put
        return act()

    second = place.watcher(StateStore(InterceptedStore(inner, intercept)))
    (decided,) = second.look()
    assert decided.job_run_id is None and looked
    assert len(place.received()) == 1
    assert reasons(second.look()) == {"1": "running"}


def test_a_job_run_that_somebody_else_asked_for_is_waited_for(place):
    place.append("1"), place.append("2")
    document = {
        "version": 1,
        "catalog": f"file://{place.lake}/",
        "source_table_id": "orders",
        "partitions": [{"day": 1}],
    }
    place.state.accept(job_run("by-hand", document=document))
    assert reasons(place.watcher().look()) == {"1": "running", "2": "deltas"}
    everything = {key: value for key, value in document.items() if key != "partitions"}
    place.state.accept(job_run("by-hand-2", document=everything))
    place.append("3")
    assert reasons(place.watcher().look())["3"] == "running"


def test_a_job_run_that_is_accepted_during_a_look_is_waited_for(place):
    """Its mark was not listed yet and its record was there: it counted as neither open nor lost."""
    place.state = StateStore(MemoryStore())
    place.append()
    place.watcher(cooldown=0).look()
    (document,) = place.received()

    def intercept(kind, path, act):
        done = act()
        if (kind, path) == ("list", "open/"):
            place.state.accept(job_run(document["job_run_id"], document=document))
        return done

    state = StateStore(InterceptedStore(place.state.store, intercept))
    assert reasons(place.watcher(state, cooldown=0).look()) == {"1": "running"}


def test_open_job_runs_are_read_once_for_all_tables(place):
    """Each table read them all: a hundred job runs and a thousand tables were a hundred thousand requests a look."""
    read = []

    def intercept(kind, path, act):
        if path.startswith(("open/", "job-runs/")):
            read.append((kind, path))
        return act()

    place.state = StateStore(MemoryStore())
    document = {"version": 1, "catalog": place.lake, "source_table_id": "t1"}
    for number in range(5):
        place.state.accept(job_run(f"run-{number}", document=document))
    of_tables = [
        {"name": f"p{number}", "catalog": place.lake, "source_table_id": f"t{number}", "when": [{"deltas": 1}]}
        for number in range(4)
    ]
    for number in range(4):
        place.catalog.create_table(f"t{number}", primary_keys=["id"]).append(pa.table({"id": [1]}))
    policies = Policies.model_validate({"version": 1, "policies": of_tables})
    state = StateStore(InterceptedStore(place.state.store, intercept))
    watcher = Watcher(policies, state, place.queue, clock=lambda: place.now_s)
    decided = {each.table: each.decision.reason.value for each in watcher.look()}
    assert decided == {"t0": "deltas", "t1": "running", "t2": "deltas", "t3": "deltas"}
    assert sum(kind == "list" and path == "open/" for kind, path in read) == 1
    assert sum("run-0" in path for _, path in read) <= 2


def test_a_job_run_whose_document_has_the_keys_in_another_order_is_waited_for(place):
    table = place.catalog.create_table("pairs", ["day", "shop"], ["id"])
    for shop in ("a", "b"):
        table.append(pa.table({"id": [1]}), {"day": "1", "shop": shop})
    document = {
        "version": 1,
        "catalog": place.lake,
        "source_table_id": "pairs",
        "partitions": [{"shop": "a", "day": 1}],
    }
    place.state.accept(job_run("by-hand", document=document))
    looked = place.watcher(source_table_id="pairs", when=[{"deltas": 1}]).look()
    assert {each.partition["shop"]: each.decision.reason.value for each in looked} == {"a": "running", "b": "deltas"}


def test_a_watcher_that_starts_reads_slots_and_job_runs_side_by_side(place):
    memory = MemoryStore()
    place.state = StateStore(memory)
    place.append()
    watcher = place.watcher()
    (log,) = (table._submissions for table in watcher._tables.values())
    for number in range(40):
        assert log.put(
            submissions.Submission("p", log.next_job_run_id(), ({"day": "1"},), NOW_S + number, "deltas", {})
        )
        place.state.accept(job_run(log.read_before[-1].job_run_id))
    store = CountingStore(memory, 0.01)
    assert reasons(place.watcher(StateStore(store)).look()) == {"1": "running"}
    for prefix in ("watch/", "job-runs/"):
        spans = sorted((began, ended) for began, ended, name in store._spans if name.startswith(f"get {prefix}"))
        assert len(spans) >= 40 and max(sum(b <= began < e for b, e in spans) for began, _ in spans) >= 6, prefix


def test_each_table_is_a_sign_of_life(place):
    """A first look at hundreds of tables took longer than the patience of whoever asks for the watcher's health."""
    of_tables = [
        {"name": f"p{number}", "catalog": place.lake, "source_table_id": f"t{number}", "when": [{"deltas": 1}]}
        for number in range(2)
    ]
    place.catalog.create_table("t0", primary_keys=["id"])
    signs = []

    def clock():
        signs.append(watcher.seen.alive_s)
        place.now_s += 1
        return place.now_s

    watcher = place.watcher()
    watcher = Watcher(
        Policies.model_validate({"version": 1, "policies": of_tables}), place.state, place.queue, clock=clock
    )
    watcher.look()
    assert len(set(signs)) > 2 and watcher.seen.alive_s == watcher.seen.looked_s and watcher.seen.unreadable == 1


def test_failures_make_it_wait_longer(place):
    place.append()
    watcher = place.watcher(cooldown=100)
    waits = []
    for _ in range(3):
        began_s = place.now_s
        while reasons(watcher.look()) == {"1": "cooling_down"}:
            place.now_s += 50
        waits.append(place.now_s - began_s)
        (document,) = place.received()
        place.end(document, failed=True)
    assert waits == [0, 200, 400]


def test_a_document_that_is_refused_is_a_failure_and_is_not_sent_again_every_hour(place):
    place.append()
    watcher, waits = place.watcher(cooldown=3 * HOUR_S), []
    intake = Intake(place.queue, place.state, AllowList(["s3://another"]))
    for _ in range(3):
        began_s = place.now_s
        while not (messages := place.queue.receive(10, 0)):
            watcher.look()
            place.now_s += HOUR_S / 2
        waits.append((place.now_s - began_s) / HOUR_S)
        assert [intake.take(message) for message in messages] == [None]
        assert reasons(watcher.look()) == reasons(place.watcher(cooldown=3 * HOUR_S).look()) == {"1": "cooling_down"}
    assert waits == [0.5, 6, 12]
    (letter, *_) = place.queue.dead_letters()
    place.queue.redrive(letter)
    (message,) = place.queue.receive(1, 0)
    assert Intake(place.queue, place.state, AllowList([])).take(message)
    assert reasons(watcher.look()) == {"1": "running"}


def test_one_bad_partition_makes_no_other_of_its_document_wait(place):
    """All of them had failed with it: after a few times, a whole table was compacted once a day."""
    place.append("1"), place.append("2")
    watcher = place.watcher(cooldown=100)
    watcher.look()
    (document,) = place.received()
    place.end(document, failed=True, failed_sessions=("day=2",))
    place.now_s += 199
    assert reasons(watcher.look()) == {"1": "deltas", "2": "cooling_down"}


def test_a_slot_that_ends_late_says_nothing_of_what_came_after_it():
    """Its job run was open while newer slots were folded: their time and mark stay, its failure counts."""

    def submission(at_s, mark):
        return submissions.Submission("p", f"run {mark}", ({"day": "1"},), at_s, "", {}, (mark,))

    succeeded, failed = submissions.Ended(JobRunState.SUCCEEDED), submissions.Ended(JobRunState.FAILED)
    newer = submissions.SubmittedPartition().after(submission(100.0, "2/9"), 0, succeeded, is_newer=True)
    late = newer.after(submission(900.0, "1/5"), 0, failed, is_newer=False)
    assert late == submissions.SubmittedPartition({"p": 100.0}, {"p": "2/9"}, 1)


def test_after_a_clock_was_set_back_a_day_job_runs_cool_down_and_lost_documents_are_sent_again(place):
    place.append()
    watcher = place.watcher(cooldown=100)
    place.now_s += DAY_S
    watcher.look()
    (document,) = place.received()
    place.now_s -= DAY_S
    assert reasons(watcher.look()) == {"1": "running"}
    assert place.received() == [document], "nobody knows whether a dispatcher has received it"
    watcher.look()
    assert place.received() == []
    place.end(document, failed=True)
    assert reasons(watcher.look()) == {"1": "deltas"}
    place.end(place.received()[0], failed=True)
    assert reasons(watcher.look()) == reasons(place.watcher(cooldown=100).look()) == {"1": "cooling_down"}
    place.now_s += 400
    assert reasons(watcher.look()) == {"1": "deltas"}


def test_what_waits_for_another_table_is_measured_by_that_table(place):
    """Deltas stay in the source: each cooldown it was submitted again, for ever. And once the source was compacted in
    place, the other table was not submitted any more."""
    watcher = place.watcher(document={"destination_compacted_table_id": "flat"})
    look = lambda: reasons(watcher.look())  # noqa: E731
    place.append()
    for _ in range(2):
        assert look() == {"1": "deltas"}
        (document,) = place.received()
        place.end(document)
        place.now_s += 3600
        assert look() == {"1": "nothing_new"}
        place.append(times=1)
        assert look() == {"1": "below_thresholds"}
        place.append(times=2)
    place.catalog.table("orders").compact()  # past what flat has folded
    place.state.accept(job_run("in-place", document={**document, "destination_compacted_table_id": None}))
    watcher = place.watcher(document={"destination_compacted_table_id": "flat"}, when=[{"delta_rows": 1}])
    (decided,) = watcher.look()
    assert (decided.decision.reason, decided.decision.text) == ("delta_rows", "1 delta row, 1 wanted")
    (document,) = place.received()
    place.end(document)
    place.now_s += 3600
    assert look() == {"1": "nothing_new"} and place.catalog.read("flat").num_rows == 1
    place.catalog.drop_table("flat")
    assert reasons(watcher.look()) == {"1": "delta_rows"}, "it is made again"


def test_watchers_go_by_the_clock_of_the_store(place, clock):
    """Of two whose clocks differed by more than a cooldown, each took what the other one had submitted for long ago, or
    for a time that never was: a table that failed was submitted at each look, for ever."""
    place.state = StateStore(MemoryStore(clock=clock))
    place.append()
    watcher = Watcher(place.policies(), place.state, place.queue)
    watcher.look()
    (table,) = watcher._tables.values()
    (submission,) = table._submissions.read_before
    assert 0 <= submission.at_s - clock.now_s < 60 and 0 <= watcher.seen.looked_s - clock.now_s < 60


def test_two_policies_on_one_table_never_submit_a_partition_both(place):
    place.append()
    both = [each.model_dump(exclude_unset=True) for each in place.policies().policies]
    policies = Policies.model_validate({"version": 1, "policies": [both[0], {**both[0], "name": "q"}]})
    watcher = Watcher(policies, place.state, place.queue, clock=lambda: place.now_s)
    assert [each.job_run_id is not None for each in watcher.look()] == [True, False]
    assert len(place.received()) == 1


def test_two_spellings_of_a_catalog_are_one_table(place):
    place.append()
    known = place.policies().policies[0].model_dump(exclude_unset=True)
    given = [known, {**known, "name": "q", "catalog": Path(place.lake).as_uri(), "when": [{"deltas": 100}]}]
    policies = Policies.model_validate({"version": 1, "policies": given})
    watcher = Watcher(policies, place.state, place.queue, clock=lambda: place.now_s)
    watcher.look()
    assert [(each.policy, each.reason) for each in DecisionsReader(place.state.store).read()] == [
        ("p", "deltas"),
        ("q", "below_thresholds"),
    ]
    assert len(watcher.seen.tables) == 1


def test_a_table_that_is_missing_leaves_the_others_to_be(place):
    place.append()
    known = place.policies().policies[0].model_dump(exclude_unset=True)
    given = [{**known, "name": "gone", "source_table_id": "gone"}, known]
    watcher = Watcher(Policies.model_validate({"version": 1, "policies": given}), place.state, place.queue)
    assert len(watcher.look()) == 1


def test_what_a_look_found_of_tables_is_there_without_another_request(place):
    """Sums over partitions; a table that cannot be looked at any more has none."""
    place.append("1", times=4), place.append("2", times=2)
    deltacompact.compact("orders", delta_catalog_client=place.catalog, partitions=[{"day": "2"}])
    place.now_s = time.time()
    watcher = place.watcher()
    assert watcher.seen == TablesSeen()
    watcher.look()
    (key, sizes), *others = watcher.seen.tables.items()
    assert key == (place.lake, "orders", "") and not others and watcher.seen.looked_s == place.now_s
    assert (sizes.deltas, sizes.backlog_rows, sizes.data_files, sizes.rows, sizes.dead_rows) == (4, 4, 5, 1, 0)
    assert 0 <= place.now_s - sizes.oldest_delta_s < 600 and 0 <= place.now_s - sizes.compacted_s < 600
    assert sizes.delete_files is None and sizes.snapshots is None
    (log,) = (Path(place.lake) / "orders").glob("day=1/stream/0/*1.json")
    log.write_text("{")
    watcher = place.watcher()
    watcher.look()
    assert watcher.seen.tables == {} and watcher.seen.unreadable == 1


def test_orphans_are_counted_one_table_a_time_and_again_after_their_time(place, lake):
    """Streams by vacuum's ages, Iceberg tables by those of maintain; nothing is deleted."""
    place.append(times=2)
    (delta,) = place.catalog.append("orders", pa.table({"id": [1]}), {"day": "1"}).files
    stray = (Path(place.lake) / delta.path).with_name(f"{uuid.uuid4().hex}.parquet")
    lake.create("ns.t", pa.schema({"id": pa.int64()}))
    lake.append("ns.t", pa.table({"id": [1]}))
    left = Path(unquote(urlsplit(lake.state("ns.t").metadata.data_folder).path)) / "left.parquet"
    for file, size in ((stray, 1000), (left, 70)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
        os.utime(file, (1, 1))
    known = place.policies().policies[0].model_dump(exclude_unset=True)
    iceberg = {"catalog": f"iceberg://{lake.catalog.name}", "source_table_id": "ns.t", "when": [{"delete_files": 9}]}
    both = [{**iceberg, "name": name, "document": {"branch": name}} for name in ("main", "audit")]
    lake.append("ns.t", pa.table({"id": [2]}), branch="audit")
    given = {"version": 1, "count_orphans_every": 3600, "policies": [known, *both]}
    catalogs = {place.lake: place.catalog}
    opened = lambda uri: catalogs.get(uri) or IcebergCatalog(lake.catalog)  # noqa: E731
    watcher = Watcher(
        Policies.model_validate(given), place.state, place.queue, clock=lambda: place.now_s, open_catalog=opened
    )

    def looked():
        watcher.look()
        watcher.count_orphans()
        assert not watcher.failed
        return [sizes.orphan_bytes for sizes in watcher.seen.tables.values()]

    assert looked() == [None, None, None]
    assert looked() == [1000, None, None]
    assert looked() == looked() == [1000, 70, None], "the second branch shares what the first has"
    stray.unlink()
    assert looked() == [1000, 70, None]
    place.now_s += 3600
    looked()
    assert looked() == [0, 70, None] and left.exists()


def test_a_long_count_of_orphans_holds_up_no_look(place):
    """It took half an hour, in which no policy was looked after, and /healthz told Kubernetes to begin anew."""
    place.append()
    watcher = Watcher(place.policies(), place.state, place.queue)
    counting, go_on, stopping = threading.Event(), threading.Event(), threading.Event()
    watcher._orphans = OrphanCounts({"orders": lambda: counting.set() or go_on.wait(60)}, DAY_S)
    watcher._every_s, look = 0.01, watcher.look

    def looked():
        look()
        if counting.is_set():
            stopping.set()

    watcher.look = looked
    running = threading.Thread(target=watcher.run, args=(stopping,), daemon=True)
    running.start()
    try:
        assert counting.wait(30)
        running.join(10)
        assert not running.is_alive()
    finally:
        go_on.set()


def test_the_log_tells_once_of_a_table_that_cannot_be_read_and_once_that_it_can(place, caplog, monkeypatch):
    """A policy's missing table was a warning at every look, for ever."""
    caplog.set_level(logging.INFO, "sessions")
    place.append()
    watcher, troubles, told = place.watcher(), [None, "gone", "gone", "denied", "denied", None, None, "gone"], []
    (table,) = watcher._tables.values()
    look = table.look
    for trouble in troubles:
        monkeypatch.setattr(table, "look", Mock(side_effect=NotFoundError(trouble)) if trouble else look)
        caplog.clear()
        watcher.look()
        assert bool(watcher.failed) == bool(trouble)
        told.append([line.split(": ")[-1] for line in caplog.messages if line.startswith("table orders of ")])
    again = [f"table orders of {place.lake} is well again"]
    assert told == [[], ["gone"], [], ["denied"], [], again, [], ["gone"]]


@pytest.mark.parametrize(("every_s", "again_s"), [(60.0, 60.0), (DAY_S, 600.0)])
def test_a_table_whose_orphans_cannot_be_counted_has_none(place, caplog, every_s, again_s):
    """After a failure, a table that is counted once a day was counted a day later."""
    place.append()
    watcher = Watcher(place.policies(), place.state, place.queue)
    counted = [3, OSError("the listing failed"), 5]

    def count():
        found = counted.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    orphans = OrphanCounts({"orders": count}, every_s)
    later_s = every_s + again_s
    for now_s, expected in ((0, 3), (every_s - 1, 3), (every_s, None), (later_s - 1, None), (later_s, 5)):
        orphans.look(now_s)
        assert orphans.bytes.get("orders") == expected
    assert f"orphans of orders are not counted, again in {again_s:.0f} s: OSError: the listing" in caplog.text
    assert watcher.look(), "policies are looked after all the same"


def test_statistics_come_from_the_log_with_few_requests(place):
    place.append("1", times=4), place.append("2", times=2)
    deltacompact.compact("orders", delta_catalog_client=place.catalog, partitions=[{"day": "2"}])
    first, second = statistics_of(place.catalog, "orders", NOW_S)
    assert (first.deltas, first.delta_rows, first.files) == (4, 4, 4)
    assert first.oldest_delta_s <= first.written_s and first.bytes > 0
    assert (second.deltas, second.files, second.oldest_delta_s) == (0, 1, None) and second.written_s is not None
    inner = MemoryStore()
    catalog = deltacompact.DeltaStreamCatalog(inner)
    catalog.create_table("t", ["day"], ["id"])
    for day in range(20):
        catalog.append("t", pa.table({"id": [1]}), {"day": day})
    asked: list[str] = []

    def intercept(kind, path, act):
        asked.append(kind)
        return act()

    counted = deltacompact.DeltaStreamCatalog(InterceptedStore(inner, intercept))
    assert len(statistics_of(counted, "t", 4e9)) == 20
    asked.clear()
    statistics_of(counted, "t", 4e9)
    assert len(asked) <= 2 * 20 + 5  # one probe for each log, a listing of partitions


def test_a_watcher_sees_the_deltas_of_a_table_that_was_created_again():
    """It went on from the log of the dropped one, where nothing came any more: no policy ever fired."""
    catalog, watching = DeltaStreamCatalog(store := MemoryStore()), DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1]}))
    catalog.table("t").compact()
    assert [found.deltas for found in statistics_of(watching, "t", 4e9)] == [0]
    catalog.drop_table("t")
    with pytest.raises(NotFoundError, match="table 't' does not exist"):
        statistics_of(watching, "t", 4e9)
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1, 2]}))
    assert [found.delta_rows for found in statistics_of(watching, "t", 4e9)] == [2]
