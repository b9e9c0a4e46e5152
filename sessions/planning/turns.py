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
from dataclasses import dataclass, replace

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

    @property
    def unbegun(self) -> Turn:
        """The same turn in the order of acceptance alone."""
        return replace(self, begun=False)

    @property
    def rank(self) -> tuple[bool, float, str]:
        """Begun ones go first, then those accepted earlier."""
        return not self.begun, self.accepted_s, self.job_run_id

    def goes_before(self, other: Turn) -> bool:
        """Whether the other job run has to wait for this one."""
        return self.rank < other.rank and self.streams.overlap(other.streams)

    def was_accepted_before(self, other: Turn) -> bool:
        return (self.accepted_s, self.job_run_id) < (other.accepted_s, other.job_run_id)


class Line:
    """Finds who is ahead of a turn by its table and partitions, and not by a look at every other turn."""

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._first: dict[tuple[object, ...], Turn] = {}
        for turn in turns:
            self.add(turn)

    def add(self, turn: Turn) -> None:
        streams = turn.streams
        table = streams.catalog, streams.table_id
        named = (None,) if streams.partitions is None else streams.partitions
        for key in [table, *((*table, partition) for partition in named)]:
            if key not in self._first or turn.rank < self._first[key].rank:
                self._first[key] = turn

    def ahead_of(self, turn: Turn) -> Turn | None:
        """The first of the turns that go before this one. None: it waits for none of them."""
        streams = turn.streams
        table = streams.catalog, streams.table_id
        keys = [table] if streams.partitions is None else [(*table, each) for each in (None, *streams.partitions)]
        found = [self._first[key] for key in keys if key in self._first]
        first = min(found, key=lambda other: other.rank, default=turn)
        return first if first.rank < turn.rank else None


def missing_launchers(run: JobRun, there: Collection[str]) -> list[str]:
    """The launchers that a job run is planned for and that are not in `there`."""
    return sorted(set(run.launchers) - set(there))


def held_up(runs: Iterable[JobRun], launchers: Collection[str]) -> dict[str, Delay]:
    """By id, why nobody works on a job run, in words for people. Leaves out those that are held or could be claimed.

    `launchers` are those of all live dispatchers.
    """
    unended = [run for run in runs if not run.state.ended]
    turns = [Turn.of(run) for run in unended]
    line = Line(turns)
    found = {}
    for turn in turns:
        if (ahead := line.ahead_of(turn)) is not None:
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
