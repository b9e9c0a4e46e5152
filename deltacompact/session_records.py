"""The records of a session, by which attempts at the same work meet: put if absent, and whoever loses adopts.

    sessions/<id>/plan.json                  what is folded, and the sizes that depend on the machine that planned it
    sessions/<id>/round-00001.json           a round's completion: counts, live rows, the index
    sessions/<id>/output-0000000014.json     a compacted file
    sessions/<id>/published.json             the last completion, with the version that it was published as

The id is a hash of the work: base version, exact deltas, arguments.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from deltacompact.catalog.paths import StreamPaths
from deltacompact.errors import NotFoundError
from deltacompact.plan import AdoptedSizes, CompactionPlan, fingerprint
from deltacompact.storage import ObjectStore

PUBLISHED = "published.json"


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """plan.json: what a session folds, and the sizes that depend on the machine that planned it."""

    source_version: str
    source_tail: int
    destination_version: str
    destination_tail: int
    hash_bucket_count: int
    round_ends: tuple[int, ...]
    changes_only: bool
    what: dict[str, Any]

    @classmethod
    def of(cls, plan: CompactionPlan) -> SessionRecord:
        given, first = plan.input, len(plan.base_ordinals)
        return cls(
            given.source.version,
            given.source.tail,
            given.destination.version,
            given.destination.tail,
            plan.hash_bucket_count,
            tuple(each.stop - first for each in plan.rounds),
            plan.changes_only,
            json.loads(json.dumps(fingerprint(given, plan.keys, plan.arguments))),
        )

    @property
    def sizes(self) -> AdoptedSizes:
        return AdoptedSizes(self.hash_bucket_count, tuple(self.round_ends), self.changes_only)


def session_id(plan: CompactionPlan) -> str:
    """The same for every attempt at the same work, so that attempts meet."""
    text = json.dumps(fingerprint(plan.input, plan.keys, plan.arguments), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class SessionRecords:
    """Of one session."""

    def __init__(self, store: ObjectStore, paths: StreamPaths, session: str) -> None:
        self._store = store
        self._folder = paths.session(session)

    def adopt_plan(self, plan: CompactionPlan) -> SessionRecord:
        """Put this plan's record, or get that of the attempt which came first."""
        document = self.put("plan.json", asdict(SessionRecord.of(plan)))
        return SessionRecord(**{**document, "round_ends": tuple(document["round_ends"])})

    def put(self, name: str, document: dict[str, Any]) -> dict[str, Any]:
        """Put a record if absent; whichever is there afterwards is the one that counts."""
        data = json.dumps(document, separators=(",", ":")).encode()
        path = self._folder + name
        winner = data if self._store.put_if_absent(path, data) else self._store.get(path)
        return dict(json.loads(winner))

    def get(self, name: str) -> dict[str, Any] | None:
        """A record, if it is there."""
        try:
            return dict(json.loads(self._store.get(self._folder + name)))
        except NotFoundError:
            return None


def round_name(number: int) -> str:
    return f"round-{number:05d}.json"


def output_name(number: int) -> str:
    return f"output-{number:010d}.json"
