"""What the benchmarks expect is what comes out of a fold done by hand, and anything else is found out."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import duckrun
from benchmarks.checksum import fingerprint, row_hashes
from benchmarks.configurations import LHBENCH, Case
from benchmarks.data import Inputs
from benchmarks.data import inputs_of as synthetic_inputs_of
from benchmarks.refresh import GAP, refresh_streams, status_streams
from benchmarks.tpch import TABLES, TpchTable, inputs_of

pytestmark = pytest.mark.processes

PRICE = pa.decimal128(15, 2)


def folded(inputs: Inputs) -> pa.Table:
    """One row after another."""
    live: dict[tuple[Any, ...], dict[str, Any]] = {}
    if inputs.whole:
        (source,) = inputs.deltas
        return pq.read_table(list(source.files))
    for files, deletes in [(inputs.prior, False), *((delta.files, delta.deletes) for delta in inputs.deltas)]:
        for row in (row for file in files for row in pq.read_table(file).to_pylist()):
            key = tuple(row[name] for name in inputs.keys)
            if deletes:
                assert set(row) == set(inputs.keys)
                assert live.pop(key, None) is not None
            else:
                live[key] = row
    return pa.Table.from_pylist(list(live.values()), pq.read_schema(inputs.prior[0]))


def checksum(table: pa.Table) -> int:
    return int(row_hashes(table, table.column_names).sum(dtype=np.uint64))


@pytest.fixture(scope="module")
def tpch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of both tables and all cases are made once."""
    return tmp_path_factory.mktemp("tpch")


@pytest.mark.parametrize("case", [Case.FULL, Case.REFRESH, Case.STATUS])
@pytest.mark.parametrize("table", TABLES)
def test_tpch_expects_what_a_fold_by_hand_leaves(tpch_folder: Path, tmp_path: Path, table: str, case: Case) -> None:
    inputs = inputs_of(TpchTable(table, 0.001, 40), case, tpch_folder, 1)
    by_hand = folded(inputs)
    pq.write_table(by_hand, tmp_path / "by-hand.parquet")
    assert fingerprint([tmp_path / "by-hand.parquet"], inputs.columns) == inputs.expected
    assert inputs.rows == sum(pq.read_metadata(file).num_rows for file in inputs.files)
    assert inputs.deletes is (case is not Case.STATUS)
    if case is not Case.STATUS:
        order = inputs.keys[0]
        there = set(by_hand[order].to_pylist())
        assert sum(key % 32 >= GAP for key in there) == 40
    if case is Case.STATUS and table == "orders":
        assert {"P", "F"} <= set(pa.concat_tables(map(pq.read_table, inputs.files[8:]))["o_orderstatus"].to_pylist())


def test_a_competitor_that_forgets_the_deletes_or_a_delta_is_found_out(tmp_path: Path) -> None:
    from benchmarks.competitors.polars_unique import PolarsUnique

    inputs = inputs_of(TpchTable("lineitem", 0.001, 3), Case.FULL, tmp_path, 1)
    wrongs = [
        replace(inputs, deltas=tuple(delta for delta in inputs.deltas if not delta.deletes)),
        replace(inputs, deltas=inputs.deltas[:-2]),
        replace(inputs, keys=inputs.keys[:1]),
    ]
    for place, given in enumerate([inputs, *wrongs]):
        run = PolarsUnique().prepare(given, tmp_path / f"out-{place}", tmp_path)
        run.work()
        assert (fingerprint(run.files(), inputs.columns) == inputs.expected) is (given is inputs)


def test_lhbench_updates_with_one_half_and_inserts_the_other(tmp_path: Path) -> None:
    table = LHBENCH.scaled(0.001).sharing(0.1)
    inputs = synthetic_inputs_of(table, Case.MERGE, tmp_path, 1)
    assert table.name == "lhbench-0.1"
    (file,) = inputs.deltas[0].files
    keys = pq.read_table(file)["key"].to_numpy()
    assert (len(keys), int((keys < table.prior_rows).sum())) == (800, 400)
    assert inputs.expected.rows == 8_400
    pq.write_table(folded(inputs), tmp_path / "by-hand.parquet")
    assert fingerprint([tmp_path / "by-hand.parquet"], inputs.columns) == inputs.expected


