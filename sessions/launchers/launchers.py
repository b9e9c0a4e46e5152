"""The launchers of a dispatcher, behind one protocol: each group goes to the launcher that its plan names.

    launch(run-1.3.g1.1, "local")          a process of this machine, at once
    launch(run-1.3.g2.1, "ray_cluster")    a cluster: it takes minutes, so a thread does it; status says running
    launch(run-1.3.g3.1, "ray_cluster")    a second cluster, at the same time
    status(run-1.3.g2.1)                   what it was when a thread last asked, some seconds ago

If a cluster cannot be brought up, its group has ended. A cluster's status is asked for every 15 s: each question is a
command or a request, and the progress of sessions is in the records. If the backend does not know the status, it is
asked again, less and less often; after ten minutes the status is unknown.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

from deltacompact.base.wording import one_line
from sessions.base.troubles import Cause
from sessions.launchers.launcher import GroupSpec, GroupState, GroupStatus, Launcher

_LOG = logging.getLogger("sessions")
_POLL_S = 15.0
_POLL_MAX_S = 120.0
_UNKNOWN_FOR_S = 600.0
"""For this time, a group of unknown status counts as running: its records show whether it works."""
_CLUSTERS_AT_ONCE = 64
"""Clusters that are brought up side by side. More wait for their turn, as they would at the provider."""
_QUESTIONS_AT_ONCE = 16
_FAILED = 1


class Launchers:
    """Launchers by the names that plans use. Raises KeyError for a launcher that this dispatcher does not have.

    `ready` returns when this machine can launch. The wait for that is not part of a job run. `part_with_log` is told
    the id of a group that was terminated, and whether its log was copied. The log of a cluster went with it.
    """

    def __init__(
        self,
        by_name: Mapping[str, Launcher],
        ready: Callable[[], None] = lambda: None,
        part_with_log: Callable[[str, bool], None] = lambda group_id, is_copied: None,
    ) -> None:
        self._by_name = by_name
        self.ready = ready
        self.part_with_log = part_with_log
        self._of_group: dict[str, Launcher] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._by_name))

    def launch(self, spec: GroupSpec) -> None:
        launcher = self._by_name[spec.launcher]
        launcher.launch(spec)
        self._of_group[spec.id] = launcher

    def status(self, group_id: str) -> GroupStatus:
        launcher = self._of_group.get(group_id)
        return GroupStatus(GroupState.UNKNOWN) if launcher is None else launcher.status(group_id)

    def logs(self, group_id: str) -> str:
        launcher = self._of_group.get(group_id)
        return "" if launcher is None else launcher.logs(group_id)

    def terminate(self, group_id: str) -> None:
        if (launcher := self._of_group.get(group_id)) is not None:
            launcher.terminate(group_id)
            del self._of_group[group_id]

    def close(self) -> None:
        for launcher in self._by_name.values():
            launcher.close()


@dataclass(slots=True)
class _LastAnswer:
    """The last known status of a group, when the backend last knew it, and when it was last asked.

    `question`: the latest one. It may be on its way for a minute.
    """

    status: GroupStatus
    known_s: float
    asked_s: float
    every_s: float = _POLL_S
    question: Future[None] | None = None


class InBackground:
    """A launcher of clusters whose `launch` and `status` never block: threads launch and ask.

    `logs` and `terminate` take as long as the backend does. `asking` runs the questions.
    """

    def __init__(
        self, inner: Launcher, clock: Callable[[], float] = time.monotonic, asking: Executor | None = None
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._threads = ThreadPoolExecutor(_CLUSTERS_AT_ONCE, thread_name_prefix="launch")
        self._asking = asking or ThreadPoolExecutor(_QUESTIONS_AT_ONCE, thread_name_prefix="ask")
        self._launching: dict[str, Future[None]] = {}
        self._told: dict[str, _LastAnswer] = {}
        self._lock = threading.Lock()

    def launch(self, spec: GroupSpec) -> None:
        with self._lock:
            if spec.id not in self._launching:
                self._launching[spec.id] = self._threads.submit(self._inner.launch, spec)

    def status(self, group_id: str) -> GroupStatus:
        """The last known status. If the backend does not answer, the group runs, as far as we know."""
        launching = self._launching.get(group_id)
        if launching is not None and not launching.done():
            return GroupStatus(GroupState.RUNNING, text="it is being launched")
        if launching is not None and (error := launching.exception()) is not None:
            return GroupStatus(GroupState.ENDED, _FAILED, one_line(error), Cause.LAUNCH)
        told = self._told.setdefault(group_id, _LastAnswer(GroupStatus(GroupState.RUNNING), self._clock(), -_POLL_S))
        is_on_its_way = told.question is not None and not told.question.done()
        is_due = told.status.state is not GroupState.ENDED and self._clock() - told.asked_s >= told.every_s
        if is_due and not is_on_its_way:
            told.question = self._asking.submit(self._ask, group_id, told)
        return told.status

    def _ask(self, group_id: str, told: _LastAnswer) -> None:
        """Ask the backend. If it does not know the status, it is asked again: it may know later."""
        try:
            found = self._inner.status(group_id)
        except Exception as error:
            found = GroupStatus(GroupState.UNKNOWN, text=one_line(error))
        told.asked_s = self._clock()
        if found.state is not GroupState.UNKNOWN:
            told.status, told.known_s, told.every_s = found, told.asked_s, _POLL_S
            return
        _LOG.warning("nobody knows how %s is: %s", group_id, found.text)
        told.every_s = min(_POLL_MAX_S, 2 * told.every_s)
        if told.asked_s - told.known_s >= _UNKNOWN_FOR_S:
            told.status = GroupStatus(GroupState.UNKNOWN, text=found.text, cause=Cause.UNREACHABLE)

    def logs(self, group_id: str) -> str:
        return self._inner.logs(group_id)

    def terminate(self, group_id: str) -> None:
        """Terminate the group. A launch ends first: otherwise nobody would own half a cluster."""
        launching = self._launching.get(group_id)
        if launching is not None and not launching.cancel():
            with contextlib.suppress(Exception):
                launching.result()
            self._inner.terminate(group_id)
        self._launching.pop(group_id, None)
        self._told.pop(group_id, None)

    def close(self) -> None:
        self._asking.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._inner.close()
