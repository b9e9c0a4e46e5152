"""Tokens: a producer names its commit, and sends it again until it hears that the commit has landed."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import INT64_MAX


@dataclass(frozen=True, slots=True)
class Token:
    """Identifies a commit, so that sending the commit again has no effect.

    Token("nightly")     a name; no character in it has a meaning
    Token("etl", 7)      batch 7 of a producer that counts upwards

    `joined` marks a token that release 0.1 wrote as one text, which may mean either form: see log/tokens.py.
    """

    name: str
    sequence: int | None = None
    joined: bool = False

    @classmethod
    def of(cls, value: Token | str | Sequence[Any] | None) -> Token | None:
        """Accept "name", ("producer", 7) or a Token. Raises InputError for anything else."""
        if value is None or isinstance(value, cls):
            return value
        name, sequence = (value, None) if isinstance(value, str) else _pair(value)
        if not isinstance(name, str):
            raise InputError(f'token {value!r} is neither a text nor a pair like ("producer", 7)')
        if not 0 < len(name) <= _TOKEN_CHARACTERS_MAX or not expect.is_text(name):
            raise InputError(f"token {name[:40]!r} is not a text of 1 to {_TOKEN_CHARACTERS_MAX:,} characters")
        if sequence is None:
            return cls(name)
        number = whole_number(sequence)
        if number is None or not 0 <= number <= INT64_MAX:
            raise InputError(f"token {name!r}: the sequence number {sequence!r} is not a whole number from 0 on")
        return cls(name, number)

    def __str__(self) -> str:
        return repr(self.name) if self.sequence is None else f"{self.name!r} sequence {self.sequence}"


TokenLike = Token | str | tuple[str, int] | None
"""A token in the API: a name, or a producer and the number of its batch."""


def _pair(value: Any) -> tuple[Any, Any]:
    """Producer and sequence number; (None, None) if the value is not a pair."""
    pair = tuple(value) if isinstance(value, list | tuple) else ()
    return (pair[0], pair[1]) if len(pair) == 2 and pair[1] is not None else (None, None)


_TOKEN_CHARACTERS_MAX = 1000


def whole_number(value: Any) -> int | None:
    """The value as an int if it is a whole number (NumPy's too, but not True or 1.0), else None."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None
