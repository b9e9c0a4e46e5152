"""The table first: `catalog.table("orders")` has what the commands do, by their names, for both kinds of catalogs.

dir(table)         a user's words, and no other: Tab shows them
repr(table)        a line
print(table)       what `show` prints
a notebook         a small table, in which values are no markup
"""

from __future__ import annotations

import inspect
import pickle

import pyarrow as pa
import pytest
from iceberg_lake import Lake
from publications import configure

import deltacompact
from deltacompact import (
    DeltaStreamCatalog,
    DeltaStreamTable,
    IcebergCatalog,
    IcebergCatalogTable,
    InputError,
    Settings,
    Thresholds,
    cli,
)
from deltacompact.base.user_calls import arguments_of
from deltacompact.storage.memory import MemoryStore

STREAMS = [
    *("advise", "append", "append_files", "bookmarks", "changes", "check", "cluster_by", "commit_bookmark", "compact"),
    *("compacted_files", "dataset", "declare_cluster_by", "declare_readers", "declare_schema_mode", "diff", "drop"),
    *("drop_bookmark", "export", "fingerprint", "heat", "history", "keys", "partition_keys", "partitions", "plan"),
    *("publication", "publish", "read", "readers", "restate", "retract", "rollback", "scan", "schema_mode", "simulate"),
    *("source_table_id", "stop_publishing", "table_id", "to_duckdb", "to_polars", "tombstone_retention", "vacuum"),
    "versions",
]
ICEBERG = [
    *("advise", "bookmarks", "changes", "check", "commit_bookmark", "compact", "dataset", "diff", "drop_bookmark"),
    *("export", "fingerprint", "heat", "history", "maintain", "plan", "read", "rollback", "scan", "simulate"),
    *("table_id", "to_duckdb", "to_polars"),
]


