"""The journal of a session, below the table's location: what it planned, what it wrote, what it tried to commit.

    metadata/deltacompact/5c…/plan.json         the plan, planner version, who works on it; before any work
                              alive             signs of life
                              tree-3.json       the split tree by which the rows of group 3 go to files
                              written-3.json    group 3 is written: its outputs, with metrics, and what the mode says
                              commit-77.json    snapshot 77 may be committed, with these groups; put before the attempt.
                                                It names the files of all attempts that may have taken effect
                              ended             the holder gave up: others may commit what is written, at once
                              holder-1.json     another process took over; the last holder lists what to delete

The holder with the greatest number may commit. A process takes over by putting the next `holder` if it is absent, and
only then reads the records. The former holder records a commit, and only then looks whether it still holds the journal.
So either the former holder sees that it was replaced, or the new one sees the record and deletes none of its files. The
new holder's own commit moves the branch, so an attempt of the former one that is under way fails.

The last holder lists the files to delete. From then on nobody commits from this journal, and anybody may finish the
deletions. `plan.json` is deleted before the holders: nobody holds a journal without a plan.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from deltacompact.base.errors import ConflictError, CorruptionError
from deltacompact.base.partitions import side_by_side
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.content_files import Content, ContentFile
from deltacompact.iceberg_modes.journal.signs_of_life import Holder
from deltacompact.iceberg_modes.plan_envelope import mode_of, plain, value_of
from deltacompact.storage.checksummed import is_whole, with_checksum
from deltacompact.storage.identity import file_name
from deltacompact.storage.objects import ObjectStore, is_there

FOLDER = "metadata/deltacompact/"
"""Below the table's location: a folder for each session."""
PLANNER_VERSION = 5
"""Grows with every change of how groups are planned or written. We do not commit what an unknown version wrote."""
_KNOWN_PLANNERS = (3, 4, PLANNER_VERSION)
"""Version 3 recorded only the outputs of groups with a commit, and would delete its other files. Version 4 did not
cluster."""

SESSION_NAME = re.compile(r"[0-9a-f]{32}")
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_TUPLES = ("partition", "split_offsets", "equality_ids")


class TakenOverError(ConflictError):
    """Another process took this one for dead, and holds the journal. This process must delete none of its files."""


