"""The open job runs: which of them a dispatcher claims now, and which it leaves alone for a while.

orders-1    another dispatcher's lease ends in 40 s       left alone until then
orders-2    the same stream, accepted after orders-1      left alone until orders-1 has ended; read every 30 s: it
                                                          may have been cancelled
items-7     nobody works on it                            claimed: its epoch is ours
items-8     has ended, and its mark was left behind       the mark is removed
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import CorruptionError, DeltaCompactError, NotFoundError
from deltacompact.base.partitions import side_by_side
from sessions.base.model import JobRun
from sessions.base.settings import READ_AT_ONCE
from sessions.base.troubles import left_s, trouble_text
from sessions.dispatch.means import Means
from sessions.planning.turns import Line, Turn, missing_launchers
from sessions.records.leases import HeldJobRun, Stillness, claim, free_in_s, is_free
from sessions.records.state_store import BORN_WITHIN_S, OpenMark, StateStore

_LOG = logging.getLogger("sessions")
_LOOK_AGAIN_S = 30.0
"""A job run that waits for another one, or that cannot be read, is left alone for this time."""
_SOON_S = 1.0
_MISSING_FOR_S = 30.0
_LOOK_FOR_CANCELLING_S = 30.0
_SEEN_BY_ALL_S = 5.0
"""So long after we have seen a mark, no dispatcher begins a job run by a listing in which it was not."""
_READ_MAX = 160
"""How many job runs are read before they are remembered."""


@dataclass(frozen=True, slots=True)
class _KnownTurn:
    """A job run as it was read at a time by the monotonic clock. Its streams and acceptance stay for a life.

    may_wait    it has neither ended nor is being cancelled
    """

    turn: Turn
    may_wait: bool
    at_s: float


class OpenJobRuns:
    """What one dispatcher knows of the open job runs.

    `ids` are those of the last listing, the oldest first. `behind` has, by id, the job run that one waits for.
    """

    def __init__(self, owner: str, state: StateStore, means: Means) -> None:
        self.ids: tuple[str, ...] = ()
        self.behind: dict[str, str] = {}
        self._owner = owner
        self._state = state
        self._means = means
        self._marks: list[OpenMark] = []
        self._known: dict[OpenMark, _KnownTurn] = {}
        self._line = Line()  # in the order of acceptance
        self._seen_s: dict[OpenMark, float] = {}
        self._told: set[str] = set()
        self._busy_until_s: dict[str, float] = {}
        self._stillness = Stillness()

    @property
    def next_s(self) -> float:
        """When the first of those that are left alone may be looked at again, by the monotonic clock."""
        return min(self._busy_until_s.values(), default=math.inf)

    def leave(self, job_run_id: str, for_s: float) -> None:
        """Leave a job run alone for a while: other dispatchers may be able to work on it."""
        self._busy_until_s[job_run_id] = time.monotonic() + for_s

    def unheld(self, held: Container[str]) -> Iterator[OpenMark]:
        """Open job runs, the oldest first, without those that another dispatcher was seen to work on a moment ago, and
        those that wait for an earlier job run of the same stream. `held`: the ids of ours."""
        marks = self._marks = self._state.open_job_runs()
        self.ids = tuple(mark.job_run_id for mark in marks)
        open_ids = set(self.ids)
        self._keep(marks)
        now_s = time.monotonic()
        self._seen_s = {mark: self._seen_s.get(mark, now_s) for mark in marks}
        self._told &= open_ids
        self._stillness.keep(open_ids)
        self._busy_until_s = {name: at_s for name, at_s in self._busy_until_s.items() if name in open_ids}
        self._look_at_once(
            [name for name, ahead in self.behind.items() if name not in open_ids or ahead not in open_ids]
        )
        self._read_waiting([mark for mark in marks if mark.job_run_id not in held])
        for mark in marks:
            busy_until_s = self._busy_until_s.get(mark.job_run_id, 0.0)
            if mark.job_run_id not in held and time.monotonic() >= busy_until_s:
                yield mark

    def claimed(self, mark: OpenMark, now_s: float) -> HeldJobRun | None:
        """Claim the job run of a mark. None: somebody works on it, it must wait, or it has ended, and its mark is gone.

        `now_s`: the store's time, or less.
        """
        job_run_id = mark.job_run_id
        if self._still_waits(mark):
            return None
        try:
            stored = self._state.job_run(job_run_id)
        except NotFoundError:  # it is being accepted: the mark comes before the record
            self._forget([mark])
            return None
        except CorruptionError as error:  # logged once; another version may be able to read it
            self._forget([mark])
            self._state.leave_out(job_run_id, error)
            self.leave(job_run_id, _LOOK_AGAIN_S)
            return None
        if stored.value.state.ended:
            self._close(mark, stored.value, now_s)
            return None
        self._know(mark, stored.value)
        still_s = self._stillness.of_s(stored)
        if not is_free(stored, now_s, still_s):
            self.leave(job_run_id, max(_SOON_S, free_in_s(stored, now_s, still_s)))
            return None
        if self._waits(mark, stored.value):
            return None
        held = claim(self._state, stored, self._owner, self._means.settings.lease_s, now_s, still_s)
        if held is not None:
            self._told.discard(job_run_id)
            self.behind.pop(job_run_id, None)
            _LOG.info("job run %s claimed, epoch %s", job_run_id, held.epoch)
        return held

    def _close(self, mark: OpenMark, run: JobRun, now_s: float) -> None:
        """Remove a mark that was left behind. The mark of a new life is put a moment before its record: it stays."""
        if mark.life <= run.life:
            self._state.close(run)
        elif now_s - mark.accepted_s > BORN_WITHIN_S:
            self._state.close_unborn(mark)
        else:
            self.leave(run.id, _SOON_S)

    def _waits(self, mark: OpenMark, run: JobRun) -> bool:
        """Whether the job run must wait: for its time, for a launcher, or for its turn. A cancelled one never waits."""
        if run.cancelling:
            return False
        if run.trouble is not None and (wait_s := left_s(run.trouble, self._means.clock())) > 0:
            self._pass_over(run.id, min(wait_s, _LOOK_FOR_CANCELLING_S), trouble_text(run.trouble))
            return True
        if missing := missing_launchers(run, self._means.launcher.names):
            self._pass_over(run.id, _MISSING_FOR_S, f"it is planned for {', '.join(missing)}, which is not here")
            return True
        if (ahead := self._ahead_of(mark, Turn.of(run))) is not None:
            self._wait_behind(run.id, ahead, _LOOK_FOR_CANCELLING_S)
            return True
        return False

    def _still_waits(self, mark: OpenMark) -> bool:
        """Whether a job run that was read a moment ago waits for another one, whoever of those ahead has ended."""
        known = self._known.get(mark)
        left_s = 0.0 if known is None else known.at_s + _LOOK_FOR_CANCELLING_S - time.monotonic()
        if known is None or not known.may_wait or left_s <= 0:
            return False
        if (ahead := self._known_ahead_of(known.turn)) is None:
            return False
        self._wait_behind(mark.job_run_id, ahead, left_s)
        return True

    def _wait_behind(self, job_run_id: str, ahead: str, for_s: float) -> None:
        self.behind[job_run_id] = ahead
        self._pass_over(job_run_id, for_s, f"{ahead} works on the same stream, or was accepted before it")

    def _pass_over(self, job_run_id: str, for_s: float, why: str) -> None:
        self.leave(job_run_id, for_s)
        if job_run_id not in self._told:
            self._told.add(job_run_id)
            _LOG.info("job run %s waits: %s", job_run_id, why)

    def _known_ahead_of(self, turn: Turn) -> str | None:
        """An open job run that was accepted before this one, which has not begun, and must end before it may."""
        ahead = None if turn.begun else self._line.ahead_of(turn)
        return None if ahead is None else ahead.job_run_id

    def _ahead_of(self, mark: OpenMark, turn: Turn) -> str | None:
        """The open job run that must end before this one may begin. None: there is none."""
        unknown = {other for other in self._marks if other not in self._known and other != mark}
        now = self._read([*unknown])
        if (ahead := self._known_ahead_of(turn)) is not None:
            return ahead
        before = [other for other in self._known if other not in unknown and other != mark]
        now += self._read([other for other in before if self._may_go_before(self._known[other], mark, turn)])
        return next((other.job_run_id for other in now if other.goes_before(turn)), None)

    def _may_go_before(self, known: _KnownTurn, mark: OpenMark, turn: Turn) -> bool:
        """Whether a job run that was read before may go before this one by now. One that was accepted later does only
        if it has begun by a listing in which this one was not."""
        if not known.turn.streams.overlap(turn.streams):
            return False
        if not turn.was_accepted_before(known.turn):
            return True
        seen_by_all_s = self._seen_s.get(mark, math.inf) + _SEEN_BY_ALL_S
        return not turn.begun and (known.turn.begun or known.at_s < seen_by_all_s)

    def _read_waiting(self, marks: Sequence[OpenMark]) -> None:
        """Read those again, side by side, that still wait, but were read too long ago: they may be cancelled."""
        before_s = time.monotonic() - _LOOK_FOR_CANCELLING_S
        known = [(mark, self._known[mark]) for mark in marks if mark in self._known]
        waiting = [mark for mark, read in known if read.at_s <= before_s and self._known_ahead_of(read.turn)]
        with contextlib.suppress(DeltaCompactError):  # who claims one meets the error again
            self._read(waiting)

    def _read(self, marks: Sequence[OpenMark]) -> list[Turn]:
        """The turns of these job runs, read now. Those that are being accepted, or are damaged, are left out."""
        turns = []
        for start in range(0, len(marks), _READ_MAX):
            some = marks[start : start + _READ_MAX]
            found = list(zip(some, side_by_side(some, self._run_of, READ_AT_ONCE), strict=True))
            self._forget([mark for mark, run in found if run is None])
            turns += [self._know(mark, run) for mark, run in found if run is not None]
        return turns

    def _run_of(self, mark: OpenMark) -> JobRun | None:
        with contextlib.suppress(NotFoundError, CorruptionError):
            return self._state.job_run(mark.job_run_id).value
        return None

    def _know(self, mark: OpenMark, run: JobRun) -> Turn:
        """Remember a job run for its life: the mark of a life comes before its record."""
        turn = Turn.of(run)
        if run.life == mark.life:
            self._known[mark] = _KnownTurn(turn, not (run.cancelling or run.state.ended), time.monotonic())
            self._line.add(turn.unbegun)
        return turn

    def _keep(self, marks: Iterable[OpenMark]) -> None:
        """Forget all other job runs."""
        self._known = {mark: self._known[mark] for mark in marks if mark in self._known}
        self._line = Line(known.turn.unbegun for known in self._known.values())

    def _forget(self, marks: Sequence[OpenMark]) -> None:
        """Forget job runs whose records are gone or damaged: nobody waits for them until they can be read again."""
        if not self._known.keys().isdisjoint(marks):
            self._keep(self._known.keys() - {*marks})
        lost = {mark.job_run_id for mark in marks}
        self._look_at_once([name for name, ahead in self.behind.items() if ahead in lost])

    def _look_at_once(self, waiting: Sequence[str]) -> None:
        """The turn of these may have come."""
        for name in waiting:
            del self.behind[name]
            self._busy_until_s.pop(name, None)
