"""A fingerprint: how many rows there are, and the sum of the hashes of their values (`tabular/fingerprint.py`).

file a    2 rows    0c…51        a + b = the table, in any order
file b    1 row     f4…07        the table now - the table then = rows that a change feed adds - rows that it removes
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deltacompact.base.notebooks import UsersWords

_MODULUS = 1 << 128
_TEXT = re.compile(r"(\d+):([0-9a-f]{32})")


@dataclass(frozen=True, slots=True, repr=False)
class Fingerprint(UsersWords):
    """A multiset of rows. Parts add up, in any order."""

    _inside = ("certain",)

    rows: int = 0
    total: int = 0
    """Below 2^128."""

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.total + other.total) % _MODULUS)

    def __sub__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows - other.rows, (self.total - other.total) % _MODULUS)

    def __repr__(self) -> str:
        return f"Fingerprint.of_text('{self}')"

    def __str__(self) -> str:
        """The form in logs and summaries: "2:00f3…", the sum in 32 hexadecimal digits."""
        return f"{self.rows}:{self.total:032x}"

    @classmethod
    def of_text(cls, text: str | None) -> Fingerprint | None:
        """The fingerprint that the text spells. None: there is no text, or another release wrote another form."""
        found = _TEXT.fullmatch(text or "")
        return None if found is None else cls(int(found[1]), int(found[2], 16))

    @classmethod
    def certain(cls, text: str | None) -> Fingerprint | None:
        """As `of_text`, but raises ValueError for a text that is no fingerprint: stored bytes are damaged."""
        found = cls.of_text(text)
        if text is not None and found is None:
            raise ValueError(f"the fingerprint is {text[:60]!r}, which is none: it is damaged")
        return found
