"""Joins tables that are read one after another into loads, or takes a sample of their rows.

3 tables of 5 MB, loads of 12 MB             -> tables of 10 and of 5 MB, each in one chunk
3 tables of 10 rows, rows 4, 14 and 25       -> a row of each
the same rows, of which only two may stay    -> rows 4 and 25
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.batching import batched
from deltacompact.tabular import row_bytes


def loads_of(tables: Iterable[pa.Table], load_bytes: int) -> Iterator[pa.Table]:
    """The rows in tables of at most `load_bytes`. A table that is larger stays one load."""
    for waiting in batched(tables, lambda rows: rows.nbytes, load_bytes):
        whole = pa.concat_tables(waiting).combine_chunks()
        waiting.clear()  # frees the parts while the caller uses the whole
        yield whole


def sample_of(tables: Iterable[pa.Table], places: npt.NDArray[np.int64], sample_bytes: float) -> list[pa.Table]:
    """The rows at these places, in order, counted through all tables. Holds one table at a time.

    While they take more than `sample_bytes`, every second one is left out, of those that are still to come, too.
    """
    first, size, kept = 0, 0, list[pa.Table]()
    for table in tables:
        here, places = np.split(places, [int(np.searchsorted(places, first + table.num_rows))])
        if len(here):
            kept.append(table.take(pa.array(here - first)))
            size += row_bytes.of_table(kept[-1], False)
        first += table.num_rows
        while size > sample_bytes and (count := sum(rows.num_rows for rows in kept)) > 1:
            kept = [pa.concat_tables(kept).take(pa.array(np.arange(0, count, 2)))]
            places, size = places[count % 2 :: 2], row_bytes.of_table(kept[0], False)
    return kept
