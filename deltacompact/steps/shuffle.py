"""What the tasks of one stage hand to those of the next, all to all: a parcel for each node, not for each task.

    8 buckets, 4 dedupe tasks, 2 nodes      starts (0, 2, 4, 6, 8)      parcels (0, 2, 4)
    hash bucket task 3   -> parcel 0: buckets 0‥4      dedupe tasks 0 and 1, on node 0, take their buckets out of it
                            parcel 1: buckets 4‥8      dedupe tasks 2 and 3, on node 1

Tasks of one node read the same objects without copying them, so there are tasks x nodes of them rather than tasks x
tasks: what the driver pays for each (a quarter of a millisecond) does not grow with the square of the cluster. What
does not fit the object store goes through files of the session; it would be spilled by it to disk anyway, when it is
full, and not in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.index.index_files import session_object
from deltacompact.storage.objects import ObjectStore

Arrays = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows by group, from group number `first` on: arrays of one length, and where each group begins and ends."""

    first: int
    arrays: Arrays
    offsets: npt.NDArray[np.int64]

    def of(self, group: int) -> Arrays:
        """The rows of one group."""
        low, high = self.offsets[group - self.first], self.offsets[group - self.first + 1]
        return tuple(array[low:high] for array in self.arrays)

    def parcels(self, starts: Sequence[int]) -> Iterator[Groups]:
        """Groups [starts[i], starts[i + 1]) in each. Of a numpy slice, only its rows travel."""
        for start, stop in pairwise(starts):
            offsets = self.offsets[start - self.first : stop - self.first + 1]
            yield Groups(start, tuple(array[offsets[0] : offsets[-1]] for array in self.arrays), offsets - offsets[0])


@dataclass(frozen=True, slots=True)
class Stored:
    """Groups in a file, a batch for each."""

    path: str
    first: int


Parcel = Groups | Stored


def parcels(
    store: ObjectStore, path_of: Callable[[], str] | None, groups: Groups, starts: Sequence[int]
) -> Iterator[Parcel]:
    """Hand over groups, [starts[i], starts[i + 1]) in each parcel; through a file if there is a path for it."""
    if path_of is None:
        yield from groups.parcels(starts)
        return
    path = path_of()
    names = [str(column) for column in range(len(groups.arrays))]
    schema = pa.schema(
        [(name, pa.from_numpy_dtype(array.dtype)) for name, array in zip(names, groups.arrays, strict=True)]
    )
    with store.writer(path) as sink, pa.ipc.new_file(sink, schema) as out:
        for group in range(starts[0], starts[-1]):
            out.write_batch(pa.record_batch([pa.array(array) for array in groups.of(group)], schema=schema))
    for _ in pairwise(starts):
        yield Stored(path, groups.first)


def taken(store: ObjectStore, parcel: Parcel, group: int) -> Arrays:
    """The rows of one group out of a parcel."""
    if isinstance(parcel, Groups):
        return parcel.of(group)
    with session_object(store, parcel.path) as source:
        batch = pa.ipc.open_file(source).get_batch(group - parcel.first)
        return tuple(np.array(column.to_numpy(zero_copy_only=False)) for column in batch.columns)


@dataclass(frozen=True, slots=True)
class Layout:
    """Consecutive items for each task, and consecutive tasks for each parcel.

    `starts` and `parcels` have where each one's begin, and where the last one's end.
    """

    starts: tuple[int, ...]
    parcels: tuple[int, ...]

    @classmethod
    def of(cls, items: int, tasks: int, node_slots: Sequence[int]) -> Layout:
        """As many tasks on each node as it has slots for: parcel i is for the tasks of node i."""
        tasks = max(1, min(items, tasks))
        return cls(spread(items, [1] * tasks), spread(tasks, node_slots))

    @property
    def tasks(self) -> list[range]:
        """The items of each task."""
        return [range(start, stop) for start, stop in pairwise(self.starts)]

    @property
    def parcel_count(self) -> int:
        return len(self.parcels) - 1

    @property
    def parcel_starts(self) -> tuple[int, ...]:
        """Where the items of each parcel begin, and where the last one's end."""
        return tuple(self.starts[task] for task in self.parcels)

    def parcel_of(self, task: int) -> int:
        """The parcel that has what a task needs: the number of its node."""
        return bisect_right(self.parcels, task) - 1


def spread(items: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Boundaries of consecutive groups of about these proportions: (0, …, items). None is empty: there may be fewer."""
    total, upto, starts = sum(weights), 0, [0]
    for weight in weights:
        upto += weight
        if (end := items * upto // total) > starts[-1]:
            starts.append(end)
    return tuple(starts)
