"""An append that would block its partition is refused at the door, and one that got in is named with the way out."""

from __future__ import annotations

import json
import shlex
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import InterceptedStore
from tables import problems

from deltacompact import DeltaStreamCatalog, SchemaError, Settings, cli, compact, open_catalog
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.model import OperationType, Partition
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local")
INTERVAL = pa.array([(1, 2, 3)], pa.month_day_nano_interval())


@pytest.fixture
def catalog(tmp_path):
    return open_catalog(tmp_path / "lake")


def compacted(catalog, **arguments):
    return compact("t", delta_catalog_client=catalog, settings=LOCAL, **arguments).sessions


def file_of(tmp_path, table, name="given.parquet"):
    pq.write_table(table, tmp_path / name)
    return tmp_path / name


def data_of(catalog):
    return [stat.path for stat in catalog.store.list("t/data/")]


MISFITS = {
    "a missing key column": ("upsert", {"v": ["x"], "s": [1]}, "key column 'id' is missing"),
    "a key of another class": ("upsert", {"id": ["1"], "s": [1]}, "key column 'id' is string"),
    "a nested key": ("upsert", {"id": [[1]], "s": [1]}, "key column 'id' is list"),
    "another type": ("upsert", {"id": [1], "s": [1], "v": [2]}, "column 'v' is int64, which does not fit string"),
    "an un-foldable sort column": ("upsert", {"id": [1], "s": [[1]]}, "sort key 's'"),
    "a delete without keys": ("delete", {"s": [1]}, "key column 'id' is missing"),
    "a delete with one of two sort columns": ("delete", {"id": [1], "s": [1]}, "'u' is missing"),
}


@pytest.mark.parametrize("compacted_before", [False, True], ids=["deltas", "compacted"])
@pytest.mark.parametrize("files", [False, True], ids=["tables", "files"])
@pytest.mark.parametrize("misfit", MISFITS)
@pytest.mark.slow
def test_what_cannot_be_folded_is_refused_by_name_and_leaves_nothing(
    tmp_path, catalog, misfit, files, compacted_before
):
    operation, columns, said = MISFITS[misfit]
    catalog.create_table("t", primary_keys=["id"], sort_keys=["s", "u"])
    catalog.append("t", pa.table({"id": [1], "s": [1], "u": [1], "v": ["x"]}))
    if compacted_before:
        compacted(catalog)
    before = {stat.path for stat in catalog.store.list("t/")}
    cold = open_catalog(tmp_path / "lake")
    for each in (catalog, cold):
        with pytest.raises(SchemaError, match=said) as raised:
            if files:
                each.append_files("t", [file_of(tmp_path, pa.table(columns))], operation=operation)
            else:
                each.append("t", pa.table(columns), operation=operation)
        assert ("given.parquet" if files else "the appended table") in str(raised.value)
    assert {stat.path for stat in catalog.store.list("t/")} == before
    assert problems(catalog) == []
    compacted(catalog)
    assert catalog.read("t").num_rows == 1


def test_types_that_no_key_can_have_are_refused_for_declared_keys(catalog):
    catalog.create_table("t", primary_keys=["id"])
    with pytest.raises(SchemaError, match="'id' is month_day_nano_interval"):
        catalog.append("t", pa.table({"id": INTERVAL}))
    assert catalog.partitions("t") == [], "not even the stream was begun"


def test_keys_known_from_a_compaction_count_like_declared_ones(tmp_path, catalog):
    catalog.create_table("t")
    catalog.append("t", pa.table({"id": [1]}))
    other = open_catalog(tmp_path / "lake")
    other.append("t", pa.table({"id": [2]}))  # this process has met the table without keys
    compacted(catalog, primary_keys=["id"])
    for each in (catalog, other):
        with pytest.raises(SchemaError, match="'id' is missing"):
            each.append("t", pa.table({"v": [1]}))


def test_a_key_class_that_only_a_compacted_delete_told_still_counts(tmp_path, catalog):
    catalog.create_table("t", primary_keys=["id"], sort_keys=["s"])
    catalog.append("t", pa.table({"id": [1], "s": [5]}), operation="delete")
    compacted(catalog)
    for each in (catalog, open_catalog(tmp_path / "lake")):
        with pytest.raises(SchemaError, match="key column 'id' is string"):
            each.append("t", pa.table({"id": ["1"], "s": [6]}))
    catalog.append("t", pa.table({"id": [1], "s": [4]}))
    assert catalog.read("t").num_rows == 0, "the tombstone was kept"


