"""Joins tables into loads: 3 tables of 5 MB, loads of 12 MB -> tables of 10 and of 5 MB, each in one chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from deltacompact.base.batching import batched


def loads_of(tables: Iterable[pa.Table], load_bytes: int) -> Iterator[pa.Table]:
    """The rows in tables of at most `load_bytes`. A table that is larger stays one load."""
    for waiting in batched(tables, lambda rows: rows.nbytes, load_bytes):
        whole = pa.concat_tables(waiting).combine_chunks()
        waiting.clear()  # frees the parts while the caller uses the whole
        yield whole
