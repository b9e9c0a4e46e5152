"""Text of others in lines for people: names of partitions, files and columns may hold any character.

named({"day": "1995-04-03"})    day=1995-04-03
named({"day": "1\\n2\\x1b[2J"})   day=1\\n2\\x1b[2J          what would move the cursor is spelled out
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_MOVES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What moves the cursor of a terminal, clears it, or turns the direction of what follows."""


def printable(text: str) -> str:
    """The text with such characters spelled out. Line breaks and tabs stay."""
    return _MOVES.sub(_spelled_out, text)


def _spelled_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def named(partition: Mapping[str, str | None]) -> str:
    """A partition by its values, as a path names it, in one line."""
    name = "/".join(f"{name}={'null' if value is None else value}" for name, value in partition.items()) or "(all)"
    return printable(re.sub("[\t\n]", _spelled_out, name))
