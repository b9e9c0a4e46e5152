"""The columns that route rows, as a table's partitions have them: their types, and the texts in use.

partitions by one listing       files have       types: day int64      texts: day 01, 02; region eu
day=02/region=eu                no day
day=01/region=eu                day int64
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType
from deltacompact.change_events.routes import Routes
from deltacompact.delta_streams.appending.other_partitions import key_types
from deltacompact.delta_streams.appending.stream_fit import StreamFit

_PARTITIONS_ASKED = 8
"""The files of at most so many partitions are asked for types: each costs requests, and a table may have thousands."""


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """The columns of the last partition, else the declared ones, and the routed columns that only earlier partitions
    have."""

    columns: pa.Schema
    routes: Routes
    untyped: tuple[str, ...]
    """The routed columns that no partition has in its files."""

    def texts_of(self, file: DataFile) -> list[str]:
        """The columns of a text file that must be read again as strings: a parser guessed what their text means."""
        guesses = {name: file.schema.field(name).type for name in self.untyped if name in file.schema.names}
        if file.content_type is ContentType.CSV:
            return [name for name, type_ in guesses.items() if type_ != pa.string()]
        if file.content_type is ContentType.JSON:
            return [name for name, type_ in guesses.items() if pa.types.is_timestamp(type_)]
        return []


NOTHING_KNOWN = KnownPartitions(pa.schema([]), Routes({}, {}), ())


def known_partitions(fit: StreamFit, routed: Sequence[str]) -> KnownPartitions:
    """The table's partitions. `fit` is that of no partition."""
    if not routed:
        return NOTHING_KNOWN
    partitions = fit.others.listed()
    asked = (shape.rows for _, shape in fit.others.with_columns(partitions[:_PARTITIONS_ASKED]))
    columns, types = pa.schema([]), dict[str, pa.DataType]()
    for number, table in enumerate(chain(asked, [fit.declared_columns])):
        columns = columns if number else table
        types = key_types(table, routed) | types
        if len(types) == len(routed):
            break
    texts = {name: [text for p in partitions if (text := dict(p.values)[name]) is not None] for name in routed}
    more = [pa.field(name, type_) for name, type_ in types.items() if name not in columns.names]
    untyped = tuple(name for name in routed if name not in types)
    return KnownPartitions(pa.schema([*columns, *more]), Routes(types, texts), untyped)
