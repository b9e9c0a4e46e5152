"""The floor: every input byte decoded and encoded once, one pyarrow process for each core, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.competitors import CORES, Run, Stateless
from benchmarks.configurations import COMPRESSION, ROW_GROUP_ROWS
from benchmarks.data import Inputs


class Floor(Stateless):
    """Reads and writes all rows, and deduplicates nothing: no competitor can be faster."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(CORES, get_context("spawn"))

    def start(self) -> None:
        """Start the processes and have them import pyarrow."""
        list(self._pool.map(rewrite, [()] * 4 * CORES, [""] * 4 * CORES))

    def stop(self) -> None:
        self._pool.shutdown()

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        folder.mkdir(parents=True)
        shares = divide(inputs.files, CORES)
        return Run(
            lambda: list(self._pool.map(rewrite, shares, [str(folder)] * len(shares))),
            lambda: sorted(folder.glob("*.parquet")),
        )


def divide(files: Sequence[Path], shares: int) -> list[tuple[Path, ...]]:
    """Divide files evenly by bytes: give the largest one that is left to the process that has least."""
    filled: list[list[Path]] = [[] for _ in range(shares)]
    sizes = [0] * shares
    for file in sorted(files, key=lambda file: -file.stat().st_size):
        least = sizes.index(min(sizes))
        filled[least].append(file)
        sizes[least] += file.stat().st_size
    return [tuple(share) for share in filled]


def rewrite(files: Sequence[Path], folder: str) -> None:
    """Read and write the row groups of a file, one by one, on one core."""
    for file in files:
        reader = pq.ParquetFile(file)
        path = Path(folder) / f"{file.parent.name}-{file.name}"
        with pq.ParquetWriter(path, reader.schema_arrow, compression=COMPRESSION) as writer:
            for group in range(reader.num_row_groups):
                writer.write_table(reader.read_row_group(group, use_threads=False), row_group_size=ROW_GROUP_ROWS)
