"""The matrix of job runs: what is planned for EC2, what happens when its commands fail, and the same job runs here."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from matrix_commands import commands_of

from benchmarks.cli import main
from benchmarks.matrix import commands as run
from benchmarks.matrix import table as data
from benchmarks.matrix.bills import bill_of
from benchmarks.matrix.cluster import ClusterSpec, render
from benchmarks.matrix.points import JobRun, Matrix, Point, keep, kept, recommended_buckets
from deltacompact.planning.sizing.index_sizes import FIGURE_MEMORY_BYTES
from deltacompact.storage.opening import open_store
from sessions.planning.prices import read_prices

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def benchmarks(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, env={**os.environ, **environment}
    )


# The table


@given(rows=st.integers(1_000, 5_000))
def test_what_must_come_out_is_what_a_fold_by_hand_gives(rows):
    shape = data.Shape(rows, 0)
    prior, delta = data.parts(shape, delta=False), data.parts(shape, delta=True)
    by_key = {}
    for part in [*prior, *delta]:
        by_key.update(dict.fromkeys(part.keys().tolist(), 2 if part.delta else 1))
    assert sum(part.stop - part.start for part in [*prior, *delta]) == rows
    assert len(set(data.Part(shape, False, 0, shape.prior_rows).keys().tolist())) == shape.prior_rows
    expected = data.together(data.expected_of(part) for part in [*prior, *delta])
    assert expected.rows == len(by_key)
    keys = {revision: [key for key, found in by_key.items() if found == revision] for revision in (1, 2)}
    found = sum(data.checksum(np.array(some, np.int64), revision) for revision, some in keys.items()) % 2**64
    assert expected.checksum == found
    assert list(by_key.values()).count(2) == rows - shape.prior_rows


# Plans


def test_points_of_one_cluster_come_table_by_table():
    matrix = Matrix((4_000, 1_000), (8, 0), (1, 2), repeats=2)
    attempts = [(point.rows, point.hash_buckets, repeat) for point, repeat in matrix.attempts(2)]
    assert attempts == [(rows, buckets, repeat) for repeat in (0, 1) for rows in (1_000, 4_000) for buckets in (0, 8)]


def test_the_recommended_buckets_are_those_of_the_paper():
    assert recommended_buckets([46_875_000_000, 6 * 10**12], FIGURE_MEMORY_BYTES) == [313, 40_000]


def test_a_cluster_costs_its_workers_and_its_head():
    prices = read_prices()
    worker, head = prices.node("r6in.4xlarge"), prices.node("r6in.xlarge")
    bill = bill_of(32, worker, head)
    assert bill.on_demand_usd_per_h == pytest.approx(2 * worker.on_demand_usd_per_h + head.on_demand_usd_per_h)
    assert bill.spot_usd_per_h == pytest.approx(2 * worker.spot_usd_per_h + head.on_demand_usd_per_h)
    with pytest.raises(ValueError, match=r"no price for 'm1.small'"):
        prices.node("m1.small")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("spot_share = 0.4", "'nodes' is missing"),
        ("date = 2026-01-01\nspot_share = 0.4\nregion = 'x'\n[nodes.a]\nvcpus = 'many'", "mine.toml"),
        ("spot_share = ", "mine.toml"),
    ],
)
def test_a_price_table_that_is_none_is_named(tmp_path, text, complaint):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_prices(tmp_path / "mine.toml")


def test_a_rendered_cluster_is_one_to_ray_and_to_ec2():
    import botocore.session
    from botocore.validate import ParamValidator
    from ray.autoscaler._private.util import prepare_config, validate_config

    prices = read_prices()
    worker, head = prices.node("r6in.8xlarge"), prices.node("r6in.xlarge")
    tags = (("team", "lake"), ("project", "trial"))
    spec = ClusterSpec("bench-40", 40, worker, head, True, "registry/image:1", "eu-west-1", "profile", "ami-0", tags)
    rendered = yaml.safe_load(yaml.safe_dump(render(spec)))
    validate_config(prepare_config(rendered))
    shape = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances").input_shape
    for each in rendered["available_node_types"].values():
        problems = ParamValidator().validate({"MinCount": 1, "MaxCount": 1, **each["node_config"]}, shape)
        assert not problems.has_errors(), problems.generate_report()
        given_tags = {tag["Key"]: tag["Value"] for tag in each["node_config"]["TagSpecifications"][0]["Tags"]}
        assert given_tags["team"] == "lake" and given_tags["project"] == "trial" and "cost-center" in given_tags
    workers = rendered["available_node_types"]["worker"]
    assert (workers["min_workers"], workers["max_workers"], workers["resources"]["CPU"]) == (2, 2, 32)
    assert workers["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    on_demand = render(ClusterSpec("bench-40", 40, worker, head))
    assert "InstanceMarketOptions" not in on_demand["available_node_types"]["worker"]["node_config"]
    (start,) = [line for line in rendered["worker_start_ray_commands"] if "ray start" in line]
    assert f"--object-store-memory={workers['resources']['object_store_memory']}" in start


def test_a_dry_run_prints_the_commands_and_writes_the_clusters(tmp_path):
    chosen = ["--vcpus", "32,64", "--rows", "16M", "--hash-buckets", "0,64", "--payload-bytes", "1000"]
    done = benchmarks(
        "ec2", "--base", "s3://bucket/bench", "--out", tmp_path, "--dry-run", "--tag", "owner=me", *chosen
    )
    assert done.returncode == 0, done.stderr
    commands = [shlex.split(line) for line in done.stdout.splitlines()]
    assert [command[1] for command in commands] == ["up", "exec", "exec", "down"] * 2
    files = [tmp_path / f"deltacompact-bench-{vcpus}.yaml" for vcpus in (32, 64)]
    assert [command[-1] for command in commands if command[1] != "exec"] == [str(f) for f in files for _ in range(2)]
    inside = shlex.split(commands[1][-1])
    assert inside[:4] == ["python", "-m", "benchmarks", "job"]
    options = dict(zip(inside[4::2], inside[5::2], strict=True))
    assert options == {
        "--base": "s3://bucket/bench",
        "--rows": "16000000",
        "--payload-bytes": "1000",
        "--hash-buckets": "0",
        "--vcpus": "32",
        "--repeat": "0",
        "--producer": "workers",
    }
    nodes = [yaml.safe_load(file.read_text())["available_node_types"]["worker"]["max_workers"] for file in files]
    assert nodes == [2, 4]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ec2", "--base", "/tmp/x", "--dry-run"], "nodes could not reach it"),
        (["ec2", "--base", "s3://b", "--dry-run", "--worker-type", "t2.nano"], "no price for 't2.nano'"),
        (["ec2", "--base", "s3://b", "--dry-run", "--tag", "owner"], "is not KEY=VALUE"),
        (["local", "--vcpus", "4096"], "cores"),
        (["local", "--rows", "many"], "'many' is not a number"),
        (["local", "--rows", "1.5"], "not a whole number"),
    ],
)
def test_bad_arguments_are_refused_in_a_line(arguments, complaint):
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert complaint in " ".join(done.stderr.split()).replace("│ ", "")


# Running commands: `ray` is a program that writes down how it was called, since no cluster can be had here

RAY = """#!{python}
import json, os, signal, sys, time
with open({log!r}, "a") as log:
    log.write(sys.argv[1] + "\\n")
