"""A Delta table that shows compacted rows: one commit for a run, put if absent.

    read version 6, read the streams, put 00000000000000000007.json -> taken: another publisher was first
    read version 7, read the streams                                -> nothing is missing any more: no commit

The bytes of a commit are unique, so a put whose reply was lost is recognised. A run that dies leaves a whole commit or
none. It may also leave a file of deletion vectors that no commit names: a vacuum deletes that.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import ConflictError, InputError, OutcomeUnknownError
from deltacompact.base.wording import one_line
from deltacompact.iceberg.commit.patience import Patience
from deltacompact.publication.columns import joined, refuse_required
from deltacompact.publication.delta import actions, checkpoints, log, protocol, vectors
from deltacompact.publication.delta.difference import DeltaDifference, difference
from deltacompact.publication.delta.files import DeltaFiles
from deltacompact.publication.delta.log import Action, Head
from deltacompact.publication.delta.schema import columns_of, schema_string
from deltacompact.publication.delta.statistics import statistics_of
from deltacompact.publication.port import FilesToShow, ShownCommit, ShownFile, Source, shows_another
from deltacompact.storage.certain_put import Effect, put_certainly
from deltacompact.storage.objects import PROBE, ObjectStore, refuse_overwriting
from deltacompact.tabular.published_types import DELTA_TYPES, refuse_alike

PUBLICATION = "deltacompact.publication"
"""The property that names the delta table whose rows are shown."""
TOMBSTONES_KEPT_MS = 30 * 24 * 3600 * 1000
"""A checkpoint leaves out the tombstones of files that were removed longer ago."""
COMMITS_BETWEEN_CHECKPOINTS = 10
_PATIENCE = Patience()

logger = logging.getLogger(__name__)


class ShownDeltaTable:
    """The Delta table of one run. `folder`: its URI, unescaped, with a slash at its end."""

    def __init__(self, store: ObjectStore, folder: str, source: Source) -> None:
        self._store = store
        self._folder = folder
        self._source = source
        self._name = f"Delta table {folder}"
        self._files = DeltaFiles(source.store, store)
        self._now_ms = int(source.now_s * 1000)
        self._prepared = pa.schema([])
        self._found = self._head()
        if self._found is None:
            refuse_others(store, self._name)

    @property
    def columns(self) -> pa.Schema | None:
        return None if self._found is None else self._columns_of(self._found)

    @property
    def shows_nothing(self) -> bool:
        return self._found is None

    def prepare(self, columns: pa.Schema, stored: Iterable[pa.Schema] = ()) -> None:
        """Remember the columns: the next commit adds them."""
        refuse_alike(columns, self._name)
        self._prepared = DELTA_TYPES.columns(columns, self._name)  # a decimal may have become too wide

    def check(self, files: Sequence[ShownFile]) -> None:
        self._files.footers(files)

    def show(self, wanted: Callable[[], FilesToShow]) -> ShownCommit:
        """Raises ConflictError if other writers are always faster, OutcomeUnknownError if the store does not tell."""
        try:
            return self._shown(wanted)
        except OutcomeUnknownError:
            raise  # the commit may be there, so its vectors stay
        except Exception:
            self._files.discard()
            raise

    def _shown(self, wanted: Callable[[], FilesToShow]) -> ShownCommit:
        deadline_s = time.monotonic() + _PATIENCE.total_s
        for attempt in range(_PATIENCE.attempts):
            if attempt:
                time.sleep(_PATIENCE.wait_s(attempt, is_lost=True))
            head = self._head() if attempt else self._found
            now = wanted()
            found = difference(head or Head(-1), self._folder, self._name, self._source, now)
            lines = self._lines(head, found, now)
            if not lines:
                self._files.discard()
                return ShownCommit(None, 0, 0, 0, now.deltas_left_out)
            version = head.version + 1 if head else 0
            if self._committed(version, lines):
                self._files.discard(kept=_vectors_in(lines))
                self._checkpoint(head or Head(-1), version, lines)
                return ShownCommit(version, found.new, found.gone, found.vectors, now.deltas_left_out)
            if time.monotonic() > deadline_s:
                break
        raise ConflictError(f"{self._name} changes faster than it can be read: publish again")

    def _committed(self, version: int, lines: Sequence[Action]) -> bool:
        if version == 0:
            refuse_overwriting(self._store)
        effect = Effect(
            f"version {version} of {self._name}", "committed", "publish again, which adds only what is missing"
        )
        data = actions.commit_lines([actions.commit_info(self._now_ms), *lines])
        return put_certainly(self._store, log.commit_path(version), data, effect)

    # What a commit has

    def _lines(self, head: Head | None, found: DeltaDifference, now: FilesToShow) -> list[Action]:
        added = list(found.added.values())
        vectors = self._files.vectors(added)
        table_actions = self._table_actions(head, added, bool(vectors))
        versions = sorted((stream, now.versions[stream]) for stream in found.streams)
        where = self._source.where
        return [
            *table_actions,
            *(actions.transaction(where + stream, version, self._now_ms) for stream, version in versions),
            *(actions.remove(file, self._now_ms) for file in found.removed.values()),
            *self._added(added, vectors),
        ]

    def _added(self, added: Sequence[ShownFile], vectors: Mapping[str, Mapping[str, Any]]) -> list[Action]:
        keys = self._source.keys
        columns = pa.schema([field for field in self._prepared if field.name not in keys])
        lines: list[Action] = []
        for file, footer in zip(added, self._files.footers(added), strict=True):
            vector = None if file.dead_rows is None else vectors[file.dead_rows]
            statistics = statistics_of(footer, columns, vector is None)
            path = log.path_to(file.location, self._folder)
            lines.append(actions.add(file, path, keys, statistics, vector, self._now_ms))
        return lines

    def _table_actions(self, head: Head | None, added: Sequence[ShownFile], has_vectors: bool) -> list[Action]:
        """The actions for protocol and metadata, if these change."""
        known = head or Head(-1)
        columns = self._prepared if head is None else joined([self._columns_of(head), self._prepared], self._name)
        schemas = dict.fromkeys(file.file.schema for file in added)
        stored = [DELTA_TYPES.columns(schema, self._name) for schema in schemas]
        text = schema_string(columns, known.metadata.get("schemaString"), stored)
        features = protocol.features_of(columns, text, has_vectors)
        properties = {PUBLICATION: self._source.shows} | protocol.properties_of(features)
        metadata = actions.metadata_with(known.metadata, text, self._source.keys, properties, self._now_ms)
        wanted = protocol.protocol_with(known.protocol or None, features)
        lines: list[Action] = []
        if wanted != known.protocol:
            lines.append({"protocol": wanted})
        if not _same(metadata, known.metadata):
            lines.append({"metaData": metadata})
        return lines

    # What is there

    def _head(self) -> Head | None:
        head = log.read_head(self._store)
        if head is not None:
            self._check(head)
        return head

    def _check(self, head: Head) -> None:
        """Raise InputError for a Delta table that is not ours, or can no longer show these rows."""
        shows = head.configuration.get(PUBLICATION)
        if shows is None:
            raise InputError(f"{self._name} is there already and is no publication: name a new or empty folder")
        if shows != self._source.shows:
            raise shows_another(self._name, shows, self._source)
        protocol.refuse_unknown(head.protocol, head.configuration, self._name)
        keys = list(head.metadata.get("partitionColumns") or ())
        if keys != list(self._source.keys):
            raise InputError(f"{self._name} is partitioned by {keys}, the delta table by {list(self._source.keys)}")
        refuse_required(self._columns_of(head), self._name)

    def _columns_of(self, head: Head) -> pa.Schema:
        return columns_of(head.metadata["schemaString"], self._name)

    # Checkpoints

    def _checkpoint(self, head: Head, version: int, lines: Sequence[Action]) -> None:
        """Write a checkpoint, if enough commits came since the last. Commits stand without it: if it fails, the next
        run tries again."""
        head.apply(version, lines)
        if version - (head.checkpoint or 0) < COMMITS_BETWEEN_CHECKPOINTS:
            return
        try:
            self._put_checkpoint(head)
        except Exception as error:
            logger.warning("%s has no checkpoint of version %s: %s", self._name, version, one_line(error))

    def _put_checkpoint(self, head: Head) -> None:
        kept = list(checkpoint_actions(head, self._now_ms - TOMBSTONES_KEPT_MS))
        path = log.checkpoint_path(head.version)
        self._store.put_if_absent(path, checkpoints.checkpoint_file(kept))
        self._store.put(log.LAST_CHECKPOINT, json.dumps({"version": head.version, "size": len(kept)}).encode())


def refuse_others(store: ObjectStore, name: str) -> None:
    """Raise InputError for a folder without a Delta table, but with other files: a VACUUM would delete these.

    A log is allowed: another publisher may be writing it. The probe and vector files are allowed: a publisher that died
    may have left them.
    """
    for stat in store.list(""):
        is_marker = not stat.path or stat.path.endswith("/")  # consoles make such objects for folders
        is_ours = stat.path == PROBE or stat.path.startswith(log.FOLDER) or vectors.is_vector_file(stat.path)
        if not (is_marker or is_ours):
            raise InputError(
                f"{name} is not there, and its folder has other files, which a VACUUM of Delta Lake would delete, such "
                f"as {stat.path}: name a new or empty folder"
            )


def checkpoint_actions(head: Head, since_ms: int) -> list[Action]:
    """The actions of a version's checkpoint, without tombstones from before `since_ms`. None of them changes data."""
    young = [file for file in head.removed.values() if file.get("deletionTimestamp", since_ms) >= since_ms]
    return [
        {"protocol": head.protocol},
        {"metaData": head.metadata},
        *({"txn": transaction} for transaction in head.transactions.values()),
        *({"add": dict(file) | {"dataChange": False}} for file in head.added.values()),
        *({"remove": dict(file) | {"dataChange": False}} for file in young),
    ]


def _same(metadata: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether both are equal. The JSON text of a schema may differ, because other writers format it differently."""
    schemas = [json.loads(schema["schemaString"]) if schema else None for schema in (metadata, known)]
    others = [{name: value for name, value in schema.items() if name != "schemaString"} for schema in (metadata, known)]
    return schemas[0] == schemas[1] and others[0] == others[1]


def _vectors_in(lines: Sequence[Action]) -> list[Mapping[str, Any]]:
    added = (line["add"].get("deletionVector") for line in lines if "add" in line)
    return [vector for vector in added if vector is not None]
