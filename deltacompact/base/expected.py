"""How long a piece of work is expected to take, and what it costs.

25 core-seconds, 8 slots    3.1 s, after 2 s of start: 5.1 s of waiting; at 0.05 USD an hour and core 0.0003 USD
words(0.05)                 5.1 s with start-up on 8 slots, 25.0 core-seconds, 0.0003 USD
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from deltacompact.base.wording import counted


@dataclass(frozen=True, slots=True)
class Expected:
    """Wall-clock seconds on `slots` slots, and core-seconds: of all work, and of each group's own work.

    `start_s`: seconds before, until the first task may run.
    """

    seconds: float
    core_seconds: float
    group_core_seconds: tuple[float, ...]
    slots: int
    start_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """Seconds until the result is there."""
        return self.start_s + self.seconds

    def usd(self, per_core_hour: float) -> float:
        """What the cores cost while they work."""
        return self.core_seconds / 3600 * per_core_hour

    def words(self, usd_per_core_hour: float | None = None) -> str:
        """What somebody waits and, where a price is given, pays."""
        cost = "" if usd_per_core_hour is None else f", {self.usd(usd_per_core_hour):.4f} USD"
        wall = f"{self.wall_s:,.1f} s with start-up on {counted(self.slots, 'slot')}"
        return f"{wall}, {self.core_seconds:,.1f} core-seconds{cost}"

    def document(self, usd_per_core_hour: float | None = None) -> dict[str, Any]:
        """The same as JSON values."""
        cost = {} if usd_per_core_hour is None else {"usd": self.usd(usd_per_core_hour)}
        return dataclasses.asdict(self) | {"wall_s": self.wall_s} | cost
