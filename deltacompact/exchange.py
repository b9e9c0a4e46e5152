"""What tasks of one stage hand to those of the next: in the object store where it fits, else in files of the session.

    survivors of bucket group 3   -> index/<session>/7c….exchange.arrow   batch 0: for source group 0, batch 1: …
    assign, source group 1        <- batch 1 of every bucket group's file

A parcel is a tuple of arrays of one length, or the place in a file where it lies. What does not fit the object store
would be spilled by it to disk anyway, when it is full, and not in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.index_files import session_object
from deltacompact.storage import ObjectStore

Arrays = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A parcel in a file: its batch number."""

    path: str
    place: int


Parcel = Arrays | Stored


def parcels(store: ObjectStore, path_of: Callable[[], str] | None, given: Iterable[Arrays]) -> Iterator[Parcel]:
    """Hand over arrays, through a file if there is a path for it."""
    if path_of is None:
        yield from given
        return
    path, written = path_of(), 0
    with store.writer(path) as sink:
        out = None
        for arrays in given:
            batch = pa.record_batch([pa.array(array) for array in arrays], [str(i) for i in range(len(arrays))])
            out = out or pa.ipc.new_file(sink, batch.schema)
            out.write_batch(batch)
            written += 1
        if out:
            out.close()
    for place in range(written):
        yield Stored(path, place)


def opened(store: ObjectStore, parcel: Parcel) -> Arrays:
    """The arrays of a parcel."""
    if not isinstance(parcel, Stored):
        return parcel
    with session_object(store, parcel.path) as source:
        batch = pa.ipc.open_file(source).get_batch(parcel.place)
        return tuple(np.array(column.to_numpy(zero_copy_only=False)) for column in batch.columns)