@pytest.fixture
def catalog(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    orders = catalog.create_table("orders", primary_keys=["id"])
    orders.append(pa.table({"id": [1, 2, 3], "status": ["new"] * 3}))
    orders.compact()
    orders.append(pa.table({"id": [1]}), operation="delete")
    return catalog


@pytest.fixture(scope="module")
def prod(tmp_path_factory):
    lake = Lake(tmp_path_factory.mktemp("lake"), "prod")
    lake.catalog.create_namespace("db")
    lake.create("db.orders", pa.schema([("id", pa.int64())]))
    lake.append("db.orders", pa.table({"id": [1, 2, 3]}))
    lake.delete_by_key("db.orders", {"id": [1]})
    lake.create("db.events", pa.schema([("id", pa.int64())]))
    lake.append("db.events", pa.table({"id": [1, 2, 3]}))
    return lake


@pytest.fixture
def iceberg(prod):
    return deltacompact.open_catalog(prod.catalog)


def words(thing):
    return [name for name in dir(thing) if not name.startswith("_")]


def test_tab_shows_a_users_words(catalog, iceberg):
    assert words(catalog.table("orders")) == STREAMS
    assert words(iceberg.table("db.orders")) == ICEBERG
    for name in (*words(catalog), *words(iceberg)):
        assert hasattr(catalog, name) or hasattr(iceberg, name)
    assert {"table", "create_table", "read"} <= set(words(catalog)) and not {"log", "state", "clock"} & set(
        words(catalog)
    )
    assert {"table", "tables"} <= set(words(iceberg)) and not {"run", "planned", "watched"} & set(words(iceberg))
    assert words(deltacompact) == sorted(deltacompact.__all__)


def test_classes_show_no_more_words_than_what_they_make(catalog, iceberg):
    """`DeltaStreamCatalog.` had all that this program calls, and a file how it is read."""
    for thing in (catalog, iceberg, catalog.table("orders"), iceberg.table("db.orders")):
        assert words(type(thing)) == words(thing) or set(words(type(thing))) < set(words(thing))
    orders = catalog.table("orders")
    (file,) = orders.append(pa.table({"id": [1], "status": ["x"]})).files
    assert words(file) == [
        *("bytes", "content_type", "deletions", "fingerprint", "live_rows", "managed", "name", "number", "path"),
        *("rows", "schema", "stamp"),
    ]
    assert not {"fresh", "rows_of"} & {*words(deltacompact.Appended), *words(deltacompact.Appended())}
    assert words(orders.fingerprint()) == ["of_text", "rows", "total"] == words(type(orders.fingerprint()))


def test_results_show_a_users_words_too(catalog, iceberg):
    orders = catalog.table("orders")
    assert words(orders.restate(pa.table({"id": [1], "status": ["x"]}))) == [
        *("compacted", "deltas", "index", "last_position", "lifecycle", "lineage", "version")
    ]
    assert words(orders.heat()[0]) == ["at_s", "columns"]
    assert "verb" not in words(orders.vacuum(dry_run=True)[0])
    assert "count" not in words(iceberg.table("db.events").compact())


def test_health_and_pictures_are_asked_as_on_the_command_line(catalog, iceberg, tmp_path):
    orders, events = catalog.table("orders"), iceberg.table("db.orders")
    strict = Thresholds(small_files=0)
    for table, name, partition in ((orders, "orders", {}), (events, "db.orders", {})):
        found = table.check(health=strict, plot=str(tmp_path / "health.svg"))
        assert repr(found) == f"health of {name!r}: 1 partition, 1 beyond a threshold" and not found.healthy
        assert str(found).endswith("\n(all): 1 small file (0)") or "1 small file (0); " in str(found)
        assert found.document[0]["partition"] == partition and "small_files" in found.document[0]["beyond"]
        assert "<td>(all)</td>" in found._repr_html_()
        table.plan(plot=str(tmp_path / "plan.svg"))
        table.advise("id", plot=str(tmp_path / "boxes.svg"))
        for picture in ("health", "plan", "boxes"):
            assert (tmp_path / f"{picture}.svg").read_text().endswith("</svg>\n")
            (tmp_path / f"{picture}.svg").unlink()
        with pytest.raises(InputError, match="say health=True as well"):
            table.check(plot="x.svg")
        with pytest.raises(InputError, match="health is 7"):
            table.check(health=7)
    assert orders.check(health=True).healthy


def test_every_public_name_is_documented(catalog, iceberg):
    for thing in (DeltaStreamTable, IcebergCatalogTable, DeltaStreamCatalog, IcebergCatalog):
        for name in (name for name in vars(thing) if not name.startswith("_")):
            assert getattr(thing, name).__doc__, f"{thing.__name__}.{name}"


def test_the_table_does_what_the_functions_do(catalog):
    orders = catalog.table("orders")
    assert orders.keys.primary == ("id",) and orders.partitions() == catalog.partitions("orders")
    assert orders.read().equals(catalog.read("orders")) and orders.scan().read_all().num_rows == 2
    assert orders.check() == deltacompact.check(catalog, "orders")
    assert orders.vacuum(dry_run=True) == deltacompact.vacuum(catalog, "orders", dry_run=True)
    assert orders.plan().document[0]["delta_rows"] == 1 and not orders.plan().nothing_to_do
    assert orders.compact().sessions[0].deleted == 1
    assert orders.plan().nothing_to_do
    assert orders == catalog.table("orders") and pickle.loads(pickle.dumps(orders)).read().equals(orders.read())


def test_a_call_of_the_catalog_takes_a_table_and_what_the_tables_own_call_takes(catalog):
    for name in ("append", "append_files", "compacted_files", "publish", "read", "restate", "scan", "stop_publishing"):
        of_table = arguments_of(getattr(DeltaStreamTable, name))
        assert arguments_of(getattr(DeltaStreamCatalog, name)) == ("table_id", *of_table), name
    assert catalog.read(table_id="orders") == catalog.read("orders") == catalog.table("orders").read()
    with pytest.raises(TypeError, match=r"^append\(\) has an unknown argument 'tokn': did you mean 'token'\?"):
        catalog.append("orders", pa.table({"id": [4]}), tokn="a")
    assert "operation_column" in inspect.getdoc(DeltaStreamCatalog.append)


def test_history_says_what_made_each_version(catalog, tmp_path):
    orders = catalog.table("orders")
    orders.compact()
    orders.rollback("1")
    orders.restate(pa.table({"id": [7], "status": ["x"]}))
    orders.compact()
    (file,) = orders.compacted_files()
    orders.retract(file=file.partition("/lake/")[2])
    made = orders.history()
    assert [each.operation for each in made] == [
        "create",
        "compact",
        "compact",
        "rollback",
        "restate",
        "compact",
        "retract",
    ]
    assert [each.rows for each in made] == [0, 3, 2, 3, 0, 1, 0]
    times = [each.time for each in made[1:]]
    assert times == sorted(times) and made[0].time is None
    assert [each.version for each in orders.versions()] == [each.version for each in made]


def test_a_line_a_screen_and_a_notebook(catalog, capfd):
    orders = catalog.table("orders")
    assert repr(orders) == f"open_catalog('{catalog.where}').table('orders')"
    assert cli.run(["show", catalog.where, "orders"]) == 0
    assert str(orders) + "\n" == capfd.readouterr().out
    assert cli.run(["plan", catalog.where, "orders"]) == 0
    assert str(orders.plan()) + "\n" == capfd.readouterr().out
    assert "<caption>orders: primary keys id; 1 partition</caption>" in orders._repr_html_()
    assert repr(orders.plan()) == "plan of 'orders': 1 partition: 1 to compact, 0 with nothing to do, 0 failed"
    assert repr(orders.compact()) == "compaction of 'orders': 1 partition: 1 compacted, 0 with nothing to do, 0 failed"


def test_a_catalog_is_a_line_its_tables_and_a_small_table(catalog, prod, iceberg, monkeypatch, tmp_path, capfd):
    configure(prod, monkeypatch)
    catalog.create_table("<b>", primary_keys=["id"])
    for shown, where in ((catalog, catalog.where), (iceberg, "iceberg://prod")):
        assert repr(shown) == f"open_catalog({where!r})"
        assert cli.run(["show", where]) == 0
        assert f"{shown}\n" == capfd.readouterr().out
        told = shown._repr_html_()
        assert told.startswith(f"<table><caption>{where}: ") and "<th>table</th></tr>" in told
    assert "<td>orders</td>" in catalog._repr_html_() and "<td>&lt;b&gt;</td>" in catalog._repr_html_()
    assert "<td>db.orders</td>" in iceberg._repr_html_()
    (tmp_path / "empty").mkdir()
    empty = deltacompact.open_catalog(tmp_path / "empty")
    assert str(empty) == f"no tables in {empty.where}" and "0 tables" in empty._repr_html_()


def test_what_calls_give_back_fits_a_line(catalog, iceberg, capfd):
    orders, events = catalog.table("orders"), iceberg.table("db.orders")
    appended = orders.append(pa.table({"id": [4], "status": ["new"]}))
    assert repr(appended) == f"upsert of 1 row in 1 file at position {appended.position}"
    batch = orders.append(pa.table({"op": ["I", "D"], "id": [5, 4], "status": ["a", "b"]}), operation_column="op")
    assert repr(batch) == f"upsert of 1 row and delete of 1 row in 2 files at position {batch.position}"
    assert cli.run(["check", catalog.where, "orders"]) == 0
    assert f"{orders.check()[0]!r}\n" == capfd.readouterr().out
    assert cli.run(["vacuum", catalog.where, "orders", "--dry-run"]) == 0
    assert capfd.readouterr().out.startswith(f"{orders.vacuum(dry_run=True)[0]!r}\n")
    first, files, seconds = str(orders.compact()).splitlines()
    assert first == "(all): 5 rows in, 3 live, 0 superseded, 2 deleted by 2 delete rows"
    assert files.startswith("  files 5 -> 1 (") and seconds.startswith("  seconds: hash_bucket ")
    told = [orders.history()[-1], orders.rollback("1"), orders.advise(), orders.fingerprint()]
    told += [events.plan(), events.plan("convert"), events.compact(), events.history()[0], events.advise()]
    told += [events.maintain(expire_snapshots=True, remove_orphans=True, dry_run=True), events.fingerprint()]
    for line in map(repr, told):
        assert len(line) < 120 and "\n" not in line and "=" not in line, line


def test_what_one_kind_of_table_lacks_is_answered_with_what_does_it(catalog, iceberg):
    stream, table = catalog.table("orders"), iceberg.table("db.orders")
    for name in sorted({"append", "versions", "vacuum", "retract", "publish", "drop"} | set(STREAMS) - set(ICEBERG)):
        if callable(getattr(stream, name)) and not name.startswith(("declare", "stop", "compacted", "partitions")):
            with pytest.raises(AttributeError, match=f"IcebergCatalogTable has no '{name}': ."):
                getattr(table, name)
    with pytest.raises(AttributeError, match="has no 'vacuum': maintain"):
        table.vacuum(dry_run=True)
    with pytest.raises(AttributeError, match="DeltaStreamTable has no 'maintain': vacuum"):
        stream.maintain()
    for thing in (stream, table):
        with pytest.raises(AttributeError, match="has no 'compcat': did you mean 'compact'"):
            thing.compcat()
        assert not hasattr(thing, "_no_such_thing")


def test_notebooks_show_plans_and_results_of_iceberg_tables(iceberg):
    orders = iceberg.table("db.events")
    plan, result = orders.plan(), orders.compact(options={"rewrite-all": "true"})
    maintained = orders.maintain(rewrite_manifests=True, dry_run=True)
    for shown in (plan, result, maintained):
        assert shown._repr_html_().startswith("<table><caption>") and all(words(shown))
        assert all(not name.startswith("_") or name.startswith("__") for name in dir(shown))
    assert "<td>1</td><td>files in</td>" in result._repr_html_()


def test_settings_say_what_was_chosen():
    assert repr(Settings()) == "Settings()"
    assert repr(Settings(executor="local", local_threads=1)) == "Settings(executor='local', local_threads=1)"


def test_values_are_no_markup():
    catalog = DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table("t", ["<i>"], ["id"])
    table.append(pa.table({"id": [1]}), {"<i>": "<script>"})
    for shown in (table._repr_html_(), table.plan()._repr_html_()):
        assert "<script>" not in shown and "&lt;i&gt;=&lt;script&gt;" in shown


def test_of_many_partitions_a_screen_is_shown():
    catalog = DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table("t", ["p"], ["id"])
    for number in range(30):
        table.append(pa.table({"id": [1]}), {"p": number})
    planned, done = table.plan(), table.compact(settings=Settings(executor="local"))
    for shown in (table, planned, done):
        assert 10 < len(str(shown).splitlines()) < 24 and shown._repr_html_().count("<tr>") == 11


def test_a_table_of_an_iceberg_catalog(iceberg, capfd):
    orders = iceberg.table("db.orders")
    assert orders.plan("convert").mode == "convert"
    assert [made.operation for made in orders.history()] == ["append", "delete"]
    assert "data file" in str(orders) and "<th>delete files</th>" in orders._repr_html_()
    assert repr(orders) == "open_catalog('iceberg://prod').table('db.orders')"
    assert type(orders.compact("convert")).__name__ == "ConvertResult"
    assert orders.maintain(expire_snapshots=True, dry_run=True).expire_snapshots is not None
    with pytest.raises(deltacompact.NotFoundError, match=r"no table 'db\.none'"):
        iceberg.table("db.none")


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda catalog: catalog.table(3), InputError, r"table_id is 3 \(int\), it must be a string"),
        (lambda catalog: catalog.table("none"), deltacompact.NotFoundError, "table 'none' does not exist in [^ ]*$"),
        (lambda catalog: catalog.table("ordres"), deltacompact.NotFoundError, r"\(did you mean 'orders'\?\)$"),
        (lambda catalog: catalog.table("orders").append("rows.csv"), InputError, "append_files appends"),
        (lambda catalog: catalog.table("orders").append(), TypeError, r"append\(\) missing .* 'tables'"),
        (lambda catalog: catalog.table("orders").compact(partition={}), TypeError, "compact.* 'partitions'"),
        (lambda catalog: catalog.table("orders").plan(purges=True), TypeError, "plan.* 'purges': did you mean 'purge'"),
        (lambda catalog: catalog.table("orders").read(column=["id"]), TypeError, r"^read\(\) .* mean 'columns'"),
        (lambda catalog: catalog.table("orders").changes(keys=["id"]), TypeError, r"^changes\(\) .* mean 'key'"),
        (lambda catalog: catalog.table("orders").compact(purge=1), InputError, "purge is 1"),
        (lambda catalog: catalog.table("orders").retract(), InputError, "either a position or a file"),
        (lambda catalog: catalog.table("orders").check(quick=True, health=True), InputError, "quick and health ask"),
        (lambda catalog: catalog.table("orders").check(readable_by="x", plot="a.svg"), InputError, "and health"),
    ],
)  # fmt: skip
def test_an_error_names_what_was_written(catalog, call, error, told):
    with pytest.raises(error, match=told):
        call(catalog)


