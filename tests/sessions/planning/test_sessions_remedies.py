"""What is said of a desired SLA that cannot be promised, before anything starts: and what would keep it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sessions_records import job_run

from deltacompact.planning.sizing import task_memory
from deltacompact.planning.statistics import IndexStatistics, PartitionStatistics
from sessions.base.model import Estimate, JobRun
from sessions.events.due import events_of_job_run
from sessions.events.event import EventType
from sessions.overview.overview import JobRunSeen
from sessions.page import documents
from sessions.planning.choices import nearest_sla_s
from sessions.planning.plan import plan_job_run
from sessions.planning.prices import offers_here
from sessions.planning.reasons import PlanReason
from sessions.planning.remedies import PARTITIONS_MAX, cpus_needed, larger, not_promised, plan_with_remedy
from sessions.planning.situation import Situation, Wish

HERE = Situation(offers_here(2, 24 * task_memory.GIB)[:1], {}, sessions_max=2)
LARGE = PartitionStatistics(
    "orders", {"day": "1"}, (10**7,) * 8, 8 * 10**8, base_rows=10**8, base_bytes=10**10,
    index=IndexStatistics(64, (10**8,), 10**8),
)  # fmt: skip


def test_so_many_cpus_would_keep_it_and_half_as_many_would_not() -> None:
    (alone,) = plan_job_run([LARGE], Wish(), HERE)
    wish = Wish(alone.expected.promise_s / 5)
    plans = plan_with_remedy([LARGE], wish, HERE)
    needed = cpus_needed(plans)
    assert nearest_sla_s(plans) is not None and needed is not None and needed in (16, 32, 64)
    assert nearest_sla_s(plan_job_run([LARGE], wish, larger(HERE, needed // 2))) is None
    assert nearest_sla_s(plan_job_run([LARGE], wish, larger(HERE, needed // 4))) is not None
    (choice,) = [choice for choice in plans[0].choices if choice.reason == PlanReason.MORE_CPUS]
    assert choice.text == f"{needed} CPUs would keep {wish.desired_sla_s:,.0f} s; there are 2"


def test_where_more_cpus_do_not_help_only_the_time_is_told() -> None:
    plans = plan_with_remedy([LARGE], Wish(0.2), HERE)  # less than a process takes to start
    assert nearest_sla_s(plans) is not None and cpus_needed(plans) is None


def test_what_can_be_promised_needs_no_remedy_and_many_partitions_are_planned_once() -> None:
    assert cpus_needed(plan_with_remedy([LARGE], Wish(10**6), HERE)) is None
    assert cpus_needed(plan_with_remedy([LARGE], Wish(), HERE)) is None
    many = plan_with_remedy([LARGE] * (PARTITIONS_MAX + 1), Wish(60.0), HERE)
    assert nearest_sla_s(many) is not None and cpus_needed(many) is None


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        (None, "the desired SLA of 600 s cannot be promised: the nearest that can is 750 s"),
        (16, "the desired SLA of 600 s cannot be promised: the nearest that can is 750 s, or 16 CPUs would keep it"),
    ],
)
def test_one_line_says_it(cpus: int | None, text: str) -> None:
    assert not_promised(600, 750.0, cpus) == text


def late(**changes: object) -> JobRun:
    promised = Estimate(412.0, 371.0, 453.0, 0.0, 738.0)
    return replace(job_run(nearest_sla_s=750.0, cpus_needed=16, expected_first=promised), **changes)  # type: ignore[arg-type]


def test_an_event_and_the_page_say_it() -> None:
    (event,) = [event for event in events_of_job_run(late()) if event.type is EventType.SLA_NOT_PROMISED]
    assert event.data | {"table": None} == {
        "table": None, "desired_sla_s": 600, "promise_s": 738.0, "nearest_sla_s": 750.0, "cpus_needed": 16,
    }  # fmt: skip
    shown = documents.job_run(JobRunSeen(late(), ()))
    assert (shown["nearest_s"], shown["cpus_needed"], shown["first"][3]) == (750.0, 16, 738.0)
    assert not [event for event in events_of_job_run(job_run()) if event.type is EventType.SLA_NOT_PROMISED]
