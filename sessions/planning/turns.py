"""Which job runs may begin: one at a time on a stream, in the order that they were accepted in. Pure.

    run-1   orders, all partitions      accepted 10:00, runs
    run-2   orders, day=2024-01-01      accepted 10:01                    waits for run-1, which works on its stream
    run-3   visits                      accepted 10:02                    begins
    run-4   orders                      accepted  9:59 by another clock   waits for run-1, which has begun

Two that fold one stream at a time would do the same work twice, and one of them would publish nothing. A job run that
has to wait is not claimed and not planned: when its turn comes, it is planned by what is there then.

A job run is also left alone by dispatchers that do not have the launchers which its sessions are planned for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sessions.base.model import Delay, JobRun, JobRunState
from sessions.documents.streams import NamedStreams
from sessions.planning.reasons import Wait
from sessions.records.leases import NOBODY


@dataclass(frozen=True, slots=True)
class Turn:
    """A job run that has not ended, as far as others wait for it."""

    job_run_id: str
    accepted_s: float
    begun: bool
    streams: NamedStreams

    @classmethod
    def of(cls, run: JobRun) -> Turn:
        return cls(
            run.id, run.accepted_s, _is_held(run) or run.state is JobRunState.RUNNING, NamedStreams.of(run.document)
        )

    def goes_before(self, other: Turn) -> bool:
        """Whether the other one has to wait for this one: those that have begun first, then by acceptance."""
        first = self.begun if self.begun != other.begun else self.was_accepted_before(other)
        return first and self.streams.overlap(other.streams)

    def was_accepted_before(self, other: Turn) -> bool:
        return (self.accepted_s, self.job_run_id) < (other.accepted_s, other.job_run_id)


def missing_launchers(run: JobRun, there: Collection[str]) -> list[str]:
    """The launchers that sessions of a job run are planned for, and that no dispatcher has."""
    return sorted(set(run.launchers) - set(there))


def held_up(runs: Iterable[JobRun], launchers: Collection[str]) -> dict[str, Delay]:
    """Why nobody works on job runs, for people, by their ids: without those that somebody holds, or may at any moment.

    `launchers` are those of all dispatchers that are there.
    """
    unended = [run for run in runs if not run.state.ended]
    of_table: dict[tuple[object, str], list[Turn]] = {}
    for turn in sorted(map(Turn.of, unended), key=lambda turn: (not turn.begun, turn.accepted_s, turn.job_run_id)):
        of_table.setdefault((turn.streams.catalog, turn.streams.table_id), []).append(turn)
    found = {}
    for turns in of_table.values():
        for place, turn in enumerate(turns):
            if ahead := next((other for other in turns[:place] if other.goes_before(turn)), None):
                text = f"{ahead.job_run_id} works on the same stream, or was accepted before it"
                found[turn.job_run_id] = Delay(Wait.STREAM, text)
    for run in unended:
        if missing := missing_launchers(run, launchers):
            text = f"it is planned for {', '.join(missing)}, which no dispatcher here has"
            found.setdefault(run.id, Delay(Wait.LAUNCHER, text))
    return {run.id: found[run.id] for run in unended if run.id in found and not _is_held(run)}


def _is_held(run: JobRun) -> bool:
    """Whether a dispatcher holds the job run. That dispatcher may have died."""
    return run.lease is not None and run.lease.owner != NOBODY
