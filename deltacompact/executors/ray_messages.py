"""What Ray says of its cluster while tasks run, in one line each: nobody needs to import ray to read it.

A worker died or was killed … Worker IP address: 10.0.0.7 … PID: 839 …    a Ray worker died (process 839 of 10.0.0.7): …
Task _run failed. There are 3 retries remaining … Error:                  None: the message of the worker has told it
Task _run failed. … Error: the node … is dead                             Ray repeats a task: the node … is dead
1 Workers (tasks / actors) killed due to memory pressure (OOM), …         Ray: 1 Workers (tasks / actors) killed …
"""

from __future__ import annotations

import re

from deltacompact.base.wording import text_of

_TEXT_MAX = 200
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DEAD_WORKER = re.compile(r"A worker died .*Worker IP address: (\S+) .*Worker PID: (\d+)")
_REPEATED = re.compile(r"Task \S+ failed\. .*so the task will be retried\. Error: ?(.*)")


def in_one_line(message: str) -> str | None:
    """The message in short, without colours. None: another message tells the same."""
    text = text_of(_COLOUR.sub("", message))
    if dead := _DEAD_WORKER.match(text):
        return f"a Ray worker died (process {dead[2]} of {dead[1]}): its task runs again if task_retries allows it"
    if repeated := _REPEATED.fullmatch(text):
        return f"Ray repeats a task: {repeated[1][:_TEXT_MAX]}" if repeated[1] else None
    return f"Ray: {text[:_TEXT_MAX]}"
