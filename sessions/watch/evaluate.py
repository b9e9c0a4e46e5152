"""Whether a policy submits a partition now: a pure function, and the reason either way.

20 deltas, {deltas = 20}                         submit   deltas             20 deltas, 20 or more are wanted
20 deltas, the last job run still works on it    wait     running            job run run-1 works on it
20 deltas, day=2024-01-02, it is noon of it      wait     not_sealed         its window ends at 2024-01-03 00:00
3 deltas                                         wait     below_thresholds   3 deltas, 20 wanted
no delta since the last compaction               wait     nothing_new
30 delete files in a branch, {delete_files = 20} submit   delete_files       30 delete files, 20 wanted
5.2 files hold a value of those to cluster by    submit   layout_depth       5.2 files hold a value, 3 wanted
a job run compacted this very head before        wait     nothing_new
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from deltacompact.base.wording import counted
from deltacompact.reports.words import moment
from sessions.base.cron import began_s
from sessions.watch.policy import Condition, Policy, Schedule, SealedWindow
from sessions.watch.statistics import Statistics

_COOLDOWN_MAX_S = 24 * 3600.0
_LOOK_BACK_S = 32 * 24 * 3600.0
"""The longest window, and a day."""


class TriggerAction(enum.StrEnum):
    SUBMIT = "submit"
    WAIT = "wait"


class TriggerReason(enum.StrEnum):
    """Why a partition is submitted (the most telling part of the condition), or why it waits (what forbids it)."""

    DELTAS = "deltas"
    DELTA_ROWS = "delta_rows"
    DELTA_BYTES = "delta_bytes"
    DELTA_AGE = "oldest_delta_age"
    AVERAGE_FILE = "average_file_bytes_below"
    DELETE_FILES = "delete_files"
    DELETE_FILE_SHARE = "delete_file_share"
    DEAD_ROW_SHARE = "dead_row_share"
    SMALL_FILES = "small_files"
    NEW_BYTES = "new_bytes"
    COMPACTION_AGE = "compaction_age"
    LAYOUT_GAIN = "layout_gain"
    LAYOUT_DEPTH = "layout_depth"
    FILES = "files"
    IDLE = "idle"
    SCHEDULE = "schedule"
    RUNNING = "running"
    NOTHING_NEW = "nothing_new"
    NOT_SEALED = "not_sealed"
    OUTSIDE_WINDOW = "outside_window"
    ONCE_A_WINDOW = "once_a_window"
    COOLING_DOWN = "cooling_down"
    BELOW_THRESHOLDS = "below_thresholds"


@dataclass(frozen=True, slots=True)
class Decision:
    action: TriggerAction
    reason: TriggerReason
    text: str


@dataclass(frozen=True, slots=True)
class TriggerHistory:
    """What is known of earlier job runs of one partition.

    `running` says what the open job run on the partition does, whoever submitted it. `submitted_s` is when this policy
    last submitted the partition, and `marks` name the last write at that time. `failures` counts job runs that failed
    since one succeeded.
    """

    running: str | None = None
    submitted_s: Mapping[str, float] = field(default_factory=dict)
    failures: int = 0
    marks: Mapping[str, str] = field(default_factory=dict)


def evaluate(policy: Policy, statistics: Statistics, history: TriggerHistory, now_s: float) -> Decision:
    """Decide for one partition. Reasons to wait are checked before reasons to submit."""
    if history.running is not None:
        return _wait(TriggerReason.RUNNING, history.running)
    compacted = history.marks.get(policy.name) if not history.failures else None
    if statistics.is_settled(bool(policy.document.get("purge")), compacted):
        return _wait(TriggerReason.NOTHING_NEW, "nothing was committed since it was compacted")
    window_end_s = sealed_s(policy.sealed, statistics.partition)
    if policy.sealed is not None and window_end_s is not None and now_s < window_end_s + policy.sealed.delay:
        until = moment(window_end_s + policy.sealed.delay)
        return _wait(TriggerReason.NOT_SEALED, f"it may still receive writes until {until}")
    last_s = history.submitted_s.get(policy.name)
    begins_s = None
    if policy.schedule is not None:
        begins_s = window_begin_s(policy.schedule, now_s)
        if begins_s is None:
            return _wait(TriggerReason.OUTSIDE_WINDOW, f"no window of {policy.schedule.cron!r} is open")
        if policy.schedule.once and last_s is not None and begins_s <= last_s < begins_s + policy.schedule.window:
            return _wait(TriggerReason.ONCE_A_WINDOW, f"submitted in the window that began at {moment(begins_s)}")
    cooldown_s = min(policy.cooldown * 2.0 ** min(history.failures, 10), max(_COOLDOWN_MAX_S, policy.cooldown))
    # A time that lies further ahead comes of a clock that was wrong: waiting for it could take years.
    if last_s is not None and abs(now_s - last_s) < cooldown_s:
        failed = f" after {history.failures} failed" if history.failures else ""
        ago_s = max(0.0, now_s - last_s)
        return _wait(TriggerReason.COOLING_DOWN, f"submitted {ago_s:.0f} s ago, every {cooldown_s:.0f} s{failed}")
    if not policy.when:
        assert begins_s is not None
        return Decision(TriggerAction.SUBMIT, TriggerReason.SCHEDULE, f"its window began at {moment(begins_s)}")
    return _by_conditions(policy.when, statistics, window_end_s, now_s)


def sealed_s(sealed: SealedWindow | None, partition: Mapping[str, str | None]) -> float | None:
    """When the window of a partition ends; None if its values name no window: then it may be submitted at any time."""
    values = [partition.get(key) for key in sealed.keys] if sealed is not None else [None]
    if sealed is None or None in values:
        return None
    try:
        begin = datetime.strptime("-".join(str(value) for value in values), sealed.pattern)
        end = _window_end(begin, sealed.window)  # a format with %z tells the zone itself
        return (end if end.tzinfo else end.replace(tzinfo=ZoneInfo(sealed.timezone))).timestamp()
    except (ValueError, OverflowError):
        return None


def _window_end(begin: datetime, window: str) -> datetime:
    match window:
        case "hour":
            return begin + timedelta(hours=1)
        case "day":
            return begin + timedelta(days=1)
        case "month":
            return (begin.replace(day=1) + timedelta(days=32)).replace(day=1)
        case _:
            return begin.replace(year=begin.year + 1, month=1, day=1)


def window_begin_s(schedule: Schedule, now_s: float) -> float | None:
    """When the window that is open now began; None: no window is open. If windows overlap: the latest."""
    begin_s = began_s(schedule.cron, schedule.timezone, now_s)
    return begin_s if begin_s is not None and now_s - begin_s < min(schedule.window, _LOOK_BACK_S) else None


def _by_conditions(
    conditions: list[Condition], statistics: Statistics, window_end_s: float | None, now_s: float
) -> Decision:
    lacking = []
    for condition in conditions:
        measures = _measures_of(condition, statistics, window_end_s, now_s)
        missed = [text for _, holds, text in measures if not holds]
        if not missed:
            return Decision(TriggerAction.SUBMIT, measures[0][0], ", ".join(text for _, _, text in measures))
        lacking.append(missed[0])
    return _wait(TriggerReason.BELOW_THRESHOLDS, "; ".join(dict.fromkeys(lacking)))


def _measures_of(
    condition: Condition, statistics: Statistics, window_end_s: float | None, now_s: float
) -> list[tuple[TriggerReason, bool, str]]:
    """For each measure that a condition names: whether it holds, and the value found against the value wanted."""
    found = statistics.measured(now_s, window_end_s, condition.small_file_bytes)
    measures = [
        (reason, found[reason.value] >= wanted, _least(found[reason.value], wanted, what, whats))
        for reason, (what, whats) in _MEASURED.items()
        if (wanted := getattr(condition, reason.value)) is not None
    ]
    if condition.average_file_bytes_below is not None:
        below, average = condition.average_file_bytes_below, found.get("average_file_bytes_below")
        small = average is not None and average < below
        said = (TriggerReason.AVERAGE_FILE, small, f"{average or 0:,.0f} bytes a file, below {below:,} wanted")
        measures.insert(0, said) if condition.deltas is None else measures.append(said)
    return measures


def _least(found: float, wanted: float, what: str, whats: str) -> str:
    """ "12 deltas, 20 wanted"; "12 % of rows dead, 20 % wanted"; "2.4 files hold a value, 3 wanted" """
    if what.startswith("%"):
        return f"{found:.1%}{what[1:]}, {wanted:.1%} wanted"
    if what.startswith("#"):
        return f"{found:,.1f}{what[1:]}, {wanted:g} wanted"
    return f"{counted(round(found), what, whats)}, {wanted:,.0f} wanted"


_SINCE_DELTA, _SINCE_FILE = "s since the oldest delta", "s since the last file"
_SINCE_COMPACTION = "s since the last compaction"
_FILE_SHARE, _ROW_SHARE = "% of files hold deletes", "% of rows are deleted"
_DEPTH, _GAIN = "# files hold a value", "# times what clustering costs would be saved"
_MEASURED: Mapping[TriggerReason, tuple[str, str]] = {
    TriggerReason.DELTAS: ("delta", "deltas"),
    TriggerReason.DELTA_ROWS: ("delta row", "delta rows"),
    TriggerReason.DELTA_BYTES: ("delta byte", "delta bytes"),
    TriggerReason.DELTA_AGE: (_SINCE_DELTA, _SINCE_DELTA),
    TriggerReason.DELETE_FILES: ("delete file", "delete files"),
    TriggerReason.DELETE_FILE_SHARE: (_FILE_SHARE, _FILE_SHARE),
    TriggerReason.DEAD_ROW_SHARE: (_ROW_SHARE, _ROW_SHARE),
    TriggerReason.SMALL_FILES: ("small file", "small files"),
    TriggerReason.NEW_BYTES: ("new byte", "new bytes"),
    TriggerReason.COMPACTION_AGE: (_SINCE_COMPACTION, _SINCE_COMPACTION),
    TriggerReason.LAYOUT_GAIN: (_GAIN, _GAIN),
    TriggerReason.LAYOUT_DEPTH: (_DEPTH, _DEPTH),
    TriggerReason.FILES: ("file", "files"),
    TriggerReason.IDLE: (_SINCE_FILE, _SINCE_FILE),
}
"""What has to be reached, and how it is said. The word of a reason is the field of a condition that asks for it."""


def _wait(reason: TriggerReason, text: str) -> Decision:
    return Decision(TriggerAction.WAIT, reason, text)
