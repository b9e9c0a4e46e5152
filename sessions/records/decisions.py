"""The last decision of each policy about each partition, one object for a table. `watch` writes these objects.

watch-decisions/5c5c….json    orders   day=2024-01-01   policy "orders"   submit   deltas         25 deltas, 20 or more
                                       day=2024-01-02                     wait     not_sealed     its window is open
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import TypeAdapter

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.partitions import side_by_side
from deltacompact.storage.objects import ObjectStat, ObjectStore
from sessions.base.settings import READ_AT_ONCE
from sessions.base.unreadable import Unreadable

DECISIONS = "watch-decisions/"
KEPT_AGAIN_S = 12 * 3600.0
"""Decisions that have not changed are written again after this time: whoever cleans up sees that somebody looks."""


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """What a policy decided about a partition, and the job run it submitted. `at_s`: when the decision last changed."""

    table: str
    partition: dict[str, str | None]
    policy: str
    action: str
    reason: str
    text: str
    job_run_id: str | None
    at_s: float


_KIND = TypeAdapter(KeptDecision)


def decisions_path(table: str) -> str:
    """`table` is a name for it that is fit for a file."""
    return f"{DECISIONS}{table}.json"


def keep_again(store: ObjectStore, table: str) -> None:
    """Write the decisions of a table again, if there are any: whoever cleans up goes by their age."""
    with contextlib.suppress(NotFoundError):
        store.put(decisions_path(table), store.get(decisions_path(table)))


def keep_decisions(store: ObjectStore, table: str, at_s: float, decisions: Iterable[dict[str, object]]) -> None:
    """Replace the decisions of a table."""
    store.put(decisions_path(table), json.dumps({"at_s": at_s, "decisions": list(decisions)}).encode())


class DecisionsReader:
    """Reads the decisions about all tables. A table's object is read again only if a listing shows another ETag."""

    def __init__(self, store: ObjectStore, unreadable: Unreadable | None = None) -> None:
        self._store = store
        self._unreadable = Unreadable() if unreadable is None else unreadable
        self._known: dict[str, _OfTable] = {}

    def read(self) -> list[KeptDecision]:
        """The decisions. A record in another release's form is left out until a watcher replaces it."""
        listed = list(self._store.list(DECISIONS))
        read = side_by_side(listed, self._of_table, READ_AT_ONCE)
        found = {stat.path: of for stat, of in zip(listed, read, strict=True) if of}
        self._known = {path: of for path, of in found.items() if of.error is None}
        self._unreadable.replace(DECISIONS, {path: of.error for path, of in found.items() if of.error is not None})
        return [decision for of in found.values() for decision in of.decisions]

    def _of_table(self, stat: ObjectStat) -> _OfTable | None:
        known = self._known.get(stat.path)
        if known is not None and stat.etag is not None and known.etag == stat.etag:
            return known
        try:
            document = json.loads(self._store.get(stat.path))
            about = [{**decision, "at_s": document["at_s"]} for decision in document["decisions"]]
            return _OfTable(stat.etag, tuple(map(_KIND.validate_python, about)))
        except NotFoundError:
            return None
        except (InputError, ValueError, LookupError, TypeError, RecursionError) as error:  # pydantic's are ValueErrors
            return _OfTable(stat.etag, (), error)


@dataclass(frozen=True, slots=True)
class _OfTable:
    """What was read of a table whose object had this ETag, or why it cannot be read."""

    etag: str | None
    decisions: tuple[KeptDecision, ...]
    error: Exception | None = None
