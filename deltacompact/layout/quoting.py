"""Quotes names of columns in texts whose commas, stars and brackets have a meaning.

day*3,customer            names without these characters need no quotes
"a,b"*2,"5"" wide"        the columns a,b and 5" wide: a quote inside a name is doubled
"""

from __future__ import annotations

import re
from collections.abc import Iterator

QUOTED = r'"(?:[^"]|"")*"'
_WHOLE = re.compile(QUOTED, re.S)
_PIECES = re.compile(rf"{QUOTED}|.", re.S)


def parts(text: str) -> Iterator[str]:
    """The parts between commas, without blanks around them. Commas inside quotes or brackets do not count."""
    depth, part = 0, ""
    for piece in _PIECES.findall(text):
        depth += (piece == "(") - (piece == ")")
        if piece == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += piece
    yield part.strip()


def unquoted(name: str) -> str:
    """The name without its quotes."""
    return name[1:-1].replace('""', '"') if _WHOLE.fullmatch(name) else name


def quoted(name: str) -> str:
    """The name, in quotes if it needs them."""
    plain = name == name.strip() and not set(name) & set(',*"()')
    doubled = name.replace('"', '""')
    return name if plain else f'"{doubled}"'
