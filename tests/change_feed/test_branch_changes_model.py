"""Random histories of an Iceberg branch: the feed between any two of its snapshots is what the rows of both say.

append · delete by key · delete by position · copy on write · convert · rewrite · a new name for a column
after each commit the oracle notes the rows      net = EXCEPT ALL both ways, for every pair of snapshots
"""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_lake import SETTINGS, Lake
from naive_reader import NaiveReader

import deltacompact
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.tabular.fingerprint import fingerprint_of

T = "ns.t"
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
IDS = st.integers(0, 4)
ROWS = st.lists(st.tuples(IDS, st.sampled_from(["a", "b", None])), min_size=1, max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ROWS),
        st.tuples(st.just("by_key"), st.lists(IDS, min_size=1, max_size=2, unique=True)),
        st.tuples(st.sampled_from(["by_position", "copy", "convert", "rewrite"]), st.integers(0, 9)),
    ),
    min_size=2,
    max_size=6,
)

Row = tuple[int, Any]


class History:
    """A branch, and the rows that it had after each commit."""

    def __init__(self, folder: Path, version: int) -> None:
        self.lake = Lake(folder, "feeds")
        self.lake.create(T, COLUMNS, version=version)
        self.version = version
        self.table = deltacompact.open_catalog(self.lake.catalog).table(T)
        self.rows: list[Row] = []
        self.moments: list[tuple[int | None, list[Row]]] = [(None, [])]

    def do(self, kind: str, given: Any) -> None:
        if kind == "append":
            self.lake.append(T, [{"id": key, "v": value} for key, value in given])
            self.rows = [*self.rows, *given]
        elif kind == "by_key":
            if not self.rows:
                return
            self.lake.delete_by_key(T, {"id": given})
            self.rows = [row for row in self.rows if row[0] not in given]
        elif kind in ("convert", "rewrite"):
            options = {"rewrite-all": True} if kind == "rewrite" else {}
            self.table.compact(kind, options, settings=SETTINGS)
        elif self.version == 2 and self.rows:
            self._touch(kind, given)
        head = IcebergTable.load(self.lake.catalog, T).metadata.branch("main")
        if head is not None and head.snapshot_id != self.moments[-1][0]:
            self.moments.append((head.snapshot_id, self.rows))

    def _touch(self, kind: str, number: int) -> None:
        """Delete a live row by position, or write its file again with another value in its place."""
        live = NaiveReader(self.lake, T).live(self.lake.catalog.load_table(T))
        (path, position), row = live[number % len(live)]
        self.rows = list(self.rows)
        self.rows.remove((row[1], row[2]))
        if kind == "by_position":
            self.lake.delete_by_position(T, {path: [position]})
            return
        written = [(one[1], one[2]) for (other, place), one in live if other == path and place != position]
        changed = (row[1], "changed")
        self.rows.append(changed)
        table = IcebergTable.load(self.lake.catalog, T)
        rows = [{"id": key, "v": value} for key, value in [changed, *written]]
        data = pa.Table.from_pylist(rows, schema=table.metadata.schema)
        file = self.lake._file(table, data, Content.DATA, (), None, ())
        self.lake.commit(table, [file], operation="overwrite", gone={path})


def expected(before: list[Row], after: list[Row], with_key: bool) -> Counter[tuple[Any, ...]]:
    was, now = Counter(before), Counter(after)
    gone, came = was - now, now - was
    if not with_key:
        return Counter({(*row, "delete"): n for row, n in gone.items()}) + Counter(
            {(*row, "insert"): n for row, n in came.items()}
        )
    found: Counter[tuple[Any, ...]] = Counter()
    for key in {row[0] for row in (*gone, *came)}:
        old, new = (
            sum(n for row, n in gone.items() if row[0] == key),
            sum(n for row, n in came.items() if row[0] == key),
        )
        pairs = min(old, new)
        found[key, "update_before"] += pairs
        found[key, "update_after"] += pairs
        found[key, "delete"] += old - pairs
        found[key, "insert"] += new - pairs
    return +found


def replayed(rows: list[Row], changes: list[dict[str, Any]]) -> Counter[Row]:
    found = Counter(rows)
    for change in changes:
        row = change["id"], change["v"]
        found[row] += 1 if change["_change_type"] in ("insert", "update_after") else -1
    assert min(found.values(), default=0) >= 0
    return +found


def fingerprint(rows: list[Row]) -> Fingerprint:
    """By the field ids that the lake gives."""
    ids = [column.with_metadata({"PARQUET:field_id": str(number)}) for number, column in enumerate(COLUMNS, 1)]
    table = pa.Table.from_pylist([{"id": key, "v": value} for key, value in rows], COLUMNS)
    return fingerprint_of([table], pa.schema(ids), "")


def accounted(changes: list[dict[str, Any]]) -> Fingerprint:
    """What came less what went."""
    sides: dict[bool, list[Row]] = {True: [], False: []}
    for change in changes:
        sides[change["_change_type"] in ("insert", "update_after")].append((change["id"], change["v"]))
    return fingerprint(sides[True]) - fingerprint(sides[False])


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
@settings(max_examples=examples(12))
@given(steps=STEPS, with_key=st.booleans())
def test_the_feed_is_the_difference(version, steps, with_key):
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), version)
        for step in [("append", [(0, "a"), (1, "b"), (1, "b")]), *steps]:
            history.do(*step)
        for snapshot, rows in history.moments[1:]:
            assert history.table.fingerprint(as_of=snapshot) == fingerprint(rows)
        asked: dict[str, Any] = {"before": True, "key": ["id"] if with_key else []}
        for (begin, before), (end, after) in product(history.moments, history.moments[1:]):
            found = history.table.changes(begin, end, **asked).read_all().to_pylist()
            assert replayed(before, found) == Counter(after)
            assert accounted(found) == fingerprint(after) - fingerprint(before)
            names = ("id", "_change_type") if with_key else ("id", "v", "_change_type")
            assert Counter(tuple(row[name] for name in names) for row in found) == expected(before, after, with_key)
        changes = history.table.changes(per_commit=True, **asked).read_all().to_pylist()
        rows = []
        for snapshot, after in history.moments[1:]:
            own = [change for change in changes if change["_commit_snapshot_id"] == snapshot]
            assert replayed(rows, own) == Counter(after)
            rows = after
