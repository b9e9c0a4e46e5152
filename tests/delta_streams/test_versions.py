"""Reading by column, filter and version; going back to a version; taking out a delta; publishing to other engines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from stores import InterceptedStore
from tables import one_row_simulated, problems

from deltacompact import ConflictError, DeltaStreamCatalog, InputError, NotFoundError, Settings, compact
from deltacompact.base.model import Partition
from deltacompact.cli import run as command_line
from deltacompact.delta_streams.file_lists import publish
from deltacompact.delta_streams.paths import GENESIS
from deltacompact.delta_streams.versions import retract, rollback, versions
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1)


def rows(*keys: int, v: str = "v") -> pa.Table:
    return pa.table({"k": list(keys), "v": [f"{v}{key}" for key in keys]})


def run(catalog: DeltaStreamCatalog) -> None:
    (session,) = compact("t", delta_catalog_client=catalog, settings=LOCAL).sessions
    assert session.error is None


def keys(catalog: DeltaStreamCatalog, **how: object) -> list[int]:
    assert problems(catalog) == []
    return sorted(catalog.read("t", **how)["k"].to_pylist())


@pytest.fixture
def catalog(tmp_path: Path) -> DeltaStreamCatalog:
    """Version 0: 1 2. Version 1: the same compacted, and 3. Version 2: the same compacted, and a delete of 1."""
    made = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    made.create_table("t", (), ["k"])
    made.append("t", rows(1, 2))
    run(made)
    made.append("t", rows(3))
    run(made)
    made.append("t", pa.table({"k": [1]}), operation="delete")
    return made


def test_a_scan_takes_columns_and_a_filter(catalog: DeltaStreamCatalog) -> None:
    assert catalog.read("t", columns=["v"]).to_pydict() == {"v": ["v2", "v3"]}
    assert catalog.read("t", columns=["v", "k"]).column_names == ["v", "k"]
    with pytest.raises(InputError, match="name at least one column"):
        catalog.read("t", columns=[])
    assert catalog.read("t", columns=["v"], filter=[("k", ">", 2)]).to_pydict() == {"v": ["v3"]}
    assert catalog.read("t", filter=(pc.field("k") == 2) | (pc.field("v") == "v3"))["k"].to_pylist() == [2, 3]
    assert catalog.read("t", filter=[[("k", "=", 2)], [("v", "=", "v3")]])["k"].to_pylist() == [2, 3]
    reader = catalog.scan("t", columns=["k"])
    assert reader.schema == pa.schema([("k", pa.int64())])
    assert sum(batch.num_rows for batch in reader) == 2
    for wrong in ({"columns": ["x"]}, {"filter": [("x", "=", 1)]}):
        with pytest.raises(InputError, match=r"table 't' has no column 'x' \(columns: k, v\)"):
            catalog.read("t", **wrong)
    for wrong in (
        {"filter": [("k", "?", 1)]},
        {"filter": [("k", "=", "text")]},
        {"filter": [("k", "=", b"\xff")]},
        {"filter": 7},
    ):
        with pytest.raises(InputError, match="filter"):
            catalog.read("t", **wrong)


def test_a_partition_key_that_is_no_column_is_read_by_those_who_name_it(tmp_path: Path) -> None:
    table = DeltaStreamCatalog(LocalStore(tmp_path)).create_table("t", partition_keys=["day"], primary_keys=["k"])
    for day in ("a", "b", None):
        table.append(pa.table({"k": [1, 2]}), {"day": day})
    table.append(pa.table({"k": [1]}), {"day": "b"}, "delete")
    for _ in range(2):
        assert table.read().column_names == ["k"]
        rows = table.read(columns=["day", "k"]).to_pylist()
        assert {(row["day"], row["k"]) for row in rows} == {("a", 1), ("a", 2), ("b", 2), (None, 1), (None, 2)}
        assert table.read(filter=[("day", "=", "b")]).to_pylist() == [{"k": 2}]
        assert table.read(filter=pc.field("day").is_null(), columns=["day"])["day"].to_pylist() == [None, None]
        table.compact()
    with pytest.raises(InputError, match=r"no column 'x' \(columns: k, day\)"):
        table.read(columns=["x"])


def test_a_version_is_read_by_its_name_its_number_or_the_beginning_of_its_name(catalog: DeltaStreamCatalog) -> None:
    infos = versions(catalog, "t", Partition())
    assert [(info.state.opened.number, info.rows, info.retained) for info in infos] == [
        (0, 0, True),
        (1, 2, True),
        (2, 3, True),
    ]
    name = infos[1].state.version
    for given in ("1", name, name[:9]):
        assert keys(catalog, version=given) == [1, 2, 3]
    assert keys(catalog, version="0") == [1, 2] and keys(catalog, version="2") == keys(catalog) == [2, 3]
    with pytest.raises(NotFoundError, match=f"no version begins with '7' \\(newest: 0, {name}, 2-"):
        catalog.read("t", version="7")


def test_a_rollback_says_what_the_version_said_and_the_stream_goes_on(catalog: DeltaStreamCatalog) -> None:
    last = catalog.state("t", Partition()).last_position
    state = rollback(catalog, "t", "1")
    assert state.opened.number == 3 and keys(catalog) == [1, 2, 3]
    delta = catalog.append("t", rows(4))
    assert last is not None and delta.position > last
    run(catalog)
    assert keys(catalog) == [1, 2, 3, 4]
    rollback(catalog, "t", "0")
    assert keys(catalog) == [1, 2]
    run(catalog)
    assert keys(catalog) == [1, 2]
    numbers = [file.number for file in catalog.state("t", Partition()).compacted.files]  # type: ignore[union-attr]
    assert numbers == sorted(set(numbers))


def test_tokens_of_what_a_rollback_drops_stay_known(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", rows(9), token="etl:1")
    run(catalog)
    rollback(catalog, "t", "1")
    catalog.append("t", rows(9), token="etl:1")
    assert keys(catalog) == [1, 2, 3]
    catalog.append("t", rows(9), token="etl:2")
    assert keys(catalog) == [1, 2, 3, 9]


def test_rollbacks_that_are_refused(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is the active one"):
        rollback(catalog, "t", "2")
    later = DeltaStreamCatalog(LocalStore(tmp_path / "lake"), clock=lambda: catalog.clock() + 37 * 3600)
    with pytest.raises(InputError, match="sealed more than 36 hours ago"):
        rollback(later, "t", "1")
    vacuum(catalog, "t", age_min_s=0, force=True)
    assert keys(catalog) == [2, 3]
    with pytest.raises(NotFoundError):
        catalog.read("t", version="1")


def test_what_is_committed_during_a_rollback_stays_and_a_compaction_conflicts() -> None:
    simulation, made = one_row_simulated()
    run(made)
    made.append("t", rows(2))
    compacting = simulation.start(lambda c: run_quietly(c))
    compacting.run_to("put_if_absent", "stream/1-")
    back = simulation.start(lambda c: rollback(c, "t", "0"))
    back.run_to("put_if_absent", "stream/1-")
    made.append("t", rows(3))
    back.finish()
    assert sorted(made.read("t")["k"].to_pylist()) == [1, 3]
    with pytest.raises(ConflictError):
        compacting.finish()
    assert sorted(made.read("t")["k"].to_pylist()) == [1, 3]


def each_step_of(
    doing: Callable[[DeltaStreamCatalog], object], meanwhile: Callable[[DeltaStreamCatalog], object]
) -> Iterator[tuple[DeltaStreamCatalog, BaseException | None]]:
    """The table 1, 2, 3 (a minute apart) after `doing`, at each step of which `meanwhile` comes; and its error."""
    for steps in count():
        simulation, made = one_row_simulated()
        for key in (2, 3):
            simulation.now_s += 60
            made.append("t", rows(key))
        actor = simulation.start(doing)
        for _ in range(steps):
            if actor.done:
                return
            actor.step()
        meanwhile(simulation.catalog())
        while not actor.done:
            actor.step()
        yield simulation.catalog(), actor.error


def test_a_commit_at_any_step_of_a_rollback_to_the_active_version_is_there_once() -> None:
    for made, error in each_step_of(lambda c: rollback(c, "t", "0"), lambda c: c.append("t", rows(4))):
        assert isinstance(error, InputError) and "with all that was committed to it" in str(error)
        assert keys(made) == [1, 2, 3, 4]


def test_a_delta_that_is_retracted_at_any_step_of_a_rollback_does_not_come_back() -> None:
    now, second = datetime.fromtimestamp(1_000_000_000 + 90, UTC), 1_000_000_060_000
    outcomes = set()
    for made, error in each_step_of(lambda c: rollback(c, "t", now), lambda c: retract(c, "t", second)):
        assert error is None or isinstance(error, ConflictError)
        assert keys(made) == ([1] if error is None else [1, 3])
        outcomes.add(error is None)
    assert outcomes == {True, False}


def run_quietly(catalog: DeltaStreamCatalog) -> None:
    (session,) = compact("t", delta_catalog_client=catalog, settings=LOCAL).sessions
    if session.error:
        raise session.error


def corrupt(catalog: DeltaStreamCatalog, position: int) -> None:
    (delta,) = [d for d in catalog.state("t", Partition()).deltas if d.position == position]
    store = catalog.store
    store.put(delta.files[0].path, b"PAR1 this is no parquet PAR1")


def test_a_corrupt_delta_blocks_its_partition_until_it_is_retracted(catalog: DeltaStreamCatalog) -> None:
    bad = catalog.append("t", rows(5), token="etl:1")
    catalog.append("t", rows(6))
    corrupt(catalog, bad.position)
    with pytest.raises(InputError, match=r"\.parquet"):
        run(catalog)
    retract(catalog, "t", bad.position)
    retract(catalog, "t", bad.position)  # again: nothing happens
    assert keys(catalog) == [2, 3, 6]
    run(catalog)
    assert keys(catalog) == [2, 3, 6]
    assert catalog.append("t", rows(5), token="etl:1").position == bad.position  # its token stays known
    assert keys(catalog) == [2, 3, 6]
    with pytest.raises(InputError, match="no delta at position"):
        retract(catalog, "t", bad.position)


def test_a_delta_that_is_retracted_while_it_is_folded_or_carried_over_does_not_come_back() -> None:
    for stop in ("stream/1-", "stream/0/"):
        simulation, made = one_row_simulated()
        folded = made.append("t", rows(2))
        compacting = simulation.start(lambda c: run_quietly(c))
        compacting.run_to("put_if_absent", stop)
        retract(made, "t", folded.position)
        with pytest.raises(ConflictError, match="was retracted"):
            compacting.finish()
        run(made)
        assert keys(made) == [1]


def test_a_late_delta_that_was_carried_over_and_then_retracted_does_not_come_back() -> None:
    simulation, made = one_row_simulated()
    compacting = simulation.start(lambda c: run_quietly(c))
    compacting.run_to("put_if_absent", "stream/0/")  # the seal is pending
    late = made.append("t", rows(2))
    compacting.step()  # the seal is lost to the delta
    compacting.run_to("put_if_absent", "stream/0/")  # carried over, the seal is pending again
    retract(made, "t", late.position)
    compacting.finish()
    assert compacting.error is None
    assert keys(made) == [1]
    assert made.state("t", Partition()).opened.number == 1


def test_what_is_published_is_read_by_other_engines(tmp_path: Path) -> None:
    made = DeltaStreamCatalog(LocalStore(tmp_path))
    made.create_table("t", ["day"], ["k"])
    for day, key in (("mon", 1), ("tue", 2)):
        made.append("t", rows(key, key + 10), {"day": day})
    with pytest.raises(InputError, match="'t': nothing was compacted yet"):
        publish(made, "t")
    assert not [*made.store.list("t/published/")]
    compact("t", delta_catalog_client=made, settings=LOCAL)
    made.append("t", rows(99), {"day": "mon"})
    monday, tuesday = publish(made, "t")
    assert (monday.rows, monday.deltas_left_out, tuesday.deltas_left_out) == (2, 1, 0)
    manifest = tmp_path / "t/published/symlink/day=mon/manifest"
    assert monday.manifest == f"file://{manifest}" and [each.name for each in manifest.parent.iterdir()] == ["manifest"]
    uris = manifest.read_text().splitlines()
    paths = [uri.removeprefix("file://") for uri in uris]
    assert paths == (tmp_path / "t/published/files/day=mon/latest.txt").read_text().splitlines()
    assert duckdb.sql(f"select k from read_parquet({paths}) order by k").fetchall() == [(1,), (11,)]
    assert polars.read_parquet(paths)["k"].to_list() == [1, 11]
    compact("t", delta_catalog_client=made, settings=LOCAL)
    publish(made, "t")
    after = [uri.removeprefix("file://") for uri in manifest.read_text().splitlines()]
    assert sorted(polars.read_parquet(after)["k"].to_list()) == [1, 11, 99]


def test_a_partition_without_compacted_rows_has_empty_lists() -> None:
    """Monday is compacted. Tuesday's only delta is retracted, Wednesday waits for its first compaction."""
    store = MemoryStore()
    made = DeltaStreamCatalog(store)
    made.create_table("t", ["day"], ["k"])
    made.append("t", rows(1), {"day": "mon"})
    gone = made.append("t", rows(2), {"day": "tue"})
    retract(made, "t", gone.position, {"day": "tue"})
    compact("t", delta_catalog_client=made, settings=LOCAL)
    made.append("t", rows(3), {"day": "wed"})
    assert [(lists.rows, lists.deltas_left_out) for lists in publish(made, "t")] == [(1, 0), (0, 0), (0, 1)]
    assert store.get("t/published/files/day=tue/latest.txt") == store.get("t/published/symlink/day=wed/manifest") == b""
    assert made.compacted_files("t") == made.compacted_files("t", {"day": "mon"})
    for day in ("tue", "wed"):
        with pytest.raises(InputError, match=f"day={day}: nothing was compacted yet"):
            publish(made, "t", {"day": day})
        with pytest.raises(InputError, match=f"day={day}: nothing was compacted yet"):
            made.compacted_files("t", {"day": day})


