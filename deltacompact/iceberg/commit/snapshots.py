"""Makes the files of a new snapshot: manifests, manifest list, summary. They are written beside each other.

head 8      manifest 1: a, b, c       manifest 2 (deletes): p
proposal    removed a, p              added y with sequence number 5
written     manifest 3: y added
            manifest 4: a deleted, b and c existing             instead of manifest 1 and all others that lose files
            manifest 5 (deletes): p deleted
snapshot 9  manifests 3, 4, 5

In version 3 the snapshot takes the table's next row id, and the manifests 3 and 4 divide the ids from there on. A new
head means a new manifest list, so each attempt takes the row ids of its own head.

attempt 1    manifests 3, 4, 5, and their list
attempt 2    another writer has committed manifest 6: 3 and 4 are as before, so only 5 and the list are written again
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from deltacompact.iceberg.commit.proposal import Proposal
from deltacompact.iceberg.file_fingerprints import would_hide_others, write_fingerprints
from deltacompact.iceberg.layout_memory import layout_record, outdated_layouts, spent_record
from deltacompact.iceberg.settled import newest, outdated_records
from deltacompact.iceberg.table import locations, manifests
from deltacompact.iceberg.table.content_files import (
    Content,
    ContentFile,
    Manifest,
    ManifestContent,
    ManifestEntry,
    Spec,
    Status,
)
from deltacompact.iceberg.table.manifests import ManifestTerms
from deltacompact.iceberg.table.metadata import Snapshot, StatisticsFile, TableMetadata
from deltacompact.iceberg.table.table_state import StateReader, TableState, scope_of
from deltacompact.storage.identity import file_name
from deltacompact.storage.objects import ObjectStore

ENTRIES_PER_MANIFEST = 20_000
"""Manifests that lose files are rewritten together, up to about 8 MB each: a stream leaves one for each commit."""
ENCODED_AT_ONCE = 4
"""The most manifests that are encoded side by side: each may be held in memory as Python objects."""

BeginPut: TypeAlias = Callable[[str, bytes], None]
"""Begins to write an object. It is there before the snapshot is committed."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A snapshot whose manifests are written, the files that only it names, and the table properties set with it."""

    snapshot: Snapshot
    files: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    properties_gone: tuple[str, ...] = ()
    statistics: StatisticsFile | None = None


def names_of_drafts(snapshot_id: int) -> tuple[str, str]:
    """The beginnings of the file names of a snapshot's manifests, and of its manifest lists."""
    return f"{snapshot_id}-", f"snap-{snapshot_id}-"


def unnamed_drafts(store: ObjectStore, metadata: TableMetadata, snapshot_ids: Iterable[int]) -> list[str]:
    """Metadata files that were written for these snapshots, and that no snapshot of the table names.

    A snapshot that took effect and has expired since handed its manifests on to later ones, which name them.
    """
    names = [name for number in snapshot_ids for name in names_of_drafts(number)]
    found = [path for name in names for path in locations.listed(store, metadata.metadata_folder, name)]
    if not found:
        return []

    def named(snapshot: Snapshot) -> set[str]:
        data = locations.fetched(store, snapshot.manifest_list)
        listed = manifests.read_manifest_list(data, snapshot.manifest_list)
        return {file_name(manifest.path) for manifest in listed}

    with ThreadPoolExecutor(locations.READS_AT_ONCE) as pool:
        kept = set().union(*pool.map(named, metadata.snapshots.values()))
    return [path for path in found if file_name(path) not in kept]


