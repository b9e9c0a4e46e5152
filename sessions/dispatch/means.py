"""What a dispatcher works with, on every job run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sessions.base.clock import StoreClock
from sessions.base.model import SessionPlan
from sessions.base.settings import DispatcherSettings
from sessions.base.troubles import RetryPolicy
from sessions.dispatch.admission import Admission
from sessions.documents.instruction import Instruction
from sessions.launchers.chosen import Launchers
from sessions.planning.learning import RateStore
from sessions.planning.starts import StartStore

Plan = Callable[[Instruction], tuple[SessionPlan, ...]]
"""What the sessions of a document are to run on. Raises NotFoundError, InputError where that cannot be served."""


@dataclass(slots=True)
class Stopping:
    """How a dispatcher ends: `gently` launches nothing more, `now` terminates what runs."""

    gently: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Means:
    """Who plans, launches, admits and learns; by which settings; and how the dispatcher is told to end."""

    plan: Plan
    launcher: Launchers
    admission: Admission
    rates: RateStore
    starts: StartStore
    settings: DispatcherSettings
    stopping: Stopping = field(default_factory=Stopping)
    clock: StoreClock = field(default_factory=StoreClock)

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(self.settings.give_up_after_s, self.settings.tries)
