"""Reads the newest version of a Delta table: the last checkpoint and later commits ("Action Reconciliation").

    _last_checkpoint                              10
    00000000000000000010.checkpoint.parquet       add a, add b with vector u1, remove c (a tombstone)
    00000000000000000011.json                     remove b with u1, add b with u2

A logical file is a path (/lake/a, or file:///lake/a, which we wrote up to November 2026) and the id of its deletion
vector. Older commits may be gone: the checkpoint has their content. Other writers may put checksums, compacted logs and
other kinds of checkpoints into the folder: these are ignored.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from deltacompact.base.errors import CorruptionError, NotFoundError
from deltacompact.publication.delta import checkpoints
from deltacompact.publication.delta.vectors import unique_id
from deltacompact.storage.identity import is_uri
from deltacompact.storage.numbered import number_in, numbered_path
from deltacompact.storage.objects import ObjectStat, ObjectStore

FOLDER = "_delta_log/"
LAST_CHECKPOINT = f"{FOLDER}_last_checkpoint"
_CHECKPOINT = re.compile(rf"{FOLDER}(?P<version>[0-9]{{20}})\.checkpoint\.parquet")
_DISK = "file://"
_READS_MAX = 5
_READS_AT_ONCE = 8

Action = Mapping[str, Any]
LogicalFile = tuple[str, str | None]


@dataclass(slots=True)
class Head:
    """The state of a version: files (`added`), tombstones (`removed`), protocol, metadata, transactions by application.

    `checkpoint`: the version of the newest checkpoint.
    """

    version: int
    checkpoint: int | None = None
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    transactions: dict[str, Action] = field(default_factory=dict)
    added: dict[LogicalFile, Action] = field(default_factory=dict)
    removed: dict[LogicalFile, Action] = field(default_factory=dict)

    @property
    def configuration(self) -> Mapping[str, str]:
        return dict(self.metadata.get("configuration") or {})

    def apply(self, version: int, actions: Iterable[Action]) -> None:
        """Apply a commit. Its actions have no order, so removals come first."""
        for action in sorted(actions, key=lambda action: "add" in action):
            if (gone := action.get("remove")) is not None:
                self.added.pop(_logical(gone), None)
                self.removed[_logical(gone)] = gone
            elif (add := action.get("add")) is not None:
                self.removed.pop(_logical(add), None)
                self.added[_logical(add)] = add
            elif (transaction := action.get("txn")) is not None:
                self.transactions[transaction["appId"]] = transaction
            self.protocol = action.get("protocol") or self.protocol
            self.metadata = action.get("metaData") or self.metadata
        self.version = version


def _logical(file: Action) -> LogicalFile:
    return file["path"].removeprefix(_DISK), unique_id(file.get("deletionVector"))


def location_of(file: Action, table: str) -> str:
    """The URI of a file. A relative path is below the table's folder, `table`, which ends in a slash."""
    path = unquote(file["path"])
    if path.startswith("/") and table.startswith(_DISK):
        return _DISK + path
    return path if is_uri(path) else table + path


def path_to(location: str, table: str) -> str:
    """The path of a file as the log writes it. Percent signs are escaped once more: folders of partitions have some.

    On a disk the path is `/lake/a`, because DuckDB takes `file:///lake/a` for a path below the table's folder.
    """
    path = location.removeprefix(_DISK) if table.startswith(_DISK) else location
    return quote(path, safe="/:=!")


def commit_path(version: int) -> str:
    return numbered_path(FOLDER, version)


def checkpoint_path(version: int) -> str:
    return f"{FOLDER}{version:020d}.checkpoint.parquet"


def read_head(store: ObjectStore) -> Head | None:
    """The newest version. None: there is no table. Raises CorruptionError if a commit is missing."""
    missing: Exception | None = None
    for _ in range(_READS_MAX):
        try:
            return _read(store)
        except (NotFoundError, CorruptionError) as error:  # a commit or a cleanup came meanwhile
            missing = error
    raise CorruptionError(f"{store.uri}{FOLDER}: {missing}") from missing


@dataclass(frozen=True, slots=True)
class Listing:
    """The commits, and the checkpoints of the kind that we read, by version."""

    commits: Mapping[int, ObjectStat]
    checkpoints: Mapping[int, ObjectStat]


def listed(store: ObjectStore, since: int | None = None) -> Listing:
    start_after = "" if since is None else f"{FOLDER}{since:020d}"
    commits, found = {}, {}
    for stat in store.list(FOLDER, start_after):
        if (version := number_in(FOLDER, stat.path)) is not None:
            commits[version] = stat
        elif match := _CHECKPOINT.fullmatch(stat.path):
            found[int(match["version"])] = stat
    return Listing(commits, found)


def _read(store: ObjectStore) -> Head | None:
    hint = _hint(store)
    listing = listed(store, hint)
    if hint is not None and not listing.checkpoints:
        listing = listed(store)
    checkpoint = max(listing.checkpoints, default=None)
    later = sorted(version for version in listing.commits if checkpoint is None or version > checkpoint)
    if checkpoint is None and not later:
        return None
    first = 0 if checkpoint is None else checkpoint + 1
    for expected, version in enumerate(later, first):
        if version != expected:
            raise CorruptionError(f"commit {expected} is missing, and there is no checkpoint of one file after it")
    head = Head(-1 if checkpoint is None else checkpoint, checkpoint)
    if checkpoint is not None:
        head.apply(checkpoint, checkpoints.actions_in(store.get(listing.checkpoints[checkpoint].path)))
    with ThreadPoolExecutor(_READS_AT_ONCE) as threads:
        texts = threads.map(store.get, [listing.commits[version].path for version in later])
        for version, text in zip(later, texts, strict=True):
            head.apply(version, _actions(text, commit_path(version)))
    return head


def _actions(data: bytes, path: str) -> list[Action]:
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError as error:
        raise CorruptionError(f"{path} is no commit of a Delta table: {error}") from error


def _hint(store: ObjectStore) -> int | None:
    """The version of the last checkpoint, from its hint. None: no hint can be read. It only saves a long listing."""
    with contextlib.suppress(NotFoundError, ValueError, KeyError, TypeError):
        return int(json.loads(store.get(LAST_CHECKPOINT))["version"])
    return None
