"""Which groups start, which wait and why; what a job run is expected to take while it runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import given

from deltacompact.planning.within_memory import MEMORY_BYTES_MIN
from sessions.base.model import Choice, Estimate, Progress, SessionPlan
from sessions.planning.admission import DispatcherLimits, QuietWindow, Takes, WaitingGroup, admit, in_order, limited
from sessions.planning.reasons import PlanReason, Wait
from sessions.planning.refine import STAGES, expect_job_run, group_estimate, makespan, refine, share_done

GIB = 1 << 30
HOUR = 3600.0


def waiting(group: str, read_through: int = 10, rewrite: int = GIB, since_s: float = 0.0, **takes: int) -> WaitingGroup:
    return WaitingGroup(Takes(group, **takes), read_through, rewrite, since_s)


def why(
    groups: list[WaitingGroup], running: list[Takes], limits: DispatcherLimits, now_s: float = 0.0
) -> dict[str, str]:
    found = admit(groups, running, limits, now_s)
    return dict.fromkeys(found.start, "start") | {waiting.group: waiting.wait for waiting in found.wait}


def test_the_worst_go_first_by_benefit_for_each_byte_rewritten() -> None:
    groups = [waiting("few", 90), waiting("many", 400), waiting("large", 400, 100 * GIB), waiting("tiny", 3, 100)]
    order = [group.takes.group for group in in_order(groups, 4 * HOUR, 0.0)]
    assert order == ["tiny", "many", "few", "large"]
    assert why(groups, [], DispatcherLimits(2)) == {
        "tiny": "start",
        "many": "start",
        "few": Wait.SESSIONS,
        "large": Wait.SESSIONS,
    }


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (DispatcherLimits(1), Wait.SESSIONS),
        (DispatcherLimits(9, workers_max=12), Wait.WORKERS),
        (DispatcherLimits(9, memory_bytes=20 * GIB), Wait.MEMORY),
        (DispatcherLimits(9, slots=3), Wait.CPUS),
    ],
)
def test_each_limit_has_its_reason(limits: DispatcherLimits, reason: Wait) -> None:
    running = [Takes("a", workers=8, memory_bytes=12 * GIB, slots=2)]
    group = waiting("b", workers=8, memory_bytes=12 * GIB, slots=2)
    assert why([group], running, limits) == {"b": reason}
    assert why([group], [], limits) == {"b": "start"}
    cluster = waiting("c", workers=1)
    if reason in (Wait.MEMORY, Wait.CPUS):
        assert why([group, cluster], running, limits) == {"b": reason, "c": "start"}


def test_what_never_fits_is_said_and_holds_nobody_up() -> None:
    limits = DispatcherLimits(4, memory_bytes=16 * GIB)
    groups = [waiting("huge", 10**6, since_s=-100 * HOUR, memory_bytes=64 * GIB), waiting("small", memory_bytes=GIB)]
    assert why(groups, [], limits) == {"huge": Wait.NEVER_FITS, "small": "start"}


def test_what_one_needs_that_waited_too_long_is_kept_for_it() -> None:
    limits = DispatcherLimits(4, memory_bytes=16 * GIB)
    running = [Takes("a", memory_bytes=10 * GIB)]
    old, worse = waiting("old", 1, memory_bytes=12 * GIB), waiting("worse", 10**6, memory_bytes=4 * GIB)
    assert why([old, worse], running, limits, 1.0) == {"old": Wait.MEMORY, "worse": "start"}
    assert why([old, worse], running, limits, 5 * HOUR) == {"old": Wait.MEMORY, "worse": Wait.RESERVED}
    cluster = waiting("cluster", workers=20)
    assert why([old, worse, cluster], running, limits, 5 * HOUR)["cluster"] == "start", (
        "it needs nothing of this machine"
    )
    assert why([old, worse], [], limits, 5 * HOUR) == {"old": "start", "worse": "start"}


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-23T07:59:59", None),  # a Monday
        ("2026-11-23T08:00:00", "2026-11-23T18:00:00"),
        ("2026-11-23T17:59:59", "2026-11-23T18:00:00"),
        ("2026-11-23T18:00:00", None),
        ("2026-11-22T12:00:00", None),
        ("2026-07-01T08:00:00", "2026-07-01T18:00:00"),  # in summer it is eight o'clock there, not in UTC
    ],
)
def test_nothing_starts_in_a_quiet_window(now: str, until: str | None) -> None:
    window = QuietWindow("0 8 * * 1-5", 600, "Europe/Berlin")
    found = admit([waiting("a"), waiting("b")], [], DispatcherLimits(quiet=(window,)), at(now))
    if until is None:
        assert found.start == ("a", "b")
    else:
        assert not found.start and {waiting.wait for waiting in found.wait} == {Wait.QUIET}
        assert {waiting.until_s for waiting in found.wait} == {at(until)}


def test_a_window_over_midnight_and_one_on_the_night_that_clocks_change() -> None:
    night = QuietWindow("30 23 * * *", 120, "Europe/Berlin")
    assert night.until_s(at("2026-11-23T00:15:00")) == at("2026-11-23T01:30:00")
    assert night.until_s(at("2026-11-23T01:30:00")) is None
    assert night.until_s(at("2026-10-25T00:29:00")) == at("2026-10-25T01:30:00")
    again_s = at("2026-10-25T02:10:00") + 3600  # it is ten past two again, and the window began the first time
    assert QuietWindow("30 2 * * *", 120, "Europe/Berlin").until_s(again_s) == again_s + 80 * 60
    always = QuietWindow("* * * * *", 5)
    assert always.until_s(at("2026-11-23T07:59:30")) == at("2026-11-23T08:04:00")


@pytest.mark.parametrize(
    ("cron", "minutes", "zone"),
    [
        ("0 25 * * *", 60, "UTC"),
        ("noon", 60, "UTC"),
        ("0 8 * * *", 0, "UTC"),
        ("0 8 * * *", 10**12, "UTC"),
        ("0 8 * * *", 60, "Berlin"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(cron: str, minutes: int, zone: str) -> None:
    with pytest.raises(ValueError, match="quiet window"):
        QuietWindow(cron, minutes, zone)


def test_a_group_takes_what_the_largest_of_its_sessions_takes() -> None:
    small, large = (
        replace(PLAN, peak_bytes=peak, slots=slots, bytes=7, read_through=3) for peak, slots in ((1, 4), (9, 2))
    )
    group = WaitingGroup.of("g1", [small, large], 5.0, DispatcherLimits())
    assert group == WaitingGroup(Takes("g1", 0, 9, 4), 6, 14, 5.0)
    cluster = replace(large, node_type="r6in.8xlarge", workers_max=12)
    assert Takes.of("g2", [cluster], DispatcherLimits()) == Takes("g2", 12, 0, 0), "nothing of this machine"


def test_a_session_here_needs_no_workers_of_clusters() -> None:
    limits = DispatcherLimits(9, workers_max=12)
    cluster = Takes.of("c", [replace(PLAN, node_type="r6in.8xlarge", workers_max=12)], limits)
    here = Takes.of("h", [PLAN], limits)
    assert why([waiting("h2", workers=here.workers)], [cluster], limits) == {"h2": "start"}
    assert why([waiting("c", workers=cluster.workers)], [here], limits) == {"c": "start"}


def test_a_plan_of_a_larger_dispatcher_takes_all_that_there_is() -> None:
    limits = DispatcherLimits(2, workers_max=8, memory_bytes=16 * GIB, slots=2)
    here = replace(PLAN, peak_bytes=50 * GIB, memory_bytes=60 * GIB, slots=16, work={"row": 1.0})
    cluster = replace(here, node_type="r6in.8xlarge", workers_initial=20, workers_max=40, slots=40 * 32)
    assert Takes.of("g1", [here], limits) == Takes("g1", 0, 16 * GIB, 2)
    assert Takes.of("g2", [cluster], limits) == Takes("g2", 8, 0, 0)
    limited_here, limited_cluster = limited(here, limits), limited(cluster, limits)
    assert (limited_here.slots, limited_here.memory_bytes, limited_here.work) == (2, 16 * GIB, {})
    assert (limited_cluster.workers_initial, limited_cluster.workers_max, limited_cluster.slots) == (8, 8, 8 * 32)
    assert limited(here, DispatcherLimits()) is here and limited_cluster.work == {}
    wide = replace(here, choices=(Choice("memory", 1, PlanReason.EXCEEDS_MEMORY, "rows are too wide"),))
    group = WaitingGroup.of("g3", [wide], 0.0, limits)
    assert why([group], [], limits) == {"g3": Wait.NEVER_FITS}
    tiny = DispatcherLimits(2, memory_bytes=MEMORY_BYTES_MIN - 1)
    assert why([WaitingGroup.of("g4", [here], 0.0, tiny)], [], tiny) == {"g4": Wait.NEVER_FITS}


takes = st.builds(
    Takes, st.just(""), st.integers(0, 20), st.integers(0, 12).map(lambda size: size * GIB), st.integers(0, 4)
)
limits = st.builds(
    DispatcherLimits,
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 24).map(lambda size: size * GIB)),
    st.one_of(st.none(), st.integers(1, 8)),
)


def named(all_take: list[Takes], prefix: str) -> list[Takes]:
    return [replace(takes, group=f"{prefix}{place}") for place, takes in enumerate(all_take)]


@given(st.lists(takes, max_size=12), st.lists(takes, max_size=4), limits, st.data())
def test_limits_are_never_exceeded_and_everybody_has_an_answer(
    want: list[Takes], running: list[Takes], limit: DispatcherLimits, data: st.DataObject
) -> None:
    running = named(running, "r")
    groups = [
        WaitingGroup(
            takes, data.draw(st.integers(0, 99)), data.draw(st.integers(0, 10**9)), data.draw(st.floats(0, 1e5))
        )
        for takes in named(want, "w")
    ]
    found = admit(groups, running, limit, 1e5)
    assert sorted([*found.start, *(waiting.group for waiting in found.wait)]) == sorted(
        group.takes.group for group in groups
    )
    if not found.start:
        return
    all_run = [*running, *(group.takes for group in groups if group.takes.group in found.start)]
    before = [*running]
    assert len(all_run) <= max(limit.sessions_max, len(before))
    for of, most in (("workers", limit.workers_max), ("memory_bytes", limit.memory_bytes), ("slots", limit.slots)):
        started = sum(getattr(group.takes, of) for group in groups if group.takes.group in found.start)
        if most is not None and started:
            assert sum(getattr(takes, of) for takes in all_run) <= most


@given(st.lists(takes, min_size=1, max_size=6), limits, st.integers(1, 5))
def test_nobody_starves_however_many_worse_ones_keep_coming(
    want: list[Takes], limit: DispatcherLimits, length: int
) -> None:
    """Every group runs for some ticks, and at each tick others arrive that are worse by far."""
    limit = replace(limit, starved_after_s=10.0)
    patient = {takes.group: WaitingGroup(takes, 0, 10**15, 0.0) for takes in named(want, "patient")}
    queue = dict(patient)
    running: dict[str, tuple[Takes, int]] = {}
    started: dict[str, int] = {}
    never: set[str] = set()
    for tick in range(12 + (length + 1) * (len(want) + 2) * 2):
        running = {name: (takes, left - 1) for name, (takes, left) in running.items() if left > 1}
        for other in range(3):
            name = f"worse{tick}-{other}"
            queue[name] = WaitingGroup(Takes(name, 1, GIB, 1), 10**9, 1, float(tick))
        found = admit(list(queue.values()), [takes for takes, _ in running.values()], limit, float(tick))
        never |= {waiting.group for waiting in found.wait if waiting.wait is Wait.NEVER_FITS}
        for name in found.start:
            started[name] = tick
            running[name] = queue.pop(name).takes, length
    assert set(patient) <= set(started) | never
    for name in never & set(patient):
        assert not admit([patient[name]], [], limit, 0.0).start, "it does not fit even alone"


# The expected SLA while sessions run

PLAN = SessionPlan(
    {}, "g1", "local", "local", 1, 1, 1, False, 1, 1, 1, 1, 1, 1, Estimate(412.0, 371.0, 470.0), 0.0,
    slots=4,
    start_s=2.0,
    stage_s={"session": 32.0, "hash_bucket": 60.0, "dedupe": 90.0, "materialize": 230.0},
)  # fmt: skip


def progress(stage: str, done: int, tasks: int, completed: int = 0, rounds: int = 1) -> Progress:
    return Progress(stage, completed, rounds, done, tasks)


def test_a_session_that_has_done_nothing_is_expected_as_planned() -> None:
    assert refine(PLAN, Progress(), 0.0) == PLAN.expected
    late = refine(PLAN, Progress(), 1_000.0)
    assert late.seconds > 1_412, "it is late before it has begun"


def test_stages_that_are_over_and_tasks_that_are_done_count() -> None:
    assert share_done(PLAN, progress("hash_bucket", 0, 4)) == pytest.approx(16 / 412)
    assert share_done(PLAN, progress("dedupe", 2, 4)) == pytest.approx((16 + 60 + 45) / 412)
    assert share_done(PLAN, progress("materialize", 5, 5)) == pytest.approx((16 + 60 + 90 + 230) / 412)
    in_rounds = [share_done(PLAN, progress("dedupe", 2, 4, completed, 3)) for completed in (0, 1, 2)]
    assert in_rounds == pytest.approx([(16 + 20 + 15) / 412, (16 + 40 + 45) / 412, (16 + 60 + 75) / 412])


def test_a_slower_session_is_expected_to_stay_slower() -> None:
    at_half = progress("materialize", 10, 40)
    share = share_done(PLAN, at_half)
    as_planned = refine(PLAN, at_half, share * 412)
    assert as_planned.seconds == pytest.approx(412)
    slower = refine(PLAN, at_half, 2 * share * 412)
    assert 412 + share * 412 < slower.seconds < 2 * 412
    assert (slower.high_s - slower.low_s) < PLAN.expected.high_s - PLAN.expected.low_s + 60
    assert refine(PLAN, progress("materialize", 40, 40), 500.0).seconds == pytest.approx(500 + 16, rel=0.02)


@given(
    st.sampled_from([*STAGES, ""]), st.integers(0, 50), st.integers(0, 50), st.integers(0, 9), st.integers(0, 9),
    st.floats(0, 1e6),
)  # fmt: skip
def test_a_session_never_ends_before_now(
    stage: str, done: int, tasks: int, number: int, rounds: int, elapsed_s: float
) -> None:
    found = refine(PLAN, progress(stage, done, tasks, number, rounds), elapsed_s)
    assert elapsed_s <= found.low_s <= found.seconds <= found.high_s


@given(st.integers(0, 39), st.floats(1, 1e4))
def test_more_tasks_done_never_make_the_end_later(done: int, elapsed_s: float) -> None:
    before, after = (refine(PLAN, progress("materialize", count, 40), elapsed_s) for count in (done, done + 1))
    assert after.seconds <= before.seconds + 1e-9


def test_a_job_run_is_expected_as_long_as_the_last_of_its_groups() -> None:
    def of(seconds: float) -> Estimate:
        return Estimate(seconds, 0.9 * seconds, 1.2 * seconds)

    assert expect_job_run([of(30), of(50)], [], 2).seconds == 50
    two_at_once = expect_job_run([of(30), of(50)], [of(40), of(5)], 2, elapsed_s=100.0)
    assert two_at_once.seconds == 100 + 70, "the first waits for 30 s and takes 40, the other one fits beside it"
    assert two_at_once.low_s == pytest.approx(100 + 63) and two_at_once.high_s == pytest.approx(100 + 84)
    assert expect_job_run([], [of(40), of(5)], 9).seconds == 40
    assert expect_job_run([], [], 4, elapsed_s=7.0).seconds == 7.0
    assert expect_job_run([of(5)], [of(1)], 2, others=[of(30)]).seconds == 6, "others' ends are not ours"
    assert expect_job_run([], [of(1)], 2, others=[of(30), of(40)]).seconds == 31


def test_a_group_takes_its_start_and_its_sessions_one_after_another() -> None:
    assert group_estimate([PLAN, PLAN]) == Estimate(826.0, 744.0, 942.0)
    assert makespan([10, 1, 1, 1], 2) == 10 and makespan([], 4) == 0
    assert makespan([1, 1, 10], 2) == 11, "in the order that is given"
