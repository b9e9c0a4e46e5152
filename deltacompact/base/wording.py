"""Numbers, nouns and errors in sentences.

counted(1, "file") -> "1 file"       counted(12_000, "row") -> "12,000 rows"
with_article("integer") -> "an integer"
text_of(OSError("no   route")) -> "no route"       one_line(OSError("no   route")) -> "OSError: no route"
"""

from __future__ import annotations

from typing import Any

from deltacompact.base.errors import DeltaCompactError


def counted(count: int, thing: str, things: str | None = None) -> str:
    """The count and its noun, in the plural where it needs one."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def with_article(noun: str) -> str:
    """ "a string", "an integer"."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def text_of(said: object) -> str:
    """What an error says, or any other text, without line breaks."""
    return " ".join(str(said).split())


def one_line(error: BaseException) -> str:
    """An error of ours in its own words; any other one with its class in front, as its text alone often says little."""
    said = text_of(error)
    if isinstance(error, DeltaCompactError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def error_document(error: BaseException) -> dict[str, Any]:
    """An error for scripts."""
    return {
        "kind": type(error).__name__,
        "message": one_line(error),
        "exit_status": error.exit_status if isinstance(error, DeltaCompactError) else 1,
    }
