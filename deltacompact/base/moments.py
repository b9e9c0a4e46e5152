"""Moments as people write them. Without a zone they are UTC.

"2026-11-22"                       2026-11-22 00:00 UTC
"2026-11-22 09:10:03.512"          2026-11-22 09:10:03.512 UTC
"2026-11-22T09:10:00+02:00"        2026-11-22 07:10 UTC
"3", "1-50a3…", "77574975692"      None: the name of a version, or of a snapshot
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from deltacompact.base.errors import InputError

TIME_FORMAT = "a time is written like 2026-11-22 or '2026-11-22 09:10:03'"
_DATED = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(_DATED.pattern + r"(?:[Tt ].*)?")
"""Python takes any sign before the time: 2026-11-22+02:00 were two o'clock."""


def moment_of(text: str | datetime) -> datetime | None:
    """The moment that a text names; None: the text is no date.

    Raises InputError for a date that no calendar has, and for what is neither text nor time.
    """
    if isinstance(text, datetime):
        try:
            return zoned(text).astimezone(UTC)
        except OverflowError:
            raise InputError(f"{text} is no time that UTC has: write one of the years 1 to 9999") from None
    if not isinstance(text, str):
        raise InputError(f"{text!r} names no version and no time: write it as a string")
    if not _DATED.match(text):
        return None
    try:
        if not _MOMENT.fullmatch(text):
            raise ValueError
        return moment_of(datetime.fromisoformat(text))
    except ValueError:
        raise InputError(f"{text!r} is no time: write it like 2026-11-22 or 2026-11-22T09:10:03+00:00") from None


def zoned(moment: datetime) -> datetime:
    """The moment with its zone; without one it is of UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def milliseconds_of(moment: datetime) -> int:
    """Milliseconds since the epoch, as commits note their times."""
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def moment_at(milliseconds: float) -> datetime:
    """The moment of a commit's milliseconds. Raises InputError if it lies beyond the calendar."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        raise InputError(f"{milliseconds} ms since 1970 is no time that a calendar has") from None


def spelled(moment: datetime) -> str:
    """The moment as text, to the millisecond, in a form that `moment_of` reads."""
    return moment.astimezone(UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")
