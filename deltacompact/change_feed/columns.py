"""The columns of a change feed: those of the table, and four that tell what changed.

id  status  _change_type    _change_ordinal  _commit_snapshot_id  _commit_timestamp
2   new     update_before   0                7757497569257380734  2026-11-22 09:10:03.512
2   sent    update_after    0                7757497569257380734  2026-11-22 09:10:03.512

The first three are named as in Spark's `create_changelog_view`. Of a delta stream, a commit is known by its last
stream position.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import InputError


class ChangeType(enum.StrEnum):
    """What became of a row."""

    DELETE = "delete"
    INSERT = "insert"
    UPDATE_BEFORE = "update_before"
    UPDATE_AFTER = "update_after"


CODES = {kind: code for code, kind in enumerate(ChangeType)}
CHANGE_COLUMNS = pa.schema(
    [
        ("_change_type", pa.string()),
        ("_change_ordinal", pa.int32()),
        ("_commit_snapshot_id", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)
_PLAIN = (pa.int32(), pa.int64(), pa.int64())


@dataclass(frozen=True, slots=True)
class ChangeCommit:
    """A commit as its changes name it: its place among those of the feed, its id, when it was made."""

    ordinal: int
    commit_id: int | None
    time_ms: int | None


def feed_schema(table_id: str, columns: pa.Schema) -> pa.Schema:
    """The columns of the feed. Raises InputError if the table has a column with a name of the four."""
    if taken := [name for name in columns.names if name in CHANGE_COLUMNS.names]:
        raise InputError(f"table {table_id!r} has a column {taken[0]!r}: leave it out with --columns")
    return pa.schema([*columns, *CHANGE_COLUMNS])


def with_change_columns(rows: pa.Table, kinds: npt.NDArray[np.int8] | ChangeType, commit: ChangeCommit) -> pa.Table:
    """The rows with the four columns of the feed."""
    if isinstance(kinds, ChangeType):
        types = pa.repeat(pa.scalar(str(kinds), pa.string()), rows.num_rows)
    else:
        types = pa.DictionaryArray.from_arrays(pa.array(kinds), pa.array([str(kind) for kind in ChangeType]))
        types = types.cast(pa.string())
    time_us = None if commit.time_ms is None else commit.time_ms * 1000
    constants = [
        pa.repeat(pa.scalar(value, type_), rows.num_rows)
        for value, type_ in zip((commit.ordinal, commit.commit_id, time_us), _PLAIN, strict=True)
    ]
    constants[2] = constants[2].cast(CHANGE_COLUMNS.field("_commit_timestamp").type)
    return pa.Table.from_arrays([*rows.columns, types, *constants], schema=pa.schema([*rows.schema, *CHANGE_COLUMNS]))


def counts_of(batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    """How many changes of each type there are."""
    found = dict.fromkeys(map(str, ChangeType), 0)
    for batch in batches:
        for counted in batch.column("_change_type").value_counts().to_pylist():
            found[counted["values"]] += counted["counts"]
    return found
