"""The heat of a table: kept beside it, added to by several at a time, and an order in which groups are rewritten."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.cli import run
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table_heat import FOLDER, heat_of_table
from deltacompact.iceberg_modes.maintain.options import YOUNGER_ALLOWED
from deltacompact.layout.heat import SourcedRead
from deltacompact.layout.kept_heat import OLDER_DOCUMENTS
from deltacompact.layout.reads import Read
from deltacompact.storage.numbered import numbered_path

T = "ns.t"
NOW = 1_795_400_000.0
SETTINGS = Settings(executor="local", local_threads=1)
SCHEMA = pa.schema([("day", pa.int64()), ("id", pa.int64()), ("name", pa.string())])
SECRET = "an-unlikely-literal"
HOTTEST = {"rewrite-all": True, "cluster-by": "id,name", "rewrite-job-order": "heat-desc"}


@pytest.fixture
def table(lake):
    """Day 1 lies badly by id, and day 2 by name."""
    lake.create(T, SCHEMA)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    for part in range(4):
        rows = []
        for number in range(50):
            near, far = part * 100 + number, number * 100 + part
            rows += [(1, far, f"{near:05}"), (2, near, f"{far:05}")]
        lake.append(T, [dict(zip(SCHEMA.names, row, strict=True)) for row in rows])
    return IcebergCatalog(lake.catalog).table(T)


def opened(lake):
    table = IcebergTable.load(lake.catalog, T)
    return table.store, table.metadata


def told(number, *columns, source="app-1"):
    return SourcedRead(source, number, Read(T, columns, 1, 0, NOW))


def test_documents_follow_each_other_and_few_are_kept(lake, table):
    store, metadata = opened(lake)
    assert heat_of_table(store, metadata).read().columns == {}
    for number in range(OLDER_DOCUMENTS + 3):
        heat_of_table(store, metadata).keep([told(number, "id")], NOW)
    assert len(list(store.list(FOLDER))) == OLDER_DOCUMENTS + 1
    assert heat_of_table(store, metadata).read().columns == {"id": OLDER_DOCUMENTS + 3.0}


def test_of_two_who_bring_reads_none_is_lost(lake, table):
    store, metadata = opened(lake)
    heat_of_table(store, metadata).keep([told(0, "id")], NOW)
    put = store.put_if_absent

    class Second:
        """Another is first, once."""

        def __getattr__(self, name):
            return getattr(store, name)

        def put_if_absent(self, path, data):
            if path == numbered_path(FOLDER, 2):
                heat_of_table(store, metadata).keep([told(0, "name", source="app-2")], NOW)
            return put(path, data)

    assert heat_of_table(Second(), metadata).keep([told(1, "id")], NOW).columns == {"id": 2.0, "name": 1.0}
    assert heat_of_table(store, metadata).read().columns == {"id": 2.0, "name": 1.0}


@pytest.mark.parametrize("change", [lambda text: text[:50], lambda text: text.replace("1.0", "9.0"), lambda text: "[]"])
def test_a_document_that_is_damaged_or_of_another_table_is_as_none(lake, table, change):
    store, metadata = opened(lake)
    heat_of_table(store, metadata).keep([told(0, "id")], NOW)
    path = numbered_path(FOLDER, 1)
    text = store.get(path).decode()
    for other in (change(text), text.replace(metadata.uuid, "another")):
        store.put(path, other.encode())
        assert heat_of_table(store, metadata).read().columns == {}
    assert heat_of_table(store, metadata).keep([told(0, "name")], NOW).columns == {"name": 1.0}


@pytest.mark.parametrize(("asked", "first"), [("id", 1), ("name", 2)])
def test_the_hottest_partition_is_rewritten_first_and_no_row_differs(lake, table, asked, first):
    before = sorted(map(repr, lake.rows(T)))
    assert len(table.plan(options=HOTTEST).groups) == 2  # without heat, too
    heat_of_table(*opened(lake)).keep([told(0, asked)], NOW)
    assert [group.partition for group in table.plan(options=HOTTEST).groups] == [(first,), (3 - first,)]
    (chosen,) = table.plan(options=HOTTEST | {"max-files-to-rewrite": 4}).groups
    assert chosen.partition == (first,)
    table.compact(options=HOTTEST, settings=SETTINGS)
    assert sorted(map(repr, lake.rows(T))) == before
    assert [str(column) for column in table.advise().columns] == [asked]


@pytest.mark.parametrize(("asked", "first"), [("id", 1), ("name", 2)])
def test_where_little_may_be_written_the_hottest_partition_gets_it(lake, table, asked, first):
    """New rows lie over the old ones by id, and by name on day 2 alone. Former runs used what the old ones earned."""
    small = {"cluster-by": "id", "rewrite-job-order": "heat-desc", "min-input-files": 100}
    heat_of_table(*opened(lake)).keep([told(0, asked)], NOW)
    table.compact(options=small | {"rewrite-all": True}, settings=SETTINGS)
    name = "deltacompact.layout-bytes.main"
    with lake.catalog.load_table(T).transaction() as change:
        spent = json.loads(change.table_metadata.properties[name])
        change.set_properties({name: json.dumps(spent | {"rewritten": spent["came"]})})
    rows = [row for number in range(140) for row in ((1, number, f"new {number:05}"), (2, number, f"{number:05} new"))]
    rows += [(2, number, f"{number:05}") for number in range(140, 170)]
    lake.append(T, [dict(zip(SCHEMA.names, row, strict=True)) for row in rows])
    chosen = {bound: table.plan(options=small | {"write-amplification-max": bound}).groups for bound in (1, 1.15, 3)}
    assert [sorted(group.partition for group in groups) for groups in chosen.values()] == [[], [(first,)], [(1,), (2,)]]


def test_columns_of_the_heat_without_bounds_do_not_keep_advice_from_others(lake, table):
    with lake.catalog.load_table(T).update_schema() as update:
        update.add_column("later", LongType())
    heat_of_table(*opened(lake)).keep([told(0, "later"), told(0, "gone")], NOW)
    assert table.advise().columns == ("day", "id", "name")  # as without heat
    heat_of_table(*opened(lake)).keep([told(1, "id")], NOW)
    assert table.advise().columns == ("id",)


def test_the_command_keeps_columns_and_no_literal(lake, table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "deltacompact.catalog.iceberg.IcebergCatalog.at", classmethod(lambda cls, uri: IcebergCatalog(lake.catalog))
    )
    reports = tmp_path / "reports.jsonl"
    reads = [
        {
            "table-name": f"lake.{T}",
            "filter": {"type": "eq", "term": name, "value": SECRET},
            "metadata": {"user": SECRET},
        }
        for name in ("id", "id", "name", SECRET)
    ]
    reports.write_text("\n".join(["no json", *map(json.dumps, reads)]))
    arguments = ["heat", "iceberg://lake", T]
    assert run(arguments) == 0
    assert "no reads have been told" in capsys.readouterr().out
    for _ in range(2):
        assert run([*arguments, "--scan-reports", str(reports), "--json"]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["weights"] == {"id": 2.0, "name": 1.0}
        assert "1 line left out" in said.err
    assert run(arguments) == 0
    assert "id  2.0 reads, weight 2\n" in capsys.readouterr().out
    kept = [path.read_text() for path in lake.folder.rglob("*") if FOLDER in str(path) and path.is_file()]
    assert kept and not [text for text in kept if SECRET in text or "reports.jsonl" in text]


def test_removal_of_orphans_leaves_the_heat(lake, table):
    heat_of_table(*opened(lake)).keep([told(0, "id")], NOW)
    table.maintain(remove_orphans=True, options={"older-than": "0s", YOUNGER_ALLOWED: True})
    assert heat_of_table(*opened(lake)).read().columns == {"id": 1.0}
