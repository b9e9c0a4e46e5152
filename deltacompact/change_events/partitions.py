"""Rows by their partition columns. Each value becomes the text that names its partition.

day          id                      day=2026-11-01    id 1, 3
2026-11-01   1                       day=2026-11-02    id 2
2026-11-02   2
2026-11-01   3
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.wording import columns_shown
from deltacompact.change_events.events import Events, Indices, Origin, Placed, first_null
from deltacompact.change_events.routes import Routes
from deltacompact.tabular import partition_texts, schemas
from deltacompact.tabular.partition_texts import NO_NAN

Values = tuple[tuple[str, str | None], ...]
"""Names and values of partition columns."""


def by_partition(
    events: Events, names: Sequence[str], routes: Routes
) -> Iterator[tuple[dict[str, str | None], Events]]:
    """The events of each partition, in the order of the partitions' values. Raises InputError as `routes` does."""
    if not names:
        yield {}, events
        return
    events = routes.typed(events, names)
    parts: dict[Values, tuple[Placed, Placed]] = {}
    nothing = tuple(Placed(placed.rows.slice(0, 0), placed.places[:0]) for placed in (events.upserts, events.deletes))
    for number, placed in enumerate((events.upserts, events.deletes)):
        for values, rows, indices in divided(placed.rows, names, routes):
            known = parts.get(values, nothing)
            part = Placed(rows, placed.places[indices])
            parts[values] = (part, known[1]) if number == 0 else (known[0], part)
    for values, (upserts, deletes) in sorted(parts.items(), key=lambda item: [value or "" for _, value in item[0]]):
        yield dict(values), Events(events.name, upserts, deletes)


def divided(
    table: pa.Table, names: Sequence[str], routes: Routes | None = None
) -> Iterator[tuple[Values, pa.Table, Indices]]:
    """The rows of each combination of values, in their order, and where they stand in the table."""
    if not table.num_rows:
        return
    routes = routes or Routes({}, {})
    combined, codes, texts = np.zeros(table.num_rows, np.int64), [], []
    for name in names:
        column = schemas.plain(table[name])
        encoded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
        codes.append(np.asarray(encoded.indices))
        texts.append(routes.texts(encoded.dictionary, name))
        combined = combined * len(texts[-1]) + codes[-1]
    _, number_of, counts = np.unique(combined, return_inverse=True, return_counts=True)
    order, ends = np.argsort(number_of, kind="stable"), np.cumsum(counts)
    rows = table if len(ends) == 1 else table.take(pa.array(order))
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        first = order[start]
        values = tuple((name, text[code[first]]) for name, text, code in zip(names, texts, codes, strict=True))
        yield values, rows.slice(start, end - start), order[start:end]


def check_partition_columns(table: pa.Table, names: Sequence[str], origin: Origin, null_is_partition: bool) -> None:
    """Raise InputError for a partition column that is missing, or has NaN, or a null that may be a mistake."""
    for name in names:
        if name not in table.column_names:
            raise InputError(
                f"{origin.name}: partition key {name!r} is no column of the rows "
                f"({columns_shown(table.column_names)}): give its value in partition (--partition {name}=VALUE)"
            )
        if not null_is_partition and (index := first_null(table[name])) is not None:
            raise InputError(
                f"{origin.row(index)}: partition column {name!r} is null: correct the row, or name the column in "
                f"partition_by (--partition-by {name}), then null is a partition"
            )
        column = schemas.plain(table[name])
        if pa.types.is_floating(column.type) and (nans := np.flatnonzero(np.asarray(pc.is_nan(column)))).size:
            raise InputError(f"{origin.row(int(nans[0]))}: partition column {name!r}: {NO_NAN}")


def check_fixed(rows: pa.Table, fixed: Mapping[str, str | None], origin: Origin, field: str) -> None:
    """Raise InputError for a row that a message found in another partition than that of the append."""
    for name, text in fixed.items():
        if name not in rows.column_names or not rows.num_rows or pa.types.is_null(rows[name].type):
            continue
        column = schemas.plain(rows[name])
        try:
            expected = partition_texts.partition_scalar(text, pa.field(name, column.type))
            differ = pc.not_equal(column, expected) if expected.is_valid else column.is_valid()
        except SchemaError:
            differ = column.is_valid()
        if found := np.flatnonzero(np.asarray(pc.fill_null(differ, False))).tolist():
            raise InputError(
                f"{origin.row(found[0])}: field {name!r} in {field!r} is {column[found[0]].as_py()!r}, but the append "
                f"names partition {name}={text}: leave partition out, and each row finds its own (PostgreSQL tells it "
                "with REPLICA IDENTITY FULL)"
            )
