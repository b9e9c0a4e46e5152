"""What convert and upsert see: an index that covers the files they ask about, or None.

using(terms, use)         use(index), with the newest generation
                          the index is damaged: one line to the user, and use() again with an index that is made anew
                          that fails, too: None, and the caller reads the data files
covering(index, files)    reads the files that the index lacks, and puts them into the next generation
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.limits import Limits
from deltacompact.base.wording import counted, text_of
from deltacompact.iceberg.deletes.dead_rows import FileScan
from deltacompact.iceberg.key_index import storing
from deltacompact.iceberg.key_index.document import (
    FileIdentity,
    IndexRun,
    IndexUnusableError,
    KeyIndex,
    UnknownFormatError,
)
from deltacompact.iceberg.key_index.entering import (
    Entering,
    EnterTask,
    NumberedRun,
    RangeTask,
    enter,
    pieces_of,
    write_range,
)
from deltacompact.iceberg.key_index.order import Order
from deltacompact.iceberg.key_index.terms import Terms
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID
from deltacompact.planning.sizing import index_sizes, task_counts

PROPERTY = "deltacompact.key-index.enabled"
BLOCK_ENTRIES = 16_384
"""Entries of a block, 512 KiB: looking up one deleted key takes one request of this size."""
COPIES = 3
"""A task holds its bucket's entries so many times: as read, filtered, and sorted."""
SIGNED_EVERY_S = 86_400.0
"""If a used generation is older than this, it is put again, so that `maintain` sees that the index is in use."""

R = TypeVar("R")


def is_enabled(option: bool | None, properties: Mapping[str, str]) -> bool:
    """Whether a table has a key index: by the option, else by its property. Raises InputError for a bad property."""
    if option is not None:
        return option
    text = properties.get(PROPERTY, "false").strip().lower()
    if text not in ("true", "false"):
        raise InputError(f"table property {PROPERTY}: {text!r} is neither true nor false")
    return text == "true"


