"""A group of sessions keeps to what it may take, in all modes: 540 MB of rows go through `dispatch --memory 256MiB`.

The group runs in a process of its own, as a dispatcher plans and records it. Libraries, which processes share, do not
count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from iceberg_lake import Lake

import deltacompact

pytestmark = pytest.mark.processes

CHILD = Path(__file__).with_name("measured_group.py")
BOUND = 256 << 20
PARTS, ROWS, TEXTS, WIDTH = 3, 60_000, 1_000, 1_500
"""Each part has the rows of half of the part before as well. Texts repeat: what they take decoded counts here."""


def part(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    texts = pa.array([rng.bytes(WIDTH).hex() for _ in range(TEXTS)])
    first = number * ROWS // 2
    chosen = np.sort(rng.integers(0, TEXTS, ROWS))
    return pa.table({"id": np.arange(first, first + ROWS), "v": texts.take(pa.array(chosen))})


def peak_bytes(folder: Path, name: str, document: dict[str, Any]) -> int:
    program = [sys.executable, str(CHILD), str(folder), str(BOUND)]
    asked = json.dumps({"version": 1, "job_run_id": name, **document})
    said = subprocess.run([*program, asked], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    most, shared = map(int, said.splitlines()[-1].split())
    return (most - shared) * 1024


def test_a_group_takes_no_more_than_its_bound_in_any_mode(tmp_path: Path) -> None:
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    lake = Lake(tmp_path / "prod", "prod")
    lake.create("ns.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    for number in range(PARTS):
        rows = part(number)
        assert rows.nbytes > BOUND / 2
        catalog.append("t", rows)
        lake.append("ns.t", rows)
    keys = (PARTS + 1) * ROWS // 2
    lake.delete_by_key("ns.t", {"id": range(0, keys, 2)})
    described = {"type": "sql", "uri": f"sqlite:///{lake.database}", "warehouse": lake.warehouse}
    lines = [f"    {name}: {value}" for name, value in described.items()]
    (tmp_path / ".pyiceberg.yaml").write_text("\n".join(["catalog:", "  prod:", *lines]))
    branch = {"catalog": "iceberg://prod", "source_table_id": "ns.t"}
    documents = {
        "stream": {"catalog": str(tmp_path / "lake"), "source_table_id": "t"},
        "convert": {**branch, "mode": "convert"},
        "upsert": {**branch, "mode": "upsert", "options": {"key-columns": "id"}},
        "rewrite": {**branch, "mode": "rewrite", "options": {"rewrite-all": True}},
    }
    peaks = {name: peak_bytes(tmp_path, name, document) for name, document in documents.items()}
    assert all(peak <= BOUND for peak in peaks.values()), peaks
    left = lake.catalog.load_table("ns.t").scan(selected_fields=("id",)).to_arrow()
    assert left.num_rows == keys // 2 == catalog.read("t", columns=["id"]).num_rows // 2