def test_a_catalog_that_does_not_exist_is_told_from_a_table_that_does_not(tmp_path):
    with pytest.raises(
        deltacompact.NotFoundError, match=r"table 'orders' does not exist in .*/lak/, where there are no"
    ):
        deltacompact.open_catalog(tmp_path / "lak").table("orders")


def test_a_folder_that_a_drop_left_is_not_the_table_that_was_meant(tmp_path):
    """A writer that begins before a drop may put its entry after it."""
    (tmp_path / "orders" / "stream").mkdir(parents=True)
    with pytest.raises(deltacompact.NotFoundError, match=r"table 'orders' does not exist in [^ ]*$"):
        deltacompact.open_catalog(tmp_path).table("orders")


FUNCTIONS = [
    *(deltacompact.compact, deltacompact.open_catalog, deltacompact.check, deltacompact.vacuum, deltacompact.changes),
    *(deltacompact.rollback, deltacompact.retract, deltacompact.retract_file),
]


def calls(catalog, iceberg):
    """Every public method and function."""
    for thing in (catalog, iceberg, catalog.table("orders"), iceberg.table("db.orders")):
        methods = [name for name in words(thing) if not isinstance(getattr(type(thing), name), property)]
        yield from (getattr(thing, name) for name in methods)
    yield from FUNCTIONS


def test_a_misspelt_argument_is_named_with_the_one_that_was_meant(catalog, iceberg):
    """Nothing is done before: else `expire_snapshot=True` might be left out of what is done."""
    tried = 0
    for call in calls(catalog, iceberg):
        for name in arguments_of(call) or ():
            with pytest.raises(TypeError, match=f"^{call.__name__}.. has an unknown argument '{name}s'.*did you mean"):
                call(**{f"{name}s": None})
            tried += 1
    assert tried > 200
    with pytest.raises(TypeError, match=r"^maintain\(\) has an .* 'expire_snapshot': did you mean 'expire_snapshots'"):
        iceberg.maintain("db.orders", expire_snapshot=True)
    with pytest.raises(TypeError, match=r"^append\(\) missing 1 required positional argument: 'tables'"):
        catalog.append("orders")
    with pytest.raises(
        TypeError, match=r"^compact\(\) has no argument 'executor', .* settings=Settings\(executor=…\)$"
    ):
        catalog.table("orders").compact(executor="local")
