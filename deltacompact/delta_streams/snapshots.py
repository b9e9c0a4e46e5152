"""Chooses what a compaction folds: from the states of two streams to a snapshot, or to the reason for no work. Pure.

orders into orders      its compacted files, and the deltas since
orders into flat        deltas above flat's watermark; all of orders, if orders itself was compacted beyond it
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deltacompact.base.deltas import CompactedDelta, Delta
from deltacompact.base.errors import InputError
from deltacompact.base.model import INT64_MAX, Partition
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.base.settings import AMPLIFICATION_MAX
from deltacompact.base.wording import counted
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.planning.overlapping import LayoutBound, columns_of, overlapping_files
from deltacompact.planning.sizing.file_sizes import TARGET_FILE_BYTES_MIN
from deltacompact.table.ports import Moment, NothingToDo, PartitionSnapshot
from deltacompact.tabular.coarse_times import in_micros


def everything(table_id: str, partition: Partition, state: StreamState) -> PartitionSnapshot:
    """The snapshot that a reader of this state folds: all files."""
    chosen = _FoldInput(state.compacted, True, state.deltas, "read")
    return _snapshot(table_id, table_id, partition, state, state, chosen)


@dataclass(frozen=True, slots=True)
class OtherWork:
    """The work of a compaction besides folding deltas. It is enough for a compaction where no delta is.

    purge         files with dead rows are written again
    micros        a purge also writes files again whose times are coarser than microseconds
    cluster_by    files that overlap in these columns are laid out anew, as far as `amplification_max` allows
    """

    purge: bool = False
    micros: bool = False
    cluster_by: str = ""
    amplification_max: float = AMPLIFICATION_MAX


NO_OTHER_WORK = OtherWork()


def choose(
    source_table_id: str,
    destination_table_id: str,
    partition: Partition,
    source: StreamState,
    destination: StreamState,
    other: OtherWork = NO_OTHER_WORK,
    cold: frozenset[str] = frozenset(),
) -> PartitionSnapshot | NothingToDo:
    """Choose the base and the deltas. Files that are `cold` are not laid out anew.

    If the source was restated, or compacted past the destination's watermark, its single deltas are gone. Then the
    destination is rebuilt from the source's compacted delta and index, with tombstones. If the source is empty after a
    rollback or a retraction, the destination is emptied.
    """
    chosen = _choice(source_table_id, destination_table_id, source, destination, other, cold)
    if isinstance(chosen, NothingToDo):
        return chosen
    snapshot = _snapshot(source_table_id, destination_table_id, partition, source, destination, chosen)
    return replace(snapshot, cold=cold)


def coarse_files(compacted: CompactedDelta) -> list[str]:
    """The paths of files with times that could be in microseconds, and are in seconds or milliseconds."""
    far = compacted.far
    schemas = {id(file.schema): file.schema for file in compacted.files}
    coarse = {key for key, schema in schemas.items() if far is not None and in_micros(schema, far) != schema}
    return [file.path for file in compacted.files if id(file.schema) in coarse]


def may_be_laid_out(source: StreamState, destination: StreamState, cluster_by: str) -> list[str]:
    """The paths of compacted files that a session could lay out anew by these columns, whatever values new rows have,
    or could merge because they are small."""
    base, rows = destination.compacted, sum(delta.rows for delta in source.deltas)
    if base is None or not columns_of(cluster_by, base.schema):
        return []
    choice = overlapping_files(base.files, cluster_by, base.schema, [({}, rows)] if rows else ())
    small = [2 * file.bytes < TARGET_FILE_BYTES_MIN for file in base.files]
    may_be = choice.chosen | (np.array(small, bool) if rows or sum(small) > 1 else False)
    return [file.path for file, is_chosen in zip(base.files, may_be.tolist(), strict=True) if is_chosen]


def _snapshot(
    source_table_id: str,
    destination_table_id: str,
    partition: Partition,
    source: StreamState,
    destination: StreamState,
    chosen: _FoldInput,
) -> PartitionSnapshot:
    done = chosen.base or destination.compacted  # an empty source has no base: keep the destination's watermark
    index_of = destination if chosen.owned else source
    return PartitionSnapshot(
        source_table_id,
        destination_table_id,
        partition,
        chosen.base,
        chosen.owned,
        chosen.deltas,
        index=(index_of.index or chosen.base.index) if chosen.base else None,
        watermark=chosen.deltas[-1].position if chosen.deltas else done.watermark if done else -INT64_MAX - 1,
        next_file_number=destination.compacted.next_file_number if destination.compacted else ChainFileNumber(0),
        moment=Moment(source.version, source.tail, destination.version, destination.tail),
        identity={"fences": len(destination.fenced_sessions), "retracted": sorted(source.retracted)},
        why=chosen.why,
    )


@dataclass(frozen=True, slots=True)
class _FoldInput:
    base: CompactedDelta | None
    owned: bool
    deltas: tuple[Delta, ...]
    why: str


def _choice(
    source_table_id: str,
    destination_table_id: str,
    source: StreamState,
    destination: StreamState,
    other: OtherWork,
    cold: frozenset[str],
) -> _FoldInput | NothingToDo:
    if source_table_id == destination_table_id:
        return _since(source.compacted, source.deltas, other, cold) or _nothing(source.last_position, other)
    if destination.commits:
        raise InputError(f"table {destination_table_id!r} holds deltas of its own: it cannot be a destination")
    done = destination.compacted
    if done and done.source_table_id != source_table_id:
        raise InputError(f"table {destination_table_id!r} is the destination of {done.source_table_id!r}")
    passed = source.compacted is not None and (done is None or source.compacted.watermark > done.watermark)
    if done is None or done.source_lineage != source.lineage or passed:
        why = "first compaction" if done is None else "the source was compacted or restated past the watermark: rebuilt"
        if source.compacted is None and not source.deltas and not (done and done.rows):
            return NothingToDo(f"table {source_table_id!r} holds no delta")
        return _FoldInput(source.compacted, False, source.deltas, why)
    newer = tuple(delta for delta in source.deltas if delta.position > done.watermark)
    return _since(done, newer, other, cold) or _nothing(done.watermark, other)


def _nothing(position: int | None, other: OtherWork) -> NothingToDo:
    overlap = f", and no files to lay out by {other.cluster_by}" if other.cluster_by else ""
    return NothingToDo(f"no delta since position {position}{overlap}")


def _since(
    base: CompactedDelta | None, deltas: tuple[Delta, ...], other: OtherWork, cold: frozenset[str]
) -> _FoldInput | NothingToDo | None:
    """The new deltas, or for a purge the files with dead rows, or the files that overlap. None: there are none."""
    if deltas:
        return _FoldInput(base, True, deltas, f"{counted(len(deltas), 'delta')} since the last compaction")
    if base is None:
        return None
    if other.purge and (marked := sum(file.deletions is not None for file in base.files)):
        return _FoldInput(base, True, (), f"purge: {counted(marked, 'file')} with dead rows")
    if other.purge and other.micros and (coarse := len(set(coarse_files(base)) - cold)):
        return _FoldInput(base, True, (), f"purge: {counted(coarse, 'file')} with times coarser than microseconds")
    if other.cluster_by and columns_of(other.cluster_by, base.schema):
        bound = LayoutBound(other.amplification_max, base.account, base.next_file_number)
        choice = overlapping_files(base.files, other.cluster_by, base.schema, (), bound, cold)
        if count := int(choice.chosen.sum()):
            return _FoldInput(base, True, (), f"{counted(count, 'file')} to lay out by {other.cluster_by}")
        if count := int(choice.waits.sum()):
            why = "write_amplification_max allows no more until rows come"
            return NothingToDo(f"{counted(count, 'file')} to lay out by {other.cluster_by} must wait: {why}")
    return None
