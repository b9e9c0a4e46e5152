"""Replaces many manifests by few, clustered by partition, and commits them in one `replace` snapshot.

    attempt 1    head 8: manifests 1 to 40 become 41 and 42         refused: somebody appended manifest 43
    attempt 2    head 9: 41, 42 and 43, which is kept               committed
    or           head 9 lost manifest 7 to another writer           41 and 42 are deleted, and planned anew

Manifests are written once: a new head costs only a manifest list, unless it lacks a manifest that was rewritten.
The first snapshot after an upgrade to version 3 gives old manifests row ids: they are rewritten anew, with these.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from deltacompact.base.errors import InputError, Interrupted, OutcomeUnknownError
from deltacompact.base.wording import counted
from deltacompact.iceberg.commit.beside import Beside
from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.commit.proposal import REPLACE, same_rows
from deltacompact.iceberg.commit.snapshots import Draft, listed_snapshot, remembering
from deltacompact.iceberg.settled import newest, outdated_records
from deltacompact.iceberg.table import locations, manifests
from deltacompact.iceberg.table.avro import Growing
from deltacompact.iceberg.table.content_files import Manifest, ManifestContent, Spec
from deltacompact.iceberg.table.manifests import ManifestTerms
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.iceberg.table.partition_summaries import partition_summaries
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.maintain.encoded_entries import (
    EncodedEntry,
    StoredManifest,
    common_schema,
    encoded_entries,
    order_of,
)
from deltacompact.iceberg_modes.maintain.manifest_plan import Kind, ManifestGroup, plan_manifests
from deltacompact.iceberg_modes.maintain.reach import PATHS_SHOWN
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class ManifestsResult:
    """What became of a branch's manifests. A dry run has no snapshot, and `created` is what it expects."""

    snapshot_id: int | None = None
    created: int = 0
    replaced: int = 0
    kept: int = 0
    entries: int = 0
    bytes: int = 0
    """Of the manifests that were replaced."""
    paths: tuple[str, ...] = ()
    """The first of the manifests that were replaced."""
    nothing_to_do: str | None = None


