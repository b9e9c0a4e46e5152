"""The files that determine a partition's rows: the deltas since the current lineage began, if they still exist.

    version 0    80 upsert f1, 90 delete f2           every file is there: the history is 80, 90, 95 | 99
    version 1    compacted at 90; 95 upsert f3        f2 was vacuumed: the history is version 1's compacted
    version 2    compacted at 95; 99 upsert f4          files and tombstones, then 95 | 99
                 ^ what is judged, watermark 95

Deltas above the watermark (99) are not compacted yet. No Spark in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import Commit, CompactedDelta, DataFile, Delta, ObjectRef, Partition
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.storage.objects import ObjectStore, is_there
from deltacompact.storage.opening import open_object


@dataclass(frozen=True, slots=True)
class FoldedHistory:
    """`folded` are the deltas up to the watermark (above the base's, where there is one), `later` those above it."""

    base: CompactedDelta | None
    base_index: ObjectRef | None
    folded: tuple[Delta, ...]
    later: tuple[Delta, ...]

    @property
    def note(self) -> str | None:
        """A note where older deltas are gone, so that the check begins later."""
        if self.base is None:
            return None
        return f"older files were vacuumed: recomputed from position {self.base.watermark} on"


def history(catalog: DeltaStreamCatalog, table_id: str, partition: Partition, state: StreamState) -> FoldedHistory:
    """The history of a partition's state. Raises NotFoundError where not even the state's own files are there."""
    compacted = state.compacted
    if compacted is None:
        return FoldedHistory(None, None, (), state.deltas)
    versions = list(catalog.log(table_id, partition).chain())
    lineage, later = state.lineage, state.deltas
    candidates = [version for version in versions if version.lineage == lineage]
    if compacted.source_table_id != table_id:  # a destination's deltas are its source's
        versions = list(catalog.log(compacted.source_table_id, partition).chain())
        lineage, later = compacted.source_lineage, ()
        candidates += [version for version in versions if version.lineage == lineage]
    commits = _commits(version for version in versions if version.lineage == lineage)
    retracted = {position for version in versions for position in version.retracted}
    deltas = [
        delta
        for commit in commits
        for delta in commit.deltas
        if delta.position <= compacted.watermark and delta.position not in retracted
    ]
    gone = _missing(catalog.store, [file for delta in deltas for file in delta.files])
    missing_up_to = max(
        (delta.position for delta in deltas if any(file.path in gone for file in delta.files)), default=None
    )
    if missing_up_to is None:
        return FoldedHistory(None, None, tuple(deltas), later)
    for base, index in _bases(candidates, compacted, lineage):
        if base.watermark >= missing_up_to and _is_whole(catalog.store, base, index):
            folded = tuple(delta for delta in deltas if delta.position > base.watermark)
            return FoldedHistory(base, index, folded, later)
    raise NotFoundError(f"table {table_id!r}, partition {partition}: compacted files or their index are missing")


def _commits(versions: Iterable[StreamState]) -> list[Commit]:
    """Each commit once (versions carry over what arrived late), in stream order."""
    known = {commit.commit_id: commit for version in versions for commit in version.commits}
    return sorted(known.values(), key=lambda commit: commit.last_position)


def _bases(
    versions: Iterable[StreamState], judged: CompactedDelta, lineage: str
) -> Iterator[tuple[CompactedDelta, ObjectRef]]:
    """Compacted deltas of the same contents, the oldest first."""
    fitting = [
        (version.compacted, version.index or version.compacted.index)
        for version in versions
        if version.compacted is not None
        and version.compacted.source_lineage == lineage
        and version.compacted.source_table_id == judged.source_table_id
        and version.compacted.watermark <= judged.watermark
    ]
    yield from sorted(fitting, key=lambda pair: pair[0].watermark)


def _is_whole(store: ObjectStore, base: CompactedDelta, index: ObjectRef) -> bool:
    try:
        manifest = read_manifest(store, index)
    except NotFoundError:
        return False
    vectors = {file.deletions.masks_path for file in base.files if file.deletions}
    return not _missing_paths(store, [*(file.path for file in base.files), *vectors, *manifest.paths])


def _missing(store: ObjectStore, files: Iterable[DataFile]) -> set[str]:
    return _missing_paths(store, [file.path for file in files])


def _missing_paths(store: ObjectStore, paths: list[str]) -> set[str]:
    with ThreadPoolExecutor(16) as threads:
        are_there = threads.map(lambda path: is_there(*open_object(store, path)), paths)
        return {path for path, there in zip(paths, are_there, strict=True) if not there}
