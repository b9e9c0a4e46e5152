"""The records of a session, by which attempts at the same work meet: put if absent, and whoever loses adopts.

    sessions/<id>/plan.json                  what is folded, and the sizes that depend on the machine that planned it
    sessions/<id>/round-00001.json           a round's completion: counts, live rows, the index
    sessions/<id>/output-0000000014.json     a compacted file
    sessions/<id>/published.json             the last completion, with the version that it was published as

The id is a hash of the work: planner, base version, options. An attempt resumes only what it fully understands:

    plan.json of another planner, of a planner that saw other columns, or damaged       -> another session
    a record that is damaged, or whose files are gone or cut short                      -> another session
    a plan whose tasks do not fit this machine, where our own do                        -> another session

The other session has a number in its id. Whichever session seals the base first wins, so that several do no harm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from deltacompact.base.errors import DeltaCompactError, NotFoundError
from deltacompact.planning.plan import AdoptedSizes, CompactionPlan, fingerprint
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.ports import Moment, Workspace

PUBLISHED = "published.json"

PLANNER_VERSION = 2
"""Raise it when `plan` decides otherwise about the same input, or when a record changes. 1 had no version."""


class UnresumableError(DeltaCompactError):
    """What an earlier attempt left cannot be resumed: another session has to do the work."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """plan.json: what a session folds, and the sizes that depend on the machine that planned it."""

    planner_version: int
    source_version: str
    source_tail: int
    destination_version: str
    destination_tail: int
    hash_bucket_count: int
    round_ends: tuple[int, ...]
    changes_only: bool
    columns_sha256: str
    what: dict[str, Any]

    @classmethod
    def of(cls, plan: CompactionPlan) -> SessionRecord:
        given, first = plan.input, len(plan.base_ordinals)
        return cls(
            PLANNER_VERSION,
            given.moment.source_version,
            given.moment.source_tail,
            given.moment.destination_version,
            given.moment.destination_tail,
            plan.hash_bucket_count,
            tuple(each.stop - first for each in plan.rounds),
            plan.changes_only,
            hashlib.sha256(f"{plan.schema}\n{plan.encoding}".encode()).hexdigest(),
            json.loads(json.dumps(fingerprint(given, plan.keys, plan.options))),
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SessionRecord:
        """Raises UnresumableError for the plan of another planner."""
        if document.get("planner_version") != PLANNER_VERSION or set(document) != {field.name for field in fields(cls)}:
            raise UnresumableError("another release of deltacompact planned it")
        try:
            return cls(**{**document, "round_ends": tuple(document["round_ends"])})
        except TypeError:
            raise UnresumableError("its plan cannot be read") from None

    @property
    def moment(self) -> Moment:
        return Moment(self.source_version, self.source_tail, self.destination_version, self.destination_tail)

    @property
    def sizes(self) -> AdoptedSizes:
        return AdoptedSizes(self.hash_bucket_count, self.round_ends, self.changes_only)


def session_id(plan: CompactionPlan, number: int = 0) -> str:
    """The same for every attempt at the same work, so that attempts meet. `number` counts sessions given up."""
    what = {**fingerprint(plan.input, plan.keys, plan.options), "planner": PLANNER_VERSION, "number": number}
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:24]


class SessionRecords:
    """Of one session."""

    def __init__(self, store: ObjectStore, workspace: Workspace, session: str) -> None:
        self._store = store
        self._folder = workspace.session(session)
        self._data_folders = tuple(f"{workspace.root}/{room}/{session}/" for room in ("data", "index"))
        self._present: dict[str, int] = {}

    def adopt_plan(self, plan: CompactionPlan) -> SessionRecord:
        """Put this plan's record, or get that of the attempt which came first. Raises UnresumableError."""
        return SessionRecord.from_json(self.put("plan.json", asdict(SessionRecord.of(plan))))

    def put(self, name: str, document: dict[str, Any]) -> dict[str, Any]:
        """Put a record if absent; whichever is there afterwards is the one that counts."""
        data = json.dumps(document, separators=(",", ":")).encode()
        path = self._folder + name
        return self._parsed(name, data if self._store.put_if_absent(path, data) else self._store.get(path))

    def get(self, name: str) -> dict[str, Any] | None:
        """A record, if it is there. Raises UnresumableError where it cannot be read."""
        try:
            return self._parsed(name, self._store.get(self._folder + name))
        except NotFoundError:
            return None

    def check_there(self, sizes: Mapping[str, int | None]) -> None:
        """Hold the objects that an earlier attempt recorded against the store. `sizes`: bytes by path, where known.

        Objects of other sessions are not looked at. Raises UnresumableError for one that is gone or cut short: somebody
        else may have removed it, and to publish it would lose its rows.
        """
        ours = {path: size for path, size in sizes.items() if path.startswith(self._data_folders)}
        if not ours.keys() <= self._present.keys():
            self._present = {
                stat.path: stat.bytes for folder in self._data_folders for stat in self._store.list(folder)
            }
        for path, size in ours.items():
            if path not in self._present:
                raise UnresumableError(f"{path}, which it recorded, is gone")
            if size is not None and self._present[path] != size:
                raise UnresumableError(f"{path} has {self._present[path]} bytes, {size} were recorded")

    @staticmethod
    def _parsed(name: str, data: bytes) -> dict[str, Any]:
        try:
            document = json.loads(data)
        except ValueError:
            raise UnresumableError(f"its record {name} is damaged") from None
        if not isinstance(document, dict):
            raise UnresumableError(f"its record {name} is not a JSON object")
        return document


def round_name(number: int) -> str:
    return f"round-{number:05d}.json"


def output_name(number: int) -> str:
    return f"output-{number:010d}.json"