@pytest.mark.parametrize(
    ("case", "updated", "own", "gone"),
    [
        (Case.UPSERT, 0.008, 0.002, 0),
        (Case.INSERT, 0, 0.05, 0),
        (Case.UPDATE, 0.05, 0, 0),
        (Case.AGAIN, 0.05, 0, 0),
        (Case.CDC, 0.03, 0.02, 0.01),
        (Case.SYNC, 0.5, 0, 0.5),
    ],
)
def test_duckruns_changes_touch_the_shares_that_it_names(
    tpch_folder: Path, tmp_path: Path, case: Case, updated: float, own: float, gone: float
) -> None:
    inputs = duckrun.inputs_of(duckrun.DuckrunTable(0.002), case, tpch_folder, 1)
    before = pa.concat_tables(pq.read_table(file) for file in inputs.prior)
    after = folded(inputs)
    pq.write_table(after, tmp_path / "by-hand.parquet")
    assert fingerprint([tmp_path / "by-hand.parquet"], inputs.columns) == inputs.expected
    assert inputs.rows == sum(pq.read_metadata(file).num_rows for file in inputs.files)

    def by_key(table: pa.Table) -> dict[tuple[Any, ...], dict[str, Any]]:
        return {tuple(row[key] for key in inputs.keys): row for row in table.to_pylist()}

    known, left = by_key(before), by_key(after)
    brought = by_key(pq.read_table(inputs.deltas[-1].files[0]))
    shares = [len(brought.keys() & known), len(brought.keys() - known), len(known.keys() - left)]
    for found, share in zip(shares, (updated, own, gone), strict=True):
        assert found == pytest.approx(share * len(known), abs=4 * math.sqrt(share * len(known)))
    assert all((row == known.get(key)) is (case is Case.AGAIN) for key, row in brought.items())
    assert before["l_orderkey"].to_numpy().max() < min((key[0] for key in brought.keys() - known), default=math.inf)


def test_refresh_streams_take_the_gaps_and_leave_from_the_front() -> None:
    dice, keys = np.random.default_rng(1), np.array([32 * (i // 8) + i % 8 for i in range(1, 81)])
    changes = refresh_streams(keys, 3, 10, dice)
    assert [change.deletes for change in changes] == [False, True] * 3
    assert np.concatenate([change.keys for change in changes[1::2]]).tolist() == keys[:30].tolist()
    arriving = np.concatenate([change.keys for change in changes[::2]])
    assert arriving.tolist() == (keys[:30] + 8).tolist()
    assert not set(arriving) & set(keys)
    like = np.concatenate([change.like for change in changes[::2]])
    assert not set(like) & set(keys[:30])


def test_status_streams_ship_recent_orders_in_part_and_then_wholly() -> None:
    keys, placed = np.arange(100), np.random.default_rng(2).permutation(100)
    changes = status_streams(keys, placed, 4, 5, np.random.default_rng(1))
    recent = set(keys[placed >= 60])
    times = dict.fromkeys(recent, 0)
    for change in changes:
        assert len(set(change.keys)) == 5
        for key, shipped in zip(change.keys, change.shipped, strict=True):
            times[key] += 1
            assert times[key] == shipped
    assert max(times.values()) > 1


@pytest.mark.parametrize(
    ("values", "changed", "kind"),
    [
        (["", "a", "abcdefgh"], ["a", "", "abcdefgh"], pa.string()),
        (["R", "N", "A"], ["R", "A", "A"], pa.string()),
        (["", "", ""], ["", "", "\0"], pa.string()),
        (["a" * 7, "b" * 8, "c" * 30], ["a" * 7, "b" * 8, "c" * 29 + "d"], pa.string_view()),
        (
            [Decimal("0.04"), Decimal("-1.00"), Decimal("9.99")],
            [Decimal("0.04"), Decimal("1.00"), Decimal("9.99")],
            PRICE,
        ),
        (
            [datetime.date(1998, 8, day) for day in (1, 2, 3)],
            [datetime.date(1998, 8, day) for day in (1, 2, 4)],
            pa.date32(),
        ),
        ([1, 2, 3], [1, 2, -3], pa.int32()),
    ],
)
def test_a_changed_value_changes_the_checksum(values: list[Any], changed: list[Any], kind: pa.DataType) -> None:
    def of(column: Iterable[Any], key: Iterable[int] = range(3)) -> int:
        return checksum(pa.table({"key": list(key), "value": pa.array(column, kind)}))

    assert of(values) != of(changed)
    assert of(values) == of(reversed(values), reversed(range(3)))
    assert of(values) != of(values, [0, 1, 4])


def test_types_that_engines_write_otherwise_have_the_same_checksum(tmp_path: Path) -> None:
    one = pa.table(
        {"price": pa.array([Decimal("1.50")], PRICE), "flag": pa.array(["R"]), "line": pa.array([1], pa.int32())}
    )
    other = one.cast(pa.schema({"price": pa.decimal128(38, 2), "flag": pa.string_view(), "line": pa.int64()}))
    assert checksum(one) == checksum(other)
    sliced = pa.concat_tables([one, one]).combine_chunks().slice(1)
    assert checksum(sliced) == checksum(one)
    pq.write_table(one.drop_columns(["flag"]), tmp_path / "lacks.parquet")
    assert fingerprint([tmp_path / "lacks.parquet"], one.column_names).checksum != checksum(one)
