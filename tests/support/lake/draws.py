"""Strategies for hypothesis: shapes of tables, limits, arguments of compactions, files to append."""

from __future__ import annotations

import math
from typing import Any

from columns import KINDS, PAYLOADS, PLAIN
from hypothesis import strategies as st

from deltacompact import Settings

from .limits import LakeLimits
from .model import Content, Shape

EXPORTS = [".parquet", ".arrow", ".orc", ".csv"]
CONTENT_TYPES = st.sampled_from(["parquet", "parquet", "parquet", "feather", "orc", "csv"])
DAYS = st.sampled_from([(None,), (None,), ("x", "null"), ("a b%/é", "")])


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    plain = draw(st.booleans())
    kinds = PLAIN if plain else KINDS
    keys = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=2))
    sorts = draw(st.lists(st.sampled_from(sorted(kinds)), max_size=2))
    payloads = {"note": PLAIN["string"], "amount": PLAIN["integer"], "ratio": PLAIN["float"]} if plain else PAYLOADS
    return Shape(
        {f"key{place}": kinds[kind] for place, kind in enumerate(keys)},
        {f"sort{place}": kinds[kind] for place, kind in enumerate(sorts)},
        tuple(draw(st.sampled_from(["ascending", "descending"])) for _ in sorts),
        payloads,
        draw(st.none() | st.integers(0, 6)),
        draw(DAYS),
        bool(sorts) or draw(st.booleans()),
        plain,
    )


LIMITS = st.builds(
    LakeLimits,
    runs_max=st.sampled_from([1, 3, math.inf]),
    runs_share_max=st.sampled_from([0.5, math.inf, math.inf]),
    chunk_entries=st.sampled_from([1, 2, 5]),
    kept_bytes_min=st.sampled_from([1, 1 << 30]),
    exchange_share=st.sampled_from([0.0, 0.6]),
    held_share=st.sampled_from([0.0, 0.35]),
    group_share_min=st.sampled_from([0.0, 0.25]),
    entry_bytes_max=st.sampled_from([1500, 64 << 10]),
    checkpoint_after=st.sampled_from([2, 5, 100]),
    groups=st.integers(1, 4),
    task_rows_max=st.sampled_from([1, 3, 1 << 40]),
    nodes=st.sampled_from([(1, 2), (1, 1, 1), (1, 1, 1, 1)]),
    remote=st.booleans(),
)

CLUSTERS = st.sampled_from([None, None, "", "key0", "amount,key0", "note*2,amount"])

COMPACTIONS = st.fixed_dictionaries(
    {
        "hash_bucket_count": st.none() | st.integers(1, 5),
        "rows_per_compacted_file": st.sampled_from([1, 2, 3, 7, 4_000_000]),
        "rows_per_primary_key_index_file": st.sampled_from([1, 2, 38_000_000]),
        "purge": st.sampled_from([False, False, True]),
        "cluster_by": CLUSTERS,
        "settings": st.builds(
            Settings,
            executor=st.just("local"),
            local_threads=st.just(1),
            rows_per_round=st.sampled_from([None, None, 1, 2, 5]),
            row_group_rows=st.sampled_from([1, 2, 4, 131_072]),
            rewrite_dead_fraction=st.sampled_from([0.0, 0.3, 0.6, 1.0]),
            target_file_bytes=st.sampled_from([1, 1500, 512 << 20]),
            compression=st.sampled_from([None, None, "snappy", "none"]),
            memory_per_task_bytes=st.sampled_from([None, 1 << 20]),
            object_store_bytes=st.sampled_from([None, 200]),
        ),
    }
)
OFTEN = st.fixed_dictionaries(
    {
        "rows_per_compacted_file": st.sampled_from([2, 5, 4_000_000]),
        "cluster_by": CLUSTERS,
        "settings": st.builds(
            Settings,
            executor=st.just("local"),
            local_threads=st.just(1),
            rewrite_dead_fraction=st.sampled_from([0.0, 0.5, 1.0]),
            row_group_rows=st.sampled_from([1, 2]),
        ),
    }
)
PLACES = st.integers(0, 60)
CHOICES = st.integers(0, 5)


def first_rows(shape: Shape, numbers: list[int]) -> Content:
    """A file with one row per number. Each column takes its values in turn."""
    types = {name: kind.types[-1] for name, kind in shape.columns.items()}
    rows = [
        {
            name: kind.values[(number + place) % len(kind.values)]
            for place, (name, kind) in enumerate(shape.columns.items())
        }
        for number in numbers
    ]
    return rows, types


def files(data: st.DataObject, shape: Shape, operation: str, count: int) -> list[Content]:
    """Files of up to six rows, each with some of the columns in types of its own."""
    contents = []
    for _ in range(count):
        optional = [name for name in shape.payloads if data.draw(st.booleans())]
        if operation == "delete":
            sorts = data.draw(st.sampled_from([list(shape.sorts), []]))
        else:
            sorts = [name for name in shape.sorts if data.draw(st.sampled_from([True, True, True, False]))]
        names = [*shape.keys, *sorts, *optional]
        types = {name: data.draw(st.sampled_from(shape.columns[name].types)) for name in names}
        row = st.fixed_dictionaries({name: st.sampled_from([*shape.columns[name].values, None]) for name in names})
        contents.append((data.draw(st.lists(row, max_size=6)), types))
    return contents


def delta(data: st.DataObject, shape: Shape) -> dict[str, Any]:
    """Arguments of Writer.append: a delta for any day, as rows in memory or as files of any format."""
    operation = data.draw(st.sampled_from(["upsert", "upsert", "delete"]))
    contents = files(data, shape, operation, data.draw(st.sampled_from([1, 1, 2, 3])))
    gap = data.draw(st.none() | st.integers(1, 4))
    day = data.draw(st.sampled_from(shape.days))
    extension = None
    if shape.plain and all(rows for rows, _ in contents):
        # In a CSV file with one column a null is a blank line, which readers skip. The partition of nulls has a column
        # of nulls, which has no type, and ORC files cannot store a column without a type.
        others = [".csv"] * (day != "null" and all(len(types) > 1 for _, types in contents))
        extension = data.draw(st.sampled_from([None, ".parquet", ".orc", ".arrow", *others]))
    return {"day": day, "operation": operation, "files": contents, "gap": gap, "extension": extension}
