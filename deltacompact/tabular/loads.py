"""Rows in loads: 3 tables of 5 MB, loads of 8 MB -> tables of 10 and of 5 MB, each in one chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from deltacompact.base.batching import batched


def loads_of(tables: Iterable[pa.Table], load_bytes: int) -> Iterator[pa.Table]:
    """As many rows at a time as have so many bytes."""
    for waiting in batched(tables, lambda rows: rows.nbytes, load_bytes):
        whole = pa.concat_tables(waiting).combine_chunks()
        waiting.clear()  # they would be held as long as the whole is in use
        yield whole
