"""Polars 1.12, DataFusion 43 and pyarrow 15 read and write files, in an environment that `make test` makes for them."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).parents[2] / ".venv/readers/bin/python"

_PROGRAM = """
import json, sys
import datafusion, polars, pyarrow.parquet as pq

def read(path, condition, column):
    context = datafusion.SessionContext()
    context.register_parquet("t", path)
    rows = context.sql(f"select {column} from t where {condition} order by {column}").to_pydict()[column]
    lazy = polars.scan_parquet(path).filter(polars.sql_expr(condition)).select(column).sort(column)
    footer, table = pq.read_metadata(path), pq.read_table(path)
    place = table.column_names.index(column)  # in these files the first columns are flat
    groups = [footer.row_group(n).column(place).statistics for n in range(footer.num_row_groups)]
    bounds = [[each.min, each.max] if each and each.has_min_max else None for each in groups]
    return {"datafusion": rows, "polars": lazy.collect()[column].to_list(), "rows": table.num_rows, "bounds": bounds}

def write(source, target, writer):
    if writer == "polars":
        polars.read_parquet(source).write_parquet(target, row_group_size=8)
    elif writer == "pyarrow":
        pq.write_table(pq.read_table(source), target, row_group_size=8)
    else:
        context = datafusion.SessionContext(datafusion.SessionConfig({
            "datafusion.execution.parquet.max_row_group_size": "8", "datafusion.execution.target_partitions": "1"}))
        context.register_parquet("t", source)
        context.sql("select * from t").write_parquet(target)

for line in sys.stdin:
    asked, *arguments = json.loads(line)
    print(json.dumps(globals()[asked](*arguments)), flush=True)
"""


def read(path: str, condition: str, column: str) -> dict[str, Any]:
    """What they find in a column where a condition holds, and what pyarrow makes of the statistics."""
    found: dict[str, Any] = _ask("read", path, condition, column)
    return found


def write(source: Path, target: Path, writer: str) -> Path:
    """A Parquet file with the rows of another, in row groups of 8, as one of them writes it."""
    _ask("write", str(source), str(target), writer)
    return target if target.is_file() else next(target.glob("*.parquet"))


def _ask(*question: str) -> Any:
    asked = _process()
    assert asked.stdin and asked.stdout
    asked.stdin.write(json.dumps(question) + "\n")
    asked.stdin.flush()
    answer = asked.stdout.readline()
    if not answer:
        _process.cache_clear()
    assert answer, f"old readers ended with {asked.wait(10)} at {question}; why is in the captured stderr"
    return json.loads(answer)


@cache
def _process() -> subprocess.Popen[str]:
    """One for all questions, because it imports for a second. It ends when its input does, with the tests."""
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes it"
    return subprocess.Popen([PYTHON, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
