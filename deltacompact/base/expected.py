"""How long something is expected to take, and what it costs.

25 core-seconds, 8 slots    3.1 s, after 2 s of start: 5.1 s of waiting; at 0.05 USD an hour and core 0.0004 USD
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """Wall-clock seconds on so many slots, and seconds of one core: of all, and of what each group has by itself.

    `start_s` come before, until the first task may run.
    """

    seconds: float
    core_seconds: float
    group_core_seconds: tuple[float, ...]
    slots: int
    start_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """What somebody waits."""
        return self.start_s + self.seconds

    def usd(self, per_core_hour: float) -> float:
        """What the cores cost while they work."""
        return self.core_seconds / 3600 * per_core_hour
