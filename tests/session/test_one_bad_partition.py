"""One bad partition among good ones: the good ones are done, the bad one's error is said, the exit status is not 0."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import deltacompact
from deltacompact import cli
from deltacompact.base.deltas import Commit, Delta
from deltacompact.base.events import SessionFinished
from deltacompact.base.model import OperationType, Partition
from deltacompact.base.partitions import all_done, done_for_each
from deltacompact.base.settings import Settings
from deltacompact.delta_streams import partition as partition_module
from deltacompact.delta_streams.file_lists import publish
from deltacompact.delta_streams.log.entries import CommittedEntry
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.executors.local import LocalExecutor
from deltacompact.maintenance.check import check, rehash_table
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.session import planned
from deltacompact.session.driver import CompactionSession
from deltacompact.tabular import writing
from deltacompact.tabular.row_groups import WriteOptions

PARTITIONS = ("a", "b", "c")


@pytest.fixture
def lake(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", ["p"], ["id"])
    for name in PARTITIONS:
        catalog.append("t", pa.table({"id": [1, 2], "v": ["x", "y"]}), {"p": name})
    return catalog


@pytest.fixture
def run(lake, capfd):
    def call(command, *arguments, status=0):
        assert cli.run([command, str(lake.store.root), *map(str, arguments)]) == status
        return capfd.readouterr()

    return call


def let_in(catalog, table, name="b"):
    """A delta that does not fit, as a release that did not check it let it in."""
    paths = TablePaths.of("t").stream(Partition((("p", name),)))
    file = writing.write_table(catalog.store, paths.fresh("data", ".parquet"), table, WriteOptions())

    def commit(state):
        delta = Delta(state.last_position + 1, OperationType.UPSERT, (file,))
        return CommittedEntry(Commit("let in", 0, (delta,)))

    catalog.log("t", Partition((("p", name),))).extend(commit)


def break_log(catalog):
    """What partition b's log says is nonsense from now on."""
    for stat in list(catalog.store.list("t/p=b/stream/")):
        catalog.store.put(stat.path, b"{")


def break_index(catalog):
    for stat in list(catalog.store.list("t/p=b/index/")):
        catalog.store.put(stat.path, b"nonsense")


def compacted(catalog):
    deltacompact.compact("t", delta_catalog_client=catalog)
    return catalog


def test_work_for_each_goes_on_after_an_error_and_ctrl_c_ends_it():
    def halves(number):
        if number == 1:
            raise ValueError("odd")
        return number / 2

    results, ((failed, error),) = done_for_each([0, 1, 2], halves)
    assert results == [0, 1] and failed == 1 and str(error) == "odd"
    seen = []
    with pytest.raises(ValueError, match="odd"):
        all_done([1, 2], lambda number: seen.append(number) or halves(number))
    assert seen == [1, 2]

    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        done_for_each([1, 2], interrupted)


@pytest.mark.parametrize("unexpected", [ZeroDivisionError("surprise"), RecursionError("deep"), KeyError("v")], ids=repr)
def test_any_exception_of_a_session_is_the_error_of_its_result(lake, monkeypatch, unexpected, caplog):
    execute = CompactionSession.execute

    def breaks_in_b(session):
        if dict(session.plan.input.partition.values) == {"p": "b"}:
            raise unexpected
        return execute(session)

    monkeypatch.setattr(CompactionSession, "execute", breaks_in_b)
    result = deltacompact.compact("t", delta_catalog_client=lake)
    assert [session.live for session in result.sessions] == [2, 0, 2]
    (error,) = result.errors
    assert error is unexpected and error.__traceback__ is not None, "the traceback is there for --debug"
    assert "Traceback" in caplog.text and "p=b" in caplog.text


def test_an_exception_of_planning_and_of_looking_is_that_of_its_partition(lake, monkeypatch, capfd):
    plan, choose = planned.plan, partition_module.choose

    def plan_breaks(given, *rest):
        if dict(given.partition.values) == {"p": "a"}:
            raise ArithmeticError("no plan")
        return plan(given, *rest)

    def input_breaks(source, destination, partition, *rest):
        if dict(partition.values) == {"p": "b"}:
            raise LookupError("no look")
        return choose(source, destination, partition, *rest)

    monkeypatch.setattr(planned, "plan", plan_breaks)
    monkeypatch.setattr(partition_module, "choose", input_breaks)
    said = []
    result = deltacompact.compact("t", delta_catalog_client=lake, event_sinks=[said.append])
    assert [type(session.error) for session in result.sessions] == [ArithmeticError, LookupError, type(None)]
    finished = [event.error for event in said if isinstance(event, SessionFinished)]
    assert finished == ["ArithmeticError: no plan", "LookupError: no look", None]
    assert cli.run(["plan", str(lake.store.root), "t"]) == 1
    shown = capfd.readouterr()
    assert "p=a: failed: ArithmeticError: no plan" in shown.out and "p=b: failed: LookupError: no look" in shown.out
    assert "p=c: nothing to do" in shown.out


