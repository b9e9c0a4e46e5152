"""100 appends of 1 % to a clustered table, and a compaction after each.

    data        of three columns: uniform; in order (the first is time); skewed (time, Zipf, amount)
    written     rows that compactions wrote for each row that was appended
    share       of files that a range of a twentieth of a column opens, by that of the same rows compacted at once into
                as many files

A file has the rows of an append. Both kinds of tables are compacted in process, and asked after every tenth append.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import deltacompact
from benchmarks.iceberg.writing import DATABASE, TABLE, catalog_at, file_bytes, made
from deltacompact import Settings
from deltacompact.base.limits import Limits
from deltacompact.base.model import Partition
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.iceberg.table.locations import readable
from deltacompact.layout.boxes import Boxes, ColumnBounds, boxes_of
from deltacompact.layout.depth import depth_of
from deltacompact.planning.sizing.file_sizes import FULL

APPENDS, EVERY, ASKED = 100, 10, 500
NAMES = ["a", "b", "c"]
LOCAL = Settings(executor="local", limits=Limits(delta_kept_bytes_min=1))
"""What is appended stands for files that are large enough to stay."""

Rows = npt.NDArray[np.float64]
Arrivals = Callable[[np.random.Generator, float, int], Rows]
"""So many rows that come at a time; those that are appended next come a hundredth later."""


def uniform(draw: np.random.Generator, at: float, count: int) -> Rows:
    return draw.random((count, len(NAMES)))


def in_order(draw: np.random.Generator, at: float, count: int) -> Rows:
    return np.column_stack([at + draw.random(count) / APPENDS, draw.random((count, 2))])


def skewed(draw: np.random.Generator, at: float, count: int) -> Rows:
    zipf, amount = draw.zipf(1.3, count).clip(max=1e6), draw.exponential(100, count).round(2)
    return np.column_stack([at + draw.random(count) / APPENDS, zipf, amount])


DATA: dict[str, Arrivals] = {"uniform": uniform, "in order": in_order, "skewed": skewed}


class Lake(Protocol):
    """A table of one kind. `files` has the paths of its data files, `waiting` those that no compaction has seen."""

    def append(self, rows: pa.Table) -> None: ...

    def compact(self, whole: bool = False) -> None: ...

    def files(self) -> list[str]: ...

    def waiting(self) -> list[str]: ...


class Stream:
    def __init__(self, place: Path, file_rows: int) -> None:
        catalog = deltacompact.open_catalog(str(place))
        self._place, self._per_file = place, int(file_rows / FULL)
        self._table = catalog.create_table("t", primary_keys=["id"], cluster_by=",".join(NAMES))

    def append(self, rows: pa.Table) -> None:
        self._table.append(rows)

    def compact(self, whole: bool = False) -> None:
        self._table.compact(settings=LOCAL, rows_per_compacted_file=self._per_file)

    def files(self) -> list[str]:
        compacted = self._state.compacted
        return [] if compacted is None else [str(self._place / file.path) for file in compacted.files]

    def waiting(self) -> list[str]:
        return [str(self._place / file.path) for delta in self._state.deltas for file in delta.files]

    @property
    def _state(self) -> StreamState:
        return deltacompact.open_catalog(str(self._place)).state("t", Partition())


class Iceberg:
    def __init__(self, place: Path, file_rows: int) -> None:
        sample = arrived(np.random.default_rng(0), uniform, 0.0, file_rows, 0)
        made(place, sample.schema, {}, lambda catalog: catalog.load_table(TABLE).append(sample))
        self._catalog = catalog_at(place / DATABASE, place)
        self._target = file_bytes(self._catalog.load_table(TABLE))
        self._catalog.load_table(TABLE).delete()

    def append(self, rows: pa.Table) -> None:
        self._catalog.load_table(TABLE).append(rows)

    def compact(self, whole: bool = False) -> None:
        options = {"cluster-by": ",".join(NAMES), "target-file-size-bytes": self._target, "rewrite-all": whole}
        IcebergCatalog(self._catalog).rewrite(TABLE, options, settings=LOCAL)

    def files(self) -> list[str]:
        tasks = self._catalog.load_table(TABLE).scan().plan_files()
        return [readable(task.file.file_path).removeprefix("file://") for task in tasks]

    def waiting(self) -> list[str]:
        return []  # an appended file is one of the table's


LAKES: dict[str, type[Stream] | type[Iceberg]] = {"delta stream": Stream, "Iceberg": Iceberg}


def arrived(draw: np.random.Generator, come: Arrivals, at: float, count: int, first: int) -> pa.Table:
    values = come(draw, at, count)
    return pa.table({"id": np.arange(first, first + count)} | dict(zip(NAMES, values.T, strict=True)))


def of_files(lake: Lake, known: dict[str, Rows]) -> list[Rows]:
    """The rows of each file. `known`: those that have been read."""
    paths = lake.files()
    for path in paths:
        if path not in known:
            known[path] = np.column_stack([column.to_numpy() for column in pq.read_table(path, columns=NAMES).columns])
    return [known[path] for path in paths]


def boxes(files: list[Rows]) -> Boxes:
    none = np.zeros(len(files), bool)
    low, high = (np.array([end(file, axis=0) for file in files]) for end in (np.min, np.max))
    bounds = [ColumnBounds(pa.array(low[:, n]), pa.array(high[:, n]), none, none) for n in range(len(NAMES))]
    return boxes_of(NAMES, bounds, np.zeros(len(files), np.int64), [len(file) for file in files])


def share(files: list[Rows], asked: Rows) -> float:
    """The mean share of files that are opened for a range of one column that begins at one of these rows."""
    together = boxes([*files, *(row[None, :] for row in asked)])
    there, rows = together.take(np.arange(len(files))), together.take(np.arange(len(files), together.files))
    return float(np.mean([depth_of(there.of(n), rows=rows.of(n)).range_share for n in range(len(NAMES))]))


def measured(
    lake: Callable[[Path, int], Lake], come: Arrivals, rows: int, folder: Path, appends: int = APPENDS
) -> tuple[float, list[float]]:
    """Rows written for one that was appended, and the shares beside those of a table that is compacted at once."""
    draw, each = np.random.default_rng(3), rows // appends
    base = [arrived(draw, come, number / APPENDS, each, number * each) for number in range(appends)]
    held, known, written = pa.concat_tables(base), dict[str, Rows](), 0
    table, ratios = lake(folder / "table", each), []
    table.append(held)
    table.compact(whole=True)
    for step in range(1, appends + 1):
        more = arrived(draw, come, (appends + step) / APPENDS, each, rows + step * each)
        held = pa.concat_tables([held, more])
        table.append(more)
        before = {*table.files(), *table.waiting()}
        table.compact()
        files = of_files(table, known)
        assert sum(map(len, files)) == held.num_rows, "rows are missing"
        written += sum(len(known[path]) for path in set(table.files()) - before)
        if step % EVERY == 0:
            at_once = lake(folder / f"at-once-{step}", round(held.num_rows / len(files)))  # as many files
            at_once.append(held)
            at_once.compact(whole=True)
            asked = np.concatenate(files)[draw.choice(held.num_rows, ASKED)]
            ratios.append(share(files, asked) / share(of_files(at_once, {}), asked))
    return written / (appends * each), ratios


def lines(rows: int, which: Sequence[str]) -> Iterator[str]:
    for name, come in DATA.items():
        for kind, lake in LAKES.items() if not which or name in which else ():
            with tempfile.TemporaryDirectory() as folder:
                written, ratios = measured(lake, come, rows, Path(folder))
            text = f"{name:10}{kind:14}written {written:5.2f} x"
            yield f"{text}   share {np.mean(ratios):5.3f} x on average, {max(ratios):5.3f} x at worst"