def test_of_two_racing_appends_that_exclude_each_other_one_is_refused():
    """Both were looked at before either was committed."""
    inner = MemoryStore()
    setup = DeltaStreamCatalog(inner)
    setup.create_table("t", primary_keys=["id"])
    setup.append("t", pa.table({"id": pa.nulls(1)}))  # the stream knows no class yet
    rival = DeltaStreamCatalog(inner)
    raced = []

    def intercept(kind, path, act):
        if kind == "put_if_absent" and "/stream/" in path and not raced:
            raced.append(path)
            rival.append("t", pa.table({"id": ["one"]}))
        return act()

    late = DeltaStreamCatalog(InterceptedStore(inner, intercept))
    with pytest.raises(SchemaError, match="'id' is int64"):
        late.append("t", pa.table({"id": [1]}))
    assert raced
    assert len(data_of(setup)) == 2, "what was refused in the end is deleted too"
    assert setup.read("t")["id"].to_pylist() == [None, "one"]


def test_many_threads_with_two_types_leave_a_table_that_can_be_folded(catalog):
    catalog.create_table("t", primary_keys=["id"])

    def append(number):
        try:
            catalog.append("t", pa.table({"id": [number if number % 2 else str(number)]}))
            return True
        except SchemaError:
            return False

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(append, range(16)))
    assert sum(done) == 8
    (session,) = compacted(catalog)
    assert session.live == 8


def test_a_commit_of_written_files_is_checked_too(catalog):
    """What Spark's sink commits comes this way."""
    catalog.create_table("t", primary_keys=["id"])
    described = DataFile(0, "t/data/x.parquet", "application/parquet", 1, 1, pa.schema([("v", pa.int64())]))
    with pytest.raises(SchemaError, match=r"x.parquet: key column 'id' is missing"):
        catalog.commit("t", Partition(), [(OperationType.UPSERT, [described])])


def test_partition_columns_must_agree_in_tables_and_in_near_files(tmp_path, catalog):
    catalog.create_table("t", partition_keys=["day"], primary_keys=["id"])
    wrong = pa.table({"id": [1, 2], "day": ["mon", "tue"]})
    (tmp_path / "wrong.csv").write_text("id,day\n1,mon\n2,tue\n")
    for append in (
        lambda: catalog.append("t", wrong, {"day": "mon"}),
        lambda: catalog.append_files("t", [file_of(tmp_path, wrong)], {"day": "mon"}),
        lambda: catalog.append_files("t", [tmp_path / "wrong.csv"], {"day": "mon"}, reference=True),
    ):
        with pytest.raises(SchemaError, match="'day' disagrees"):
            append()
    assert catalog.partitions("t") == []
    assert data_of(catalog) == []
    catalog.append("t", wrong.slice(0, 1), {"day": "mon"})


def test_a_restatement_may_change_types_but_needs_the_keys(catalog):
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1], "v": [1]}))
    with pytest.raises(SchemaError, match="'id' is missing"):
        catalog.restate("t", pa.table({"v": [1]}))
    with pytest.raises(SchemaError, match="'id' is string"):
        catalog.restate("t", [pa.table({"id": [1]}), pa.table({"id": ["1"]})])
    assert len(data_of(catalog)) == 1
    catalog.restate("t", pa.table({"id": ["1"], "v": ["x"]}))
    catalog.append("t", pa.table({"id": ["2"], "v": ["y"]}))
    assert catalog.read("t").num_rows == 2


def test_a_table_without_keys_refuses_what_its_reads_could_not_show(catalog):
    catalog.create_table("t")
    catalog.append("t", pa.table({"v": [1]}))
    with pytest.raises(SchemaError, match="'v' is string"):
        catalog.append("t", pa.table({"v": ["x"]}))
    catalog.append("t", pa.table({"v": ["x"]}), operation="delete")  # a delete's columns are not read
    assert catalog.read("t").num_rows == 1