@dataclass(frozen=True, slots=True)
class RewriteManifests:
    """Rewrites the manifests of one branch's head. `say` is told what happens."""

    store: ObjectStore
    branch: str
    target_bytes: int
    say: Callable[[str], None] = lambda line: None
    before_commit: Callable[[], None] = lambda: None
    """Called before the commit. Tests let other writers commit there."""

    @staticmethod
    def refuse_version_1(metadata: TableMetadata) -> None:
        """Raise InputError for a table whose manifests have no sequence numbers."""
        if metadata.format_version < 2:
            raise InputError(f"table {metadata.table_id!r} has format version 1: its manifests cannot be rewritten")

    def plan(self, metadata: TableMetadata) -> ManifestsResult:
        """What a run would do. Writes nothing."""
        _, listed = _head(self.store, metadata, self.branch)
        groups = plan_manifests(listed, metadata.specs, self.target_bytes)
        expected = sum(-(-group.bytes // self.target_bytes) for group in groups if group.entries)
        return _result(None, listed, groups, expected)

    def run(self, table: IcebergTable, session: str) -> ManifestsResult:
        """Raises as `Committer.land` does."""
        committer = Committer(self.store, StateReader(self.store), self.branch, session)
        writing = _Writing(self, committer.names)
        try:
            writing.on_head(table.metadata, _head(self.store, table.metadata, self.branch)[1])
            self.before_commit()
            done = committer.land(table, writing.draft)
        except (OutcomeUnknownError, Interrupted):
            raise
        except BaseException:
            writing.discard_but(None)
            raise
        writing.discard_but(done.snapshot)
        return done.outcome


@dataclass(frozen=True, slots=True)
class _RewrittenGroup:
    """A group, and the lines of the manifests that it became. Their snapshot is filled in when it is drafted."""

    group: ManifestGroup
    lines: tuple[Manifest, ...]


@dataclass(slots=True)
class _Writing:
    """The groups that are written so far, from head to head."""

    task: RewriteManifests
    names: Mapping[str, str]
    done: list[_RewrittenGroup] | None = None
    written: list[str] = field(default_factory=list)
    """Every manifest that was written, for whichever head."""
    named: dict[str, set[str]] = field(default_factory=dict)
    """By manifest list: those that it names."""

    def on_head(self, metadata: TableMetadata, listed: Sequence[Manifest]) -> list[_RewrittenGroup]:
        """Write the groups of this head that are not written yet. Groups whose manifests are all there are kept."""
        there = {(manifest.path, manifest.first_row_id) for manifest in listed}
        whole = [
            rewritten
            for rewritten in self.done or ()
            if all((source.path, source.first_row_id) in there for source in rewritten.group.sources)
        ]
        broken: set[Kind] | None = None
        if self.done is not None:
            broken = {rewritten.group.kind for rewritten in self.done} - {rewritten.group.kind for rewritten in whole}
        for group in plan_manifests(listed, metadata.specs, self.task.target_bytes, broken):
            self.task.say(
                f"rewriting {counted(len(group.sources), 'manifest')}, {counted(group.entries, 'entry', 'entries')}"
            )
            whole.append(_RewrittenGroup(group, tuple(self._lines(metadata, group))))
        self.done = whole
        return whole

    def draft(
        self, table: IcebergTable, snapshot_id: int, beside: Beside
    ) -> tuple[IcebergTable, Draft | None, ManifestsResult]:
        """The snapshot with this id on the current table."""
        metadata = table.metadata
        head, listed = _head(self.task.store, metadata, self.task.branch)
        done = self.on_head(metadata, listed)
        created = [replace(line, snapshot_id=snapshot_id) for rewritten in done for line in rewritten.lines]
        found = _result(snapshot_id, listed, [rewritten.group for rewritten in done], len(created))
        if head is None or not done:
            return table, None, found
        replaced = {source.path for rewritten in done for source in rewritten.group.sources}
        kept = [manifest for manifest in listed if manifest.path not in replaced]
        state = TableState(metadata, self.task.branch, head, tuple(listed), (), ())  # entries are not read for this
        known = newest(state)
        summary = {
            "operation": REPLACE,
            "manifests-created": str(found.created),
            "manifests-kept": str(found.kept),
            "manifests-replaced": str(found.replaced),
            "entries-processed": str(found.entries),
            **{name: value for name, value in head.summary.items() if name.startswith("total-")},
            **same_rows(metadata, head),
            **({} if known is None else known.summary),
            **self.names,
        }
        put = functools.partial(beside.put, self.task.store)
        draft = listed_snapshot(put, beside.now_ms, metadata, head, [*created, *kept], snapshot_id, summary)
        if known is not None:
            draft = remembering(draft, known.record(snapshot_id, state), outdated_records(metadata))
        self.named[draft.snapshot.manifest_list] = {line.path for line in created}
        return table, draft, found

    def discard_but(self, snapshot: Snapshot | None) -> None:
        """Delete the written manifests that the snapshot which took effect does not name."""
        kept = self.named[snapshot.manifest_list] if snapshot else set()
        for path in self.written:
            if path not in kept:
                locations.discard(self.task.store, path)

    def _lines(self, metadata: TableMetadata, group: ManifestGroup) -> Iterator[Manifest]:
        """The group's live entries in manifests of about the target size."""
        spec_id, content = group.kind
        spec = metadata.specs[spec_id]
        with ThreadPoolExecutor(min(locations.READS_AT_ONCE, len(group.sources))) as pool:
            stored = list(pool.map(self._stored, group.sources))
        schema = common_schema(stored, spec, metadata.format_version)
        entries = [entry for source in stored for entry in encoded_entries(source, schema, spec)]
        entries.sort(key=order_of)
        header = manifests.header_of(spec, content, ManifestTerms(metadata.format_version, 0, metadata.schema_json))
        name = uuid.uuid4()
        for number, (data, within) in enumerate(_rolled(entries, schema, header, self.task.target_bytes)):
            path = f"{metadata.metadata_folder}/{name}-m{number}.avro"
            self.written.append(path)
            locations.put(self.task.store, path, data)
            yield _line(path, len(data), spec, content, within)

    def _stored(self, manifest: Manifest) -> StoredManifest:
        return StoredManifest.of(manifest, locations.fetched(self.task.store, manifest.path))


def _rolled(
    entries: Sequence[EncodedEntry], schema: Mapping[str, Any], header: Mapping[str, str], target_bytes: int
) -> Iterator[tuple[bytes, Sequence[EncodedEntry]]]:
    """Manifests of about the target size, the last maybe smaller; each with its entries."""
    first, growing = 0, Growing(schema, header)
    for number, entry in enumerate(entries, 1):
        growing.add(entry.record)
        if growing.size >= target_bytes or number == len(entries):
            yield growing.finished(), entries[first:number]
            first, growing = number, Growing(schema, header)


def _line(
    path: str, file_bytes: int, spec: Spec, content: ManifestContent, entries: Sequence[EncodedEntry]
) -> Manifest:
    """The manifest's line in a manifest list: all entries are EXISTING."""
    return Manifest(
        path=path,
        file_bytes=file_bytes,
        spec_id=spec.spec_id,
        content=content,
        sequence_number=manifests.NEW,
        min_sequence_number=min(entry.sequence_number for entry in entries),
        snapshot_id=0,
        added_files=0,
        existing_files=len(entries),
        deleted_files=0,
        added_rows=0,
        existing_rows=sum(entry.rows for entry in entries),
        deleted_rows=0,
        partitions=tuple(partition_summaries(spec, [entry.partition for entry in entries])),
    )


def _head(store: ObjectStore, metadata: TableMetadata, branch: str) -> tuple[Snapshot | None, list[Manifest]]:
    """The head of a branch, and the lines of its manifest list."""
    snapshot = metadata.branch(branch)
    if snapshot is None:
        return None, []
    return snapshot, StateReader(store).listed(snapshot)


def _result(
    snapshot_id: int | None, listed: Sequence[Manifest], groups: Sequence[ManifestGroup], created: int
) -> ManifestsResult:
    if not groups:
        return ManifestsResult(kept=len(listed), nothing_to_do=_why(listed))
    sources = [source for group in groups for source in group.sources]
    return ManifestsResult(
        snapshot_id,
        created,
        len(sources),
        len(listed) - len(sources),
        sum(group.entries for group in groups),
        sum(source.file_bytes for source in sources),
        tuple(source.path for source in sources[:PATHS_SHOWN]),
    )


def _why(listed: Sequence[Manifest]) -> str:
    if not listed:
        return "the branch has no manifests"
    return f"{counted(len(listed), 'manifest')}: no fewer would do, and the large ones do not overlap"
