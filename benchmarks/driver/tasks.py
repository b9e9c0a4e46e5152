"""What simulated tasks return, and how long they take: the right shapes, and counts that add up.

    file 7      6,000,000 rows, of which a tenth are superseded at once
    dedupe      group 3 of 40: 135,000 live rows of file 7, 15,000 superseded
    seconds     of 15 M new entries: 15 M x 2.4e-7

Nothing lies in files: index files and compacted files are names. Rates are FIRST_RATES of planning/work.py. That of a
delta row holds all that becomes of its entry, and is divided among the steps as STAGE_ROW_S says they take it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.data_file import DataFile
from deltacompact.index.index_files import IndexFile
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.sizing import driver_time
from deltacompact.planning.work import FIRST_RATES
from deltacompact.steps.assign_pointers import IndexResult
from deltacompact.steps.dedupe import DedupeResult, FoldCounts, added_up, narrowed
from deltacompact.steps.materialize import Materialized
from deltacompact.steps.shuffle import StoredGroups

SUPERSEDED_SHARE = 0.1
"""Of the rows of each file."""

HASH_S, FOLD_S = 1.5e-7, 2.4e-7
POINT_S = (FIRST_RATES["delta_row"] - HASH_S - FOLD_S) / 3
"""Seconds of a row in hash bucket, in dedupe, and in each of survivors, assign pointers and write index."""

RELAY_S = 4e-7
"""Of a row that a relay passes on, if all slots do: 32 bytes at the share of a slot in 25 Gbit/s for 32 slots."""
_RELAYS_MIN = 1 / 8
"""On fewer slots, each relay gets all of the network that it can use."""

Run = tuple[float, Callable[[int], Any]]


class SimulatedTasks:
    """The tasks of one session by this plan: a first compaction, all of whose deltas are upserts."""

    def __init__(self, plan: CompactionPlan) -> None:
        assert plan.base_manifest is None and not plan.changes_only, "a first compaction"
        self._plan = plan
        self._rows = np.array([source.file.rows for source in plan.sources], np.int64)
        self._live = self._rows - (self._rows * SUPERSEDED_SHARE).astype(np.int64)
        self._live_rows = int(self._live.sum())
        self._row_bytes = plan.data_bytes / max(1, int(self._rows.sum()))
        self._starts = [round_.first for round_ in plan.rounds]
        self._round = 0
        self._groups: Counter[int] = Counter()
        """The dedupe tasks of each round."""
        self.relayed_s = 0.0

    def run(self, task: Callable[..., Any], inputs: tuple[Any, ...]) -> Run:
        """The seconds of a task, and a function that returns its value with a number."""
        return getattr(self, f"_{task.__name__}")(*inputs)  # type: ignore[no-any-return]

    def _hash_bucket(self, _store: Any, _encoding: Any, _partition: Any, work: Any, *_rest: Any) -> Run:
        self._round = bisect_right(self._starts, work[0].ordinal) - 1
        rows = sum(piece.rows[1] - piece.rows[0] for piece in work)
        return len(work) * FIRST_RATES["delta_file"] + rows * HASH_S, _nothing

    def _relay(self, _starts: Any, *parcels: Any) -> Run:
        capacity, plan = self._plan.capacity, self._plan
        of_a_sender = driver_time.parcels_each(len(capacity.node_slots), plan.options.limits)
        relays = of_a_sender * plan.round_rows / plan.task_rows / len(parcels)
        seconds = len(parcels) / of_a_sender * plan.task_rows * RELAY_S
        seconds *= min(1.0, max(_RELAYS_MIN, relays / capacity.slots))
        self.relayed_s += seconds
        return seconds, _nothing

    def _dedupe(
        self, _store: Any, task: Any, buckets: range, *_parts: Any, adds: bool = False, holds: bool = False
    ) -> Run:
        round_, group = self._round, self._groups[self._round]
        self._groups[round_] += 1
        plan, share = self._plan, len(buckets) / self._plan.hash_bucket_count
        first, stop = plan.rounds[round_].first, plan.rounds[round_].stop
        new, merged = self._rows_between(first, stop) * share, 0 if adds else self._rows_between(0, first) * share
        entry_s = FIRST_RATES["merged_row"] + FIRST_RATES["written_entry"]
        seconds = new * FOLD_S + (new + merged) * entry_s * (not holds)

        def result(number: int) -> Any:
            if number:
                return None
            groups = self._groups[round_]
            of_round = slice(first, stop)
            upserts = int(_share(self._rows[of_round], group, groups, first).sum())
            born = _share(self._live[of_round], group, groups, first)
            superseded = upserts - int(born.sum())
            live = np.zeros(len(self._rows), np.int64)
            live[of_round] = born
            if not adds:
                live[:first] = _share(self._live[:first], group, groups, 0)
            counts = FoldCounts(upserts, superseded=superseded, live=int(live.sum()))
            files = ((),) * len(buckets) if holds else self._files(task, buckets, counts.live)
            return DedupeResult(files, counts, narrowed(live))

        return seconds, result

    def _added_up(self, *results: Any) -> Run:
        return 0.001 * len(results), lambda _number: added_up(*(handle.result(handle.number) for handle in results))

    def _dedupe_run(self, *inputs: Any) -> Run:
        return self._dedupe(*inputs, adds=True)

    def _dedupe_held(self, *inputs: Any) -> Run:
        return self._dedupe(*inputs, holds=True)

    def _survivors(self, _store: Any, _last: Any, buckets: range, *_rest: Any) -> Run:
        return self._live_rows * len(buckets) / self._plan.hash_bucket_count * POINT_S, _nothing

    def _survivors_in_files(self, _store: Any, last: Any, buckets: range, *rest: Any) -> Run:
        return self._survivors(_store, last, buckets)[0], lambda _number: (StoredGroups(rest[-1]()), None)

    def _assign(self, _store: Any, _number: int, group: Any, *_rest: Any) -> Run:
        return int(group.file_rows.sum()) * POINT_S, _nothing

    def _assign_in_files(self, _store: Any, number: int, group: Any, *rest: Any) -> Run:
        return self._assign(_store, number, group)[0], lambda _number: StoredGroups(rest[2]())

    def _write_index(self, _store: Any, last: Any, _number: int, buckets: range, path_of: Any, *_rest: Any) -> Run:
        live = self._live_rows
        low, high = (live * bucket // self._plan.hash_bucket_count for bucket in (buckets.start, buckets.stop))
        seconds = (high - low) * POINT_S + len(buckets) * FIRST_RATES["object"]

        def result(_number: int) -> IndexResult:
            files = _index_files(len(buckets), high - low, last.rows_per_file, last, path_of)
            return IndexResult(files, high - low, 0)

        return seconds, result

    def _materialize_each(self, _store: Any, like: Any, outputs: Any, paths: Callable[[], str]) -> Run:
        sizes = [max(1, int(rows * self._row_bytes)) for _, rows, *_ in outputs]

        def result(_number: int) -> list[Materialized]:
            return [
                Materialized(
                    DataFile(number, paths(), like.options.content_type, rows, size, like.schema, decodes=True), 0
                )
                for (number, rows, *_), size in zip(outputs, sizes, strict=True)
            ]

        return sum(sizes) * FIRST_RATES["delta_byte"], result

    def _rows_between(self, first: int, stop: int) -> int:
        return int(self._rows[first:stop].sum())

    def _files(self, task: Any, buckets: range, rows: int) -> tuple[tuple[IndexFile, ...], ...]:
        return _index_files(len(buckets), rows, task.rows_per_index_file, task, task.path_of)


def _nothing(_number: int) -> None:
    """The entries, pointers and ranks that tasks hand to each other: the driver never looks at them."""


def _share(rows: npt.NDArray[np.int64], group: int, groups: int, first: int) -> npt.NDArray[np.int64]:
    """The rows of each file that fall to one of so many groups. Together, they are all."""
    shares, rest = np.divmod(rows, groups)
    begin = (group - first) % groups
    shares[begin::groups] += rest[begin::groups]
    return shares


def _index_files(
    buckets: int, rows: int, rows_per_file: int, task: Any, path_of: Callable[[], str]
) -> tuple[tuple[IndexFile, ...], ...]:
    """Index files for so many rows, evenly in so many buckets, with checksums for each chunk."""
    entry_bytes, chunk = task.encoding.entry_bytes, task.chunk_entries

    def of_bucket(rows: int) -> tuple[IndexFile, ...]:
        sizes = [min(rows_per_file, rows - start) for start in range(0, rows, rows_per_file)]
        return tuple(
            IndexFile(path_of(), size, size * entry_bytes, (3735928559,) * -(-size // chunk)) for size in sizes
        )

    return tuple(of_bucket(rows * (n + 1) // buckets - rows * n // buckets) for n in range(buckets))
