"""The ranges of key columns in a file's row groups, from its Parquet footer or the log, without reading a row.

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

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.model import ContentType
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import chunk_statistics
from deltacompact.tabular.files import described_parquet, opened


@dataclass(frozen=True, slots=True)
class KeyedGroup:
    """A row group: rows, decoded bytes, and (least, greatest) of each key column for which they are known.

    Those of a footer have the types of `chunk_statistics.type_of_bounds`.
    """

    rows: int
    decoded_bytes: int
    ranges: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


def keyed_groups(store: ObjectStore, file: DataFile, keys: Sequence[str]) -> tuple[KeyedGroup, ...]:
    """The row groups of a file. One group, with the log's ranges, if it is not Parquet or has no readable footer."""
    known = {name: (low, high) for name, low, high in file.ranges if name in keys}
    whole = KeyedGroup(file.live_rows, file.decoded_bytes or file.bytes, known)
    if file.content_type is not ContentType.PARQUET or not file.rows:
        return (whole,)
    try:
        with opened(store, file) as source:
            metadata = described_parquet(source, file).metadata
    except DeltaCompactError:  # the session itself will say what is wrong
        return (whole,)
    places = chunk_statistics.places_of(file, metadata, keys)
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return tuple(KeyedGroup(group.num_rows, group.total_byte_size, _ranges(file, group, places)) for group in groups)


def _ranges(file: DataFile, group: Any, places: Mapping[str, int]) -> dict[str, tuple[Any, Any]]:
    found = {
        name: chunk_statistics.bounds(group.column(place), file.schema.field(name).type)
        for name, place in places.items()
    }
    return {name: range_ for name, range_ in found.items() if range_ is not None}
