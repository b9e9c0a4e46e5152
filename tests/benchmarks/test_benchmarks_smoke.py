"""The benchmarks run, and every competitor that takes part is right. What they measure at this size means nothing.

Each competitor of each case is a process of its own, which imports for two seconds: the first test has all of them, the
others have those whose data or keys are of another kind there.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from warm_benchmarks import benchmarks

from benchmarks.cli import main
from benchmarks.configurations import NARROW, WIDE
from benchmarks.s3.places import Local
from benchmarks.s3.scenarios import NAMES, TABLE, scenarios
from deltacompact import Settings, open_catalog

pytestmark = pytest.mark.processes

FULL = {"floor", "deltacompact local", "deltacompact clustered", "polars", "duckdb row_number", "duckdb max_by"}
INCREMENTAL = {"floor", "deltacompact local", "delta-rs merge"}


def measured(out: Path, *arguments: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The lines of the report, all of them right, by configuration, case and competitor."""
    folders = ["--data", str(out.parent / "data"), "--out", str(out)]
    benchmarks(*arguments, "--executor", "local", "--repeat", "1", *folders, log=out.parent / "log")
    lines = json.loads((out / "report.json").read_text())["lines"]
    for line in lines:
        assert line["error"] is None
        assert line["ratio"] > 0
        assert line["correct"] is (None if line["competitor"] == "floor" else True)
        assert line["peak_process_bytes"] > 1e6
    return {(line["configuration"], line["case"], line["competitor"]): line for line in lines}


def test_a_scaled_down_run_reports_a_ratio_for_everyone(tmp_path: Path) -> None:
    chosen = ["--only", "floor,deltacompact,duckdb,polars,delta-rs", "--case", "full,uniform"]
    lines = measured(tmp_path / "out", "run", "--config", "narrow", "--scale", "0.001", *chosen)
    assert set(lines) == {("narrow", "full", name) for name in FULL} | {
        ("narrow", "uniform", name) for name in INCREMENTAL
    }
    assert lines["narrow", "full", "deltacompact local"]["stages_s"]["materialize"] >= 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| deltacompact local |" in text
    assert str(tmp_path) not in text
    assert {plot.name for plot in (tmp_path / "out").glob("*.png")} == {
        f"narrow-{kind}.png" for kind in ("stages", "memory")
    }
    bars = (tmp_path / "out" / "ratios.svg").read_text()
    assert "narrow, full" in bars and "duckdb" in bars
    assert not (tmp_path / "out" / "work").exists()


def test_tpch_with_its_refresh_streams(tmp_path: Path) -> None:
    """Keys of two columns, upserts and deletes: a fold by SQL, and a merge."""
    chosen = ["--only", "floor,deltacompact,duckdb", "--table", "lineitem", "--refreshes", "1", "--case", "full"]
    lines = measured(tmp_path / "out", "tpch", "--scale-factor", "0.01", *chosen)
    assert {place[1:] for place in lines} == {("full", name) for name in FULL - {"polars"}}
    assert {place[0] for place in lines} == {"lineitem-sf0.01"}
    chosen = ["--only", "floor,deltacompact,delta-rs", "--table", "lineitem", "--refreshes", "2", "--case", "refresh"]
    lines = measured(tmp_path / "again", "tpch", "--scale-factor", "0.01", *chosen)
    assert {place[1:] for place in lines} == {("refresh", name) for name in INCREMENTAL}
    assert {place[0] for place in lines} == {"lineitem-sf0.01"}


def test_the_sweep_of_lhbench_is_one_plot(tmp_path: Path) -> None:
    chosen = ["--shares", "0.01,0.1", "--only", "floor,deltacompact"]
    lines = measured(tmp_path / "out", "lhbench", "--scale", "0.001", *chosen)
    contenders = INCREMENTAL - {"delta-rs merge"}
    assert set(lines) == {(f"lhbench-{share}", "merge", name) for share in (0.01, 0.1) for name in contenders}
    assert [plot.name for plot in (tmp_path / "out").glob("*.png")] == ["sweep-ratio.png"]
    assert "(sweep-ratio.png)" in (tmp_path / "out" / "report.md").read_text()


