"""Numbers, nouns and errors in sentences.

counted(1, "file") -> "1 file"       counted(12_000, "row") -> "12,000 rows"       size(3 << 20) -> "3.0 MiB"
with_article("integer") -> "an integer"
unknown_option("rewrite", ["rewrite-all"]) -> "unknown option 'rewrite': did you mean 'rewrite-all'?"
columns_shown(["id", " day"]) -> "columns: id, ' day'"
text_of(OSError("no   route")) -> "no route"       one_line(OSError("no   route")) -> "OSError: no route"
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from deltacompact.base.errors import DeltaCompactError, Interrupted


def counted(count: int, thing: str, things: str | None = None) -> str:
    """The count and its noun, in the plural if needed."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def size(count: float) -> str:
    """Bytes in a unit that people read."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def reasons_in_words(reasons: Iterable[str]) -> str:
    """Reasons and how often each comes: "2 too small, 1 rewrite all"."""
    return ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in Counter(map(str, reasons)).items())


def noticed(new_columns: Sequence[str], null_keys: Mapping[str, int]) -> list[str]:
    """What an eye should see of appended or compacted rows: a line for new columns, one for each key with nulls."""
    new = [f"{counted(len(new_columns), 'new column')}: {', '.join(new_columns)}"] if new_columns else []
    return new + [f"{counted(rows, 'row')} with null in key column {name!r}" for name, rows in null_keys.items()]


def with_article(noun: str) -> str:
    """ "a string", "an integer"."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


_COLUMNS_SHOWN = 30


def columns_shown(names: Sequence[str]) -> str:
    """The table's columns, for a message about an unknown column; only the first 30 of a wide table."""
    return f"columns: {_first(names) or 'none'}"


def column_meant(name: str, names: Sequence[str]) -> str:
    """For an unknown column: the most similar known one, or else the first known ones."""
    nearest = difflib.get_close_matches(name, names, 1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"it has {_first(names)}"


def table_meant(name: str, names: Iterable[str]) -> str:
    """For an unknown table or catalog: the most similar known one, for a message; empty if none is similar.

    Beside a drop there may be a folder of that very name.
    """
    nearest = difflib.get_close_matches(name, [known for known in names if known != name], 1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""


def _first(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _COLUMNS_SHOWN:,} more"] if len(names) > _COLUMNS_SHOWN else []
    shown = [name if name == name.strip() else repr(name) for name in names[:_COLUMNS_SHOWN]]
    return ", ".join([*shown, *more])


def unknown_option(name: str, known: Collection[str], kind: str = "option") -> str:
    """The message for an unknown option: it names the most similar known option, or all known ones."""
    spelled = {option.lower(): option for option in known}
    nearest = difflib.get_close_matches(name.lower(), spelled, 1, 0.5)
    meant = f"did you mean {spelled[nearest[0]]!r}?" if nearest else f"known are {', '.join(known)}"
    return f"unknown {kind} {name!r}: {meant}"


def text_of(message: object) -> str:
    """The text of an error, or of any other value, without line breaks."""
    return " ".join(str(message).split())


def one_line(error: BaseException) -> str:
    """The text of an error. Errors of other libraries get their class in front: their text alone often says little."""
    text = text_of(error)
    if isinstance(error, (DeltaCompactError, Interrupted)):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def error_document(error: BaseException) -> dict[str, Any]:
    """An error for scripts."""
    return {
        "kind": error.kind if isinstance(error, DeltaCompactError) else type(error).__name__,
        "message": one_line(error),
        "exit_status": error.exit_status if isinstance(error, (DeltaCompactError, Interrupted)) else 1,
    }
