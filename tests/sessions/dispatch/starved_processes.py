"""A launcher at work for long, and a dispatcher on a machine that has nothing left, each in a process of its own."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

import psutil

from sessions.base import troubles
from sessions.base.logs import log_json
from sessions.base.settings import DispatcherSettings
from sessions.cli.dispatch import dispatcher_of
from sessions.launchers.launcher import GroupSpec, GroupState
from sessions.launchers.local import LocalLauncher
from sessions.planning.planner import Planner

STARVED_TIMES = 12


def impatient():
    """Whatever failed is tried again at once, however often."""
    troubles.RetryPolicy.wait_s = lambda self, tries: 0.2


def spec(number):
    name = f"run-{number}.1.g1.1.1"
    return GroupSpec(name, "s", "r", "g", 1, "local", "local", "local", 1, 1, 0)


def counted():
    own = psutil.Process()
    server = own.children()
    return own.num_fds(), threading.active_count(), len(server), len(own.children(recursive=True))


def soak(folder, rounds):
    """Eight groups at a time, in a process that may open 64 files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    launcher = LocalLauncher(Path(folder), int)  # int("state", …) raises: what each group does is nothing
    launcher.ready()
    before = None
    for first in range(0, 8 * rounds, 8):
        numbers = range(first, first + 8)
        for number in numbers:
            launcher.launch(spec(number))
        for number in numbers:
            while launcher.status(spec(number).id).state is GroupState.RUNNING:
                time.sleep(0.001)
            launcher.terminate(spec(number).id)
            assert launcher.status(spec(number).id).state is GroupState.UNKNOWN
        before = before or counted()
    assert counted() == before, (before, counted())
    assert not launcher._groups and not launcher._dying
    launcher.close()
    return 0


def starved(queue, state):
    """A dispatcher that may open 96 files, of which another thread takes all that are left, again and again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
    impatient()
    log_json()
    dispatcher = dispatcher_of(queue, state, settings=DispatcherSettings(drain=True, max_sessions=2, lease_s=5))
    planning, starving, plan = threading.Event(), threading.Event(), Planner.__call__

    def starved_plan(planner, *asked):
        planning.set()
        starving.wait()
        return plan(planner, *asked)

    def starve():
        """While job runs are planned, launched and followed; in the end it lets them be."""
        planning.wait()
        for _ in range(STARVED_TIMES):
            taken = []
            try:
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                starving.set()
                time.sleep(0.15)
            for descriptor in taken:
                os.close(descriptor)
            time.sleep(0.1)

    Planner.__call__ = starved_plan
    threading.Thread(target=starve, daemon=True).start()
    dispatcher.run()
    return 0
