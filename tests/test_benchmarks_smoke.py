"""The benchmarks run, and every competitor that takes part is right. What they measure at this size means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FULL = {"floor", "deltacompact local", "polars", "duckdb row_number", "duckdb max_by"}
INCREMENTAL = {"floor", "deltacompact local", "delta-rs merge"}


def measured(out: Path, *arguments: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The lines of the report, all of them right, by configuration, case and competitor."""
    folders = ["--data", str(out.parent / "data"), "--out", str(out)]
    command = [sys.executable, "-m", "benchmarks", *arguments, "--executor", "local", "--repeat", "1", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
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
        f"narrow-{kind}.png" for kind in ("ratio", "stages", "memory")
    }
    assert not (tmp_path / "out" / "work").exists()


def test_tpch_with_its_refresh_streams(tmp_path: Path) -> None:
    chosen = ["--only", "floor,deltacompact,duckdb,polars,delta-rs", "--table", "lineitem", "--refreshes", "2"]
    lines = measured(tmp_path / "out", "tpch", "--scale-factor", "0.01", *chosen)
    incremental = {(case, name) for case in ("refresh", "status") for name in INCREMENTAL}
    assert {place[1:] for place in lines} == {("full", name) for name in FULL} | incremental
    assert {place[0] for place in lines} == {"lineitem-sf0.01"}


def test_the_sweep_of_lhbench_is_one_plot(tmp_path: Path) -> None:
    lines = measured(tmp_path / "out", "lhbench", "--scale", "0.001", "--shares", "0.01,0.1")
    assert set(lines) == {(f"lhbench-{share}", "merge", name) for share in (0.01, 0.1) for name in INCREMENTAL}
    assert [plot.name for plot in (tmp_path / "out").glob("*.png")] == ["sweep-ratio.png"]
    assert "(sweep-ratio.png)" in (tmp_path / "out" / "report.md").read_text()


def test_unknown_names_are_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "run", "--only", "floor,quackdb"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "quackdb" in done.stderr
