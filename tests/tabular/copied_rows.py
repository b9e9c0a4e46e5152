"""A table of row groups of eight rows, and rows of every kind for it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from spark_fixtures import spark  # noqa: F401  (fixture)
from tables import problems

from deltacompact import DeltaStreamCatalog, SessionResult, Settings, compact
from deltacompact.storage.local import LocalStore

GROUP = 8
LOCAL = Settings(executor="local", local_threads=1, row_group_rows=GROUP)


@pytest.fixture
def catalog(tmp_path: Path) -> DeltaStreamCatalog:
    made = DeltaStreamCatalog(LocalStore(tmp_path))
    made.create_table("t", (), ["k"])
    return made


def run(catalog: DeltaStreamCatalog, settings: Settings = LOCAL, **arguments: Any) -> SessionResult:
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings, **arguments).sessions
    assert session.error is None
    assert problems(catalog) == []
    return session


KEYS = [int(key) for key in np.random.default_rng(1).permutation(64)]


def of_every_kind(keys: list[int]) -> pa.Table:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "text": [f"text {key}" if key % 3 else None for key in keys],
            "kind": pa.array([f"kind {key % 2}" for key in keys]).dictionary_encode(),
            "price": pa.array([Decimal(key).scaleb(-2) for key in keys], pa.decimal128(12, 2)),
            "at": pa.array([day.replace(minute=key % 60) for key in keys], pa.timestamp("us", "UTC")),
            "day": [date(2026, 1, 1 + key % 28) for key in keys],
            "bytes": pa.array([bytes([key]) * (key % 4) for key in keys], pa.binary()),
            "flag": [key % 2 == 0 for key in keys],
            "ratio": pa.array([key / 7 if key % 5 else float("nan") for key in keys], pa.float64()),
            "list": pa.array([[key, None] if key % 4 else None for key in keys], pa.list_(pa.int32())),
            "pair": [{"a": key, "b": None if key % 2 else "x"} for key in keys],
            "map": pa.array([[("n", key)] for key in keys], pa.map_(pa.string(), pa.int64())),
        }
    )
