"""Polars 1.12, DataFusion 43 and pyarrow 15 read and write files, in an environment that `make test` makes for them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).parents[2] / ".venv/readers/bin/python"

_READ = """
import json, sys
path, condition, column = sys.argv[1:]
import datafusion, polars, pyarrow.parquet as pq
context = datafusion.SessionContext()
context.register_parquet("t", path)
rows = context.sql(f"select {column} from t where {condition} order by {column}").to_pydict()[column]
lazy = polars.scan_parquet(path).filter(polars.sql_expr(condition)).select(column).sort(column)
footer, table = pq.read_metadata(path), pq.read_table(path)
place = table.column_names.index(column)  # in these files the first columns are flat
groups = [footer.row_group(n).column(place).statistics for n in range(footer.num_row_groups)]
bounds = [[each.min, each.max] if each and each.has_min_max else None for each in groups]
print(json.dumps({"datafusion": rows, "polars": lazy.collect()[column].to_list(), "rows": table.num_rows,
                  "bounds": bounds}))
"""

_WRITE = """
import sys, pyarrow.parquet as pq, polars, datafusion
source, target, writer = sys.argv[1:]
if writer == "polars":
    polars.read_parquet(source).write_parquet(target, row_group_size=8)
elif writer == "pyarrow":
    pq.write_table(pq.read_table(source), target, row_group_size=8)
else:
    context = datafusion.SessionContext(datafusion.SessionConfig({
        "datafusion.execution.parquet.max_row_group_size": "8", "datafusion.execution.target_partitions": "1"}))
    context.register_parquet("t", source)
    context.sql("select * from t").write_parquet(target)
"""


def read(path: str, condition: str, column: str) -> dict[str, Any]:
    """What they find in a column where a condition holds, and what pyarrow makes of the statistics."""
    return json.loads(_run(_READ, path, condition, column))


def write(source: Path, target: Path, writer: str) -> Path:
    """A Parquet file with the rows of another, in row groups of 8, as one of them writes it."""
    _run(_WRITE, str(source), str(target), writer)
    return target if target.is_file() else next(target.glob("*.parquet"))


def _run(program: str, *arguments: str) -> str:
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes it"
    done = subprocess.run([PYTHON, "-c", program, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
