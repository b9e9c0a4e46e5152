"""The model of large compactions: arithmetic over measured rates and sizing.py."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.model import TIB, Cluster, Rates, predict, rates_of
from deltacompact.sizing import GIB

HERE = Cluster("here", 1, 2, 16 * GIB, 3.6)
RATES = Rates(1e-7, 2e-7, 1e-7, 4e-7, 1e-9)


def measured(name: str, rows: int, stages: dict[str, float]) -> dict[str, Any]:
    return {
        "configuration": name,
        "case": "full",
        "competitor": "deltacompact ray",
        "error": None,
        "rows_in": rows,
        "details": {"seconds": stages},
    }


def test_rates_are_those_that_made_the_measurements() -> None:
    def seconds(rows: int, row_bytes: int) -> dict[str, float]:
        return {
            "hash_bucket": rows * 1e-7 / 2,
            "dedupe": rows * 2e-7 / 2,
            "assign_pointers": rows * 1e-7 / 2,
            "write_index": rows * 1e-7 / 2,
            "materialize": rows * (3e-7 + 1e-9 * row_bytes) / 2,
        }

    runs = [
        measured("narrow", 10_000_000, seconds(10_000_000, 60)),
        measured("wide", 2_000_000, seconds(2_000_000, 1_100)),
    ]
    found = rates_of(runs, 2)
    for name in ("hash_row_s", "dedupe_row_s", "pointer_row_s", "write_row_s", "write_byte_s"):
        assert getattr(found, name) == pytest.approx(getattr(RATES, name)), name
    with pytest.raises(ValueError, match="no full run of deltacompact ray on wide"):
        rates_of(runs[:1], 2)


def test_twice_the_rows_take_twice_as_long_and_cost_twice_as_much() -> None:
    one, two = (predict(rows, 60, HERE, RATES, files=1) for rows in (5e7, 1e8))
    assert two.seconds == pytest.approx(2 * one.seconds, rel=0.02)
    assert two.usd == pytest.approx(two.seconds * 3.6 / 3600)
    assert one.usd_per_tb(5e7 * 60) == pytest.approx(two.usd_per_tb(1e8 * 60), rel=0.02)


def test_rounds_come_from_the_object_store_and_buckets_from_the_figure_of_the_paper() -> None:
    cluster = Cluster("11", 11, 32, 256 * GIB, 2.64)
    rows = 20 * TIB / 1_552
    assert predict(rows, 1_552, cluster, RATES, files=1_000).rounds == 1
    assert predict(10 * rows, 1_552, cluster, RATES, files=1_000).rounds > 5
    assert predict(rows, 1_552, cluster, RATES).hash_buckets == 158  # 150 M rows at 8 GiB, here 60 % of that are heap
