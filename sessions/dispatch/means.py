"""The means of a dispatcher for its job runs: planner, launcher, admission, rates, settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sessions.base.clock import StoreClock
from sessions.base.model import SessionPlan
from sessions.base.settings import DispatcherSettings
from sessions.base.troubles import RetryPolicy
from sessions.dispatch.admission import Admission
from sessions.dispatch.showing import ShowingPlaces
from sessions.documents.instruction import Instruction
from sessions.launchers.launchers import Launchers
from sessions.planning.learning import RateStore
from sessions.planning.starts import StartStore

Plan = Callable[[Instruction, bool], tuple[SessionPlan, ...]]
"""Plans the sessions of a document, with patience or without, see Planner."""


@dataclass(slots=True)
class Stopping:
    """How a dispatcher ends: `gently` launches nothing more, `now` terminates running groups."""

    gently: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Means:
    """Planner, launcher, admission, learned rates and start times, settings, the signal to stop, the clock, and the
    places of publications that are brought up to date.
    """

    plan: Plan
    launcher: Launchers
    admission: Admission
    rates: RateStore
    starts: StartStore
    settings: DispatcherSettings
    stopping: Stopping = field(default_factory=Stopping)
    clock: StoreClock = field(default_factory=StoreClock)
    showing: ShowingPlaces = field(default_factory=ShowingPlaces)

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(self.settings.give_up_after_s, self.settings.tries)
