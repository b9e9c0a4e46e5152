"""Launches the groups of a held job run, and follows each one to its end.

g1         waits for admission, is launched, ends: two sessions succeeded, one must be tried again
g1         is launched again after some seconds, under a new attempt
g1         records nothing for minutes: it hangs, is ended, and is tried again
g2         never fits the limits: its sessions fail, and say so
g2         its catalog does not answer: it waits, longer each time, and other groups have its place meanwhile
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import StoreError
from deltacompact.base.wording import counted, one_line
from sessions.base.exits import cause_of_exit
from sessions.base.model import JobRunSession
from sessions.base.troubles import Cause
from sessions.dispatch.asking import asking, each
from sessions.dispatch.delays import Delays
from sessions.dispatch.held_group import HeldGroup
from sessions.dispatch.log_keeper import LogKeeper
from sessions.dispatch.looks import Looks
from sessions.dispatch.means import Means
from sessions.dispatch.retries import Retries
from sessions.launchers.launcher import GroupSpec, GroupState
from sessions.planning.admission import Postponed, WaitingGroup
from sessions.planning.reasons import Wait
from sessions.planning.refine import group_estimate
from sessions.records.leases import HeldJobRun

_LOG = logging.getLogger("sessions")
_KILLED = "its process ended before it did"
_COULD_NOT_GO_ON = "its process could not go on, its log says why"


@dataclass(frozen=True, slots=True)
class _LaunchEnd:
    """How a launch ended, with what passing cause, and how long it took."""

    why: str
    cause: Cause | None
    took_s: float


@dataclass(frozen=True, slots=True)
class GroupWork:
    """The work on the groups of one job run. A group on Ray may wait `ray_wait_s` for its workers."""

    held: HeldJobRun
    means: Means
    looks: Looks
    retries: Retries
    delays: Delays
    ray_wait_s: float

    def taken(self, sessions: Iterable[JobRunSession]) -> list[HeldGroup]:
        """The sessions in groups. Attempts that an earlier epoch launched are fenced off first."""
        sessions = list(sessions)
        groups: dict[str, HeldGroup] = {}
        launched = [session for session in sessions if session.attempt is not None and not session.state.ended]
        taken = {session.id: session for session in [*sessions, *each(launched, self.retries.next)]}
        for session in taken.values():
            assert session.plan is not None
            groups.setdefault(session.plan.group, HeldGroup(session.plan.group, {})).sessions[session.id] = session
        for group in groups.values():
            group.wait_for_trouble(self.means.clock())
        return list(groups.values())

    def start(self, groups: Iterable[HeldGroup]) -> None:
        """Launch those groups that wait for a place and may start now."""
        why = self.means.admission.postponed()
        for group in groups:
            if self.means.stopping.gently.is_set():
                return
            if group.waiting is None:
                continue
            if (postponed := why.get(group.waiting.takes.group)) is not None:
                self._postponed(group, postponed)
            elif group.unended:
                self._start(group, group.waiting)

    def _start(self, group: HeldGroup, waiting: WaitingGroup) -> None:
        postponed = self.means.admission.enter(waiting, group_estimate(group.plans_left))
        if postponed is not None:
            self._postponed(group, postponed)
            return
        group.update(each(group.unnamed(self.held.epoch), self.retries.next))
        if not group.unended or group.unnamed(self.held.epoch):
            self._leave(group)  # all had published already, or an attempt cannot be fenced off
            group.wait_for_trouble(self.means.clock())
            return
        if self.held.run.trouble is not None:
            asking(lambda: self.held.change(trouble=None))
        self._launch(group)

    def _postponed(self, group: HeldGroup, postponed: Postponed) -> None:
        """Record why the group waits. A group that never fits has failed."""
        if postponed.wait is Wait.NEVER_FITS:
            self._leave(group)
            group.update(each(group.unended, lambda session: self.retries.give_up(session, postponed.text)))
        else:
            self.delays.tell(group, postponed)

    def _launch(self, group: HeldGroup) -> None:
        group.launches += 1
        group.used |= {session.attempt for session in group.unended if session.attempt}
        group.launched_sessions = tuple(session.id for session in group.unended)
        spec = self._spec(group)
        group.launched_s, group.silent_s = time.monotonic(), 0.0
        try:
            self.means.launcher.launch(spec)
        except StoreError as error:  # this machine lacks resources for a process: not a failure of a session
            self._leave(group)
            self._tried(group, group.unended, one_line(error), Cause.RESOURCES)
            group.wait_for_trouble(self.means.clock())
            return
        group.launched, group.done_s = spec.id, None
        group.log = LogKeeper(self.held.state, self.means.launcher, spec.id, spec.launcher)
        _LOG.info("%s launched: %s", spec.id, counted(len(group.unended), "session"))

    def follow(self, groups: Iterable[HeldGroup]) -> None:
        """End launched groups that have ended or hang, see what became of their sessions, and when they are tried
        again."""
        ended = [(group, end) for group in groups if (end := self._end_of(group)) is not None]
        self._end_launches(group for group, _ in ended)
        for group, end in ended:
            self._settle(group, end)

    def _end_of(self, group: HeldGroup) -> _LaunchEnd | None:
        """How a launched group has ended. None: it runs."""
        assert group.launched is not None and group.log is not None
        group.log.look()
        status = self.means.launcher.status(group.launched)
        cause = status.cause or cause_of_exit(status.exit_status)
        why = _COULD_NOT_GO_ON if cause and not status.cause else _KILLED
        if status.state is GroupState.RUNNING:
            patience_s = group.patience_s(self.means.settings.stall_s, self.ray_wait_s)
            if group.silent_s <= patience_s and not group.lingers():
                return None
            if group.unended:
                why = f"it recorded nothing for {group.silent_s:,.0f} s, so its process was ended"
                _LOG.warning("%s hangs: %s", group.launched, why)
        else:
            _LOG.info("%s ended with status %s %s", group.launched, status.exit_status, status.text)
            why = (status.text or why) if status.cause else ": ".join(filter(None, (why, status.text)))
        return _LaunchEnd(why, cause, time.monotonic() - group.launched_s)

    def _settle(self, group: HeldGroup, end: _LaunchEnd) -> None:
        """See what became of the sessions of an ended group."""
        self.looks.see(group)
        self.looks.learn(group, end.took_s)
        self._leave(group)
        begun = [session for session in group.unended if session.has_begun]
        self._tried(group, begun or group.unended, end.why, end.cause)
        failures = max((session.failures for session in group.unended), default=0)
        group.not_before_s = time.monotonic() + self.means.policy.wait_s(failures)
        group.wait_for_trouble(self.means.clock())

    def _tried(self, group: HeldGroup, sessions: list[JobRunSession], why: str, cause: Cause | None) -> None:
        """Record a failed try of these sessions."""
        group.update(each(sessions, lambda session: self.retries.after(session, why, cause)))

    def cancel(self, groups: Sequence[HeldGroup]) -> None:
        """End the groups gently, and fence their attempts off. Published versions stay."""
        self._end_launches(groups)
        for group in groups:
            if group.launched is not None:
                self.looks.see(group)
            self._leave(group)
            group.update(each(group.unended, self.retries.cancel))

    def let_go(self, groups: Sequence[HeldGroup]) -> None:
        """End the groups, and give their places to others."""
        self._end_launches(groups)
        for group in groups:
            self._leave(group)

    def _end_launches(self, groups: Iterable[HeldGroup]) -> None:
        """End those that are launched, side by side: the log and the end of a cluster take minutes."""
        each([group for group in groups if group.launched is not None], self._end_launch)

    def _end_launch(self, group: HeldGroup) -> None:
        """Keep the group's log, then terminate its process or cluster."""
        assert group.launched is not None and group.log is not None
        is_copied = group.log.keep()
        try:
            self.means.launcher.terminate(group.launched)
        except StoreError as error:
            _LOG.error("%s may still run, the reaper looks after it: %s", group.launched, one_line(error))
        self.means.launcher.part_with_log(group.launched, is_copied)

    def _leave(self, group: HeldGroup) -> None:
        """Give the group's place to others."""
        if group.waiting is not None:
            self.means.admission.leave(group.waiting.takes.group)
        group.waiting, group.launched = None, None

    def _spec(self, group: HeldGroup) -> GroupSpec:
        plans = group.plans_left
        first = plans[0]
        run_id, epoch = self.held.run.id, self.held.epoch
        return GroupSpec(
            id=f"{run_id}.{epoch}.{group.name}.{group.launches}",
            state_uri=self.held.state.uri,
            job_run_id=run_id,
            group=group.name,
            epoch=epoch,
            executor=first.executor,
            launcher=first.launcher,
            node_type=first.node_type,
            workers_initial=max(plan.workers_initial for plan in plans),
            workers_max=max(plan.workers_max for plan in plans),
            peak_bytes=max(plan.peak_bytes for plan in plans),
        )
