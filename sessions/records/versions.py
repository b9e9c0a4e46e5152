"""One version of a record, and the bytes that hold it.

{"written": ["9f3a…", "5c5c…"], "number": 7, "value": {…}}     put as 9f3a…, it replaced 5c5c…
{"written": ["9f3a…", "5c5c…"], "record": {…}}                 the same as a numbered object, whose name has the number

Each put has a name of its own. A writer whose reply was lost, or whose version was replaced already, reads in the
newest version whether its own put is among the former ones.
"""

from __future__ import annotations

import json
import math
import uuid
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import CorruptionError

_REMEMBERED = 32
"""How many earlier puts a version names. If more versions come between a writer's put and its look, the writer cannot
tell whether its put won."""
READABLE_BEFORE = "record"
"""The key of values that the former release can read."""
NEW = "value"
"""The key of values that the former release must not touch: it takes the object for damaged, and leaves it alone."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a record. `modified_s` is when it was put, by the store's clock; infinity: we put it just now.

    `written` names this put and the puts of earlier versions, the latest first. `etag` is the object's ETag if the
    record is one object; None if each version is an object.
    """

    folder: str
    number: int
    modified_s: float
    value: Any
    written: tuple[str, ...]
    etag: str | None = None


def next_written(before: tuple[str, ...]) -> tuple[str, ...]:
    return (uuid.uuid4().hex[:16], *before)[:_REMEMBERED]


def to_bytes(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _finite(number: str) -> float:
    """A number of JSON. NaN, Infinity and 1e999 are none: no page and no document could hold the record."""
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is no number of JSON")
    return value


def of_bytes(data: bytes, uri: str) -> tuple[Any, tuple[str, ...], int]:
    """Value, names of puts, and number, which is 0 where the bytes do not say it. Raises CorruptionError."""
    try:
        document = json.loads(data, parse_float=_finite, parse_constant=_finite)
        value = document[NEW] if NEW in document else document[READABLE_BEFORE]
        return value, tuple(document["written"]), int(document.get("number", 0))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise CorruptionError(f"{uri} is damaged") from None