@pytest.mark.parametrize("by_another", [False, True])
def test_a_process_sees_that_a_column_was_restated_in_another_type(by_another):
    """It refused by the shape that it remembered, until it ended."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    for number in range(2):
        catalog.append("t", pa.table({"id": [number], "v": ["a"]}))
    restater = DeltaStreamCatalog(catalog.store) if by_another else catalog
    restater.restate("t", pa.table({"id": [1], "v": [1]}))
    catalog.append("t", pa.table({"id": [2], "v": [2]}))
    assert catalog.read("t").sort_by("id")["v"].to_pylist() == [1, 2]
    with pytest.raises(SchemaError, match="column 'v' is string, which does not fit int64"):
        catalog.append("t", pa.table({"id": [3], "v": ["b"]}))


def test_checking_costs_no_request_in_a_warm_process():
    calls = []

    def intercept(kind, path, act):
        calls.append((kind, path.rsplit("/", 1)[-1]))
        return act()

    catalog = DeltaStreamCatalog(InterceptedStore(MemoryStore(), intercept))
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1]}))
    compacted(catalog)
    catalog.append("t", pa.table({"id": [2]}))
    calls.clear()
    catalog.append("t", pa.table({"id": [3]}))
    kinds = [kind for kind, _ in calls]
    assert kinds == ["get", "writer", "put_if_absent"], calls  # is it still the table, the data file, the entry


# What got in nevertheless


def blocked(tmp_path, run):
    """A table whose keys were not known when a file without them came."""
    run("create", "t", "--partition-key", "day")
    good, bad = pa.table({"id": [1]}), pa.table({"other": [1]})
    run("append", "t", file_of(tmp_path, good, "monday.parquet"), "--partition", "day=a b", "--position", 10)
    run("append", "t", file_of(tmp_path, bad, "tuesday.parquet"), "--partition", "day=a b", "--position", 20)
    open_catalog(tmp_path / "lake").declare_keys("t", keys())


def keys():
    from deltacompact.base.table_keys import TableKeys

    return TableKeys.of(["id"])


@pytest.mark.parametrize("command", ["read", "plan", "compact", "check", "export"])
def test_every_command_names_the_delta_that_blocks_and_the_way_out(tmp_path, run, command):
    blocked(tmp_path, run)
    target = [tmp_path / "out.parquet"] if command == "export" else []
    said = run(command, "t", *target, status=1 if command == "check" else 2)
    (line,) = {line for line in said.splitlines() if "retract" in line and "deltacompact:" in line} or {
        line for line in said.splitlines() if "retract" in line
    }
    assert "tuesday.parquet (" in line and "'id' is missing" in line and "stream position 20" in line
    assert "sound;" not in said
    words = shlex.split(line[line.index("deltacompact retract") :])
    assert cli.run(words[1:]) == 0, words
    assert "1 row in, 1 live" in run("compact", "t")


def test_check_names_every_delta_that_blocks_and_quick_check_too(tmp_path, run):
    blocked(tmp_path, run)
    bad = file_of(tmp_path, pa.table({"third": [1]}), "wednesday.parquet")
    document = json.loads(run("check", "t", "--json", status=1).split("deltacompact:")[0])
    assert len(document[0]["problems"]) == 1
    assert "'id' is missing" in run("append", "t", bad, "--partition", "day=a b", status=2)
    assert "position 20" in run("check", "t", "--quick", status=1)


def test_a_stream_with_a_misfit_still_takes_good_files_and_heals(tmp_path, run, catalog):
    blocked(tmp_path, run)
    catalog.append("t", pa.table({"id": [7]}), {"day": "a b"})
    run("retract", "t", "--position", 20, "--partition", "day=a b")
    assert sorted(catalog.read("t")["id"].to_pylist()) == [1, 7]


def test_the_users_name_of_a_file_is_kept_through_the_log(tmp_path, catalog):
    catalog.create_table("t", primary_keys=["id"])
    odd = b"stra\xdfe.csv".decode(errors="surrogateescape")  # a name that is not UTF-8
    (tmp_path / odd).write_text("id\n1\n")
    catalog.append_files("t", [tmp_path / odd])
    (delta,) = open_catalog(tmp_path / "lake").state("t", Partition()).deltas
    assert delta.files[0].name == str(tmp_path / "stra\ufffde.csv")


def test_an_error_of_the_store_gets_no_advice(catalog):
    from deltacompact.base.errors import StoreError
    from deltacompact.delta_streams.appending.advice import advised

    catalog.create_table("t", primary_keys=["id"])
    delta = catalog.append("t", pa.table({"id": [1]}))
    state = catalog.state("t", Partition())
    error: DeltaCompactError = StoreError(f"{delta.files[0].path}: broken pipe")
    assert advised(error, catalog, "t", Partition(), state) is error


def test_advice_that_loses_a_commit_needs_a_fold_of_just_that_file_that_fails(tmp_path, catalog):
    from deltacompact.delta_streams.appending.advice import advised

    catalog.create_table("t", primary_keys=["id"])
    delta = catalog.append("t", pa.table({"id": [1]}))
    path, state = delta.files[0].path, catalog.state("t", Partition())
    error = InputError(f"{path} is damaged")
    assert str(advised(error, catalog, "t", Partition(), state)) == str(error), "the file is good"
    stored = tmp_path / "lake" / path
    stored.chmod(0o644)
    stored.write_bytes(stored.read_bytes()[:-8] + b"PAR1PAR1")
    told = advised(error, catalog, "t", Partition(), state)
    assert type(told) is InputError and f"--position {delta.position}" in str(told)
