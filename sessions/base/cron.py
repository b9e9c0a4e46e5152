"""When the newest window of a cron expression began.

0 2 * * *    Europe/Berlin    25 October, 03:10      02:00 of this day, when clocks were at summer time: 130 minutes ago
0 * * * *    Europe/Berlin    25 October, 02:15 again, clocks were turned back at 03:00      02:00, the second one
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim


def began_s(cron: str, time_zone: str, now_s: float) -> float | None:
    """The latest time that has come of a cron expression, in Unix seconds; None: none has."""
    zone = ZoneInfo(time_zone)
    later_s = 60 + 3600 * datetime.fromtimestamp(now_s, zone).fold  # an hour that comes again has later times before it
    begins = CronSim(cron, datetime.fromtimestamp(now_s + later_s, zone), reverse=True)
    return next((begin_s for begin in begins if (begin_s := begin.timestamp()) <= now_s), None)
