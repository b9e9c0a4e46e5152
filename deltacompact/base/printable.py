"""Text of others in lines for people: names of partitions, files and columns may hold any character.

named({"day": "1995-04-03"})      day=1995-04-03
named({"day": "1\\n2\\x1b[2J"})     day=1\\n2\\x1b[2J       what would move the cursor is spelled out
printable("a\\x07\\nb")             a\\x07\\nb               one line, or a cell of a table
printable("a\\x07\\nb", LINES)      a\\x07, a line break, b
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LINES = "\n\t"
"""What stays in texts of several lines."""
_MOVES = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves the cursor of a terminal, clears it, turns the direction of what follows, or is no text in UTF-8."""


def printable(text: str, kept: str = "") -> str:
    """The text with such characters spelled out. Those in `kept` stay."""

    def spelled_out(found: re.Match[str]) -> str:
        return found[0] if found[0] in kept else found[0].encode("unicode_escape").decode()

    return _MOVES.sub(spelled_out, text)


def named(partition: Mapping[str, str | None]) -> str:
    """A partition by its values, as a path names it, in one line."""
    name = "/".join(f"{name}={'null' if value is None else value}" for name, value in partition.items()) or "(all)"
    return printable(name)
