"""DuckDB: the last row of each key by window function, or by aggregate, copied to Parquet.

Where deltas repeat no key: the rows whose key no delta has, by an anti join, and those of the deltas.

Positions are even for upserts and odd for deletes, whose missing columns are null: what has an odd one last is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from benchmarks.competitors import CORES, TEMPORARY, Run, Stateless
from benchmarks.configurations import COMPRESSION, ROW_GROUP_ROWS
from benchmarks.data import Inputs


class DuckDB(Stateless):
    """`query` is "row_number", "max_by" or "anti join"; one output file."""

    def __init__(self, query: str) -> None:
        self._query = query

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        folder.mkdir(parents=True)
        out = folder / "out.parquet"
        connection = duckdb.connect(config={"threads": CORES, "temp_directory": str(folder.parent / TEMPORARY)})
        rows, keys = f" UNION ALL{' BY NAME' * inputs.deletes} ".join(_scans(inputs)), ", ".join(inputs.keys)
        if self._query == "anti join":
            latest = _anti_joined(inputs)
        elif self._query == "row_number":
            ranked = f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY position DESC) AS rank FROM ({rows})"
            latest = f"SELECT * EXCLUDE (position, rank) FROM ({ranked}) WHERE rank = 1"
            latest += " AND position % 2 = 0" * inputs.deletes
        else:
            values = ", ".join(
                f"max_by({name}, position) AS {name}" for name in inputs.columns if name not in inputs.keys
            )
            latest = f"SELECT {keys}, {values} FROM ({rows}) GROUP BY {keys}"
            latest += " HAVING max(position) % 2 = 0" * inputs.deletes
        options = f"FORMAT parquet, COMPRESSION {COMPRESSION}, ROW_GROUP_SIZE {ROW_GROUP_ROWS}"
        return Run(lambda: connection.execute(f"COPY ({latest}) TO '{out}' ({options})"), lambda: [out])


def _anti_joined(inputs: Inputs) -> str:
    """What stays, and what the deltas bring; of a whole source, the rows whose key is known."""
    keys = ", ".join(inputs.keys)
    assert inputs.distinct, "a key that deltas repeat needs the order of the deltas"
    prior, brought = read(inputs.prior), [read(delta.files) for delta in inputs.deltas if not delta.deletes]
    rows = f"FROM ({' UNION ALL '.join(brought)})"
    if inputs.whole:
        return f"{rows} SEMI JOIN ({prior}) USING ({keys})"
    touched = " UNION ALL ".join(f"SELECT {keys} FROM ({read(delta.files)})" for delta in inputs.deltas)
    return f"FROM ({prior}) ANTI JOIN ({touched}) USING ({keys}) UNION ALL BY NAME {rows}"


def read(files: Sequence[Path]) -> str:
    """Those rows, as SQL."""
    names = ", ".join(f"'{file}'" for file in files)
    return f"FROM read_parquet([{names}])"


def _scans(inputs: Inputs) -> list[str]:
    scans = [_scan(inputs.prior, 0)]
    return scans + [_scan(delta.files, 2 * number + delta.deletes) for number, delta in enumerate(inputs.deltas, 1)]


def _scan(files: Sequence[Path], position: int) -> str:
    return f"SELECT *, {position} AS position {read(files)}"
