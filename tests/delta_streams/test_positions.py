"""Nothing is written that poisons a log: positions nobody can follow, commits of nothing, names no store can hold."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import problems

import deltacompact
from deltacompact import DeltaStreamCatalog, InputError, PositionError, cli
from deltacompact.base.model import OperationType, Partition
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore

ALL = Partition()
NOW_MS = 1_800_000_000_000
YEAR_MS = 365 * 24 * 3600 * 1000


def rows(*keys: int) -> pa.Table:
    return pa.table({"id": list(keys)})


@pytest.fixture
def catalog() -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore(), clock=lambda: NOW_MS / 1000)
    catalog.create_table("t", primary_keys=["id"])
    return catalog


def stored(catalog: DeltaStreamCatalog) -> list[str]:
    return [stat.path for stat in catalog.store.list("")]


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (2**63 - 1, "9223372036854775807 is more than a year ahead of the clock"),
        (NOW_MS * 1000, "more than a year ahead of the clock"),
        (NOW_MS + YEAR_MS + 1, "force_position"),
        (2**63, "is not an int64"),
        (-(2**63) - 1, "is not an int64"),
        (1.5, "1.5 is not a whole number"),
        (7.0, "7.0 is not a whole number"),
        (True, "True is not a whole number"),
        ("7", "'7' is not a whole number"),
        (np.bool_(True), "is not a whole number"),
        (float("nan"), "nan is not a whole number"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("path", ["append", "append_files", "commit"])
def test_a_position_that_no_later_one_could_follow_is_refused_on_every_path(
    catalog: DeltaStreamCatalog, tmp_path: Path, path: str, position: Any, said: str
) -> None:
    written = catalog.append("t", rows(0)).files
    before = stored(catalog)
    file = tmp_path / "rows.parquet"
    pq.write_table(rows(1), file)
    with pytest.raises(PositionError, match=said):
        match path:
            case "append":
                catalog.append("t", rows(1), stream_position=position)
            case "append_files":
                catalog.append_files("t", [file], stream_position=position)
            case _:
                catalog.commit("t", ALL, [(OperationType.UPSERT, written)], position)
    assert stored(catalog) == before


@pytest.mark.parametrize("position", [1, -(2**63), 0, NOW_MS + YEAR_MS, np.int64(5), np.uint8(5)])
def test_small_numbers_and_log_sequence_numbers_are_positions(catalog: DeltaStreamCatalog, position: Any) -> None:
    delta = catalog.append("t", rows(1), stream_position=position)
    assert delta.position == position and type(delta.position) is int
    assert catalog.append("t", rows(2)).position > position
    assert DeltaStreamCatalog(catalog.store).read("t").num_rows == 2


def test_a_great_position_may_be_forced(catalog: DeltaStreamCatalog) -> None:
    with pytest.raises(PositionError):
        catalog.append("t", rows(1), stream_position=NOW_MS * 1000)
    catalog.append("t", rows(1), stream_position=NOW_MS * 1000, force_position=True)
    assert catalog.append("t", rows(2)).position == NOW_MS * 1000 + 1, "what follows by itself needs no force"


def test_the_command_line_forces_a_position(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lake, file = str(tmp_path / "lake"), tmp_path / "rows.parquet"
    pq.write_table(rows(1), file)
    micros = str(time.time_ns() // 1000)
    assert cli.run(["create", lake, "t"]) == 0
    assert cli.run(["append", lake, "t", str(file), "--position", micros]) == 2
    assert f"stream position {micros}" in capfd.readouterr().err
    assert not (tmp_path / "lake" / "t" / "stream").exists()
    assert cli.run(["append", lake, "t", str(file), "--position", micros, "--force-position"]) == 0


def test_positions_of_one_commit_ascend_and_end_within_the_limit(catalog: DeltaStreamCatalog) -> None:
    file = catalog.append("t", rows(0)).files[0]
    both = [(OperationType.DELETE, [file]), (OperationType.UPSERT, [file])]
    first, second = catalog.commit("t", ALL, both, NOW_MS + 5)
    assert (first.position, second.position) == (NOW_MS + 5, NOW_MS + 6)
    with pytest.raises(PositionError, match="not an int64"):
        catalog.commit("t", ALL, both, 2**63 - 1, force_position=True)


def test_a_commit_of_nothing_is_refused_and_begins_no_stream(catalog: DeltaStreamCatalog) -> None:
    before = stored(catalog)
    for work in (
        lambda: catalog.append_files("t", []),
        lambda: catalog.commit("t", ALL, []),
        lambda: catalog.restate("t", []),
    ):
        with pytest.raises(InputError, match=r"at least one|zero rows"):
            work()
    assert stored(catalog) == before


def test_a_batch_without_files_is_a_delta_whose_token_counts(catalog: DeltaStreamCatalog) -> None:
    """A producer commits every batch, also one that brought nothing."""
    assert catalog.append("t", [], token=("etl", 1)).committed
    assert not catalog.append("t", [], token=("etl", 1)).committed
    (delta,) = catalog.commit("t", ALL, [(OperationType.UPSERT, [])])
    assert (delta.files, delta.rows, delta.committed) == ((), 0, True)
    assert catalog.read("t").num_rows == 0


def test_a_table_of_zero_rows_is_a_delta(catalog: DeltaStreamCatalog) -> None:
    assert catalog.append("t", rows()).rows == 0
    catalog.append("t", iter([rows(1), rows()]))
    assert catalog.read("t").num_rows == 1
    catalog.restate("t", rows())
    assert catalog.read("t").num_rows == 0


@pytest.mark.parametrize("value", ["a\0b", "!null", "", "../x", "a/b=c", "ü\n", "%00", "x" * 200])
@pytest.mark.slow
def test_a_partition_value_comes_back_whatever_is_in_it(tmp_path: Path, value: str) -> None:
    for store in (MemoryStore(), LocalStore(tmp_path)):
        catalog = DeltaStreamCatalog(store)
        catalog.create_table("t", ["day"], ["id"])
        catalog.append("t", rows(1), {"day": value})
        deltacompact.compact("t", delta_catalog_client=catalog, settings=deltacompact.Settings(executor="local"))
        fresh = DeltaStreamCatalog(store)
        assert fresh.partitions("t") == [Partition((("day", value),))]
        assert fresh.read("t", {"day": value})["id"].to_pylist() == [1]
        assert problems(fresh) == []


@pytest.mark.parametrize(("value", "said"), [("x" * 10_000, "10,0.. bytes|too long"), ("\ud800", "UTF-8")])
def test_a_partition_value_that_no_store_can_hold_is_refused(tmp_path: Path, value: str, said: str) -> None:
    for store in (MemoryStore(), LocalStore(tmp_path)):
        catalog = DeltaStreamCatalog(store)
        catalog.create_table("t", ["day"])
        with pytest.raises(InputError, match=said) as raised:
            catalog.append("t", rows(1), {"day": value})
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 300
        assert DeltaStreamCatalog(store).partitions("t") == []
        catalog.append("t", rows(1), {"day": "1"})


@pytest.mark.parametrize("table_id", ["", ".", "..", "x" * 10_000, "\ud800", 7, None, b"t"])
def test_what_is_no_table_name_is_refused(tmp_path: Path, table_id: Any) -> None:
    for store in (MemoryStore(), LocalStore(tmp_path)):
        catalog = DeltaStreamCatalog(store)
        with pytest.raises(InputError):
            catalog.create_table(table_id)
        assert stored(catalog) == []


def test_no_position_follows_the_greatest(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", pa.table({"id": [1]}), stream_position=2**63 - 1, force_position=True)
    with pytest.raises(PositionError, match="no stream position follows 9223372036854775807"):
        catalog.append("t", pa.table({"id": [2]}))
    deltacompact.compact("t", delta_catalog_client=catalog, settings=deltacompact.Settings(executor="local"))
    assert catalog.read("t")["id"].to_pylist() == [1]