class UntrustedError(CorruptionError):
    """A journal that cannot be resumed: it is damaged, or other code wrote it."""


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """The record of a written group, by its number in the plan: its files, and what else its mode needs to commit it.

    `row_map`: where each of its rows is now, if the mode keeps that. The record calls it "went".
    """

    number: int
    outputs: tuple[ContentFile, ...]
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    row_map: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a journal, as its mode writes it."""

    mode: str
    body: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Records:
    """All records of a journal.

    commits    by snapshot id, the groups of a commit that was tried
    added      by snapshot id, all files that an attempt at it may have added
    delete     the files to delete; None: the journal is not finished
    """

    plan: Planned
    groups: tuple[WrittenGroup, ...]
    commits: Mapping[int, tuple[int, ...]]
    delete: tuple[str, ...] | None
    added: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal that this process holds, as holder `number`."""

    store: ObjectStore
    session: str
    number: int

    @classmethod
    def new(cls, store: ObjectStore) -> Journal:
        """A journal with a name of its own, in which nothing is recorded yet."""
        return cls(store, uuid.uuid4().hex, 0)

    def begin(self, document: Mapping[str, Any]) -> None:
        """Record the document of a plan, before any work."""
        body = _holding() | {"planner": PLANNER_VERSION, "document": document}
        self.store.put(self.folder + "plan.json", _sealed(body))

    @classmethod
    def take_over(cls, store: ObjectStore, session: str) -> Journal | None:
        """Take over the journal of a dead session. None: somebody else was faster, or the journal is gone."""
        number = 1 + _last_holder(stat.path for stat in store.list(folder_of(session)))
        journal = cls(store, session, number)
        if not store.put_if_absent(journal._holder(number), _sealed(_holding())):
            return None
        if is_there(store, journal.folder + "plan.json"):
            return journal
        store.delete([journal._holder(number)])
        return None

    @property
    def folder(self) -> str:
        return folder_of(self.session)

    def sign(self) -> None:
        """Give a sign of life."""
        self.store.put(self.folder + "alive", b"")

    def written(self, groups: Sequence[WrittenGroup]) -> None:
        """Record that all outputs of these groups are complete."""
        records = [
            {
                "number": group.number,
                "outputs": [file_document(file) for file in group.outputs],
                "details": group.details,
            }
            | ({} if group.row_map is None else {"went": group.row_map})
            for group in groups
        ]
        self.store.put(f"{self.folder}written-{groups[0].number}.json", _sealed({"groups": records}))

    def attempted(self, snapshot_id: int, groups: Sequence[int], files: Sequence[str] = ()) -> None:
        """Record, before an attempt, that a snapshot with these groups may be committed and may add these files."""
        body = {"snapshot_id": snapshot_id, "groups": list(groups), "files": list(files)}
        self.store.put(f"{self.folder}commit-{snapshot_id}.json", _sealed(body))

    def refuse_replaced(self) -> None:
        """Raise TakenOverError if another process holds the journal, or has cleared it."""
        if not self._is_held():
            raise self._taken_over()

    def ended(self) -> None:
        """Record that this process has stopped, so that the next one need not wait for signs of life."""
        self.store.put(self.folder + "ended", b"")

    def finish(self, delete: Sequence[str]) -> tuple[str, ...]:
        """Close the journal: the files in `delete` will never be in a snapshot. Returns the files that may be deleted.

        Raises TakenOverError if another process holds the journal.
        """
        closing = self._holder(self.number + 1)
        if not self.store.put_if_absent(closing, _sealed(_holding() | {"delete": list(delete)})):
            raise self._taken_over()
        if not is_there(self.store, self.folder + "plan.json"):
            self.store.delete([closing])
            raise self._taken_over()
        return tuple(delete)

    def clear(self) -> None:
        """Delete a finished journal, after the files that it lists."""
        paths = [stat.path for stat in self.store.list(self.folder)]
        holders = sorted(path for path in paths if path.startswith(self.folder + "holder-"))
        plan = self.folder + "plan.json"
        self.store.delete([path for path in paths if path != plan and path not in holders])
        self.store.delete([plan])
        self.store.delete(holders)

    def read(self) -> Records:
        """All records. Raises UntrustedError for a damaged one."""
        return read(self.store, self.session, [stat.path for stat in self.store.list(self.folder)])

    def _holder(self, number: int) -> str:
        return f"{self.folder}holder-{number}.json"

    def _is_held(self) -> bool:
        # in this order: a holder that replaced us deletes the plan before it deletes its own mark
        is_newest = not is_there(self.store, self._holder(self.number + 1))
        return is_newest and is_there(self.store, self.folder + "plan.json")

    def _taken_over(self) -> TakenOverError:
        return TakenOverError(
            f"session {self.session} gave no sign of life for a while, and another process took its work over"
        )


def folder_of(session: str) -> str:
    return f"{FOLDER}{session}/"


def is_session(name: str) -> bool:
    """Whether a folder has the name of a session. Other folders beside the journals are not ours."""
    return bool(SESSION_NAME.fullmatch(name))


def name_of_files(session: str) -> str:
    """The beginning of the names of all files that a session adds to the table's data folder.

    Nobody else writes such names, so we recognize a session's files by name, however others spell their locations.
    """
    return f"{session}-"


def files_of(store: ObjectStore, session: str, folders: Iterable[str]) -> dict[str, int]:
    """A session's files in these folders, each once: their sizes by location."""
    one_spelling = {locations.folder_identity(folder): folder.rstrip("/") for folder in folders}
    found: dict[str, int] = {}
    for folder in one_spelling.values():
        found |= locations.listed(store, folder, name_of_files(session))
    return found


def other_than(files: Iterable[str], kept: Iterable[str]) -> list[str]:
    """The files whose names differ from those of all `kept` files."""
    names = set(map(file_name, kept))
    return [location for location in files if file_name(location) not in names]