def draft_snapshot(
    put: BeginPut,
    now_ms: Callable[[], int],
    reader: StateReader,
    state: TableState,
    proposal: Proposal[Any],
    snapshot_id: int,
    names: Mapping[str, str],
    kept: KeptManifests,
) -> Draft:
    """The manifests of a snapshot on this head are put, but those that are `kept` from the attempt before.

    `names` go into its summary, and say who commits.
    """
    added = [replace(entry, snapshot_id=snapshot_id) for entry in proposal.added]
    removed = {entry.file.key for entry in proposal.removed}
    terms = ManifestTerms(state.metadata.format_version, snapshot_id, state.metadata.schema_json)
    wanted = [
        _Contents(state.metadata.specs[spec_id], content, terms, tuple(entries))
        for (spec_id, content), entries in sorted(_by_manifest(added).items())
    ]
    unchanged = []
    lessened: dict[tuple[int, ManifestContent], list[ManifestEntry]] = defaultdict(list)
    for manifest, entries in zip(state.manifests, reader.entries_of(state.manifests), strict=True):
        live = [entry for entry in entries if entry.status is not Status.DELETED]
        if any(entry.file.key in removed for entry in live):
            lessened[manifest.spec_id, manifest.content] += [_remaining(entry, removed, snapshot_id) for entry in live]
        elif live:
            unchanged.append(manifest)
    for (spec_id, content), left in lessened.items():
        for start in range(0, len(left), ENTRIES_PER_MANIFEST):
            entries = tuple(left[start : start + ENTRIES_PER_MANIFEST])
            wanted.append(_Contents(state.metadata.specs[spec_id], content, terms, entries))
    written = kept.written(put, state.metadata.metadata_folder, wanted)
    listed = [*written, *unchanged]
    paths = [manifest.path for manifest in written]
    known = proposal.settles or newest(state)
    carried = {} if known is None else known.summary
    summary = {**_summary(state, proposal), **carried, **proposal.lays_out, **proposal.summary, **names}
    draft = listed_snapshot(put, now_ms, state.metadata, state.snapshot, listed, snapshot_id, summary, paths)
    if known is not None:
        draft = remembering(draft, known.record(snapshot_id, state), outdated_records(state.metadata))
    if proposal.lays_out:
        record = layout_record(draft.snapshot, proposal.lays_out, state)
        spent = spent_record(state, proposal.overlapped_bytes)
        draft = remembering(draft, {**record, **spent}, outdated_layouts(state))
    if proposal.fingerprints and not would_hide_others(state.metadata, state.snapshot):
        statistics = write_fingerprints(put, state.metadata, draft.snapshot, proposal.fingerprints)
        draft = replace(draft, files=(*draft.files, statistics.path), statistics=statistics)
    return draft


def remembering(draft: Draft, properties: Mapping[str, str], gone: Iterable[str]) -> Draft:
    """The draft, with more table properties that are set or removed with it."""
    return replace(
        draft, properties={**draft.properties, **properties}, properties_gone=(*draft.properties_gone, *gone)
    )


def listed_snapshot(
    put: BeginPut,
    now_ms: Callable[[], int],
    metadata: TableMetadata,
    parent: Snapshot | None,
    listed: Sequence[Manifest],
    snapshot_id: int,
    summary: Mapping[str, str],
    written: Iterable[str] = (),
) -> Draft:
    """The manifest list of a snapshot is put. `now_ms` is called then. `written`: the manifests that are new."""
    next_sequence = metadata.next_sequence_number
    first_row_id, added_rows = metadata.next_row_id, None
    if first_row_id is not None:
        listed, upcoming = manifests.with_row_ids(listed, first_row_id)
        added_rows = upcoming - first_row_id
    parent_id = parent.snapshot_id if parent else None
    data = manifests.write_manifest_list(
        listed, metadata.format_version, snapshot_id, parent_id, next_sequence, first_row_id
    )
    path = f"{metadata.metadata_folder}/snap-{snapshot_id}-{uuid.uuid4()}.avro"
    put(path, data)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_id=parent_id,
        sequence_number=next_sequence,
        # Java refuses to load metadata whose times go back by more than a minute, and others' clocks may be ahead.
        timestamp_ms=max(now_ms(), metadata.last_updated_ms + 1, parent.timestamp_ms if parent else 0),
        manifest_list=path,
        schema_id=metadata.schema_id,
        summary=summary,
        first_row_id=first_row_id,
        added_rows=added_rows,
    )
    return Draft(snapshot, (*written, path))


@dataclass(frozen=True, slots=True)
class _Contents:
    """What makes the bytes of a manifest."""

    spec: Spec
    content: ManifestContent
    terms: ManifestTerms
    entries: tuple[ManifestEntry, ...]