def test_plan_shows_the_plans_of_the_others(lake, run):
    let_in(lake, pa.table({"id": [9], "v": [5]}))
    said = run("plan", "t", status=2)
    assert "p=a: 1 delta" in said.out and "p=c: 1 delta" in said.out
    assert "p=b: failed: " in said.out and "'v'" in said.out
    assert said.err.count("deltacompact:") == 1
    reports = json.loads(run("plan", "t", "--json", status=2).out)
    assert [("error" in report) for report in reports] == [False, True, False]
    assert reports[1]["error"]["kind"] == "SchemaError" and reports[1]["error"]["exit_status"] == 2


def test_compact_says_every_session_in_json(lake, run):
    let_in(lake, pa.table({"id": [9], "v": [5]}))
    answer = json.loads(run("compact", "t", "--json", status=2).out)
    assert [session["live"] for session in answer["sessions"]] == [2, 0, 2]
    assert answer["error"]["kind"] == "SchemaError" and "'v'" in answer["sessions"][1]["error"]
    answer = json.loads(run("compact", "t", "--partition", "p=b", "--json", status=2).out)
    assert [session["live"] for session in answer["sessions"]] == [0], "where all fail it is said the same way"


def test_a_log_that_is_nonsense_ends_nothing_but_its_own_partition(lake, run):
    compacted(lake)
    for name in PARTITIONS:
        lake.append("t", pa.table({"id": [3], "v": ["z"]}), {"p": name})
    break_log(lake)
    said = run("compact", "t", status=1).out
    assert "p=a: 3 rows in, 3 live" in said and "p=b: failed" in said and "p=c: 3 rows in, 3 live" in said
    for command in ("plan", "check", "show", "vacuum", "publish"):
        said = run(command, "t", status=1).out
        assert "p=a" in said and "p=b: " in said and "p=c" in said, command
        document = json.loads(run(command, "t", "--json", status=1).out)
        partitions = document["streams"] if command == "show" else document
        assert {row["partition"]["p"] for row in partitions} == set(PARTITIONS), command
    assert "p=b: failed" in run("show", "t", "--versions", status=1).out
    said = run("rehash", "t", "--hash-buckets", 3, status=1).out
    assert "p=a: 1 hash bucket, now 3" in said and "p=b: failed" in said and "p=c: 1 hash bucket, now 3" in said


def test_an_index_that_is_nonsense_ends_nothing_but_its_own_partition(lake, run):
    break_index(compacted(lake))
    said = run("check", "t", status=1).out
    assert "p=a: sound" in said and "p=b: index: " in said and "p=c: sound" in said
    said = run("rehash", "t", "--hash-buckets", 2, status=1).out
    assert "p=a: 1 hash bucket, now 2" in said and "p=b: failed: " in said and "p=c: 1 hash bucket, now 2" in said


def test_from_python_every_partition_is_done_before_the_first_error_is_raised(lake):
    compacted(lake)
    fresh = deltacompact.open_catalog(lake.store.root)
    break_index(fresh)
    with pytest.raises(deltacompact.CorruptionError):
        rehash_table(fresh, "t", 2, LocalExecutor(Settings()))
    assert [bool(result.problems) for result in check(fresh, "t")] == [False, True, False]
    break_log(fresh)
    fresh = deltacompact.open_catalog(lake.store.root)
    with pytest.raises(deltacompact.CorruptionError):
        publish(fresh, "t")
    assert fresh.store.get("t/published/files/p=c/latest.txt")
    fresh.store.put("t/p=c/data/" + "0" * 32 + ".parquet", b"nothing reaches it")
    with pytest.raises(deltacompact.CorruptionError):
        vacuum(fresh, "t", age_min_s=-1, force=True)
    assert not [stat for stat in fresh.store.list("t/p=c/data/0000")]


def test_publish_shows_no_rows_of_a_partition_that_was_not_compacted(lake, run):
    deltacompact.compact("t", delta_catalog_client=lake, partitions=[{"p": "a"}, {"p": "c"}])
    said = run("publish", "t")
    assert "p=a: version 1-" in said.out and "p=c: version 1-" in said.out
    assert "p=b: version 0, 0 rows; 1 delta since are not in it" in said.out
    said = run("publish", "t", "--partition", "p=b", status=2)
    assert "p=b: nothing was compacted yet" in said.err
