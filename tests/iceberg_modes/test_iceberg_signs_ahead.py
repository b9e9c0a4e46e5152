"""Sessions on other machines, and clocks that disagree: a run waits half a minute at most, and says for what."""

from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from iceberg_lake import Lake
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from rich.console import Console

from deltacompact.base.events import WaitingForSession
from deltacompact.cli.progress import progress
from deltacompact.iceberg_modes.journal import signs_of_life
from deltacompact.iceberg_modes.journal.journal import Journal
from deltacompact.iceberg_modes.journal.left_behind import left_behind
from deltacompact.iceberg_modes.journal.signs_of_life import Holder, Signs, at_work
from deltacompact.iceberg_modes.rewrite.plan_document import plan_document

T = "ns.t"
HOUR = 3600.0


class Elsewhere:
    """A journal whose holder runs on another machine, and a run that looks at it without sleeping."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        lake.create(T, Schema(NestedField(1, "id", LongType())))
        lake.append(T, [{"id": 1}])
        self.lake, self.store = lake, lake.store(T)
        self.journal = Journal.new(self.store)
        self.journal.begin(plan_document(lake.prepared(T, rewrite_all=True).plan()))
        monkeypatch.setattr(signs_of_life, "_machine", lambda: "elsewhere")
        self.waited: list[float] = []
        self.told: list[tuple[str, float, float]] = []
        self.during_a_wait = lambda: None

    def dated(self, shift_s: float) -> None:
        """As if a clock had been ahead by so much when its records were written."""
        (folder,) = Path(self.lake.folder, "warehouse").rglob(self.journal.session)
        for path in folder.iterdir():
            now = path.stat().st_mtime
            os.utime(path, (now + shift_s, now + shift_s))

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.during_a_wait()

    def looked(self):
        signs = Signs(5.0, 30.0, self.wait)
        return left_behind(self.store, self.lake.state(T), signs, lambda *told: self.told.append(told))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    return Elsewhere(Lake(tmp_path / "lake"), monkeypatch)


def test_a_container_of_this_host_with_process_ids_of_its_own_is_another_machine(tmp_path, monkeypatch):
    """Nobody can tell from there whether the process lives, so its signs are waited for."""
    dead = replace(Holder.this(), process=2**22 + 1)
    assert dead.is_at_work("5c") is False
    (elsewhere := tmp_path / "pid").touch()
    monkeypatch.setattr(signs_of_life, "_PROCESS_IDS", elsewhere)
    assert dead.is_at_work("5c") is None


@pytest.mark.parametrize("process", [os.getpid(), os.getppid()], ids=["this", "another"])
def test_a_process_that_seems_to_have_begun_at_another_time_is_asked_for_signs(process):
    """Its start is told by the time of boot, which moves when the clock is set: live sessions were taken over."""
    holder = replace(Holder.this(), process=process, started_s=psutil.Process(process).create_time())
    moved = replace(holder, started_s=holder.started_s + 1.0)
    assert (holder.is_at_work("5c"), moved.is_at_work("5c")) == (process != os.getpid(), None)
    with at_work("5c"):
        assert holder.is_at_work("5c") is True
        assert moved.is_at_work("5c") is (True if process == os.getpid() else None)


def test_threads_that_work_on_one_session_end_one_by_one():
    with at_work("5c"):
        with at_work("5c"):
            pass
        assert Holder.this().is_at_work("5c") is True
    assert Holder.this().is_at_work("5c") is False


def test_a_session_counts_as_at_work_from_its_first_record_on(tmp_path, monkeypatch):
    """Another thread of its process took a session over that had just been planned, or resumed."""
    lake, found = Lake(tmp_path / "lake"), []
    lake.create(T, Schema(NestedField(1, "id", LongType())))
    lake.append(T, [{"id": 1}])

    def looking(name):
        recorded = getattr(Journal, name)

        def record(*asked):
            held = recorded(*asked)
            left = left_behind(lake.store(T), lake.state(T), Signs(), print)
            found.append((name, len(left.live), len(left.dead)))
            return held

        monkeypatch.setattr(Journal, name, record)

    Journal.new(lake.store(T)).begin(plan_document(lake.prepared(T, rewrite_all=True).plan()))
    looking("take_over")
    looking("begin")
    lake.rewrite(T, rewrite_all=True)
    assert found == [("take_over", 1, 0), ("begin", 1, 0)]


def test_a_journal_from_the_future_does_not_block_the_next_run(elsewhere):
    elsewhere.dated(HOUR)
    (dead,) = elsewhere.looked().dead
    assert dead.session == elsewhere.journal.session
    assert 30.0 <= sum(elsewhere.waited) <= 35.0  # the store's clock stood still: so many looks, and no more
    ((session, wait_s, ahead_s),) = elsewhere.told
    assert session == dead.session and wait_s == 30.0 and ahead_s == pytest.approx(HOUR, abs=60)


def test_a_session_whose_clock_is_ahead_lives_as_long_as_it_gives_signs(elsewhere):
    elsewhere.dated(HOUR)
    elsewhere.during_a_wait = elsewhere.journal.sign  # dated by the store: older than what is there
    (live,) = elsewhere.looked().live
    assert (live.session, elsewhere.waited) == (elsewhere.journal.session, [2.5])


def test_a_sign_of_half_a_minute_ago_is_not_waited_for(elsewhere):
    elsewhere.dated(-31.0)
    assert elsewhere.looked().dead and not elsewhere.waited and not elsewhere.told


def test_a_session_that_is_cleared_meanwhile_leaves_nothing(elsewhere):
    elsewhere.during_a_wait = elsewhere.journal.clear
    left = elsewhere.looked()
    assert (left.dead, left.live) == ((), ())


def test_a_run_says_for_what_it_waits_and_until_when(elsewhere):
    elsewhere.dated(HOUR)
    told = []
    elsewhere.lake.rewrite(T, rewrite_all=True, emit=told.append, signs=Signs(5.0, 30.0, elsewhere.wait))
    (event,) = (event for event in told if isinstance(event, WaitingForSession))
    out = io.StringIO()
    with progress(Console(file=out)) as say:
        say(event)
    assert re.fullmatch(
        r"ns\.t: waiting until \d\d:\d\d:\d\d, 30 s at most, for a sign of life of session "
        rf"{elsewhere.journal.session} on another machine; its last one is dated 3,\d{{3}} s in the future\n",
        out.getvalue(),
    )
