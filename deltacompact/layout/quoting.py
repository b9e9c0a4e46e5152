"""Names of columns in texts that have commas, stars and brackets of their own: double quotes hold a name together.

day*3,customer            names without any of these need no quotes
"a,b"*2,"5"" wide"        a,b and 5" wide: a quote inside of a name is written twice
"""

from __future__ import annotations

import re
from collections.abc import Iterator

QUOTED = r'"(?:[^"]|"")*"'
_WHOLE = re.compile(QUOTED, re.S)
_PIECES = re.compile(rf"{QUOTED}|.", re.S)


def parts(text: str) -> Iterator[str]:
    """What stands between commas, without blanks around it. Commas inside of quotes or brackets do not count."""
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
    """The name itself."""
    return name[1:-1].replace('""', '"') if _WHOLE.fullmatch(name) else name


def quoted(name: str) -> str:
    """The name as `parts` and stars leave it whole: in quotes where it needs them."""
    plain = name == name.strip() and not set(name) & set(',*"()')
    doubled = name.replace('"', '""')
    return name if plain else f'"{doubled}"'
