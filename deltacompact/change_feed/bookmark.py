"""How far a consumer of changes is: what it has done, and the batch that it was given and has not done yet.

begin     done 7            next 9        the batch is 7 to 9: a consumer that dies and repeats `begin` gets it again
commit    done 9                          after the batch is done
commit    done 9                          again: no batch is open, and nothing changes
begin     done 9            next 12

Delta streams keep bookmarks as numbered objects, put if absent; Iceberg tables as tags, which every engine's expiry
respects. The files that a bookmark needs are kept for 30 days. Later an error may name the one that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from deltacompact.base import expect
from deltacompact.base.errors import ConflictError, InputError, NotFoundError
from deltacompact.base.moments import TIME_FORMAT

FILES_KEPT_S = 30 * 24 * 3600
"""How long the files that a bookmark needs are kept."""
SIGNED_EVERY_S = 24 * 3600
"""If its consumer finds nothing new, or its batch fails each time, a bookmark is set again after so long. It does not
count as idle then."""

_BOOKMARKS_SHOWN = 5
ALL_ROWS = "1970-01-01: with all rows; a mirror must be empty then, or it keeps rows that went meanwhile"

Position = TypeVar("Position")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True)
class Bookmark(Generic[Position]):
    """How far one consumer is.

    done       changes up to this position are done; None: none are
    next       the end of the batch that was given; None: no batch was given
    time_ms    when the bookmark was set, which tells batches with the same ends apart
    into       the id of the creation of the mirror that has what is done, or takes the first batch; None: a consumer of
               another kind has it
    schema_id  the schema of an Iceberg table by which a mirror has named the columns of what is done
    asked      the columns and the filter of a mirror, as a text; None: unknown
    """

    name: str
    done: Position | None
    next: Position | None = None
    time_ms: int | None = None
    into: str | None = None
    schema_id: int | None = None
    asked: str | None = None

    def of_mirror(self, into: str | None, asked: str | None) -> Bookmark[Position]:
        """The same with a mirror, and what it has asked for, as far as they are known."""
        return replace(self, into=into or self.into, asked=asked or self.asked)

    def is_unsigned(self, now_s: float) -> bool:
        """Whether the bookmark's time is so old that it must be renewed to count as used."""
        return self.time_ms is not None and now_s - self.time_ms / 1000 > SIGNED_EVERY_S


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def checked_name(name: str) -> str:
    """Raises InputError for a name that not every store can hold."""
    if not is_name(expect.text("bookmark", name)):
        raise InputError(f"bookmark {name!r}: write up to 100 letters, digits, - and _")
    return name


def check_batch(table_id: str, known: Bookmark[Position], batch: Bookmark[Position] | None) -> None:
    """Raise ConflictError if the bookmark's batch is no longer `batch`."""
    if batch is not None and known != batch:
        raise moved_meanwhile(table_id, known.name)


def moved_meanwhile(table_id: str, name: str) -> ConflictError:
    return ConflictError(f"table {table_id!r}: another consumer has moved bookmark {name!r}")


def unknown(table_id: str, name: str, remedy: str = "") -> NotFoundError:
    days = FILES_KEPT_S // 86400
    return NotFoundError(
        f"table {table_id!r} has no bookmark {name!r}, or it was idle for more than {days} days{remedy}"
    )


def without_beginning(table_id: str, name: str) -> NotFoundError:
    return unknown(table_id, name, f": say where it begins with --from ({ALL_ROWS})")


def idle(table_id: str, name: str) -> NotFoundError:
    """The error for a bookmark whose files are no longer kept. To begin anew unasked would hide what went meanwhile."""
    days = FILES_KEPT_S // 86400
    return NotFoundError(
        f"bookmark {name!r} of table {table_id!r} was idle for more than {days} days: drop it, and say where to begin "
        f"with --from ({ALL_ROWS})"
    )


def no_beginning(table_id: str, text: str, kinds: str, known: Sequence[str]) -> NotFoundError:
    """The error for a text that names no beginning. `kinds`: what it might be; `known`: the table's bookmarks."""
    more = [f"and {len(known) - _BOOKMARKS_SHOWN} more"] if len(known) > _BOOKMARKS_SHOWN else []
    bookmarks = f"bookmarks: {', '.join([*known[:_BOOKMARKS_SHOWN], *more])}" if known else "it has no bookmarks"
    return NotFoundError(f"table {table_id!r}: {text!r} is no {kinds} or bookmark ({bookmarks}), and {TIME_FORMAT}")
