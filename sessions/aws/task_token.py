"""Sends a dispatcher's heartbeats for the task token of the state machine that launched its node (deploy/aws).

    heartbeat … heartbeat … success      the dispatcher drained: the state machine launches the next one
    heartbeat … silence of 5 minutes     the state machine terminates the node and launches another
    heartbeat -> TaskTimedOut            we were given up: stop, publish nothing, another dispatcher has our place
    suspended for 5 minutes, wakes up    the same, even if the last answer was good

A heartbeat that does not arrive is sent again. A heartbeat that arrives counts from the time when it was sent. After
five minutes without one we know that we were given up, even if no answer reaches us.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from deltacompact.base.wording import one_line
from deltacompact.storage.s3_access import aws_client
from sessions.base.settings import HEARTBEAT_S

logger = logging.getLogger("deltacompact.sessions")

HEARTBEAT_TIMEOUT_S = 300.0
"""After so long without a heartbeat the state machine gives a dispatcher up (deploy/aws/dispatchers.asl.json)."""
_GIVEN_UP = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"})


class TaskToken:
    """Sends heartbeats from a thread of its own until it is answered or lost.

    `on_lost` is called once, from that thread, if the state machine has given this dispatcher up. `late` counts the
    heartbeats that arrived more than one interval after they were due.
    """

    def __init__(
        self,
        token: str,
        on_lost: Callable[[], None],
        *,
        heartbeat_s: float = HEARTBEAT_S,
        timeout_s: float = HEARTBEAT_TIMEOUT_S,
        client: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._on_lost = on_lost
        self._heartbeat_s = heartbeat_s
        self._timeout_s = timeout_s
        self._client = client or aws_client("stepfunctions")
        self._clock = clock
        self._answered = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="task-token", daemon=True)
        self.late = 0
        self.lost = False

    def start(self) -> None:
        self._thread.start()

    def succeed(self) -> None:
        """Report that the dispatcher has ended in order. It is no error if the state machine no longer listens."""
        self._answered.set()
        self._thread.join()
        if self.lost:
            return
        try:
            self._client.send_task_success(taskToken=self._token, output="{}")
        except Exception as error:
            logger.warning("the state machine did not take the end of this dispatcher: %s", one_line(error))

    def _beat(self) -> None:
        heard_s = self._clock()
        wait_s = 0.0  # the node has just booted: the first heartbeat is due
        while not self._answered.wait(wait_s):
            sent_s = self._clock()
            if sent_s - heard_s >= self._timeout_s:  # this process was suspended, or no heartbeat arrived
                self._lose(f"no heartbeat for {sent_s - heard_s:.0f} s")
                return
            try:
                self._client.send_task_heartbeat(taskToken=self._token)
            except Exception as error:
                if _code(error) in _GIVEN_UP:
                    self._lose(one_line(error))
                    return
                logger.warning("a heartbeat to the state machine failed: %s", one_line(error))
                wait_s = self._heartbeat_s / 4
            else:
                now_s = self._clock()
                self.late += now_s - heard_s > 2 * self._heartbeat_s
                heard_s = sent_s  # not now_s: this process may have been suspended before it read the answer
                wait_s = max(0.0, sent_s + self._heartbeat_s - now_s)

    def _lose(self, why: str) -> None:
        self.lost = True
        logger.error("the state machine has given this dispatcher up: %s", why)
        self._on_lost()


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
