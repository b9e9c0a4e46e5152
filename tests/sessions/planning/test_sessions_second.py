"""The second session of a table: what its deltas touch is forecast before it has a past, and whose table it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from deltacompact import DeltaStreamCatalog, Settings, compact, open_catalog
from deltacompact.job import Request
from deltacompact.planning.statistics import PartitionStatistics
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import SessionPlan
from sessions.documents.instruction import of_values
from sessions.planning import gather as gathering
from sessions.planning.gather import gather
from sessions.planning.learning import RateStore, cpu_by_stage
from sessions.planning.plan import plan_job_run
from sessions.planning.planner import Planner
from sessions.planning.prices import offers_here
from sessions.planning.situation import Situation, Wish
from sessions.planning.starts import StartStore
from sessions.records.swapping import SwappedRecords

LOCAL = Settings(executor="local", local_threads=1)
ROWS = 300_000
HERE = offers_here(2, 8 << 30)[:1]


@pytest.fixture
def compacted() -> DeltaStreamCatalog:
    """A table with one compacted file of three row groups."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", pa.table({"k": np.arange(ROWS), "v": np.random.default_rng(1).random(ROWS)}))
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    return catalog


def second(catalog: DeltaStreamCatalog) -> tuple[PartitionStatistics, SessionPlan]:
    (found,) = gather(catalog, Request("t"))
    assert found.statistics is not None
    (plan,) = plan_job_run([found.statistics], Wish(), Situation(HERE, {}))
    return found.statistics, plan


@pytest.mark.parametrize(
    ("keys", "touched"),
    [
        (np.arange(ROWS, ROWS + 500), 0.0),
        (np.arange(ROWS - 500, ROWS), 1 - 262_144 / ROWS),  # the last row group; the others are copied
        (np.arange(0, ROWS, 300), 1.0),
    ],
    ids=["new keys", "at the end", "anywhere"],
)
@pytest.mark.parametrize("as_text", [False, True], ids=["Parquet", "CSV"])
@pytest.mark.slow
def test_what_it_rewrites_is_forecast_and_so_it_is(
    compacted: DeltaStreamCatalog, tmp_path: Path, keys: np.ndarray, touched: float, as_text: bool
) -> None:
    table = pa.table({"k": keys, "v": np.zeros(len(keys))})
    if as_text:
        csv.write_csv(table, tmp_path / "delta.csv")
        compacted.append_files("t", [tmp_path / "delta.csv"])
    else:
        compacted.append("t", table)
    given, plan = second(compacted)
    assert plan.whole.get("base_row", 0.0) == pytest.approx(touched * ROWS, abs=0.01 * ROWS)
    assert given.touched.copied_bytes == pytest.approx(1 - touched, abs=0.02), "it is small, so it is merged"
    (done,) = compact("t", delta_catalog_client=compacted, settings=LOCAL).sessions
    assert done.files_rewritten == 1
    assert done.rows_copied == pytest.approx((1 - touched) * ROWS, abs=0.01 * ROWS)
    assert done.cpu_seconds["materialize"] > 0 and given.touched.base_row_bytes > 0


def test_the_footers_of_a_job_run_are_few(compacted: DeltaStreamCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(5):
        compacted.append("t", pa.table({"k": [first], "v": [0.0]}))
    read: list[str] = []
    keyed_groups = gathering.keyed_groups
    monkeypatch.setattr(gathering, "keyed_groups", lambda *args: read.append(args[1].path) or keyed_groups(*args))
    for budget, files in ((256, 6), (4, 3), (0, 0)):
        read.clear()
        monkeypatch.setattr(gathering, "FOOTERS", budget)
        given, _ = second(compacted)
        assert len(set(read)) == len(read) == files
        assert given.touched.decoded_rows == (1.0 if not files else pytest.approx(0.43, abs=0.35))


def test_two_catalogs_with_a_table_of_the_same_name_teach_two_streams(tmp_path: Path) -> None:
    names = []
    for catalog, spelled in (("one", "one"), ("one", "one/"), ("two", "two")):
        lake = open_catalog(tmp_path / catalog)
        if not names or catalog == "two":
            lake.create_table("orders", primary_keys=["k"])
            lake.append("orders", pa.table({"k": [1]}))
        records = SwappedRecords(MemoryStore())
        planner = Planner(RateStore(records), StartStore(records), HERE, sessions_max=1)
        (plan,) = planner(of_values({"version": 1, "catalog": f"{tmp_path}/{spelled}", "source_table_id": "orders"}))
        names.append(plan.stream)
    assert names[0] == names[1] != names[2] and names[2] == f"orders (first) in file://{str(tmp_path)[1:]}/two"


def test_cpu_seconds_outside_of_stages_are_of_the_session() -> None:
    stages = {"hash_bucket": 2.0, "materialize": 1.0}
    assert cpu_by_stage(stages, "local", 3.5) == {**stages, "session": 0.5}
    assert cpu_by_stage(stages, "ray", 0.7) == {**stages, "session": 0.7}, "its tasks ran elsewhere"
    assert cpu_by_stage({}, "local", 3.5) == {"": 3.5} and cpu_by_stage({}, "ray", 3.5) == {}
