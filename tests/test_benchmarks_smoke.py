"""The benchmarks run, and every competitor that takes part is right. What they measure at this size means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FULL = {"floor", "deltacompact local", "polars", "duckdb row_number", "duckdb max_by"}
INCREMENTAL = {"floor", "deltacompact local", "delta-rs merge"}


@pytest.fixture(scope="module", autouse=True)
def peers() -> None:
    for name in ("polars", "duckdb", "deltalake", "matplotlib"):
        pytest.importorskip(name)


def test_a_scaled_down_run_reports_a_ratio_for_everyone(tmp_path: Path) -> None:
    folders = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    chosen = ["--only", "floor,deltacompact,duckdb,polars,delta-rs", "--executor", "local", "--case", "full,uniform"]
    command = [sys.executable, "-m", "benchmarks", "run", "--config", "narrow", "--scale", "0.001", "--repeat", "1"]
    done = subprocess.run([*command, *chosen, *folders], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr

    report = json.loads((tmp_path / "out" / "report.json").read_text())
    lines = {(line["case"], line["competitor"]): line for line in report["lines"]}
    assert set(lines) == {("full", name) for name in FULL} | {("uniform", name) for name in INCREMENTAL}
    for (_, competitor), line in lines.items():
        assert line["error"] is None
        assert line["ratio"] > 0
        assert line["correct"] is (None if competitor == "floor" else True)
        assert line["peak_process_bytes"] > 1e6
    assert lines["full", "deltacompact local"]["stages_s"]["materialize"] >= 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| deltacompact local |" in text
    assert str(tmp_path) not in text
    assert {plot.name for plot in (tmp_path / "out").glob("*.png")} == {
        f"narrow-{kind}.png" for kind in ("ratio", "stages", "memory")
    }
    assert not (tmp_path / "out" / "work").exists()


def test_unknown_names_are_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "run", "--only", "floor,quackdb"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "quackdb" in done.stderr
