"""The ranges of key columns in a file's row groups, from its Parquet footer or the log, without reading a row.

Only forecasts use them.

base 14    group 0   131,072 rows, 9 MB decoded    id 0 … 131,071
           group 1    68,928 rows, 5 MB decoded    id 131,072 … 199,999
delta 80   group 0       500 rows                  id 199,100 … 199,998
delta 81   CSV         2,000 rows                  id 90 … 4,000, from the log
delta 82   Feather     2,000 rows                  unknown: any key is possible
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.model import ContentType, DataFile
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import field_ids
from deltacompact.tabular.files import described_parquet, opened


@dataclass(frozen=True, slots=True)
class KeyedGroup:
    """A row group: rows, decoded bytes, and (least, greatest) of each key column for which they are known."""

    rows: int
    decoded_bytes: int
    ranges: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


def keyed_groups(store: ObjectStore, file: DataFile, keys: Sequence[str]) -> tuple[KeyedGroup, ...]:
    """The row groups of a file. One group, with the log's ranges, if it is not Parquet or has no readable footer."""
    known = {name: (low, high) for name, low, high in file.ranges if name in keys}
    whole = KeyedGroup(file.live_rows, file.decoded_bytes or file.bytes, known)
    if file.content_type is not ContentType.PARQUET or not file.rows:
        return (whole,)
    stored = {name: own[0] for name in keys if name in file.schema.names and (own := _own_name(file, name))}
    try:
        with opened(store, file) as source:
            metadata = described_parquet(source, file).metadata
    except DeltaCompactError:  # the session itself will say what is wrong
        return (whole,)
    return tuple(_group(metadata.row_group(number), stored) for number in range(metadata.num_row_groups))


def _own_name(file: DataFile, name: str) -> list[str]:
    return field_ids.stored_names(file, [name])


def _group(group: Any, stored: Mapping[str, str]) -> KeyedGroup:
    columns = {group.column(number).path_in_schema: number for number in range(group.num_columns)}
    ranges = {}
    for name, own in stored.items():
        known = group.column(columns[own]).statistics if own in columns else None
        if known is not None and known.has_min_max:
            ranges[name] = known.min, known.max
    return KeyedGroup(group.num_rows, group.total_byte_size, ranges)
