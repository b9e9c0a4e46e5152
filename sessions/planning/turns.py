"""Which job runs may begin: one at a time on each stream, in the order in which they were accepted. Pure.

    run-1   orders, all partitions      accepted 10:00, runs
    run-2   orders, day=2024-01-01      accepted 10:01                    waits for run-1, which works on its stream
    run-3   visits                      accepted 10:02                    begins
    run-4   orders                      accepted  9:59 by another clock   waits for run-1, which has begun

If two job runs folded one stream at the same time, they would do the same work twice, and one of them would publish
nothing. A job run that waits is neither claimed nor planned: it is planned when its turn comes.

A dispatcher also leaves a job run alone if it lacks a launcher that the job run's sessions are planned for.
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
    """A job run that has not ended: what decides whether others wait for it."""

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
        """Whether the other job run has to wait for this one: begun ones go first, then those accepted earlier."""
        first = self.begun if self.begun != other.begun else self.was_accepted_before(other)
        return first and self.streams.overlap(other.streams)

    def was_accepted_before(self, other: Turn) -> bool:
        return (self.accepted_s, self.job_run_id) < (other.accepted_s, other.job_run_id)


def missing_launchers(run: JobRun, there: Collection[str]) -> list[str]:
    """The launchers that a job run is planned for and that are not in `there`."""
    return sorted(set(run.launchers) - set(there))


def held_up(runs: Iterable[JobRun], launchers: Collection[str]) -> dict[str, Delay]:
    """By id, why nobody works on a job run, in words for people. Leaves out those that are held or could be claimed.

    `launchers` are those of all live dispatchers.
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
