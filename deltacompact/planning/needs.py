"""What a plan needs: the memory of its tasks, what the session holds between stages, and space in the store. Pure.

    2 M rows onto 8 M of 100 bytes, on 2 slots
    one task                652 MiB    libraries, the entries of its rows, a decoded row group
    a process with two    1,112 MiB    tasks of one process share the libraries
    held                    153 MiB    entries, pointers and ranks that the stages hand to each other
    space                   926 MiB    the outputs, and an index for each round

Nothing is read: the sizes of files, rows and row groups are in the log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import OperationType
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.reader_memory import ReaderMemory
from deltacompact.planning.sizing import index_sizes, layout_sizes, task_counts, task_memory
from deltacompact.storage.identity import is_far
from deltacompact.tabular import column_types
from deltacompact.tabular.row_groups import cells_of


@dataclass(frozen=True)  # without slots, so that it remembers what the properties ask
class Needs:
    """The needs of one plan, in bytes."""

    plan: CompactionPlan

    @cached_property
    def peak_bytes(self) -> int:
        """Memory of the largest task's process."""
        plan = self.plan
        bucket_rows = math.ceil(plan.round_rows / plan.hash_bucket_count)
        pointer_rows = math.ceil(plan.pointed_rows / plan.bucket_groups(plan.rounds[-1]))
        hashed, limits = min(plan.task_rows, plan.round_rows), plan.options.limits
        sizes = hashed, bucket_rows, plan.encoding.entry_bytes, self.read_bytes, limits, pointer_rows, plan.base_rows
        peak = task_memory.peak_task_bytes(*sizes, self._remote_bytes)
        return (
            max(peak, task_memory.TASK_BASE_BYTES + layout_sizes.RUN_COPIES * self._sorted_bytes)
            if plan.clusters
            else peak
        )

    @cached_property
    def cluster_peak_bytes(self) -> int:
        """The same on a cluster: there each task holds the rows that it routes itself, until it hands them over."""
        if not self.routed_bytes:
            return self.peak_bytes
        routing = task_memory.TASK_BASE_BYTES + layout_sizes.RUN_COPIES * self._sorted_bytes + self._held_task_bytes
        return max(self.peak_bytes, routing)

    def process_bytes(self, tasks: int, holds: bool = False, has_one_heap: bool = True) -> int:
        """Memory of a process that runs this number of tasks side by side.

        holds           it also keeps what tasks hand to each other, without the copy of the entries that is inside the
                        tasks and their results
        has_one_heap    no heap keeps what another could use, which counts if rows are wide
        """
        plan = self.plan
        inside = (plan.round_rows + tasks * min(plan.task_rows, plan.round_rows)) * plan.encoding.entry_bytes
        held = max(0, self.held_bytes - inside) if holds else 0
        peak = self.peak_bytes if holds else self.cluster_peak_bytes
        keeps = not has_one_heap and self._live_bytes >= self._live_rows * task_memory.KEPT_ROW_BYTES
        taken = tasks * (peak - task_memory.TASK_BASE_BYTES) * (task_memory.KEPT_BY_HEAPS if keeps else 1)
        planned = task_memory.TASK_BASE_BYTES + int(taken) + held
        bound = plan.options.memory_bytes
        if bound is None:
            return planned
        return min(planned, max(bound, task_memory.TASK_BASE_BYTES + tasks * 4 * self.undivided_bytes))

    @property
    def tasks_at_once(self) -> int:
        """The most tasks of the session that run side by side."""
        plan = self.plan
        hashing = math.ceil(plan.round_rows / plan.task_rows)
        groups = max(map(plan.bucket_groups, plan.rounds))
        return max(1, min(self.task_places, max(hashing, self._outputs_max, groups)))

    @property
    def task_places(self) -> int:
        """How many tasks may run side by side: one for each slot; more if they share slots, fewer if wide rows fill
        a bounded memory."""
        capacity = self.plan.capacity
        slots, memory = capacity.slots, capacity.memory_per_task_bytes
        if self.plan.options.memory_bytes is not None:
            return task_memory.bounded_places(slots, 4 * self._reader.undivided(self._filled, assumed=True), memory)
        return task_memory.task_places(slots, capacity.tasks_per_slot, self.peak_bytes, memory)

    @property
    def held_bytes(self) -> int:
        """Most bytes of entries, pointers and ranks that the session holds between its stages."""
        plan, entry_bytes = self.plan, self.plan.encoding.entry_bytes
        last_rows, object_store = plan.rows_of(plan.rounds[-1]), plan.capacity.object_store_bytes
        is_held = index_sizes.fits_held(plan.base_rows, last_rows, entry_bytes, object_store, plan.options.limits)
        folded = 0 if plan.changes_only or not is_held else plan.base_rows
        return (folded + 2 * plan.round_rows) * entry_bytes + self._exchanged_bytes + self.routed_bytes

    @cached_property
    def routed_bytes(self) -> int:
        """Decoded bytes of the rows that are laid out and stay in memory until they are written, at most. 0: they go
        through files."""
        plan = self.plan
        if not plan.clusters:
            return 0
        free = int(plan.capacity.object_store_bytes * plan.options.limits.exchange_share) - self._exchanged_bytes
        upserts = [source for source in plan.sources if source.operation is OperationType.UPSERT]
        new = sum(source.file.likely_decoded_bytes for source in upserts if not source.in_base)
        every = sum(source.file.likely_decoded_bytes for source in upserts)
        return min(every, free) if new <= free else 0

    @cached_property
    def run_bytes(self) -> int:
        """Decoded bytes of a run, whose rows a task sorts at once to lay them out: at most all rows."""
        decoded = sum(source.file.likely_decoded_bytes for source in self.plan.sources)
        return max(1 << 20, min(layout_sizes.run_bytes(self.plan.capacity.memory_per_task_bytes), decoded))

    @cached_property
    def read_bytes(self) -> int:
        """The decoded bytes of a row group of the widest rows, and copies of one row if rows may be wide."""
        return self._reader.most(self._filled)

    @property
    def undivided_bytes(self) -> int:
        """The part of `read_bytes` that is held however little is read at once: copies of a wide row, and text."""
        return self._reader.undivided(self._filled)

    @property
    def space_bytes(self) -> int:
        """Bytes that the session adds to the store, at most: the outputs, and an index for each round.

        Nothing is deleted before the switch, so the indices of all rounds exist until a vacuum deletes them.
        """
        plan = self.plan
        folded = [
            plan.base_rows + sum(map(plan.rows_of, plan.rounds[:number])) for number in range(1, len(plan.rounds) + 1)
        ]
        entries = sum(folded) + (plan.base_rows if plan.rehash else 0)
        rows = sum(source.file.rows for source in plan.sources)
        masks = rows // 8 + (plan.pointed_rows * task_counts.EXCHANGE_BYTES if plan.exchanges_in_files else 0)
        routed = plan.data_bytes + 4 * rows if plan.clusters else 0
        return plan.data_bytes + entries * plan.encoding.entry_bytes + masks + routed

    @property
    def _exchanged_bytes(self) -> int:
        """Bytes of the pointers and ranks of the last round that stay in memory."""
        return 0 if self.plan.exchanges_in_files else self.plan.pointed_rows * task_counts.EXCHANGE_BYTES

    @property
    def _held_task_bytes(self) -> int:
        """Decoded bytes of the rows that a task holds while it routes them, at most."""
        capacity, limits = self.plan.capacity, self.plan.options.limits
        row_bytes = self._live_bytes / max(1, self._live_rows)
        memory = capacity.memory_per_task_bytes
        each = layout_sizes.held_rows(self._live_rows, row_bytes, capacity.slots, memory, limits)
        return min(self.routed_bytes, math.ceil(each * row_bytes))

    @property
    def _sorted_bytes(self) -> int:
        """Decoded bytes of the rows that a task sorts at once: those of a run, or of a smaller load if all rows surely
        stay in memory."""
        rows, decoded, outputs = self._live_rows, self._live_bytes, self._outputs_max
        tasks = 2 * self.plan.capacity.slots + len(self._upserted)
        if not rows or self.routed_bytes < decoded or outputs * tasks > layout_sizes.HELD_VALUES_MAX / 2:
            return self.run_bytes
        cells = outputs * cells_of(rows / outputs, decoded / rows, self.plan.options.row_group_rows)
        return layout_sizes.load_bytes(cells, decoded / rows, self.run_bytes)

    @cached_property
    def _upserted(self) -> list[DataFile]:
        """The files with rows that may live."""
        upserts = (source.file for source in self.plan.sources if source.operation is OperationType.UPSERT)
        return [file for file in upserts if file.rows]

    @cached_property
    def _live_rows(self) -> int:
        """The number of rows that may live."""
        return sum(file.rows for file in self._upserted)

    @cached_property
    def _live_bytes(self) -> int:
        """About the decoded bytes of the rows that may live."""
        return sum(file.likely_decoded_bytes for file in self._upserted)

    @property
    def _outputs_max(self) -> int:
        """The number of compacted files if all rows live and are written."""
        return self.plan.laid_out_files(self._live_rows, self.plan.data_bytes)

    @property
    def _remote_bytes(self) -> int:
        """Bytes of files and index that are behind a network, at most."""
        plan, files = self.plan, [source.file for source in self.plan.sources]
        if plan.capacity.is_near and not any(is_far(file.path) for file in files):
            return 0
        entries = plan.base_rows + plan.input.delta_rows
        return sum(file.bytes for file in files) + entries * plan.encoding.entry_bytes

    @cached_property
    def _reader(self) -> ReaderMemory:
        plan, has_any_width = self.plan, any(column_types.is_variable(field.type) for field in self.plan.schema)
        return ReaderMemory(plan.options.limits.reading.run_bytes, plan.options.row_group_rows, has_any_width)

    @property
    def _filled(self) -> list[DataFile]:
        """The files with rows."""
        return [source.file for source in self.plan.sources if source.file.rows]
