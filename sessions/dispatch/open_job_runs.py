"""The open job runs: which of them a dispatcher claims now, and which it leaves alone for a while.

orders-1    another dispatcher's lease ends in 40 s       left alone until then
orders-2    the same stream, accepted after orders-1      left alone for 30 s, or until orders-1 has ended
items-7     nobody works on it                            claimed: its epoch is ours
items-8     has ended, and its mark was left behind       the mark is removed
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Container, Iterator

from deltacompact.base.errors import CorruptionError, NotFoundError
from sessions.base.model import JobRun
from sessions.base.troubles import left_s, trouble_text
from sessions.dispatch.means import Means
from sessions.planning.turns import Turn, missing_launchers
from sessions.records.leases import HeldJobRun, Stillness, claim, free_in_s, is_free
from sessions.records.state_store import OpenMark, StateStore

_LOG = logging.getLogger("sessions")
_LOOK_AGAIN_S = 30.0
"""A job run that waits for another one, or that cannot be read, is left alone for this time."""
_SOON_S = 1.0
_BORN_WITHIN_S = 3600.0
_MISSING_FOR_S = 30.0
_LOOK_FOR_CANCELLING_S = 30.0


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
        self._turns: dict[OpenMark, Turn] = {}
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
        self._turns = {mark: self._turns[mark] for mark in marks if mark in self._turns}
        self._told &= open_ids
        self._stillness.keep(open_ids)
        self._busy_until_s = {name: at_s for name, at_s in self._busy_until_s.items() if name in open_ids}
        for name, ahead in list(self.behind.items()):
            if name not in open_ids or ahead not in open_ids:
                del self.behind[name]
                self._busy_until_s.pop(name, None)  # its turn has come
        for mark in marks:
            busy_until_s = self._busy_until_s.get(mark.job_run_id, 0.0)
            if mark.job_run_id not in held and time.monotonic() >= busy_until_s:
                yield mark

    def claimed(self, mark: OpenMark, now_s: float) -> HeldJobRun | None:
        """Claim the job run of a mark. None: somebody works on it, it must wait, or it has ended, and its mark is gone.

        `now_s`: the store's time, or less.
        """
        job_run_id = mark.job_run_id
        try:
            stored = self._state.job_run(job_run_id)
        except NotFoundError:
            return None  # it is being accepted: the mark comes before the record
        except CorruptionError as error:  # logged once; another version may be able to read it
            self._state.leave_out(job_run_id, error)
            self.leave(job_run_id, _LOOK_AGAIN_S)
            return None
        if stored.value.state.ended:
            self._close(mark, stored.value, now_s)
            return None
        still_s = self._stillness.of_s(stored)
        if not is_free(stored, now_s, still_s):
            self.leave(job_run_id, max(_SOON_S, free_in_s(stored, now_s, still_s)))
            return None
        if self._waits(stored.value):
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
        elif now_s - mark.accepted_s > _BORN_WITHIN_S:
            self._state.close_unborn(mark, run)
        else:
            self.leave(run.id, _SOON_S)

    def _waits(self, run: JobRun) -> bool:
        """Whether the job run must wait: for its time, for a launcher, or for its turn. A cancelled one never waits."""
        if run.cancelling:
            return False
        if run.trouble is not None and (wait_s := left_s(run.trouble, self._means.clock())) > 0:
            self._pass_over(run.id, min(wait_s, _LOOK_FOR_CANCELLING_S), trouble_text(run.trouble))
            return True
        if missing := missing_launchers(run, self._means.launcher.names):
            self._pass_over(run.id, _MISSING_FOR_S, f"it is planned for {', '.join(missing)}, which is not here")
            return True
        if (ahead := self._ahead_of(run)) is not None:
            self.behind[run.id] = ahead
            self._pass_over(run.id, _LOOK_AGAIN_S, f"{ahead} works on the same stream, or was accepted before it")
            return True
        return False

    def _pass_over(self, job_run_id: str, for_s: float, why: str) -> None:
        self.leave(job_run_id, for_s)
        if job_run_id not in self._told:
            self._told.add(job_run_id)
            _LOG.info("job run %s waits: %s", job_run_id, why)

    def _ahead_of(self, run: JobRun) -> str | None:
        """The open job run that must end before this one may begin. None: there is none."""
        turn = Turn.of(run)
        for mark in self._marks:
            if mark.job_run_id == run.id:
                continue
            with contextlib.suppress(NotFoundError, CorruptionError):  # it is being accepted, or is damaged
                other = self._turns.get(mark) or self._turn(mark)
                if not other.streams.overlap(turn.streams):
                    continue
                # Its streams and acceptance stay for a life. If it matters whether it has begun, read that again.
                if not turn.begun and other.was_accepted_before(turn):
                    return mark.job_run_id
                if self._turn(mark).goes_before(turn):
                    return mark.job_run_id
        return None

    def _turn(self, mark: OpenMark) -> Turn:
        """The turn of a job run, read now. It is remembered for its life; the mark comes before the record."""
        run = self._state.job_run(mark.job_run_id).value
        turn = Turn.of(run)
        if run.life == mark.life:
            self._turns[mark] = turn
        return turn
