"""Next steps for an operator: late and failed job runs, dead letters and silent dispatchers, with command lines.

run-7, orders     expected 240 s after its desired SLA; it waits for memory     status …, job-runs cancel …
run-5, visits     failed: StoreError: …                                         status …, job-runs retry …
the queue         2 dead letters                                                dlq list …, dlq redrive …
host-7.4711.1f    silent for 3 h; it held 2 job runs                            nothing: others take them over

A failed job run is left out if a later job run has the same document: it was asked for again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deltacompact.base.wording import counted
from sessions.base.model import JobRunState
from sessions.base.troubles import span
from sessions.overview.adherence import outturn_of
from sessions.overview.overview import JobRunSeen, Overview

OF_A_KIND_MAX = 20
"""The most steps of one kind (failed, late, silent), the latest first."""
_FAILED_WITHIN_S = 7 * 24 * 3600.0
_PROGRAM = "deltacompact-sessions"


@dataclass(frozen=True, slots=True)
class Places:
    """The URIs of state, queue and dead letters, for command lines. A page may not know the queue."""

    state: str
    queue: str | None = None
    dead_letters: str | None = None

    @property
    def for_dead_letters(self) -> tuple[str, ...]:
        return () if self.dead_letters is None else ("--dead-letters", self.dead_letters)

    def command(self, *words: str) -> str:
        return shlex.join([_PROGRAM, *words])


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `about`: the job run (with `job_run_id`), dispatcher, or queue. `commands`: to type, the best first."""

    about: str
    text: str
    commands: tuple[str, ...] = ()
    job_run_id: str | None = None


def next_steps(overview: Overview, places: Places) -> list[Step]:
    return [
        *_of_dispatchers(overview, places),
        *_late(overview, places),
        *_failed(overview, places),
        *_dead_letters(overview, places),
    ]


def _of_dispatchers(overview: Overview, places: Places) -> Iterator[Step]:
    there = overview.dispatchers_there
    open_runs = sum(not seen.run.state.ended for seen in overview.job_runs)
    messages = overview.depth.ready if overview.depth is not None else 0
    waiting = [counted(count, what) for count, what in ((open_runs, "job run"), (messages, "message")) if count]
    if waiting and not there:
        commands = _dispatch(overview, places)
        how = "" if commands else ": start a dispatcher, with the --allow that their documents need"
        yield Step("no dispatcher", f"{', '.join(waiting)} and nobody to work on them{how}", commands)
    silent = [report for report in overview.dispatchers if report not in there]
    for report in silent[:OF_A_KIND_MAX]:
        held = len(report.dispatcher.job_run_ids)
        took = f"; it held {counted(held, 'job run')}, which another dispatcher takes over" if held else ""
        who = f"process {report.dispatcher.pid} on {report.dispatcher.host}"
        yield Step(report.dispatcher.owner, f"{who} has been silent for {span(report.silent_s(overview.at_s))}{took}")


def _dispatch(overview: Overview, places: Places) -> tuple[str, ...]:
    """The command that starts a dispatcher like the last one. None if nobody knows what that one allowed: with less,
    documents become dead letters; with more, they may name any catalog."""
    last = max(overview.dispatchers, key=lambda report: report.modified_s, default=None)
    if last is None or last.dispatcher.allow is None:
        return ()
    allowed = [word for prefix in last.dispatcher.allow for word in ("--allow", prefix)]
    queue = places.queue or last.dispatcher.queue
    return (places.command("dispatch", "--queue", queue, *places.for_dead_letters, "--state", places.state, *allowed),)


def _late(overview: Overview, places: Places) -> Iterator[Step]:
    found = [(seen, outturn_of(seen, overview.at_s).slack_s) for seen in overview.job_runs]
    late = [(seen, slack_s) for seen, slack_s in found if slack_s is not None and slack_s < 0]
    delays = overview.delays
    for seen, slack_s in late[:OF_A_KIND_MAX]:
        name = seen.run.id
        why = f"; it waits: {delays[name].text}" if name in delays else ""
        more = f"; {seen.run.cpus_needed:,} CPUs would keep it" if seen.run.cpus_needed else ""
        text = f"{seen.table} is expected {span(-slack_s)} after its desired SLA{why}{more}"
        yield Step(name, text, (_status(places, name), _of_run(places, "cancel", name)), name)


def _failed(overview: Overview, places: Places) -> Iterator[Step]:
    asked: list[dict[str, Any]] = []
    steps = []
    for seen in overview.job_runs:  # the latest accepted comes first
        wanted = _document_without_id(seen)
        if seen.run.state is JobRunState.FAILED and wanted not in asked:
            ago_s = overview.at_s - (seen.run.finished_s or seen.run.accepted_s)
            if ago_s < _FAILED_WITHIN_S:
                steps.append(seen)
        asked.append(wanted)
    for seen in steps[:OF_A_KIND_MAX]:
        name = seen.run.id
        text = f"{seen.table} has failed: {seen.run.error or 'it does not say why'}"
        yield Step(name, text, (_of_run(places, "retry", name), _status(places, name)), name)


def _document_without_id(seen: JobRunSeen) -> dict[str, Any]:
    """The document of a job run without its id."""
    return {key: value for key, value in seen.run.document.items() if key != "job_run_id"}


def _dead_letters(overview: Overview, places: Places) -> Iterator[Step]:
    if overview.depth is not None and overview.depth.dead and places.queue is not None:
        where = ("--queue", places.queue, *places.for_dead_letters)
        commands = [places.command("dlq", what, *where) for what in ("list", "redrive")]
        yield Step(
            "the queue", f"{counted(overview.depth.dead, 'dead letter')} that can never be served", tuple(commands)
        )


def _status(places: Places, name: str) -> str:
    return places.command("status", "--state", places.state, "--job-run", name)


def _of_run(places: Places, what: str, name: str) -> str:
    return places.command("job-runs", what, "--state", places.state, name)
