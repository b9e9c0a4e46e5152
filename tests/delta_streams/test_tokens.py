"""Tokens: a batch is committed once, every skip is said, and one token never stands for two batches."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import InterceptedStore
from tables import lake_of_release_0_1

import deltacompact
from deltacompact import DeltaStreamCatalog, InputError, cli
from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Commit, Delta
from deltacompact.base.model import ContentType, OperationType, Partition
from deltacompact.base.tokens import Token
from deltacompact.delta_streams.log.entries import Carried, CommittedEntry, Opened, from_document, to_document
from deltacompact.delta_streams.log.state import replay
from deltacompact.delta_streams.log.tokens import TOKEN_RETENTION_S, Commits
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore

LOCAL = deltacompact.Settings(executor="local")
ALL = Partition()
STANDS_FOR_BOTH = (
    r"stands for the delete\+upsert at position \d+, not for this upsert: give every batch a token of its own"
)
DAY_S = 24 * 3600


def rows(*keys: int) -> pa.Table:
    return pa.table({"id": list(keys)})


@pytest.fixture
def catalog() -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    return catalog


def compact(catalog: DeltaStreamCatalog, table_id: str = "t") -> None:
    deltacompact.compact(table_id, delta_catalog_client=catalog, settings=LOCAL)


def keys(catalog: DeltaStreamCatalog) -> list[int]:
    return sorted(catalog.read("t")["id"].to_pylist())


# Which tokens count


def test_a_name_with_a_number_behind_a_colon_is_a_name(catalog: DeltaStreamCatalog) -> None:
    for key, token in enumerate(["etl:8", "etl:7", "10:45", "10:44"]):
        assert catalog.append("t", rows(key), token=token).committed
    compact(catalog)
    assert catalog.append("t", rows(4), token="etl:6").committed
    assert not catalog.append("t", rows(5), token="etl:7").committed
    assert keys(catalog) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_producer_counts_upwards_and_a_skip_is_said(catalog: DeltaStreamCatalog, compacted: bool) -> None:
    first = catalog.append("t", rows(1), token=("etl", 7))
    last = catalog.append("t", rows(2), token=("etl", 8))
    if compacted:
        compact(catalog)
    again, below = catalog.append("t", rows(3), token=("etl", 8)), catalog.append("t", rows(4), token=("etl", 6))
    assert (again.position, again.committed) == (last.position, False)
    assert again.skipped == f"token 'etl' sequence 8 known since position {last.position}"
    assert below.skipped == (
        f"token 'etl' sequence 6 known since position {last.position}, where its producer is at sequence 8"
    )
    assert first.committed and catalog.append("t", rows(9), token=("etl", 9)).committed
    assert catalog.append("t", rows(10), token="etl").committed, "a name is no producer"
    assert keys(catalog) == [1, 2, 9, 10]


@pytest.mark.parametrize("successor", ["compact", "restate", "retract_file"])
def test_a_clock_that_is_ahead_forgets_no_token(catalog: DeltaStreamCatalog, successor: str) -> None:
    """After `retract_file` on such a host, a batch with a known name was committed again."""
    catalog.append("t", rows(1), token="nightly")
    compact(catalog)
    path = catalog.append("t", rows(2)).files[0].path
    ahead = DeltaStreamCatalog(catalog.store, clock=lambda: time.time() + 2 * TOKEN_RETENTION_S)
    if successor == "compact":
        compact(ahead)
    elif successor == "restate":
        ahead.table("t").restate(rows(1))
    else:
        ahead.table("t").retract(file=path)
    compact(catalog)
    assert not DeltaStreamCatalog(catalog.store).append("t", rows(3), token="nightly").committed


@pytest.mark.parametrize("token", ["nightly", ("etl", 7)])
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_token_of_another_operation_is_refused_by_name(
    catalog: DeltaStreamCatalog, token: Any, compacted: bool, fresh: bool
) -> None:
    position = catalog.append("t", rows(1), token=token).position
    if compacted:
        compact(catalog)
        catalog.append("t", rows(2))
        compact(catalog)
    catalog = DeltaStreamCatalog(catalog.store) if fresh else catalog
    name = token if isinstance(token, str) else token[0]
    with pytest.raises(InputError, match=f"'{name}'.* stands for the upsert at position {position}, not .* delete"):
        catalog.append("t", rows(1), operation="delete", token=token)
    file = catalog.append("t", rows(3)).files[0]
    both = [(OperationType.DELETE, [file]), (OperationType.UPSERT, [file])]
    with pytest.raises(InputError, match=r"not for this delete\+upsert: give every batch a token of its own"):
        catalog.commit("t", ALL, both, None, token)
    assert not catalog.append("t", rows(1), token=token).committed


@pytest.mark.parametrize("token", ["nightly", ("etl", 7)])
def test_a_batch_that_is_divided_into_other_deltas_is_the_same_batch(catalog: DeltaStreamCatalog, token: Any) -> None:
    delete, upsert = [(kind, [catalog.append("t", rows(1)).files[0]]) for kind in OperationType]
    first = catalog.commit("t", ALL, [delete, upsert, delete, upsert], None, token)
    for deltas in ([delete, upsert], [upsert]):
        assert catalog.commit("t", ALL, deltas, None, token)[0].position in [delta.position for delta in first]


@pytest.mark.parametrize("token", ["nightly", ("etl", 7)])
@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_a_plain_append_is_refused_with_the_token_of_a_batch_of_both_operations(
    catalog: DeltaStreamCatalog, token: Any, operation: str
) -> None:
    """It was skipped: its rows were never there."""
    events = pa.table({"op": ["I", "D"], "id": [1, 2]})
    catalog.append("t", events, operation_column="op", token=token)
    with pytest.raises(InputError, match=rf"stands for the \w+\+\w+ at position \d+, not for this {operation}:"):
        catalog.append("t", rows(77), operation=operation, token=token)
    assert not catalog.append("t", events, operation_column="op", token=token).committed


@pytest.mark.parametrize("token", ["nightly", ("etl", 7)])
def test_rows_of_many_partitions_are_refused_with_the_token_of_a_batch_of_both_operations(token: Any) -> None:
    """They were skipped in the partitions that know the token, or committed in those that do not."""
    catalog = DeltaStreamCatalog(store := MemoryStore())
    catalog.create_table("t", ["day"], ["id"])
    events = pa.table({"op": ["I", "D"], "id": [1, 2], "day": ["b", "b"]})
    catalog.append("t", events, operation_column="op", partition_by=["day"], token=token)
    before = [stat.path for stat in store.list("t/")]
    with pytest.raises(InputError, match=rf"{STANDS_FOR_BOTH}$"):
        catalog.append("t", pa.table({"id": [77, 78, 79], "day": ["a", "b", "c"]}), token=token)
    assert [stat.path for stat in store.list("t/")] == before
    assert not catalog.append("t", events, operation_column="op", partition_by=["day"], token=token).committed


def test_a_batch_of_another_process_with_the_same_token_leaves_no_advice_to_repeat_it() -> None:
    """It came after this one was checked. To repeat this one with its token would be refused again."""

    def fail(kind: str, path: str, act: Any) -> Any:
        if kind == "put_if_absent" and path == f"t/day=b/stream/0/{1:020}.json" and not other:
            other.append(DeltaStreamCatalog(store.inner))
            events = pa.table({"op": ["I", "D"], "id": [1, 2], "day": ["b", "b"]})
            other[0].append("t", events, operation_column="op", partition_by=["day"], token="k")
        return act()

    other: list[DeltaStreamCatalog] = []
    catalog = DeltaStreamCatalog(store := InterceptedStore(MemoryStore(), fail))
    catalog.create_table("t", ["day"], ["id"])
    with pytest.raises(InputError, match="1 of 2 partitions are committed; for the others append their rows again"):
        catalog.append("t", pa.table({"id": [77, 78], "day": ["a", "b"]}), token="k")


def test_rows_of_spark_with_one_operation_are_refused_with_the_token_of_a_batch_of_both(
    catalog: DeltaStreamCatalog,
) -> None:
    """Its tasks write files, and its driver commits them; neither needs Spark here. One partition was committed."""
    from deltacompact.spark.options import WriteTarget
    from deltacompact.spark.writing import commit_written, write_rows

    def write(table: pa.Table, operation_column: str | None) -> None:
        table_ = catalog.described("days")
        target = WriteTarget(catalog, table_, (), OperationType.UPSERT, operation_column, None, None)
        commit_written(target, [write_rows(target, table.to_batches())], Token("nightly"))

    catalog.create_table("days", ["day"], ["id"])
    events = pa.table({"op": ["I", "D"], "id": [1, 2], "day": ["b", "b"]})
    write(events, "op")
    with pytest.raises(InputError, match=rf"{STANDS_FOR_BOTH}$"):
        write(pa.table({"id": [77, 78, 79], "day": ["a", "b", "c"]}), None)
    write(events.slice(0, 1), "op")
    assert catalog.read("days")["id"].to_pylist() == [1]


def test_a_net_change_is_known_by_its_token_whatever_operations_it_has_in_this_release(
    catalog: DeltaStreamCatalog,
) -> None:
    """A mirror that had died before its bookmark was refused for ever: a moved row is two operations now."""
    catalog.create_table("m", primary_keys=["id"])
    for operations in (["I"], ["D", "I"]):
        net = catalog.table("m")._writer(token="b", said={"operation_column": "op"}, in_order=False)
        net.append(pa.table({"op": operations, "id": [1] * len(operations)}))
    assert [delta.operation for delta in catalog.state("m", ALL).deltas] == ["upsert"]


@pytest.mark.parametrize("token", ["nightly", ("etl", 7)])
def test_files_of_events_are_not_read_for_a_token_that_is_known(tmp_path: Path, token: Any) -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    (path := tmp_path / "a.csv").write_text("op,id\nI,1\nD,2\n")
    first = catalog.append_files("t", path, operation_column="op", token=token)
    path.unlink()
    for compacts in (False, True):
        again = catalog.append_files("t", path, operation_column="op", token=token)
        assert not again.committed and again.skipped and again.position == first.position
        if not compacts:
            compact(catalog)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (7, "token 7 is neither"),
        ("", "token ''"),
        ("x" * 1001, "1 to 1,000 characters"),
        ("\ud800", "is not a text"),
        (("etl",), "neither a text nor a pair"),
        (("etl", None), "neither a text nor a pair"),
        (("etl", "7"), "'7' is not a whole number"),
        (("etl", 7.0), "7.0 is not a whole number"),
        (("etl", True), "True is not a whole number"),
        (("etl", -1), "-1 is not a whole number from 0 on"),
        (("etl", 2**63), "is not a whole number from 0 on"),
        ((7, 7), "neither a text nor a pair"),
    ],
    ids=repr,
)
def test_what_is_no_token_is_refused_before_anything_is_written(token: Any, said: str) -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t")
    before = [stat.path for stat in catalog.store.list("")]
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        catalog.append("t", rows(1), token=token)
    assert [stat.path for stat in catalog.store.list("")] == before


def test_every_token_comes_back_from_an_entry_as_it_was() -> None:
    tokens = [Token("étl:7"), Token("a:b", 7), Token("etl:007", joined=True), Token("nightly", joined=True), None]
    for token in tokens:
        commit = Commit("id", 0, (Delta(1, OperationType.UPSERT),), token)
        entry = CommittedEntry(commit)
        assert from_document(json.loads(json.dumps(to_document(entry))), "entry") == entry


def test_a_token_expires_after_its_commit_was_compacted_not_after_it_was_made() -> None:
    now_s = [1e9]
    catalog = DeltaStreamCatalog(MemoryStore(clock=lambda: now_s[0]), clock=lambda: now_s[0])
    catalog.create_table("t", (), ["k"])
    catalog.append("t", pa.table({"k": [1], "v": ["first"]}), token="nightly")
    now_s[0] += 31 * DAY_S
    compact(catalog)
    for days, key in ((29, 2), (2, 3)):
        catalog.append("t", pa.table({"k": [1], "v": ["again"]}), token="nightly")
        assert sorted(catalog.read("t")["v"].to_pylist()) == ["first", "second"][: key - 1]
        now_s[0] += days * DAY_S
        catalog.append("t", pa.table({"k": [key], "v": ["second"]}))
        compact(catalog)
    catalog.append("t", pa.table({"k": [1], "v": ["much later"]}), token="nightly")
    assert sorted(catalog.read("t")["v"].to_pylist()) == ["much later", "second", "second"]


# The command line


def test_the_command_line_says_a_skip_and_exits_with_0(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lake, file = str(tmp_path / "lake"), tmp_path / "rows.parquet"
    pq.write_table(rows(1), file)
    assert cli.run(["create", lake, "t", "--primary-key", "id"]) == 0
    call = ["append", lake, "t", str(file), "--token", "etl", "--token-sequence", "7", "--position", "40"]
    assert cli.run(call) == 0
    capfd.readouterr()
    assert cli.run(call) == 0
    assert capfd.readouterr().out == "skipped: token 'etl' sequence 7 known since position 40\n"
    assert cli.run([*call, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["committed"], document["position"]) == (False, 40)
    assert cli.run([*call, "--operation", "delete"]) == 2
    assert "'etl' sequence 7 stands for the upsert at position 40" in capfd.readouterr().err
    assert cli.run(["append", lake, "t", str(file), "--token", "etl:6", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["committed"] is True
    assert cli.run(["append", lake, "t", str(file), "--token-sequence", "7"]) == 2
    assert "--token" in capfd.readouterr().err


# Tables of release 0.1


def old_entry(kind: str, **body: Any) -> Any:
    return from_document({"format": 1, "kind": kind, "schemas": [], **body}, "entry")


def old_commit(token: str | None, position: int) -> Any:
    deltas = [{"position": position, "operation": "upsert", "files": []}]
    return old_entry("committed", commit={"commit_id": str(position), "time_ms": 0, "token": token, "deltas": deltas})


def old_opened(producers: dict[str, Any], others: dict[str, Any]) -> Any:
    tokens = {"producers": producers, "others": others}
    return old_entry("opened", number=1, parent="0", lineage="0", tokens=tokens, last_position=9, time_ms=0)


def test_what_release_0_1_committed_stays_known_in_either_form() -> None:
    old = replay("1", [(old_opened({"etl": [7, 7]}, {"nightly": [5, 1]}), None), (old_commit("feed:3", 10), None)])
    states = [old]
    opened = Opened(2, "1", "0", old.tokens_inherited(2), 10)
    document = json.loads(json.dumps(to_document(opened)))
    states.append(replay("2", [(from_document(document, "entry"), None)]))
    carried = json.loads(json.dumps(to_document(Carried(old.commits))))
    states.append(replay("1", [(old.opened, None), (from_document(carried, "entry"), None)]))
    for state in states:
        for name in ("nightly", "etl:7", "etl:6", "feed:3", "feed:2"):
            assert state.known(Token(name)), name
        for pair in (Token("etl", 7), Token("etl", 0), Token("feed", 3), Token("feed", 2)):
            assert state.known(pair), pair
        for token in (Token("etl:8"), Token("etl", 8), Token("feed:4"), Token("feed", 4), Token("etl"), Token("x:0")):
            assert state.known(token) is None, token


def test_a_producer_of_today_makes_no_name_known() -> None:
    state = replay("1", [(old_opened({"etl": [7, 7]}, {}), None)])
    commit = Commit("c", 0, (Delta(11, OperationType.UPSERT),), Token("etl", 9))
    newer = replay("1", [(CommittedEntry(commit), None)], state)
    inherited = replay("2", [(Opened(2, "1", "0", newer.tokens_inherited(1), 11), None)])
    for each in (newer, inherited):
        assert each.known(Token("etl", 8)) and not each.known(Token("etl:8")) and each.known(Token("etl:7"))


def golden_tokens(catalog: DeltaStreamCatalog) -> None:
    for day in (None, "2026-11-01"):
        state = catalog.state("orders", Partition((("day", day),)))
        for sequence in range(1, 7):
            assert state.known(Token(f"etl:{sequence}")) and state.known(Token("etl", sequence))
        assert state.known(Token("nightly")) and state.known(Token("late"))
        assert not state.known(Token("etl:7")) and not state.known(Token("etl", 7))


# Many tokens


FILE = DataFile(0, "t/data/x.parquet", ContentType.PARQUET, 1, 10, pa.schema([("id", pa.int64())]))


def seconds(catalog: DeltaStreamCatalog, count: int, token: Any) -> float:
    """Of CPU. The collector is off: it would go through all that other tests have left in this process."""
    catalog.create_table("t")
    gc.disable()
    try:
        began = time.process_time()
        for number in range(count):
            catalog.commit("t", ALL, [(OperationType.UPSERT, [FILE])], number, token(number))
        return time.process_time() - began
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("token", [lambda n: f"batch {n}", lambda n: ("etl", n)], ids=["names", "a producer"])
def test_appends_with_tokens_cost_little_more_than_those_without(token: Any) -> None:
    for _ in range(3):
        plain = seconds(DeltaStreamCatalog(MemoryStore()), 1500, lambda _: None)
        ratio = seconds(DeltaStreamCatalog(MemoryStore()), 1500, token) / plain
        if ratio <= 1.25:
            return
    pytest.fail(f"{ratio:.2f} times as much")


def test_an_append_adds_to_the_commits_and_copies_none(catalog: DeltaStreamCatalog) -> None:
    for number in range(5):
        catalog.append("t", rows(number), token=("etl", number))
    state = catalog.state("t", ALL)
    catalog.append("t", rows(5), token=("etl", 5))
    later = catalog.state("t", ALL)
    assert later.commits._ledger is state.commits._ledger
    assert (len(state.commits), len(later.commits)) == (5, 6)
    assert later.known(Token("etl", 5)) and not state.known(Token("etl", 5))


def test_commits_that_grow_in_two_ways_do_not_see_each_other() -> None:
    def commit(number: int) -> Commit:
        return Commit(str(number), 0, (Delta(number, OperationType.UPSERT),), Token("p", number))

    two = Commits([commit(1), commit(2)])
    three, other = two.plus([commit(3)]), two.plus([commit(4), commit(5)])
    assert [c.commit_id for c in two] == ["1", "2"] and two == (two[0], two[-1])
    assert [c.commit_id for c in three] == ["1", "2", "3"]
    assert [c.commit_id for c in other] == ["1", "2", "4", "5"] and other[2:] == (commit(4), commit(5))
    assert not two.known(Token("p", 3)) and three.known(Token("p", 3)) and not three.known(Token("p", 4))
    assert other.known(Token("p", 3)) and two.plus([]) is two
    with pytest.raises(IndexError):
        two[2]


def test_the_golden_lake_of_release_0_1_knows_its_tokens(tmp_path: Path) -> None:
    catalog = DeltaStreamCatalog(LocalStore(lake_of_release_0_1(tmp_path)))
    golden_tokens(catalog)
    assert not catalog.append("orders", rows(1), {"day": None}, token="etl:4").committed
    compact(catalog, "orders")
    golden_tokens(DeltaStreamCatalog(catalog.store))
