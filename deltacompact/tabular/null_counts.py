"""Counts the rows with null in key columns: a row without a key is legal, but seldom intended.

id 1 2 null null     ->  (("id", 2),)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.tabular import chunk_statistics, schemas

NullCounts = tuple[tuple[str, int], ...]
"""(column, rows with null in it) for each column with nulls."""


def of_table(table: pa.Table, names: Sequence[str]) -> NullCounts:
    found = ((name, schemas.plain(table[name]).null_count) for name in names if name in table.column_names)
    return tuple((name, count) for name, count in found if count)


def of_footer(metadata: pq.FileMetaData, schema: pa.Schema, names: Sequence[str]) -> NullCounts | None:
    """The counts by a Parquet footer; None: the footer lacks one of them."""
    wanted = [name for name in names if name in schema.names]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)] if wanted else []
    places = chunk_statistics.places(metadata) if wanted else {}
    parts = list[NullCounts]()
    for group in groups:
        for name in wanted:
            statistics = group.column(places[name]).statistics if name in places else None
            if statistics is None or not statistics.has_null_count:
                return None
            parts.append(((name, statistics.null_count),))
    return merged(parts)


def merged(parts: Iterable[NullCounts]) -> NullCounts:
    """The counts of several parts together."""
    counts: dict[str, int] = {}
    for name, count in (pair for part in parts for pair in part):
        counts[name] = counts.get(name, 0) + count
    return tuple((name, count) for name, count in counts.items() if count)