def test_a_restated_partition_keeps_its_lists_until_it_is_compacted() -> None:
    store = MemoryStore()
    made = DeltaStreamCatalog(store)
    made.create_table("t", ["day"], ["k"])
    for day, key in (("mon", 1), ("tue", 2)):
        made.append("t", rows(key), {"day": day})
    compact("t", delta_catalog_client=made, settings=LOCAL)
    publish(made, "t")
    before = store.get("t/published/files/day=mon/latest.txt")
    made.restate("t", rows(9), {"day": "mon"})
    for ask in (publish, DeltaStreamCatalog.compacted_files):
        with pytest.raises(InputError, match="day=mon: its restated rows are not compacted yet"):
            ask(made, "t")
    assert store.get("t/published/files/day=mon/latest.txt") == before != b""
    compact("t", delta_catalog_client=made, settings=LOCAL)
    assert [lists.rows for lists in publish(made, "t")] == [1, 1]
    assert store.get("t/published/files/day=mon/latest.txt") != before


def test_a_table_that_became_empty_has_empty_lists() -> None:
    store = MemoryStore()
    made = DeltaStreamCatalog(store)
    made.create_table("t", primary_keys=["k"])
    made.append("t", rows(1))
    compact("t", delta_catalog_client=made, settings=LOCAL)
    publish(made, "t")
    made.restate("t", rows(9))
    (delta,) = made.state("t", Partition()).deltas
    retract(made, "t", delta.position)
    assert [lists.rows for lists in publish(made, "t")] == [0]
    assert store.get("t/published/symlink/manifest") == b""


