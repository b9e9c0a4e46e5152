"""--memory bounds the whole process: 250 MB of rows go through 256 MiB, of which libraries take a good part.

Measured with 1.3 GB through 300 MB (286 MiB), with 110 MiB of libraries: rewrite 295 MiB, convert 254, sort 307.
"""

from __future__ import annotations

import binascii
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from iceberg_lake import Lake

import deltacompact

pytestmark = pytest.mark.processes

MIB = 1 << 20
ROWS, WIDTH = 500_000, 220


def part(first: int) -> pa.Table:
    data = binascii.hexlify(np.random.default_rng(first).bytes(ROWS * WIDTH // 2))
    bounds = pa.py_buffer(np.arange(0, (ROWS + 1) * WIDTH, WIDTH, dtype=np.int32))
    texts = pa.Array.from_buffers(pa.string(), ROWS, [None, bounds, pa.py_buffer(data)])
    return pa.table({"id": np.arange(first, first + ROWS), "v": texts})


MEASURED = """
import re, sys
from pathlib import Path
from deltacompact import cli

assert cli.run(sys.argv[1:]) == 0
print(*(re.search(rf"{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1] for name in ("VmHWM", "RssFile")))
"""
"""Prints the most resident memory of a command, and how much of it are libraries, which processes share."""


def peak_bytes(folder: Path, *words: str) -> int:
    program = [sys.executable, "-c", MEASURED, "compact", *words, "--memory", "256MiB", "--json"]
    said = subprocess.run(program, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    most, shared = map(int, said.splitlines()[-1].split())
    return (most - shared) * 1024


def test_a_delta_stream_a_rewrite_and_a_sort_stay_within_memory(tmp_path: Path) -> None:
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    lake = Lake(tmp_path / "prod", "prod")
    lake.create("ns.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    for first in (0, ROWS // 2):
        catalog.append("t", part(first))
        lake.append("ns.t", part(first))
    lake.delete_by_key("ns.t", {"id": range(0, ROWS, 2)})
    described = {"type": "sql", "uri": f"sqlite:///{lake.database}", "warehouse": lake.warehouse}
    lines = [f"    {name}: {value}" for name, value in described.items()]
    (tmp_path / ".pyiceberg.yaml").write_text("\n".join(["catalog:", "  prod:", *lines]))
    rewrite = ["iceberg://prod", "ns.t", "--option", "rewrite-all=true"]
    by_text = ["--option", "strategy=sort", "--option", "sort-order=v DESC"]
    for words in (["lake", "t"], rewrite, [*rewrite, *by_text]):
        assert peak_bytes(tmp_path, *words) <= 256 * MIB, words
    assert catalog.read("t", columns=["id"]).num_rows == ROWS + ROWS // 2
