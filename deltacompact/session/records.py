"""The records of a session. All attempts at the same work share them: put if absent, and the loser adopts the record.

    sessions/<id>/plan.json                  the folded deltas, and the sizes that depend on the planning machine
    sessions/<id>/round-00001.json           a round's completion: counts, live rows, the index
    sessions/<id>/tree.json                  the split tree that sends rows to files, in a clustered table
    sessions/<id>/outputs-00001.json         a batch of compacted files
    sessions/<id>/published.json             the last completion, with the published version

The id is a hash of the work: planner, base version, options. An attempt resumes only what it fully understands:

    plan.json of another planner, of a planner that saw other columns, or damaged       -> another session
    a record that is damaged, or whose files are gone or cut short                      -> another session
    a plan whose tasks do not fit this machine, while those of our own plan would       -> another session

The other session has a number in its id. The first session to seal the base wins, so several sessions do no harm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from deltacompact.base.deltas import ObjectRef
from deltacompact.base.errors import DeltaCompactError, NotFoundError
from deltacompact.base.model import FORMAT_VERSION
from deltacompact.planning.plan import CompactionPlan, Round
from deltacompact.planning.planner import AdoptedSizes, fingerprint
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.ports import Moment, Workspace

PLAN = "plan.json"
PUBLISHED = "published.json"
TREE = "tree.json"

PLANNER_VERSION = 4
"""Raise it when planning decides differently about the same input, or when a record changes.

Plans of version 1 had no version. Version 2 recorded kept, marked and rewritten files, not decisions with reasons.
Version 3 recorded each output in an object of its own.
"""


class UnresumableError(DeltaCompactError):
    """The records of an earlier attempt cannot be resumed: another session must do the work."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """plan.json: the work of a session, and the sizes that depend on the machine that planned it."""

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
        moment, first = plan.input.moment, plan.rounds[0].first
        return cls(
            PLANNER_VERSION,
            moment.source_version,
            moment.source_tail,
            moment.destination_version,
            moment.destination_tail,
            plan.hash_bucket_count,
            tuple(round_.stop - first for round_ in plan.rounds),
            plan.changes_only,
            hashlib.sha256(f"{plan.stored_schema}\n{plan.encoding}".encode()).hexdigest(),
            json.loads(json.dumps(fingerprint(plan.input, plan.keys, plan.options))),
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


def base_of(store: ObjectStore, workspace: Workspace, session: str) -> str | None:
    """The only version that a session may replace. None: it has no plan, or none that can be read."""
    try:
        return str(json.loads(store.get(workspace.session(session) + PLAN))["destination_version"])
    except (NotFoundError, ValueError, LookupError, TypeError):
        return None


def session_id(plan: CompactionPlan, number: int = 0) -> str:
    """The same id for every attempt at the same work, so attempts share records. `number` counts sessions given up."""
    what = {**fingerprint(plan.input, plan.keys, plan.options), "planner": PLANNER_VERSION, "number": number}
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:24]


class SessionRecords:
    """The records of one session. The attempt that stores the plan reads no other records: there are none yet."""

    def __init__(self, store: ObjectStore, workspace: Workspace, session: str) -> None:
        self._store = store
        self._folder = workspace.session(session)
        self._data_folders = tuple(workspace.folder(room, session) for room in ("data", "index"))
        self._present: dict[str, int] = {}
        self.begun_here = False
        """Whether this attempt has put the plan, so that no earlier attempt can have recorded anything."""

    def adopt_plan(self, plan: CompactionPlan) -> SessionRecord:
        """Put this plan's record, or get the record of an earlier attempt. Raises UnresumableError."""
        data = _encoded(asdict(SessionRecord.of(plan)))
        self.begun_here = self._store.put_if_absent(self._folder + PLAN, data)
        return SessionRecord.from_json(
            self._parsed(PLAN, data if self.begun_here else self._store.get(self._folder + PLAN))
        )

    def put(self, name: str, document: dict[str, Any]) -> dict[str, Any]:
        """Put a record if absent. Returns the record that is stored now: `document` itself, or another attempt's."""
        data, path = _encoded(document), self._folder + name
        return document if self._store.put_if_absent(path, data) else self._parsed(name, self._store.get(path))

    def earlier(self, name: str) -> dict[str, Any] | None:
        """A record of an earlier attempt; None: there is none. Raises UnresumableError if it cannot be read."""
        return None if self.begun_here else self.stored(name)

    def stored(self, name: str) -> dict[str, Any] | None:
        """A record of any attempt, this one included. Otherwise as `earlier`."""
        try:
            return self._parsed(name, self._store.get(self._folder + name))
        except NotFoundError:
            return None

    def check_there(self, sizes: Mapping[str, int | None]) -> None:
        """Check that the store holds the objects that an earlier attempt recorded. `sizes`: bytes by path, if known.

        Skips objects of other sessions. Raises UnresumableError for an object that is gone or cut short: publishing it
        would lose its rows.
        """
        ours = {path: size for path, size in sizes.items() if path.startswith(self._data_folders)}
        if not ours.keys() <= self._present.keys():
            self._present = {
                stat.path: stat.bytes for folder in self._data_folders for stat in self._store.list(folder)
            }
        for path, size in ours.items():
            if path not in self._present:
                raise UnresumableError(f"it recorded {path}, which is gone")
            if size is not None and self._present[path] != size:
                raise UnresumableError(f"{path} has {self._present[path]} bytes, its record says {size}")

    @staticmethod
    def _parsed(name: str, data: bytes) -> dict[str, Any]:
        try:
            document = json.loads(data)
        except ValueError:
            raise UnresumableError(f"its record {name} is damaged") from None
        if not isinstance(document, dict):
            raise UnresumableError(f"its record {name} is not a JSON object")
        return document


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def round_name(number: int) -> str:
    return f"round-{number:05d}.json"


def outputs_name(batch: int) -> str:
    return f"outputs-{batch:05d}.json"


def completion(plan: CompactionPlan, round_: Round, index: ObjectRef) -> dict[str, Any]:
    """The round completion file (paper, compaction rounds, rule 4); size and version are null until publication."""
    return {
        "format": FORMAT_VERSION,
        "source_table_id": plan.input.source_table_id,
        "partition": dict(plan.input.partition.values),
        "source_stream_version": plan.input.moment.source_version,
        "source_stream_position_processed": round_.position,
        "source_file_number_processed": round_.file_number,
        "hash_bucket_count": plan.hash_bucket_count,
        "compacted_table_id": plan.input.destination_table_id,
        "compacted_stream_version": None,
        "compacted_bytes": None,
        "index_version": asdict(index),
    }


@contextmanager
def understood(round_number: int) -> Iterator[None]:
    """Raise UnresumableError if a record lacks a field, or has an unknown field or a wrong value."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UnresumableError(f"its record of round {round_number} cannot be read: {error!r}") from error
