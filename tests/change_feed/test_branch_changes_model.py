"""Random histories of an Iceberg branch: the feed between any two of its snapshots is what the rows of both say.

append, with or without field ids · delete by key, value or both, everywhere or in a partition · delete by position or
vector · copy on write · update · convert · rewrite, sorted or clustered, into another spec · manifests
a new name for a column · another partition spec · a branch that begins here, or earlier
after each commit the oracle notes the rows      net = EXCEPT ALL both ways, for every pair of snapshots
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_lake import SETTINGS, Lake, local_path
from version_3 import Lived, delete_by_vector, live_rows, update

import deltacompact
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.change_feed.changes import branch_changes
from deltacompact.change_feed.request import ChangesRequest
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestEntry
from deltacompact.iceberg.table.metadata import MAIN, Snapshot
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID
from deltacompact.tabular.fingerprint import fingerprint_of

T = "ns.t"
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
NAMES = json.dumps([{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["v"]}])
EVOLVED = {"source-id": 1, "field-id": 1000, "name": "part", "transform": "identity"}
REWRITES: tuple[dict[str, Any], ...] = (
    {},
    {"strategy": "sort", "sort-order": "id DESC"},
    {"strategy": "sort", "sort-order": "zorder(id, VALUE)"},
    {"cluster-by": "VALUE,id"},
)
PAIRS_MAX = 12
"""Feeds that are compared of one history."""
IDS = st.integers(0, 4)
VALUES = st.sampled_from(["a", "b", None])
ROWS = st.lists(st.tuples(IDS, VALUES), min_size=1, max_size=4)
TOUCHES = ["by_position", "copy", "copy_without_lineage", "update", "in_partition"]
MODES = ["convert", "rewrite", "rewrite", "manifests"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "append", "foreign"]), ROWS),
        st.tuples(st.just("by_key"), st.tuples(st.sampled_from([(1,), (2,), (1, 2)]), ROWS)),
        st.tuples(st.sampled_from(TOUCHES), st.integers(0, 9)),
        st.tuples(st.sampled_from(MODES), st.integers(0, 7)),
        st.tuples(st.sampled_from(["rename", "evolve", "branch"]), st.integers(0, 9)),
    ),
    min_size=2,
    max_size=8,
)

Row = tuple[int, Any]


@dataclass(frozen=True)
class Moment:
    """A snapshot (None: before the first), and the rows that it has."""

    snapshot: int | None
    rows: list[Row]


class History:
    """A branch, and the rows that it had after each commit."""

    def __init__(self, folder: Path, version: int) -> None:
        self.folder, self.version = folder, version
        self.lake = Lake(folder, "feeds")
        self.lake.create(T, COLUMNS, version=version, properties={"schema.name-mapping.default": NAMES})
        self.table = deltacompact.open_catalog(self.lake.catalog).table(T)
        self.branch, self.value = MAIN, "v"
        self.rows: list[Row] = []
        self.moments = [Moment(None, [])]

    def do(self, kind: str, given: Any) -> None:
        match kind:
            case "append" | "foreign":
                self._append(given, kind == "foreign")
            case "by_key" if self.rows:
                self._by_key(*given)
            case "convert":
                self.table.compact("convert", branch=self.branch, settings=SETTINGS)
            case "rewrite":
                self._rewrite(REWRITES[given % len(REWRITES)], given >= len(REWRITES))
            case "manifests" if self.rows:
                self.table.maintain(rewrite_manifests=True, branch=self.branch)
            case "rename":
                self._rename("v" if self.value == "w" else "w")
            case "evolve":
                self._evolve()
            case "branch" if len(self.moments) > 1:
                self._branch(self.moments[-1 if given < 6 else max(1, given % len(self.moments))])
            case _ if kind in TOUCHES and self.rows:
                live = live_rows(self.lake, T, self.branch)
                self._touch(kind, live, live[given % len(live)])
        head = self._loaded.metadata.refs.get(self.branch)
        if head is not None and head.snapshot_id != self.moments[-1].snapshot:
            self.moments.append(Moment(head.snapshot_id, self.rows))

    @property
    def _loaded(self) -> IcebergTable:
        return IcebergTable.load(self.lake.catalog, T)

    def _data(self, rows: Sequence[Sequence[Any]], lineage: Sequence[pa.Field] = ()) -> pa.Table:
        columns = pa.schema([*self._loaded.metadata.schema, *lineage])
        return pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], schema=columns)

    def _append(self, rows: list[Row], is_foreign: bool) -> None:
        """`is_foreign`: the file has no field ids, and the column's first name."""
        if is_foreign:
            path = self.folder / f"{uuid.uuid4()}.parquet"
            pq.write_table(pa.Table.from_pylist([{"id": key, "v": value} for key, value in rows], COLUMNS), path)
            file = ContentFile(Content.DATA, str(path), "PARQUET", 0, (), len(rows), path.stat().st_size)
        else:
            file = self.lake._file(self._loaded, self._data(rows), Content.DATA, (), 0, ())
        self.lake.commit(self._loaded, [file], self.branch, "append")
        self.rows = [*self.rows, *rows]

    def _by_key(self, ids: tuple[int, ...], rows: list[Row]) -> None:
        """Keys are ids, values, or both. A null is equal to a null. The old spec has no partitions: they are global."""
        places = [number - 1 for number in ids]
        keys = {tuple(row[place] for place in places) for row in rows}
        names = [("id", self.value)[place] for place in places]
        columns = {name: [key[place] for key in keys] for place, name in enumerate(names)}
        self.lake.delete_by_key(T, columns, spec_id=0, branch=self.branch)
        self.rows = [row for row in self.rows if tuple(row[place] for place in places) not in keys]

    def _rewrite(self, order: dict[str, Any], into_newest_spec: bool) -> None:
        named = {name: said.replace("VALUE", self.value) for name, said in order.items()}
        spec = {"output-spec-id": self._loaded.metadata.default_spec_id} if into_newest_spec else {}
        self.table.compact("rewrite", {"rewrite-all": True, **named, **spec}, self.branch, settings=SETTINGS)

    def _touch(self, kind: str, live: list[Lived], one: Lived) -> None:
        """What is done to one live row, or to its file."""
        values = lambda row: tuple(row.values.values())  # noqa: E731
        entry = next(entry for entry in self.lake.state(T, self.branch).data if entry.file.path == one.path)
        key, value = values(one)
        changed, places = (key, "changed"), {one.path: [one.position]}
        match kind:
            case "in_partition":
                self._by_key_in(entry, key, live)
                return
            case "by_position" | "update" if self.version == 2:
                self.lake.delete_by_position(T, places, self.branch)
                self.rows = _less(self.rows, (key, value))
                return
            case "by_position":
                delete_by_vector(self.lake, T, places, self.branch)
                self.rows = _less(self.rows, (key, value))
                return
            case "update":
                row = {"id": key, self.value: "changed", ROW_ID.name: one.row_id}
                update(self.lake, T, places, [row], self.branch, spec_id=0)
            case _:
                others = [row for row in live if row.path == one.path and row.position != one.position]
                self._copy(entry, others, one, kind == "copy" and self.version == 3)
        self.rows = [*_less(self.rows, (key, value)), changed]

    def _copy(self, entry: ManifestEntry, others: list[Lived], one: Lived, with_lineage: bool) -> None:
        """Write a file again with another value in one row. Its deletes stay, and apply to nothing."""
        table, rows = self._loaded, [(one.values["id"], "changed"), *(tuple(row.values.values()) for row in others)]
        if with_lineage:
            known = [(one.row_id, None), *((row.row_id, row.last_updated) for row in others)]
            rows = [(*row, *of_row) for row, of_row in zip(rows, known, strict=True)]
        data = self._data(rows, (ROW_ID, LAST_UPDATED) if with_lineage else ())
        file = self.lake._file(table, data, Content.DATA, entry.file.partition, entry.file.spec_id, ())
        self.lake.commit(table, [file], self.branch, "overwrite", {entry.file.path})

    def _by_key_in(self, entry: ManifestEntry, key: int, live: list[Lived]) -> None:
        """Delete a key in the partition of a file, and nowhere else; everywhere, if its spec has none."""
        partition, spec_id = entry.file.partition, entry.file.spec_id
        self.lake.delete_by_key(T, {"id": [key]}, partition, spec_id, self.branch)
        files = {entry.file.path: entry.file for entry in self.lake.state(T, self.branch).data}
        for row in live:
            file = files[row.path]
            if row.values["id"] == key and (not partition or (file.spec_id, file.partition) == (spec_id, partition)):
                self.rows = _less(self.rows, (key, row.values[self.value]))

    def _edit(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        location = self.lake.catalog.load_table(T).metadata_location
        self.lake.edit_metadata(T, change(json.loads(Path(local_path(location)).read_text())))

    def _rename(self, name: str) -> None:
        def change(said: dict[str, Any]) -> dict[str, Any]:
            newest = max(said["schemas"], key=lambda schema: schema["schema-id"])
            fields = [field | {"name": name} if field["id"] == 2 else field for field in newest["fields"]]
            number = newest["schema-id"] + 1
            schemas = [*said["schemas"], newest | {"schema-id": number, "fields": fields}]
            return {"schemas": schemas, "current-schema-id": number}

        self._edit(change)
        self.value = name

    def _evolve(self) -> None:
        """From now on the table is partitioned by id."""
        newest = {"spec-id": 1, "fields": [EVOLVED]}
        self._edit(
            lambda said: {
                "partition-specs": [*[spec for spec in said["partition-specs"] if spec["spec-id"] == 0], newest],
                "default-spec-id": 1,
                "last-partition-id": 1000,
            }
        )

    def _branch(self, moment: Moment) -> None:
        """Go on with a branch that begins there."""
        self.branch, ref = f"b{len(self.moments)}", {"snapshot-id": moment.snapshot, "type": "branch"}
        self._edit(lambda said: {"refs": {**said.get("refs", {}), self.branch: ref}})
        self.rows = moment.rows

    # What is asked

    def changes(self, begin: Moment | None, end: Moment | None, **asked: Any) -> list[dict[str, Any]]:
        """The feed, with the column's first name."""
        ends = [state and state.snapshot for state in (begin, end)]
        rows = branch_changes(self._loaded, self.branch, *ends, ChangesRequest(**asked)).read_all().to_pylist()
        return [row | {"v": row[self.value]} for row in rows]

    def pairs(self) -> list[tuple[Moment, Moment]]:
        pairs = list(product(self.moments, self.moments[1:]))
        return pairs if len(pairs) <= PAIRS_MAX else Random(len(pairs)).sample(pairs, PAIRS_MAX)

    def line(self) -> list[Moment]:
        """The moments of the branch as it is, the oldest first."""
        metadata = self._loaded.metadata
        head: Snapshot = metadata.snapshots[metadata.refs[self.branch].snapshot_id]
        known = {moment.snapshot: moment for moment in self.moments}
        return [known[snapshot.snapshot_id] for snapshot in metadata.ancestors(head)][::-1]


def _less(rows: list[Row], gone: Row) -> list[Row]:
    place = rows.index(gone)
    return [*rows[:place], *rows[place + 1 :]]


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
@settings(max_examples=examples(16))
@given(steps=STEPS, with_key=st.booleans(), held_bytes=st.sampled_from([64, 1 << 30]))
def test_the_feed_is_the_difference(version, steps, with_key, held_bytes):
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), version)
        for step in [("append", [(0, "a"), (1, "b"), (1, "b")]), *steps]:
            history.do(*step)
        for moment in history.moments[1:]:
            assert history.table.fingerprint(as_of=moment.snapshot) == fingerprint(moment.rows)
        asked: dict[str, Any] = {"before": True, "key": ["id"] if with_key else [], "held_bytes": held_bytes}
        for begin, end in history.pairs():
            found = history.changes(begin, end, **asked)
            assert replayed(begin.rows, found) == Counter(end.rows)
            assert accounted(found) == fingerprint(end.rows) - fingerprint(begin.rows)
            names = ("id", "_change_type") if with_key else ("id", "v", "_change_type")
            told = Counter(tuple(row[name] for name in names) for row in found)
            assert told == expected(begin.rows, end.rows, with_key)
        changes = history.changes(None, None, per_commit=True, **asked)
        rows: list[Row] = []
        for moment in history.line():
            own = [change for change in changes if change["_commit_snapshot_id"] == moment.snapshot]
            assert replayed(rows, own) == Counter(moment.rows)
            rows = moment.rows
