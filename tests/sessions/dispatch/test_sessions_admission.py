"""Groups of several job runs on one dispatcher: never more than its limits, nobody for ever last; waits of retries."""

from __future__ import annotations

import pytest
from calls import calls
from hypothesis import given
from hypothesis import strategies as st

from sessions.base.model import Estimate
from sessions.base.troubles import RetryPolicy
from sessions.dispatch.admission import Admission
from sessions.planning.admission import DispatcherLimits, QuietWindow, Takes, WaitingGroup
from sessions.planning.reasons import Wait

GIB = 1 << 30
SECOND = Estimate(1.0, 0.5, 2.0)


def group(name: str, gib: float, read_through: int = 1) -> WaitingGroup:
    return WaitingGroup(Takes(name, memory_bytes=int(gib * GIB), slots=1), read_through, GIB, 0.0)


def test_a_place_goes_to_the_worst_that_waits_and_not_to_whoever_asks_first():
    admission = Admission(DispatcherLimits(1), clock=lambda: 0.0)
    light, heavy = group("light", 1, 2), group("heavy", 1, 400)
    assert admission.enter(group("first", 1), SECOND) is None
    assert admission.enter(light, SECOND).wait == admission.enter(heavy, SECOND).wait == Wait.SESSIONS
    admission.leave("first")
    assert admission.enter(light, SECOND).wait == Wait.SESSIONS and admission.enter(heavy, SECOND) is None
    admission.leave("heavy")
    assert admission.enter(light, SECOND) is None and admission.busy_slots == 1


def asked_once(count: int, gib: float) -> int:
    """The calls that it takes to ask once for each of so many groups, which came together."""
    admission = Admission(DispatcherLimits(2, memory_bytes=16 * GIB), clock=lambda: 0.0)
    groups = [group(f"g{number}", gib) for number in range(count)]

    def ask() -> None:
        admission.wait((each, SECOND) for each in groups)
        for each in groups:
            postponed = admission.enter(each, SECOND)
            if postponed and postponed.wait is Wait.NEVER_FITS:
                admission.leave(each.takes.group)

    return calls(ask)


@pytest.mark.parametrize("gib", [1, 20])
def test_groups_that_come_together_are_decided_together(gib):
    """Each one that came alone forced a decision over all: 10,000 groups took ten minutes."""
    assert asked_once(800, gib) < 6 * asked_once(200, gib)


def test_what_is_decided_is_decided_again_once_time_has_passed():
    now_s = [0.0]
    admission = Admission(DispatcherLimits(quiet=(QuietWindow("0 0 1 1 *", 10),)), clock=lambda: now_s[0])
    assert admission.enter(group("a", 1), SECOND).until_s == 600.0
    now_s[0] = 599.9
    assert admission.enter(group("a", 1), SECOND).wait is Wait.QUIET
    now_s[0] = 601.0
    assert admission.enter(group("a", 1), SECOND) is None


def test_what_comes_before_a_group_is_what_runs_and_what_starts_earlier():
    now_s = [0.0]
    admission = Admission(DispatcherLimits(1), clock=lambda: now_s[0])
    light, heavy = group("light", 1, 2), group("heavy", 1, 400)
    assert admission.before(light, ()) == []
    admission.enter(group("first", 1), Estimate(10.0, 8.0, 12.0))
    admission.enter(light, SECOND)
    admission.enter(heavy, Estimate(5.0, 4.0, 6.0))
    now_s[0] = 9.0
    left = Estimate(1.0, 0.0, 3.0, 9.0)
    assert admission.before(heavy, ()) == [left] == admission.before(None, ())
    assert admission.before(light, ()) == [left, Estimate(5.0, 4.0, 6.0)]
    assert admission.before(light, ("first", "heavy")) == []


def test_what_never_fits_is_told_so_and_leaves():
    admission = Admission(DispatcherLimits(4, memory_bytes=16 * GIB), clock=lambda: 0.0)
    assert admission.enter(group("large", 20), SECOND).wait is Wait.NEVER_FITS
    admission.leave("large")
    assert (admission.running, admission.waiting) == (0, 0)


@given(st.lists(st.tuples(st.floats(0.1, 20), st.integers(0, 99)), max_size=12), st.integers(1, 4), st.integers(1, 16))
def test_limits_are_never_exceeded_and_everybody_gets_a_turn(asked, sessions_max, gib):
    admission = Admission(DispatcherLimits(sessions_max, memory_bytes=gib * GIB), clock=lambda: 0.0)
    waiting = {str(number): group(str(number), size, files) for number, (size, files) in enumerate(asked)}
    running: dict[str, WaitingGroup] = {}
    never: set[str] = set()
    turns = 0
    while waiting or running:
        turns += 1
        assert turns < 100, "somebody waits for ever"
        for name, run in list(waiting.items()):
            postponed = admission.enter(run, SECOND)
            if postponed is None:
                running[name] = waiting.pop(name)
            elif postponed.wait is Wait.NEVER_FITS:
                never.add(name)
                del waiting[name]
                admission.leave(name)
        assert len(running) <= sessions_max and admission.running == len(running)
        assert sum(run.takes.memory_bytes for run in running.values()) <= gib * GIB
        assert running or not waiting
        if running:
            name = next(iter(running))
            del running[name]
            admission.leave(name)
    assert never == {name for name, (size, _) in enumerate_names(asked) if int(size * GIB) > gib * GIB}
    assert (admission.running, admission.waiting) == (0, 0)


def enumerate_names(asked):
    return ((str(number), run) for number, run in enumerate(asked))


def test_retries_wait_longer_each_time_up_to_a_limit():
    assert all(0.5 <= RetryPolicy().wait_s(1) <= 1 for _ in range(20))
    assert all(2 <= RetryPolicy().wait_s(3) <= 4 for _ in range(20))
    assert all(150 <= RetryPolicy().wait_s(99) <= 300 for _ in range(20))
