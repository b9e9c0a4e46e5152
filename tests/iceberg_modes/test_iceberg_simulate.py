"""simulate: a log of reads replayed on a table's files as they came; a table, JSON, and bad input in a line."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.cli import run

T = "ns.t"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
SIMULATE = ["simulate", "iceberg://lake", T]


@pytest.fixture
def reports(lake, tmp_path, monkeypatch):
    """Five files that lie over each other by id, and reads by it: before, between, and after their commits."""
    monkeypatch.setattr(
        "deltacompact.catalog.iceberg.IcebergCatalog.at", classmethod(lambda cls, uri: IcebergCatalog(lake.catalog))
    )
    lake.create(T, SCHEMA, properties={"write.target-file-size-bytes": "1000"})
    for part in range(5):
        lake.append(T, [{"id": number * 5 + part, "name": "x"} for number in range(200)])
    moments = [snapshot.timestamp_ms / 1000 for snapshot in lake.catalog.load_table(T).metadata.snapshots]
    asked = [(moments[0] - 60, "id"), (moments[1], "id"), (moments[-1] + 60, "id"), (moments[-1] + 90, "gone")]
    lines = [
        {"at": at_s, "report": {"table-name": f"lake.{T}", "filter": {"type": "eq", "term": name, "value": "(hash)"}}}
        for at_s, name in asked
    ]
    path = tmp_path / "reports.jsonl"
    path.write_text("\n".join([*map(json.dumps, lines), "cut sho"]))
    return path


def test_policies_are_compared_and_nothing_is_written(lake, reports, capsys):
    before = lake.state(T).snapshot_id, sorted(map(str, lake.folder.rglob("*")))
    documents = []
    for _ in range(2):
        assert run([*SIMULATE, "--scan-reports", str(reports), "--depth", "3", "--json"]) == 0
        said = capsys.readouterr()
        documents.append(json.loads(said.out))
        assert "1 line left out" in said.err
        assert "replayed are the files that are there" in said.err
    assert documents[0] == documents[1]
    found = {policy["policy"]: policy for policy in documents[0]["policies"]}
    assert [*found] == ["never", "every run", "depth > 3", "tiers"]
    assert (found["never"]["bytes_written"], found["never"]["bytes_not_opened"], found["never"]["net_s"]) == (0, 0, 0)
    assert found["every run"]["bytes_written"] > found["tiers"]["bytes_written"] > 0
    assert found["every run"]["bytes_not_opened"] > 0
    assert found["tiers"]["net_s"] == pytest.approx(found["tiers"]["saved_s"] - found["tiers"]["cost_s"])
    assert run([*SIMULATE, "--scan-reports", str(reports), "--columns", "id*2,name"]) == 0
    head, never, *_ = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "policy" and never.split()[:4] == ["never", "0", "0", "B"]
    assert (lake.state(T).snapshot_id, sorted(map(str, lake.folder.rglob("*")))) == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "simulate replays reads: give --spark-log or --scan-reports"),
        (["--columns", "color"], "column 'color' is not in table 'ns.t': it has id, name"),
        (["--columns", "nam"], "did you mean 'name'"),
    ],
)
def test_bad_input_is_a_line(lake, reports, capsys, arguments, why):
    given = ["--scan-reports", str(reports), *arguments] if arguments else []
    assert run([*SIMULATE, *given]) == 2
    assert why in capsys.readouterr().err


def test_an_empty_table_has_nothing_to_replay(lake, reports, capsys):
    lake.create("ns.empty", SCHEMA)
    assert run(["simulate", "iceberg://lake", "ns.empty", "--columns", "id", "--scan-reports", str(reports)]) == 2
    assert "table 'ns.empty' has 0 data files: 1 to 5,000 are replayed" in capsys.readouterr().err