@dataclass(slots=True)
class KeptManifests:
    """The manifests of the last draft of a snapshot. Those that the next draft needs, too, are not written again."""

    lines: list[tuple[_Contents, Manifest]] = field(default_factory=list)

    def written(self, put: BeginPut, folder: str, wanted: Sequence[_Contents]) -> list[Manifest]:
        """The lines of these manifests, in their order. New ones are put."""
        name = uuid.uuid4()

        def line(number: int, contents: _Contents) -> Manifest:
            if (found := next((line for known, line in self.lines if known == contents), None)) is not None:
                return found
            path = f"{folder}/{contents.terms.snapshot_id}-{name}-m{number}.avro"
            data, new = manifests.write_manifest(
                contents.entries, contents.spec, contents.content, contents.terms, path
            )
            put(path, data)
            return new

        with ThreadPoolExecutor(ENCODED_AT_ONCE) as pool:
            listed = list(pool.map(line, range(len(wanted)), wanted))
        self.lines = list(zip(wanted, listed, strict=True))
        return listed


def _by_manifest(entries: Iterable[ManifestEntry]) -> dict[tuple[int, ManifestContent], list[ManifestEntry]]:
    found: dict[tuple[int, ManifestContent], list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.file.spec_id, entry.file.manifest_content].append(entry)
    return found


def _remaining(entry: ManifestEntry, removed: set[tuple[str, int | None]], snapshot_id: int) -> ManifestEntry:
    if entry.file.key in removed:
        return replace(entry, status=Status.DELETED, snapshot_id=snapshot_id)
    return replace(entry, status=Status.EXISTING)


def _summary(state: TableState, proposal: Proposal[Any]) -> dict[str, str]:
    """The snapshot's summary (spec, "Optional Snapshot Summary Fields"). Totals are counted anew, not added up."""
    removed = {entry.file.key for entry in proposal.removed}
    new, old = [entry.file for entry in proposal.added], [entry.file for entry in proposal.removed]
    left = [entry.file for entry in (*state.data, *state.deletes) if entry.file.key not in removed] + new
    counts = {
        **_counts("added", new),
        **_counts("removed", old),
        "changed-partition-count": len({scope_of(entry) for entry in (*proposal.removed, *proposal.added)}),
    }
    totals = {
        "total-data-files": len(_with_content(left, Content.DATA)),
        "total-delete-files": len(_with_content(left, Content.POSITION_DELETES, Content.EQUALITY_DELETES)),
        "total-records": _rows(_with_content(left, Content.DATA)),
        "total-files-size": sum(file.content_bytes for file in left),
        "total-position-deletes": _rows(_with_content(left, Content.POSITION_DELETES)),
        "total-equality-deletes": _rows(_with_content(left, Content.EQUALITY_DELETES)),
    }
    shown = {name: count for name, count in counts.items() if count} | totals
    return {"operation": proposal.operation, **{name: str(count) for name, count in shown.items()}}


def _counts(verb: str, files: Sequence[ContentFile]) -> dict[str, int]:
    """Files, rows and bytes by content. The spec says "deleted" for data files, and "removed" for delete files."""
    data, positions = _with_content(files, Content.DATA), _with_content(files, Content.POSITION_DELETES)
    equality = _with_content(files, Content.EQUALITY_DELETES)
    of_data = "added" if verb == "added" else "deleted"
    vectors = [file for file in positions if file.content_offset is not None]
    return {
        f"{of_data}-data-files": len(data),
        f"{of_data}-records": _rows(data),
        f"{verb}-files-size": sum(file.content_bytes for file in files),
        f"{verb}-delete-files": len(positions) + len(equality),
        f"{verb}-position-delete-files": len(positions) - len(vectors),
        f"{verb}-dvs": len(vectors),
        f"{verb}-equality-delete-files": len(equality),
        f"{verb}-position-deletes": _rows(positions),
        f"{verb}-equality-deletes": _rows(equality),
    }


def _with_content(files: Sequence[ContentFile], *contents: Content) -> list[ContentFile]:
    return [file for file in files if file.content in contents]


def _rows(files: Sequence[ContentFile]) -> int:
    return sum(file.rows for file in files)