if sys.argv[1] == "exec" and {interrupts}:
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(2)
sys.exit({codes}.get(sys.argv[1], 0))
"""


def fake_ray(folder: Path, codes: dict[str, int], interrupts: bool = False) -> Path:
    program, log = folder / "bin" / "ray", folder / "called"
    program.parent.mkdir()
    program.write_text(RAY.format(python=sys.executable, log=str(log), codes=codes, interrupts=interrupts))
    program.chmod(0o755)
    return log


@pytest.mark.parametrize(
    ("codes", "called", "reason"),
    [
        ({"exec": 3}, ["up", "exec", "exec", "down"], "ended with 3 and left no outcome"),
        ({"up": 1}, ["up", "down"], "ray up ended with 1"),
    ],
)
def test_a_cluster_is_brought_down_whatever_fails(tmp_path, monkeypatch, codes, called, reason):
    log = fake_ray(tmp_path, codes)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    run.run_all(commands_of(tmp_path), str(tmp_path / "base"), lambda _: None)
    assert log.read_text().split() == called
    outcomes = kept(open_store(tmp_path / "base"))
    assert len(outcomes) == 2
    assert all(reason in outcome.error for outcome in outcomes)


def test_a_cluster_that_does_not_go_down_is_named(tmp_path, monkeypatch):
    log = fake_ray(tmp_path, {"down": 1})
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    with pytest.raises(run.LeftRunning, match=r"ray down --yes .*cluster.yaml"):
        run.run_all(commands_of(tmp_path), str(tmp_path / "base"), lambda _: None)
    assert log.read_text().split().count("down") == run.DOWN_ATTEMPTS


def test_an_interrupted_run_brings_its_cluster_down(tmp_path):
    """In a process of its own, which gets the signal."""
    log = fake_ray(tmp_path, {}, interrupts=True)
    script = (
        "import pathlib, sys; sys.path[:0] = ['tests/benchmarks', '.']\n"
        "from matrix_commands import commands_of, run\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "run.run_all(commands_of(folder), str(folder / 'base'), print)\n"
    )
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path},
    )
    assert "KeyboardInterrupt" in done.stderr
    assert log.read_text().split() == ["up", "exec", "down"]


def test_what_succeeded_is_not_run_again(tmp_path, monkeypatch):
    log = fake_ray(tmp_path, {"exec": 3})
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    store = open_store(tmp_path / "base")
    keep(store, JobRun(16, 0, 1_000, 0, 0, seconds=1.0))
    keep(store, JobRun.failed(Point(16, 0, 1_000, 4), 0, "a spot node was lost"))
    run.run_all(commands_of(tmp_path), str(tmp_path / "base"), lambda _: None)
    assert log.read_text().split() == ["up", "exec", "down"]
    assert {outcome.hash_buckets: outcome.error is None for outcome in kept(store)} == {0: True, 4: False}


# Here, for real


def test_the_matrix_runs_on_this_machine_and_reports(tmp_path, s3_catalog_uri):
    """One table by Ray tasks, on S3, compacted with two numbers of hash buckets."""
    chosen = ["--rows", "20k", "--hash-buckets", "0,3", "--vcpus", "1", "--payload-bytes", "0"]
    done = benchmarks("local", "--base", s3_catalog_uri, "--out", tmp_path / "out", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [each["error"] for each in report["job_runs"]] == [None, None]
    assert {each["hash_buckets_used"] for each in report["job_runs"]} == {1, 3}
    assert all(each["rows_out"] == 18_000 and each["spilled_bytes"] == 0 for each in report["job_runs"])
    text = (tmp_path / "out" / "report.md").read_text()
    assert "2 of 2 job runs succeeded (100.0%)" in text
    assert {plot.name for plot in (tmp_path / "out").glob("*.png")} == {f"figure-3-{n}.png" for n in range(1, 6)}
