"""Plans a compaction session: pure, from a snapshot and limits to a plan.

    snapshot    8 rows in the index, deltas of 5,000,000 and 10 rows
    encoding    how keys become bytes: from the index, or from the columns of the deltas
    sizes       4 hash buckets, as the index has · one round for each delta · the index is merged: too much changes
    plan        the sources in fold order, and all of the above

An attempt that resumes a session adopts the sizes that depend on the machine: the session's records fit these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltacompact.base.data_file import DataFile, FarValues
from deltacompact.base.deltas import CompactedDelta
from deltacompact.base.errors import InputError
from deltacompact.base.model import OperationType
from deltacompact.base.numbers import DeltaFileNumber, Ordinal
from deltacompact.base.settings import Options
from deltacompact.base.table_keys import TableKeys
from deltacompact.index.keys import Encoding, resolve_encoding
from deltacompact.index.primary_key_index import IndexManifest
from deltacompact.planning.plan import Capacity, CompactionPlan, Round, SourceFile, sources_of
from deltacompact.planning.sizing import index_sizes, layout_sizes
from deltacompact.planning.terms import SessionTerms
from deltacompact.table.ports import PartitionSnapshot
from deltacompact.tabular import schemas
from deltacompact.tabular.coarse_times import in_micros
from deltacompact.tabular.far_values import merged

FILE_NUMBER_MAX = 2**32 - 3


def plan(
    snapshot: PartitionSnapshot,
    terms: SessionTerms,
    manifest: IndexManifest | None,
    capacity: Capacity,
    adopted: AdoptedSizes | None = None,
) -> CompactionPlan:
    """Plan a session. `manifest`: of the base's index. `adopted` has the sizes of an interrupted session, to resume it.

    Raises SchemaError naming file and column if the files do not fit together.
    """
    keys, options, tombstone_retention = terms.keys, terms.options, terms.tombstone_retention
    sources = sources_of(snapshot)
    deltas = [source for source in sources if not source.in_base]
    upserts = [source.file for source in sources if source.operation is OperationType.UPSERT and not source.in_base]
    delta_files = [(source.operation, source.file) for source in deltas]
    indexed = manifest.encoding if manifest else None
    encoding = resolve_encoding(keys, terms.partition_keys, delta_files, indexed)
    schema = schemas.union(upserts, snapshot.base.schema if snapshot.base else None)
    if terms.micros and (far := _far(snapshot.base, upserts)) is not None:
        schema = in_micros(schema, far)
    if adopted is None:
        rewritable = sum(source.file.rows for source in sources if source.in_base)
        # Expired tombstones may be in older runs. A table with tombstone_retention merges its runs each time.
        mergeable = manifest if snapshot.owned and tombstone_retention is None else None
        delta_rows = [source.file.rows for source in deltas]
        adopted = _sizes(encoding, manifest, options, capacity, delta_rows)
        if mergeable and len(adopted.round_ends) <= 1 and mergeable.hash_bucket_count == adopted.hash_bucket_count:
            changes = _changes_only(mergeable, encoding, sum(delta_rows), rewritable, capacity, options)
            adopted = replace(adopted, changes_only=changes)
    if snapshot.next_file_number + 2 * len(sources) > FILE_NUMBER_MAX:
        raise InputError(f"table {snapshot.destination_table_id!r} has used up its file numbers: restate it")
    return CompactionPlan(
        snapshot,
        keys,
        options,
        encoding,
        schema,
        sources,
        _rounds(sources, len(sources) - len(deltas), adopted.round_ends, snapshot.watermark),
        adopted.hash_bucket_count,
        adopted.changes_only,
        manifest,
        tombstone_retention,
        capacity,
        terms.micros,
    )


def _far(base: CompactedDelta | None, upserts: Sequence[DataFile]) -> FarValues | None:
    """The far values of all rows. None: release 0.1 has not measured some of them."""
    found = [*([base.far] if base else ()), *(file.far for file in upserts if file.rows)]
    return None if None in found else merged(far for far in found if far)


@dataclass(frozen=True, slots=True)
class AdoptedSizes:
    """The decisions that depend on the machine. An attempt that resumes a session on another machine adopts them."""

    hash_bucket_count: int
    round_ends: tuple[int, ...]
    changes_only: bool = False
    """Whether the index gets a run with the changes. Else it is merged and rewritten."""


def _changes_only(
    manifest: IndexManifest, encoding: Encoding, new_rows: int, base_rows: int, capacity: Capacity, options: Options
) -> bool:
    """Whether to add a run: the runs above the first must be few, and small compared to it.

    Each task holds one bit for each row of a rewritten file, for the relocations, so the sum of these bits is bounded,
    too. If rows are laid out, each task maps a file with 32 bits a row: that of the whole base must stay in memory.
    """
    if manifest.encoding != encoding:
        return False
    if options.cluster_by and not layout_sizes.may_move(base_rows, capacity.memory_per_task_bytes):
        return False
    limits = options.limits
    first, *above = (manifest.run_entries(run) for run in range(len(manifest.runs)))
    masks = sum(relocation.mask_bytes for relocation in manifest.relocations) + base_rows // 8
    memory = capacity.memory_per_task_bytes
    return index_sizes.adds_run(first, above, new_rows, masks, encoding.entry_bytes, memory, limits)


def _sizes(
    encoding: Encoding,
    manifest: IndexManifest | None,
    options: Options,
    capacity: Capacity,
    delta_rows: list[int],
) -> AdoptedSizes:
    memory, entry_bytes = capacity.memory_per_task_bytes, encoding.entry_bytes
    rows = sum(delta_rows) + (manifest.entries if manifest else 0)
    buckets, limits = options.hash_bucket_count, options.limits
    if buckets is None and manifest is not None:
        buckets = manifest.hash_bucket_count
        if index_sizes.must_rehash(rows, buckets, entry_bytes, memory):
            buckets = index_sizes.hash_bucket_count(rows, entry_bytes, memory, limits)
    if buckets is None:
        buckets = index_sizes.hash_bucket_count(rows, entry_bytes, memory, limits)
    per_round = options.rows_per_round or index_sizes.round_rows_max(capacity.object_store_bytes, entry_bytes)
    return AdoptedSizes(buckets, tuple(index_sizes.rounds(delta_rows, per_round)))


def _rounds(sources: tuple[SourceFile, ...], first: int, ends: Sequence[int], watermark: int) -> tuple[Round, ...]:
    """The rounds. A session without delta files has one empty round, which translates the index to session ordinals."""
    rounds, start = [], first
    for number, end in enumerate(ends or (0,), 1):
        stop = first + end
        last = sources[stop - 1] if stop > start else None
        position, file_number = (last.position, last.file.number) if last else (watermark, 0)
        rounds.append(Round(number, Ordinal(start), Ordinal(stop), position, DeltaFileNumber(file_number)))
        start = stop
    return tuple(rounds)


def fingerprint(snapshot: PartitionSnapshot, keys: TableKeys, options: Options) -> dict[str, object]:
    """The values that the session id depends on: base, source, keys and options. Deltas are in the session's record."""
    return {
        "destination": snapshot.destination_table_id,
        "partition": snapshot.partition.values,
        "arguments": options.output_options,
        "base": snapshot.moment.destination_version,
        "source": [snapshot.source_table_id, snapshot.moment.source_version],
        "primary_keys": keys.primary,
        "sort_keys": [(key.name, key.direction.value) for key in keys.sort],
        **snapshot.identity,
    }
