"""The shuffle between two stages, all to all: each task hands over one parcel for each node, not for each task.

    8 buckets, 4 dedupe tasks, 2 nodes      starts (0, 2, 4, 6, 8)      parcels (0, 2, 4)
    hash bucket task 3   -> parcel 0: buckets 0‥4      dedupe tasks 0 and 1, on node 0, take their buckets out of it
                            parcel 1: buckets 4‥8      dedupe tasks 2 and 3, on node 1

Tasks of one node share a parcel without copying it. So there are tasks x nodes objects, not tasks x tasks, and the
driver's time (a quarter of a millisecond for each object) does not grow with the square of the tasks. On many nodes a
parcel is for several of them, and relays divide it: everything crosses the network twice, but the driver keeps up.

    8,000 tasks to 313 nodes      parcels: 8,000 x 313 objects      with relays: 8,000 x 18, and 8,000 x 17

Data that does not fit the object store goes through files of the session: a full object store would spill it to disk
anyway, and out of order. Then each task hands over only the name of its file, and all tasks of the next stage share the
list of names:

    40,000 tasks to 10,000      parcels: 40,000 x 313 objects, 400,000,000 arguments      files: 40,000, and 10,000
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.index.index_files import OpenObject, session_object
from deltacompact.storage.fetched_file import ReadAhead, begun_ahead
from deltacompact.storage.objects import ObjectStore

Arrays = tuple[npt.NDArray[Any], ...]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows by group, from group number `first` on: arrays of equal length, and the offset of each group in them."""

    first: int
    arrays: Arrays
    offsets: npt.NDArray[np.int64]

    def __iter__(self) -> Iterator[Arrays]:
        """The rows of each group."""
        return map(self.of, range(self.first, self.first + len(self.offsets) - 1))

    def of(self, group: int) -> Arrays:
        """The rows of one group."""
        low, high = self.offsets[group - self.first], self.offsets[group - self.first + 1]
        return tuple(array[low:high] for array in self.arrays)

    def parcels(self, starts: Sequence[int]) -> Iterator[Groups]:
        """Parcel i has the groups [starts[i], starts[i + 1]). Pickling a numpy slice sends only its own rows."""
        for start, stop in pairwise(starts):
            offsets = self.offsets[start - self.first : stop - self.first + 1]
            yield Groups(start, tuple(array[offsets[0] : offsets[-1]] for array in self.arrays), offsets - offsets[0])


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """Groups in a file. Batch i of the file has the rows of group i."""

    path: str


Parcel = Groups | StoredGroups


@dataclass(frozen=True, slots=True)
class All(Generic[T]):
    """The values of all senders, as one value that the receivers share."""

    each: tuple[T, ...]


Passed = Groups | All[Groups]
"""The parcel of one sender, or those of several that a relay passed on."""


def received(sent: Sequence[T | All[T]]) -> Sequence[T]:
    """The value of each sender, from the last arguments of a receiver."""
    return [value for part in sent for value in (part.each if isinstance(part, All) else (part,))]


def relay(starts: Sequence[int], *parcels: Groups) -> Iterator[All[Groups]]:
    """Divide the parcels of several senders. Value i has the groups [starts[i], starts[i + 1]) of each sender."""
    for parts in zip(*(parcel.parcels(starts) for parcel in parcels), strict=True):
        yield All(parts)


def stored(store: ObjectStore, path: str, groups: Iterable[Arrays], types: Sequence[str]) -> StoredGroups:
    """Store the groups in one file, one after another. `types` are the types of a group's arrays."""
    schema = pa.schema([(str(number), pa.from_numpy_dtype(np.dtype(type_))) for number, type_ in enumerate(types)])
    with store.writer(path) as sink, pa.ipc.new_file(sink, schema) as out:
        for arrays in groups:
            out.write_batch(pa.record_batch([pa.array(array) for array in arrays], schema=schema))
    return StoredGroups(path)


def taken_of_each(
    store: ObjectStore, parcels: Sequence[Parcel], group: int, limits: ReadLimits = READ_LIMITS
) -> Iterator[Arrays]:
    """The rows of one group in each parcel. Stored parcels are fetched ahead."""
    ahead = ReadAhead(limits)

    def begun(parcel: Parcel) -> tuple[Parcel, OpenObject | None]:
        return parcel, None if isinstance(parcel, Groups) else session_object(store, parcel.path, ahead)

    for parcel, opened in begun_ahead(parcels, begun):
        if isinstance(parcel, Groups):
            yield parcel.of(group)
            continue
        assert opened is not None, "it is stored"
        with opened as source:
            batch = pa.ipc.open_file(source).get_batch(group)
            yield tuple(np.array(column.to_numpy(zero_copy_only=False)) for column in batch.columns)


@dataclass(frozen=True, slots=True)
class ParcelLayout:
    """Consecutive items for each task, and consecutive tasks for each parcel.

    `starts` has the first item of each task, and the end of the last. `parcels` has the first task of each parcel, and
    the end of the last.
    """

    starts: tuple[int, ...]
    parcels: tuple[int, ...]

    @classmethod
    def of(cls, items: int, tasks: int, node_slots: Sequence[int]) -> ParcelLayout:
        """Spread tasks over nodes in proportion to their slots. Parcel i is for the tasks of node i."""
        tasks = max(1, min(items, tasks))
        return cls(spread(items, [1] * tasks), spread(tasks, node_slots))

    def several(self, parcels: int) -> ParcelLayout:
        """The same tasks, with so many parcels: each is for several nodes."""
        return replace(self, parcels=tuple(self.parcels[node] for node in spread(self.parcel_count, [1] * parcels)))

    def inside(self, several: ParcelLayout) -> list[tuple[int, ...]]:
        """Which parcels of this layout lie in each parcel of `several`: the first item of each, and the end."""
        starts, places = self.parcel_starts, [self.parcels.index(task) for task in several.parcels]
        return [starts[first : last + 1] for first, last in pairwise(places)]

    @property
    def tasks(self) -> list[range]:
        """The items of each task."""
        return [range(start, stop) for start, stop in pairwise(self.starts)]

    @property
    def parcel_count(self) -> int:
        return len(self.parcels) - 1

    @property
    def parcel_starts(self) -> tuple[int, ...]:
        """The first item of each parcel, and the end of the last."""
        return tuple(self.starts[task] for task in self.parcels)

    def parcel_of(self, task: int) -> int:
        """The parcel with a task's items; its number also numbers the task's node."""
        return bisect_right(self.parcels, task) - 1


def spread(items: int, weights: Sequence[int]) -> tuple[int, ...]:
    """The boundaries (0, …, items) of consecutive groups in about these proportions. Leaves out empty groups."""
    total, upto, starts = sum(weights), 0, [0]
    for weight in weights:
        upto += weight
        if (end := items * upto // total) > starts[-1]:
            starts.append(end)
    return tuple(starts)
