"""Joins tables that are read one after another into loads, or picks some of their rows.

3 tables of 5 MB, loads of 12 MB     -> tables of 10 and of 5 MB, each in one chunk
3 tables of 10 rows, rows 4 and 25   -> a row of the first, a row of the third
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.batching import batched


def loads_of(tables: Iterable[pa.Table], load_bytes: int) -> Iterator[pa.Table]:
    """The rows in tables of at most `load_bytes`. A table that is larger stays one load."""
    for waiting in batched(tables, lambda rows: rows.nbytes, load_bytes):
        whole = pa.concat_tables(waiting).combine_chunks()
        waiting.clear()  # frees the parts while the caller uses the whole
        yield whole


def rows_at(tables: Iterable[pa.Table], places: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """The rows at these places, in order, counted through all tables. Holds one table at a time."""
    first = 0
    for table in tables:
        low, high = np.searchsorted(places, (first, first + table.num_rows)).tolist()
        if low < high:
            yield table.take(pa.array(places[low:high] - first))
        first += table.num_rows
