"""The files that determine a partition's rows: the deltas since the current lineage began, if they still exist.

    version 0    80 upsert f1, 90 delete f2           every file is there: the history is 80, 90, 95 | 99
    version 1    compacted at 90; 95 upsert f3        f2 was vacuumed: the history is version 1's compacted
    version 2    compacted at 95; 99 upsert f4          files and tombstones, then 95 | 99
                 ^ what is judged, watermark 95

Deltas above the watermark (99) are not compacted yet. No Spark in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Commit, CompactedDelta, Delta, ObjectRef
from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import Partition
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
    why: str = ""

    @property
    def note(self) -> str | None:
        """A note where older deltas are gone, so that the check begins later."""
        return None if self.base is None else f"{self.why}: recomputed from position {self.base.watermark} on"


def history(catalog: DeltaStreamCatalog, table_id: str, partition: Partition, state: StreamState) -> FoldedHistory:
    """The history of a partition's state. Raises NotFoundError where not even the state's own files are there."""
    compacted = state.compacted
    if compacted is None:
        return FoldedHistory(None, None, (), state.deltas)
    if compacted.source_table_id == table_id:
        own, later, stretch = [], state.deltas, _stretch([*_before(catalog, table_id, partition, state), state])
    else:  # a destination's deltas are its source's
        own = [*_before(catalog, table_id, partition, state), state]
        own = [version for version in own if version.compacted and _is_alike(version.compacted, compacted)]
        source = catalog.log(compacted.source_table_id, partition).chain()
        later, stretch = (), _stretch(list(source), compacted.source_lineage)
    deltas = [
        delta
        for commit in _commits(version for version, _ in stretch)
        for delta in commit.deltas
        if delta.position <= compacted.watermark and not any(delta.position in retracted for _, retracted in stretch)
    ]
    missing = _missing(catalog.store, [file for delta in deltas for file in delta.files])
    gone = [delta.position for delta in deltas if any(file.path in missing for file in delta.files)]
    why = "older files were vacuumed" if gone else "older deltas do not count any more"
    if not stretch:  # the source was restated or rolled back since, or what was folded was retracted
        gone.append(compacted.watermark)
    elif (begun := stretch[-1][0].compacted) is not None:  # a rollback, or a file was taken out: it has older rows
        gone.append(begun.watermark)
    if not gone:
        return FoldedHistory(None, None, tuple(deltas), later)
    for base, index in _bases([*own, *(version for version, _ in stretch)], compacted):
        if base.watermark >= max(gone) and _is_whole(catalog.store, base, index):
            folded = tuple(delta for delta in deltas if delta.position > base.watermark)
            return FoldedHistory(base, index, folded, later, why)
    raise NotFoundError(f"table {table_id!r}, partition {partition}: compacted files or their index are missing")


def _before(
    catalog: DeltaStreamCatalog, table_id: str, partition: Partition, state: StreamState
) -> Iterator[StreamState]:
    """The versions before a state's."""
    return takewhile(lambda version: version.version != state.version, catalog.log(table_id, partition).chain())


def _is_alike(one: CompactedDelta, other: CompactedDelta) -> bool:
    return (one.source_table_id, one.source_lineage) == (other.source_table_id, other.source_lineage)


def _stretch(versions: Sequence[StreamState], lineage: str | None = None) -> list[tuple[StreamState, frozenset[int]]]:
    """The versions that compactions alone made of each other, the newest first, with the positions retracted by then.

    It ends with the last version, or the last one that had this lineage; a rollback, a restatement, or the retraction
    of a file begins another one. A restatement may have the position of a delta that was retracted before.
    """
    found: list[tuple[StreamState, frozenset[int]]] = []
    for version in reversed(versions):
        if found:
            lineage = found[-1][0].opened.lineage
        retracted = version.retracted if lineage is None else version.retracted_by(lineage)
        if retracted is not None:
            found.append((version, retracted))
        elif found:
            break
    return found


def _commits(versions: Iterable[StreamState]) -> list[Commit]:
    """Each commit once (versions carry over what arrived late), in stream order."""
    known = {commit.commit_id: commit for version in versions for commit in version.commits}
    return sorted(known.values(), key=lambda commit: commit.last_position)


def _bases(versions: Iterable[StreamState], judged: CompactedDelta) -> list[tuple[CompactedDelta, ObjectRef]]:
    """Compacted deltas of the same contents, the oldest first."""
    fitting = [
        (version.compacted, version.index or version.compacted.index)
        for version in versions
        if version.compacted is not None and version.compacted.watermark <= judged.watermark
    ]
    return sorted(fitting, key=lambda pair: pair[0].watermark)


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
