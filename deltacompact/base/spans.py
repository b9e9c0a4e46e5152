"""Spans of time, as people write them.

span_s("90m") -> 5400.0       span_s("1.5d") -> 129600.0       span_s("250ms") -> 0.25       span_s("soon") -> None
"""

from __future__ import annotations

import re

_SPAN = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?)\s*(?P<unit>ms|s|m|h|d|w)")
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def span_s(text: str) -> float | None:
    """The seconds of a span; None for a text that is no span."""
    found = _SPAN.fullmatch(text)
    return float(found["number"]) * _UNITS_S[found["unit"]] if found else None
