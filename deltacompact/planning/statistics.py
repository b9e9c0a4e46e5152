"""Statistics of a partition before a session: counts and sizes from the log and the index manifest.

orders, day=2024-01-01
deltas   12 files, 240,000 rows, 9 MB Parquet                 read and folded
base     3 files, 4,000,000 rows, 130 MB, 1 of them small     partly read and written anew
index    4 buckets, runs of 4,000,000 and 80,000 entries of 32 bytes
touched  a quarter of the base's rows is decoded, a half of its bytes is copied: a forecast of touched.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deltacompact.base.model import ContentType, OperationType
from deltacompact.planning.decisions import FileAction, decide_files
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.touched import UNKNOWN, Touched

_SAVED = 32
"""Bytes that encodings save for each row, roughly, if the row's width is unknown."""
_TEXT = (ContentType.CSV, ContentType.JSON)


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """The primary key index of the base.

    runs              the entries of each run, the oldest first
    mask_bytes        bytes of the relocations' masks
    mergeable         whether a session may add a run instead of rewriting the index
    relocated_rows    rows of the files that were rewritten since the index was, each time that they were
    """

    hash_buckets: int
    runs: tuple[int, ...]
    entries: int
    mask_bytes: int = 0
    mergeable: bool = True
    relocated_rows: int = 0


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """The input of one session.

    delta_file_rows     rows of each delta file, in fold order
    delta_bytes         stored bytes of the deltas
    text_bytes          those in CSV or JSON files, which take longer to decode
    text_file_bytes     the largest of these files
    kept_bytes          those in delta files that stay as they are if no row dies
    base_small_files    compacted files to merge with others
    entry_bytes         bytes of an index entry: 32 and the sort key
    read_bytes          decoded bytes of the largest row group
    undivided_bytes     those of them that are held however little is read at once
    index               None before the first compaction
    touched             the parts of the base that the deltas touch, if somebody has looked: otherwise all
    laid_out            if rows are laid out by columns, the share of the base that may be rewritten because it overlaps
                        new rows. None: rows keep their order
    catalog             the table's catalog: tables of two catalogs may have the same name
    is_remote           the store is behind a network
    """

    table_id: str
    partition: dict[str, str | None]
    delta_file_rows: tuple[int, ...] = ()
    delta_bytes: int = 0
    text_bytes: int = 0
    text_file_bytes: int = 0
    kept_bytes: int = 0
    delete_rows: int = 0
    base_small_files: int = 0
    base_rows: int = 0
    base_bytes: int = 0
    base_files: int = 0
    entry_bytes: int = 32
    read_bytes: int = 0
    undivided_bytes: int = 0
    index: IndexStatistics | None = None
    touched: Touched = UNKNOWN
    laid_out: float | None = None
    catalog: str = ""
    is_remote: bool = False

    @property
    def mode(self) -> str:
        """The mode of a job run on an Iceberg table; "" for a delta stream."""
        return ""

    @property
    def stream(self) -> str:
        """The name under which rates are learned. First compactions have their own: they tell little about later
        ones."""
        return self._named("" if self.index else " (first)")

    def _named(self, what: str) -> str:
        return f"{self.table_id}{what}" + (f" in {self.catalog}" if self.catalog else "")

    @property
    def delta_files(self) -> int:
        return len(self.delta_file_rows)

    @property
    def delta_rows(self) -> int:
        return sum(self.delta_file_rows)

    @property
    def base_decoded_bytes(self) -> float:
        """Bytes in memory of all rows of the base, roughly."""
        return self.touched.base_row_bytes * self.base_rows or decoded_bytes(self.base_rows, self.base_bytes)

    @property
    def delta_decoded_bytes(self) -> float:
        return self.touched.delta_row_bytes * self.delta_rows or decoded_bytes(self.delta_rows, self.delta_bytes)

    @property
    def bytes(self) -> int:
        return self.delta_bytes + self.base_bytes

    @property
    def entries(self) -> int:
        """Entries of the index, if every delta row is new."""
        return self.delta_rows + (self.index.entries if self.index else 0)

    @property
    def read_through(self) -> int:
        """Files that every reader of the partition must open until it is compacted."""
        return self.delta_files + self.base_small_files


def decoded_bytes(rows: int, size: int) -> float:
    """The bytes in memory of rows, roughly. `size`: their stored bytes."""
    return float(size + _SAVED * rows)


def statistics_of(plan: CompactionPlan) -> PartitionStatistics:
    """The statistics in a plan of the engine. They do not depend on the machine of the plan."""
    base = [source.file for source in plan.sources if source.in_base]
    deltas = [source for source in plan.sources if not source.in_base]
    files = [source.file for source in deltas]
    texts = [file.bytes for file in files if file.content_type in _TEXT]
    needs = Needs(plan)
    return PartitionStatistics(
        table_id=plan.input.source_table_id,
        partition=dict(plan.input.partition.values),
        delta_file_rows=tuple(file.rows for file in files),
        delta_bytes=sum(file.bytes for file in files),
        text_bytes=sum(texts),
        text_file_bytes=max(texts, default=0),
        kept_bytes=_kept_bytes(plan),
        delete_rows=sum(source.file.rows for source in deltas if source.operation is OperationType.DELETE),
        base_small_files=sum(plan.is_small(file.rows, file.bytes) for file in base),
        base_rows=sum(file.rows for file in base),
        base_bytes=sum(file.bytes for file in base),
        base_files=len(base),
        entry_bytes=plan.encoding.entry_bytes,
        read_bytes=needs.read_bytes,
        undivided_bytes=needs.undivided_bytes,
        index=_index_of(plan),
        laid_out=_laid_out(plan) if plan.clusters else None,
    )


def _laid_out(plan: CompactionPlan) -> float:
    """The share of the base that may be laid out anew. The values of the deltas are unknown yet, so they overlap
    all."""
    decided = decide_files(plan, np.array([source.file.live_rows for source in plan.sources], np.int64), {})
    rewritten = {decision.ordinal for decision in decided if decision.action is FileAction.REWRITE}
    base = [source for source in plan.sources if source.in_base]
    chosen = sum(source.file.rows for source in base if source.ordinal in rewritten)
    return chosen / max(1, sum(source.file.rows for source in base))


def _kept_bytes(plan: CompactionPlan) -> int:
    """The bytes of delta files that would stay as they are if no row died."""
    everything = np.array([source.file.live_rows for source in plan.sources], np.int64)
    kept = {decision.ordinal for decision in decide_files(plan, everything) if decision.action is FileAction.KEEP}
    return sum(source.file.bytes for source in plan.sources if source.ordinal in kept and not source.in_base)


def _index_of(plan: CompactionPlan) -> IndexStatistics | None:
    manifest = plan.base_manifest
    if manifest is None:
        return None
    return IndexStatistics(
        manifest.hash_bucket_count,
        tuple(manifest.run_entries(run) for run in range(len(manifest.runs))),
        manifest.entries,
        sum(relocation.mask_bytes for relocation in manifest.relocations),
        plan.input.owned and plan.tombstone_retention is None and manifest.encoding == plan.encoding,
        sum(relocation.rows for relocation in manifest.relocations),
    )