def test_a_publisher_that_was_slow_does_not_put_an_older_version_back() -> None:
    """It stands still before its second list, while another one compacts and publishes."""
    store, others = MemoryStore(), []

    def overtake(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "put" and path.endswith("latest.txt") and not others:
            others.append(path)
            made = DeltaStreamCatalog(store)
            made.append("t", rows(2))
            compact("t", delta_catalog_client=made, settings=LOCAL)
            publish(made, "t")
        return act()

    slow = DeltaStreamCatalog(InterceptedStore(store, overtake))
    slow.create_table("t", [], ["k"])
    slow.append("t", rows(1))
    compact("t", delta_catalog_client=slow, settings=LOCAL)
    (told,) = publish(slow, "t")
    active = slow.state("t", Partition()).version
    assert others and told.version == active != GENESIS
    listed = store.get("t/published/files/latest.txt")
    assert listed == store.get(f"t/published/files/{active}.txt") == store.get("t/published/symlink/manifest")


@pytest.mark.parametrize("day", ["mon day", "50%", "ü", "a/b", "a+b=c"])
def test_names_that_are_encoded_are_read_by_other_engines(tmp_path: Path, day: str) -> None:
    root = tmp_path / "a lake"
    made = DeltaStreamCatalog(LocalStore(root))
    made.create_table("t ü", ["day"], ["k"])
    made.append("t ü", rows(1, 2), {"day": day})
    compact("t ü", delta_catalog_client=made, settings=LOCAL)
    publish(made, "t ü")
    (listed,) = root.glob("*/published/files/*/latest.txt")
    paths = listed.read_text().splitlines()
    assert all(Path(path).is_file() for path in paths)
    assert duckdb.read_parquet(paths).order("k").project("k").fetchall() == [(1,), (2,)]
    assert polars.read_parquet(paths)["k"].to_list() == [1, 2]
    assert pq.read_table(paths[0])["k"].to_pylist() == [1, 2]


def test_a_reader_from_before_a_retraction_keeps_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # days pass for the store, too
    monkeypatch.setattr("deltacompact.maintenance.vacuum.context.agreed_now_s", lambda store, path, clock_s: clock_s)
    now = [1_000_000.0]
    made = DeltaStreamCatalog(LocalStore(tmp_path), clock=lambda: now[0])
    made.create_table("t", primary_keys=["k"])
    made.append("t", rows(1))
    late = made.append("t", rows(2))
    now[0] = time.time() + 100 * 3600.0
    retract(made, "t", late.position)
    assert vacuum(made, "t")[0].deleted == ()
    compact("t", delta_catalog_client=made, settings=LOCAL)
    now[0] += 100 * 3600.0
    vacuum(made, "t")
    assert not (tmp_path / late.files[0].path).exists()
    assert keys(made) == [1]


def test_dead_rows_are_never_published(catalog: DeltaStreamCatalog) -> None:
    limits = Settings(executor="local", local_threads=1, rewrite_dead_fraction=0.9)
    compact("t", delta_catalog_client=catalog, settings=limits)
    with pytest.raises(InputError, match="compact with --purge first"):
        publish(catalog, "t")


def test_the_command_line(catalog: DeltaStreamCatalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(tmp_path / "lake")

    def said(*arguments: str) -> str:
        assert command_line([*arguments[:1], lake, *arguments[1:]]) == 0
        return capsys.readouterr().out

    lines = said("show", "t", "--versions").splitlines()
    assert "0  sealed " in lines[0] and "  active  3 rows in " in lines[2] and lines[2].endswith("1 delta since")
    assert [json.loads(line) for line in said("read", "t", "--column", "k", "--limit", "1").splitlines()] == [{"k": 2}]
    assert len(said("read", "t", "--version", "0").splitlines()) == 2
    assert "exported 3 rows" in said("export", "t", str(tmp_path / "out.parquet"), "--version", "1")
    position = catalog.state("t", Partition()).deltas[0].position
    taken_out = said("retract", "t", "--position", str(position))
    assert f"position {position} (" in taken_out and "is taken out" in taken_out
    assert keys(catalog) == [1, 2, 3]
    assert "published/symlink/manifest" in said("publish", "t")
    assert "as version 3-" in said("rollback", "t", "0")
    assert keys(catalog) == [1, 2]
    assert command_line(["rollback", lake, "t", "nine"]) == 2
    assert command_line(["retract", lake, "t", "--position", "5"]) == 2
