"""DuckDB reads a publication by its extension `delta`, which takes paths with a scheme for relative ones."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from delta_publications import DeltaPublications

PYTHON = Path(__file__).parents[2] / ".venv/duckdb/bin/python"

PROGRAM = """
import json, sys
from pathlib import Path
import duckdb, duckdb_ext

(extension,) = (file for folder in duckdb_ext.__path__ for file in Path(folder).rglob("delta.duckdb_extension"))
duckdb.execute("set enable_progress_bar = false; set autoinstall_known_extensions = false")
duckdb.execute(f"load '{extension}'")
rows = duckdb.execute("select id, v, day from delta_scan(?) order by id", [sys.argv[1]]).fetchall()
print(json.dumps(rows))
"""


@pytest.mark.processes
def test_duckdb_reads_what_was_compacted_without_its_dead_rows(tmp_path):
    by_day = DeltaPublications(tmp_path, ["day"], name="dé lta%20")
    for day, first in (("a b%2F/é", 0), (None, 20)):
        by_day.append([{"id": first + number, "v": "a"} for number in range(20)], day=day)
    by_day.compact()
    by_day.publish()
    by_day.append([{"id": 3}, {"id": 19}], "delete", day="a b%2F/é")
    by_day.append([{"id": 30, "v": "b"}], day=None)
    by_day.compact()
    assert any("deletionVector" in added for added in by_day.actions("add"))
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes it"
    done = subprocess.run([PYTHON, "-c", PROGRAM, by_day.out], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    expected = [[row["id"], row["v"], row.get("day")] for row in by_day.compacted()]
    assert json.loads(done.stdout) == sorted(expected)