def read(store: ObjectStore, session: str, paths: Iterable[str]) -> Records:
    """The records at these paths of a session's folder. Raises UntrustedError if they cannot be resumed."""
    folder = folder_of(session)
    names = sorted(path.removeprefix(folder) for path in paths)
    plan = plan_of(store, session)
    records = [name for name in names if name.startswith(("written-", "commit-", "holder-"))]
    bodies = side_by_side(records, lambda name: _opened(store, folder + name), locations.READS_AT_ONCE)
    groups: list[WrittenGroup] = []
    commits: dict[int, tuple[int, ...]] = {}
    added: dict[int, tuple[str, ...]] = {}
    delete: tuple[str, ...] | None = None
    for name, body in zip(records, bodies, strict=True):
        try:
            match name.partition("-")[0]:
                case "written":
                    groups += [_written_group(record) for record in body["groups"]]
                case "commit":
                    commits[int(body["snapshot_id"])] = tuple(body["groups"])
                    added[int(body["snapshot_id"])] = tuple(body.get("files", ()))
                case _ if "delete" in body:
                    delete = tuple(body["delete"])
        except (KeyError, TypeError, ValueError) as error:
            raise UntrustedError(f"{folder}{name} is damaged: {error}") from error
    return Records(plan, tuple(sorted(groups, key=lambda group: group.number)), commits, delete, added)


def _written_group(record: Mapping[str, Any]) -> WrittenGroup:
    outputs = tuple(map(file_of, record["outputs"]))
    return WrittenGroup(record["number"], outputs, record["details"], record.get("went"))


def plan_of(store: ObjectStore, session: str) -> Planned:
    """The plan. Raises UntrustedError where it is damaged or other code wrote it."""
    body = _opened(store, folder_of(session) + "plan.json")
    if body.get("planner") not in _KNOWN_PLANNERS:
        raise UntrustedError(f"another version of deltacompact wrote it (planner {body.get('planner')})")
    document = body["document"]
    return Planned(mode_of(document), document["plan"])


def holder_of(store: ObjectStore, session: str, paths: Iterable[str]) -> Holder:
    """The process that holds the journal."""
    number = _last_holder(paths)
    name = f"holder-{number}.json" if number else "plan.json"
    return Holder(**_opened(store, folder_of(session) + name)["holder"])


def _holding() -> dict[str, Any]:
    return {"holder": asdict(Holder.this())}


def _last_holder(paths: Iterable[str]) -> int:
    """The number of the last holder. 0: the process that wrote the plan."""
    return max((_number(path) for path in paths if file_name(path).startswith("holder-")), default=0)


def _number(path: str) -> int:
    return int(path.rpartition("-")[2].removesuffix(".json"))


# Documents


def _sealed(body: Mapping[str, Any]) -> bytes:
    return json.dumps(with_checksum("body", body, format=1)).encode()


def _opened(store: ObjectStore, path: str) -> dict[str, Any]:
    try:
        document = json.loads(store.get(path))
        body: dict[str, Any] = document["body"]
        if document["format"] != 1:
            raise ValueError(f"its format is {document['format']!r}, and this version knows 1")
        if not is_whole(document, "body"):
            raise ValueError("its SHA-256 differs")
    except (ValueError, KeyError, TypeError) as error:
        raise UntrustedError(f"{path} is damaged: {error}") from error
    return body


def file_document(file: ContentFile) -> dict[str, Any]:
    """A content file as JSON values, with all of its fields."""
    document = {field.name: getattr(file, field.name) for field in fields(file)}
    document["partition"] = [plain(value) for value in file.partition]
    document["key_metadata"] = plain(file.key_metadata)
    for name in _COUNTS:
        document[name] = sorted(document[name].items())
    for name in _BOUNDS:
        document[name] = [(number, bound.hex()) for number, bound in sorted(document[name].items())]
    return document


def file_of(document: Mapping[str, Any]) -> ContentFile:
    """The content file of `file_document`."""
    values = dict(document)
    for name in _COUNTS:
        values[name] = dict(values[name])
    for name in _BOUNDS:
        values[name] = {number: bytes.fromhex(bound) for number, bound in values[name]}
    for name in _TUPLES:
        values[name] = tuple(values[name])
    file = ContentFile(**values)
    return replace(
        file,
        content=Content(file.content),
        partition=tuple(value_of(value) for value in file.partition),
        key_metadata=value_of(file.key_metadata),
    )