def test_every_change_of_duckruns_suite_is_right_for_everyone(tmp_path: Path) -> None:
    """`update` and `insert` are halves of `upsert`, and `again` is one of them."""
    lines = measured(tmp_path / "out", "duckrun", "--scale-factor", "0.01", "--case", "upsert,cdc,sync")
    contenders = INCREMENTAL | {"deltacompact marked", "deltacompact iceberg", "duckdb anti join"}
    assert set(lines) == {("duckrun-sf0.01", case, name) for case in ("upsert", "cdc", "sync") for name in contenders}


def test_s3_counts_requests_and_compares_places(tmp_path: Path) -> None:
    """On moto, whose times mean nothing."""
    sizes = ["--scale", "0.0001", "--partitions", "3", "--repeat", "1", "--latency-ms", "5", "--mb-per-s", "50"]
    sizes += ["--scenarios", "narrow,wide,append"]
    folders = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    benchmarks("s3", *sizes, *folders, log=tmp_path / "log")
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    lines = {(line["scenario"], line["place"]): line for line in document["lines"]}
    scenarios = {"narrow full", "wide full", "append"}
    places = ["local files", "S3, 0 ms", "S3, 5 ms, 50 MB/s"]
    assert document["places"] == places
    assert lines.keys() == {(scenario, place) for scenario in scenarios for place in places}
    for (_, place), line in lines.items():
        assert line["error"] is None and line["seconds"] > 0
        assert bool(line["requests"]) is (place != "local files")
        assert line["requests"].get("conditional PUT", 1) >= 1, "every scenario commits"
    assert lines["wide full", places[1]]["down_bytes"] > lines["narrow full", places[1]]["down_bytes"] > 0
    text = (tmp_path / "out" / "report.md").read_text()
    for named in ("moto", "one changed partition of 1,000", "$/TB, S3", "Requests by kind"):
        assert named in text
    assert str(tmp_path) not in text
    assert not (tmp_path / "out" / "work").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_on_s3_knows_its_result(tmp_path: Path, name: str) -> None:
    """Here on local files."""
    (scenario,) = scenarios((name,), NARROW.scaled(0.0005), WIDE.scaled(0.0005), 4, tmp_path / "data", seed=1)
    made = scenario.make(tmp_path / "data")
    brought = Local().bring(made, tmp_path)
    catalog = open_catalog(brought.catalog)
    scenario.prepare(catalog, brought.files)
    done = scenario.work(catalog, Settings(executor="local"))
    assert scenario.check(catalog, done) is None
    if done:
        one, *others = done.sessions
        wrong = replace(done, sessions=[replace(one, live=one.live + 1, nothing_to_do=None), *others])
        assert name in ("narrow", "wide") or "wrong result" in str(scenario.check(catalog, wrong))
        catalog.append(TABLE, catalog.read(TABLE).slice(0, 1), one.partition or None)
        assert name not in ("narrow", "wide") or "wrong result" in str(scenario.check(catalog, done))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "--only", "floor,quackdb"], "quackdb"),
        (["s3", "--scenarios", "narrow,deep"], "deep"),
        (["iceberg", "--only", "trino"], "trino"),
    ],
)
def test_unknown_names_are_refused(arguments: list[str], named: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert named in done.stderr


def test_iceberg_tables_with_and_without_deletes_are_compacted_to_the_rows_that_live(tmp_path: Path) -> None:
    """Spark takes part on the days of measuring: it would take half a minute to start."""
    chosen = [
        "--scale",
        "0.0005",
        "--only",
        "rewrite,convert,zamboni",
        "--shape",
        "few,clean,mixed,cdc",
        "--data",
        str(tmp_path / "data"),
        "--out",
        str(tmp_path),
    ]
    benchmarks("iceberg", *chosen, log=tmp_path / "log")
    measured = json.loads((tmp_path / "report.json").read_text())["measurements"]
    ours = [result for result in measured if result["contender"].startswith("deltacompact")]
    assert Counter(result["shape"] for result in ours) == {"few": 2, "clean": 1, "mixed": 2, "cdc": 2}
    for result in measured:
        assert result["error"] is None and result["live"] and result["read_bytes"]
        assert len(result["rounds_s"]) == (6 if result["shape"] == "cdc" else 1)
    assert len({(result["shape"], result["live"], result["checksum"]) for result in measured}) == 4, (
        "all leave the same rows"
    )
    assert not any(result["delete_files_after"] for result in ours if result["contender"] == "deltacompact rewrite")
    assert [result["shape"] for result in measured if result["contender"] == "iceberg-zamboni"] == ["clean"]
