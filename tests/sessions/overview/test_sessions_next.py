"""What somebody may do now: of which job runs, dispatchers and queues, and that the commands are ours."""

from __future__ import annotations

import shlex
from dataclasses import replace

import click
import pytest
from sessions_records import NOW_S, job_run

from sessions.base.model import DispatcherSign, JobRunState
from sessions.cli import cli
from sessions.overview.next_steps import OF_A_KIND_MAX, Places, next_steps
from sessions.overview.overview import JobRunSeen, Overview
from sessions.queues.queue import Depth
from sessions.records.state_store import DispatcherReport

PLACES = Places("s3://lake/job runs", "https://sqs.eu-west-1.amazonaws.com/1/jobs")
HERE = DispatcherReport(DispatcherSign("host-7.1.aa", "host-7", 1, NOW_S, NOW_S, "q", 4), NOW_S)


def overview(*runs, dispatchers=(HERE,), at_s=NOW_S + 30, depth=None):
    return Overview(at_s, tuple(JobRunSeen(run, ()) for run in runs), tuple(dispatchers), depth)


def failed(name, **changes):
    return job_run(name, state=JobRunState.FAILED, error="StoreError: SlowDown", finished_s=NOW_S + 20, **changes)


def test_nothing_is_asked_of_anybody_while_all_goes_well():
    done = job_run("run-2", state=JobRunState.SUCCEEDED, finished_s=NOW_S + 20)
    assert next_steps(overview(job_run(), done, depth=Depth(3, 1, 0)), PLACES) == []


def test_each_trouble_has_its_commands():
    silent = DispatcherReport(DispatcherSign("host-8.2.bb", "host-8", 2, NOW_S, NOW_S, "q", 4, ("run-1",)), NOW_S)
    there = replace(HERE, modified_s=NOW_S + 9_000)
    late, gone = job_run("run-late"), failed("run-gone", document={"source_table_id": "visits"})
    found = next_steps(
        overview(late, gone, dispatchers=(there, silent), at_s=NOW_S + 9_000, depth=Depth(0, 0, 2)), PLACES
    )
    assert [step.about for step in found] == ["host-8.2.bb", "run-late", "run-gone", "the queue"]
    assert "silent for 2 h; it held 1 job run, which another dispatcher takes over" in found[0].text
    assert "orders is expected 2 h after its desired SLA" in found[1].text
    assert found[2].text == "visits has failed: StoreError: SlowDown"
    verbs = [[" ".join(shlex.split(line)[1:3]) for line in step.commands] for step in found]
    assert verbs[0] == [] and verbs[1][1] == "job-runs cancel" and verbs[2][0] == "job-runs retry"
    assert verbs[3] == ["dlq list", "dlq redrive"]


def test_where_nobody_is_at_work_the_first_thing_is_a_dispatcher():
    (step, *_) = next_steps(overview(job_run(), dispatchers=()), PLACES)
    assert step.about == "no dispatcher" and step.commands == (), "nobody knows what it has to allow"
    assert next_steps(overview(dispatchers=()), PLACES) == [], "nothing waits"
    assert next_steps(overview(depth=Depth(0, 0, 1)), Places("/state")) == []
    (step, *_) = next_steps(overview(job_run(), dispatchers=(), depth=Depth(2, 0, 0)), PLACES)
    assert step.text.startswith("1 job run, 2 messages and nobody to work on them: start a dispatcher, with")
    (step,) = next_steps(overview(dispatchers=(), depth=Depth(1, 0, 0)), PLACES)
    assert step.text.startswith("1 message and nobody to work on them")


@pytest.mark.parametrize(
    ("allow", "said"),
    [
        (None, None),
        ((), ""),
        (("iceberg://prod", "/srv/my lake"), " --allow iceberg://prod --allow '/srv/my lake'"),
    ],
)
def test_the_next_dispatcher_allows_what_the_last_one_did(allow, said):
    """Without --allow, every iceberg:// document would become a dead letter."""
    old = replace(HERE, dispatcher=replace(HERE.dispatcher, allow=("s3://old",)))
    last = DispatcherReport(replace(HERE.dispatcher, owner="host-7.2.bb", allow=allow), NOW_S + 60)
    (step, *_) = next_steps(overview(job_run(), dispatchers=(old, last), at_s=NOW_S + 600), Places("/state"))
    line = f"deltacompact-sessions dispatch --queue q --state /state{said}"
    assert step.about == "no dispatcher" and step.commands == (() if said is None else (line,))


def test_a_dead_letter_queue_that_was_named_is_in_every_command_that_needs_it():
    places = replace(PLACES, dead_letters="https://sqs.eu-west-1.amazonaws.com/1/dead")
    (step,) = next_steps(overview(depth=Depth(0, 0, 1)), places)
    assert [shlex.split(line)[-2:] for line in step.commands] == [["--dead-letters", places.dead_letters]] * 2


def test_what_was_asked_for_again_needs_nobody():
    again = job_run("run-2", document=failed("run-1").document | {"job_run_id": "run-2"}, accepted_s=NOW_S + 25)
    assert next_steps(overview(again, failed("run-1")), PLACES) == []
    other = job_run("run-3", document={"source_table_id": "visits"})
    assert [step.about for step in next_steps(overview(other, failed("run-1")), PLACES)] == ["run-1"]
    assert next_steps(overview(failed("run-1"), dispatchers=(), at_s=NOW_S + 8 * 86400), PLACES) == [], "a week ago"


def test_they_stay_few():
    many = [failed(f"run-{number}", document={"source_table_id": f"t{number}"}) for number in range(500)]
    assert len(next_steps(overview(*many), PLACES)) == OF_A_KIND_MAX


def test_a_job_run_that_is_late_says_what_it_waits_for():
    waiting = job_run(
        "run-2", started_s=None, expected=None, state=JobRunState.ACCEPTED, lease=None, accepted_s=NOW_S + 1
    )
    found = overview(waiting, job_run(), dispatchers=(replace(HERE, modified_s=NOW_S + 700),), at_s=NOW_S + 700)
    assert "; it waits: run-1 works on the same stream" in next_steps(found, PLACES)[0].text


@pytest.mark.parametrize("state", ["s3://lake/job runs", "/srv/it's"])
def test_every_command_is_one_of_ours(state):
    places = Places(state, "/srv/queue 1", "https://sqs/dead")
    gone = failed("run-2", document={})
    last = replace(HERE, dispatcher=replace(HERE.dispatcher, allow=("/srv/lake",)))
    silent = overview(job_run(), gone, dispatchers=(last,), at_s=NOW_S + 9_000, depth=Depth(0, 0, 1))
    lines = [line for step in next_steps(silent, places) for line in step.commands]
    assert len(lines) == 1 + 2 + 2 + 2
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "deltacompact-sessions"
        command = cli
        while isinstance(command, click.Group):
            name, *words = words
            command = command.get_command(click.Context(command), name)
        given = command.make_context(name, words).params  # raises UsageError for what the command does not know
        assert state in given.values() or "/srv/queue 1" in given.values()
