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
from deltacompact.storage.objects import ObjectStore
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


def kept_decisions(store: ObjectStore, unreadable: Unreadable | None = None) -> list[KeptDecision]:
    """The decisions about all tables. A record in another release's form is left out until a watcher replaces it."""
    found: list[KeptDecision] = []
    damaged: dict[str, Exception] = {}
    for stat in store.list(DECISIONS):
        try:
            document = json.loads(store.get(stat.path))
            found += [
                _KIND.validate_python({**decision, "at_s": document["at_s"]}) for decision in document["decisions"]
            ]
        except NotFoundError:
            continue
        except (InputError, ValueError, LookupError, TypeError, RecursionError) as error:  # pydantic's are ValueErrors
            damaged[stat.path] = error
    if unreadable is not None:
        unreadable.replace(DECISIONS, damaged)
    return found
