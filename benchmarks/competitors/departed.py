"""The keys of a table that a source lacks, for contenders whose source says what leaves.

table 1 2 3 4    source 1 3    ->    2 4
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from benchmarks.competitors.duckdb_sql import read
from benchmarks.data import Inputs


def departed(known: pa.RecordBatchReader, inputs: Inputs) -> pa.Table:
    """`known` has the keys of the table, batch by batch."""
    keys = ", ".join(inputs.keys)
    source = " UNION ALL ".join(read(delta.files) for delta in inputs.deltas)
    with duckdb.connect() as connection:
        connection.register("known", known)
        return connection.execute(f"FROM known ANTI JOIN ({source}) USING ({keys})").to_arrow_table()