@dataclass(frozen=True, slots=True)
class KeyIndexes:
    """The indexes of a table, for one session.

    live       the branch's data files
    folder     where tasks hand each other entries
    notes      lines for the user
    is_kept    True: files that an index lacks are added to it. False: the index is only read
    """

    tasks: Tasks
    live: frozenset[FileIdentity]
    limits: Limits
    folder: str
    notes: list[str]
    block_entries: int
    is_kept: bool = True

    @classmethod
    def read_only(cls, tasks: Tasks, limits: Limits, folder: str) -> KeyIndexes:
        """The indexes for a reader of the table, which adds nothing to them."""
        return cls(tasks, frozenset(), limits, folder, [], BLOCK_ENTRIES, is_kept=False)

    @classmethod
    def of(
        cls,
        tasks: Tasks,
        data: Sequence[ManifestEntry],
        limits: Limits,
        folder: str,
        notes: list[str],
        block_entries: int = BLOCK_ENTRIES,
    ) -> KeyIndexes:
        """The indexes of a table whose branch has these data files."""
        return cls(tasks, frozenset(map(FileIdentity.of, data)), limits, folder, notes, block_entries)

    def using(self, terms: Terms, use: Callable[[KeyIndex], R]) -> R | None:
        """The result of `use(index)`. None: the index cannot be used."""
        broken: int | None = None
        for _ in range(2):
            index = self._newest(terms)
            if index is None:
                return None
            try:
                return use(index.emptied() if index.generation == broken else index)
            except IndexUnusableError as error:
                self._note(error)
                broken = index.generation
            except InputError as error:  # a data file cannot be entered: without an index, only its live rows are read
                self._note(error)
                return None
        return None

    def covering(
        self,
        index: KeyIndex,
        entering: Entering,
        asked: Sequence[tuple[FileIdentity, FileScan]],
        columns: pa.Schema,
    ) -> KeyIndex:
        """The index with all these files. Files that it lacks are read, and put into the next generation. An index that
        is not kept is returned as it is.

        Raises InputError for a file that the table has twice, as `add_files` can leave it: each of its rows counts
        twice, and an index has one entry for both.
        """
        counts = Counter(file for file, _ in asked)
        if twice := next((file for file, count in counts.items() if count > 1), None):
            raise InputError(f"the table has {twice.path} twice")
        if not self.is_kept:
            return index
        known = frozenset(index.data)
        new = [(file, _by_itself(scan)) for file, scan in asked if file not in known]
        read = f"{len(new):,} of {counted(len(asked), 'data file')}"
        self.notes.append(f"key index: {read} {'was' if len(new) == 1 else 'were'} read")
        if not new:
            return self._signed(index)
        sizes = [(run.rows, sum(file.rows for file in run.data if file in self.live)) for run in index.runs]
        merged = runs_to_merge(sizes, sum(file.rows for file, _ in new))
        kept = tuple(run for number, run in enumerate(index.runs) if number not in merged)
        run = self._run(index.terms, entering, new, [index.runs[number] for number in merged], columns)
        return self._published(replace(index, runs=(*kept, run)))

    def buckets(self, rows: int, order: Order) -> int:
        """The number of buckets for `rows` entries, so that a task can hold one bucket."""
        memory = self.tasks.executor.capacity.memory_per_task_bytes
        return index_sizes.hash_bucket_count(rows, order.entry_bytes * COPIES, memory, self.limits)

    def _run(
        self,
        terms: Terms,
        entering: Entering,
        new: Sequence[tuple[FileIdentity, FileScan]],
        merged: Sequence[IndexRun],
        columns: pa.Schema,
    ) -> IndexRun:
        """A run of new files, and of the live files of merged runs."""
        data = [file for file, _ in new]
        merges = []
        for old in merged:
            kept = [file for file in old.data if file in self.live]
            merges.append(NumberedRun.of(old, {file: number for number, file in enumerate(kept, len(data))}))
            data += kept
        order, capacity = entering.order, self.tasks.executor.capacity
        rows, new_rows = sum(file.rows for file in data), sum(file.rows for file, _ in new)
        memory = capacity.memory_per_task_bytes
        buckets = self.buckets(rows, order)
        nodes = len(capacity.node_slots)
        rows_max = task_counts.task_rows(
            new_rows, capacity.slots, nodes, buckets, order.entry_bytes, memory, self.limits
        )
        name = uuid.uuid4().hex
        entries = [
            EnterTask(
                pieces, entering, columns, buckets, f"{self.folder}entered-{name}-{number}.arrow", self.limits.reading
            )
            for number, pieces in enumerate(pieces_of([scan for _, scan in new], rows_max))
        ]
        self.tasks.run(enter, entries)
        entered = tuple(task.path for task in entries)
        ranges = [
            RangeTask(
                bucket,
                buckets,
                entered,
                tuple(merges),
                order,
                f"{terms.folder}run-{name}-{bucket}.arrow",
                self.block_entries,
            )
            for bucket in range(buckets)
        ]
        files = tuple(file for file in self.tasks.run(write_range, ranges) if file is not None)
        run = IndexRun(tuple(data), files, order)
        if run.rows != sum(member.file.rows for member in files):
            raise IndexUnusableError(f"{terms.folder}: {run.rows} rows went in, not all of them are in the index")
        return run

    # Generations

    def _newest(self, terms: Terms) -> KeyIndex | None:
        """The newest generation, or an empty one if that is unusable. None: a newer deltacompact wrote it."""
        store = self.tasks.store
        try:
            return storing.newest(store, terms)
        except UnknownFormatError as error:
            self._note(error)
            return None
        except DeltaCompactError as error:
            self._note(error)
        try:
            return KeyIndex(terms, storing.newest_generation(store, terms))
        except DeltaCompactError:
            return None

    def _published(self, index: KeyIndex) -> KeyIndex:
        try:
            return storing.publish(self.tasks.store, index)
        except DeltaCompactError as error:  # this session goes on with what it has
            self.notes.append(f"key index: {text_of(error)}; the next run may read these data files again")
            return index

    def _signed(self, index: KeyIndex) -> KeyIndex:
        is_old = index.generation > 0 and time.time() - index.written_s > SIGNED_EVERY_S
        return self._published(index) if is_old else index

    def _note(self, error: Exception) -> None:
        self.notes.append(f"key index: {text_of(error)}; the data files are read instead")


def _by_itself(scan: FileScan) -> FileScan:
    """The file without the table's deletes and lineage, because an entry depends on the file alone."""
    lineage: tuple[Any, ...] = (ROW_ID.name, LAST_UPDATED.name)
    return replace(scan, fills=tuple(fill for fill in scan.fills if fill.column.name not in lineage))


def runs_to_merge(runs: Sequence[tuple[int, int]], new_rows: int) -> list[int]:
    """The runs to merge with the next one, by number, in order. A run is given as (all rows, rows of live files).

        runs    8 4 2 1     new rows 1      1 + 1 -> 2, 2 + 2 -> 4, 4 + 4 -> 8, 8 + 8 -> 16      one run of 16
        runs    8 4 2       new rows 1      8 4 2 1
        runs    8 of which 3 live           merged in any case: most of what it has is gone from the table

    A run is merged once the newer runs have grown to its size. So after n rounds of equal size each row has been
    written at most 1 + log2(n) times: for 64 rounds 4 times, and 32.5 times if every round wrote the whole index. An
    index has at most about log2(n) runs, and each is asked.
    """
    chosen = {number for number, (rows, live) in enumerate(runs) if 2 * live < rows}
    size = new_rows + sum(runs[number][1] for number in chosen)
    for number in reversed(range(len(runs))):
        if number in chosen:
            continue
        if runs[number][1] > size:
            break
        chosen.add(number)
        size += runs[number][1]
    return sorted(chosen)
