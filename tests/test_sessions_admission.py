"""Which groups may start: never more than the budget, nobody for ever last, and the store's clock of the retries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions.base.model import Estimate, SessionPlan
from sessions.dispatch.admission import Admission, Budget, Demand, first_come
from sessions.dispatch.job_run_work import Retries

GIB = 1 << 30


def demand(name, gib, accepted_s=0.0):
    plan = SessionPlan(
        {}, name, "local", "local", 1, 1, 0, False, 1, 1, 1, 0, 1, int(gib * GIB), Estimate(1, 1, 1), cost_usd=0.0
    )
    return Demand("run-1", name, accepted_s, (plan,))


def test_the_longest_accepted_first_and_a_smaller_one_may_pass():
    budget = Budget(2, 16 * GIB)
    a, b, c = demand("a", 10, 1), demand("b", 8, 2), demand("c", 4, 3)
    assert first_come([c, b, a], [], budget) == [a, c]
    assert first_come([b], [a, c], budget) == []
    assert first_come([b], [c], budget) == [b]


def test_what_never_fits_beside_anything_runs_alone():
    budget = Budget(4, 16 * GIB)
    large, small = demand("large", 20, 1), demand("small", 1, 2)
    assert first_come([large, small], [], budget) == [large]
    assert first_come([large], [small], budget) == []
    assert first_come([small], [large], budget) == []


@given(st.lists(st.tuples(st.floats(0.1, 20), st.floats(0, 100)), max_size=12), st.integers(1, 4), st.integers(1, 16))
def test_a_budget_is_never_exceeded_and_everybody_gets_his_turn(asked, sessions_max, gib):
    admission = Admission(Budget(sessions_max, gib * GIB))
    waiting = [demand(str(number), size, at_s) for number, (size, at_s) in enumerate(asked)]
    running: list[Demand] = []
    turns = 0
    while waiting or running:
        turns += 1
        assert turns < 100, "somebody waits for ever"
        for each in waiting:
            if admission.enter(each):
                running.append(each)
        waiting = [each for each in waiting if each not in running]
        assert running and len(running) <= sessions_max and admission.running == len(running)
        assert len(running) == 1 or sum(each.peak_bytes for each in running) <= gib * GIB
        admission.leave(running.pop(0))
    assert (admission.running, admission.waiting) == (0, 0)


def test_retries_wait_longer_each_time_up_to_a_limit():
    retries = Retries(failures_max=9, first_after_s=1, after_max_s=10)
    assert all(0.5 <= retries.after_s(1) <= 1 for _ in range(20))
    assert all(2 <= retries.after_s(3) <= 4 for _ in range(20))
    assert all(5 <= retries.after_s(99) <= 10 for _ in range(20))
