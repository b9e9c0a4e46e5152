"""The parts of a refusal's text: the path of a field, and a value, short and in one line.

path_of(("partitions", 3, "day", "str"), document)      partitions[3].day     "str" is pydantic's, not a field
path_of(("a\\nb",), document)                            ["a\\nb"]
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from deltacompact.base.expect import is_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SHOWN_CHARACTERS_MAX = 60
_LARGEST = sys.float_info.max


def path_of(location: Sequence[int | str], document: Any) -> str:
    """The path to a place in a document, without steps that are no part of the document.

    A first step that the document lacks is a field that is missing or unknown. Any other one is pydantic's.
    """
    path, here = "", document
    for depth, step in enumerate(location):
        if isinstance(step, int) and isinstance(here, list):
            path += f"[{step}]"
            here = here[step] if step < len(here) else None
        elif isinstance(step, str) and isinstance(here, dict) and (step in here or depth == 0):
            if step == "[key]":  # pydantic's: the name itself is wrong
                continue
            if _NAME.fullmatch(step):
                path += f".{step}" if path else step
            else:
                path += f"[{short_json(step)}]"
            here = here.get(step)
    return path


def short_json(value: Any) -> str:
    """A JSON value in one short line of ASCII."""
    if isinstance(value, list | dict) and value:
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, str):
        value = value[: _SHOWN_CHARACTERS_MAX + 1]  # a hostile text may be very long
    said = json.dumps(value, default=str)
    return said if len(said) <= _SHOWN_CHARACTERS_MAX else said[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def no_such_field(name: str, known: Iterable[str]) -> str:
    """The line for an unknown field. It names the known field that may have been meant."""
    nearest = difflib.get_close_matches(name, known, 1)
    return f"no such field; did you mean {nearest[0]!r}?" if nearest else "no such field"


def no_text_in(document: Any) -> tuple[int | str, ...] | None:
    """The path of a string, or of a field whose name is a string, that UTF-8 cannot encode; None: there is none."""
    return next(
        (place for place, value in _everything_in(document) if isinstance(value, str) and not is_text(value)), None
    )


def no_number_in(document: Any) -> tuple[int | str, ...] | None:
    """The path of a number like 1e999, or of one with 400 digits, which is infinite as a float; None: there is none."""
    numbers = ((place, value) for place, value in _everything_in(document) if isinstance(value, int | float))
    return next((place for place, value in numbers if abs(value) > _LARGEST), None)


def _everything_in(document: Any) -> Iterator[tuple[tuple[int | str, ...], Any]]:
    """Every value and every name, with its path. Without recursion, so a deep document cannot exhaust the stack."""
    waiting: list[tuple[tuple[int | str, ...], Any]] = [((), document)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            yield from (((*place, name), name) for name in value)
            waiting += [((*place, name), part) for name, part in value.items()]
        elif isinstance(value, list):
            waiting += [((*place, number), part) for number, part in enumerate(value)]
        else:
            yield place, value
