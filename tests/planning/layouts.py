"""Drawings of what a compaction does with files, as text that can be kept and compared.

    before
      base        file 2                  |====--============|   90 rows, 4 dead, 1.4 MiB
      upsert      delta 3 file 0          |==|                   10 rows, 160 KiB
    plan          what `deltacompact plan` prints
    compact       what `deltacompact compact` prints, without seconds
    after
      rewritten   file 2                  86 of 90 rows live
      new         file 4                  |===================|  96 rows, 1.5 MiB
    show          what `deltacompact show` prints

A cell of a bar stands for some rows: `=` all live, `-` some dead, `x` all dead, `~` rows that delete. The table is
read to learn which live: before it, the bar of a base file shows what the deltas kill.

Everything is real: the rows are written, compacted and read. The text is the same on every machine and with every
version of the libraries: limits are handed in, paths and versions have names, and sizes have two digits. Rows are wide
and cannot be compressed, so that a file's size follows from its rows.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
from rich.console import Console

from deltacompact import ContentType, DeltaStreamCatalog, compact
from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Delta
from deltacompact.base.model import Partition
from deltacompact.base.settings import Options
from deltacompact.base.wording import counted
from deltacompact.cli import result_report
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.job import Request
from deltacompact.reports import plan_report, table_report
from deltacompact.reports.scale import Detail
from deltacompact.storage.memory import MemoryStore

MACHINE = {"executor": "local", "local_threads": 1, "memory_per_task_bytes": 1 << 30, "object_store_bytes": 1 << 30}
ROW_BYTES = 16 << 10
CELLS_MAX = 40
SMALL_BYTES = 128 << 10
"""Below it, what surrounds the rows decides about a file's size."""
_COLUMNS = ("k", "n", "payload")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"\b([\d,]+(?:\.\d+)?) (B|KiB|MiB|GiB)\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_VERSION = re.compile(r"\b(\d+)-[0-9a-f]{8,}\b")


class Story:
    """A table "t" to which things happen, and the text that tells it. Its key is k; n numbers all rows ever written."""

    def __init__(self, **declared: Any) -> None:
        self.catalog = DeltaStreamCatalog(MemoryStore(), clock=lambda: 1e9)
        self.catalog.create_table("t", **{"primary_keys": ["k"], **declared})
        self._lines: list[str] = []
        self._labels: dict[str, str] = {}
        self._positions = itertools.count(1)
        self._numbers = itertools.count()
        self._random = np.random.default_rng(1)

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    # What happens

    def upsert(
        self, *files: Iterable[int], row_bytes: int = ROW_BYTES, partition: dict[str, Any] | None = None, **more: Any
    ) -> None:
        """One delta: a file for each series of keys. `more` are further columns, of one value in all rows."""
        tables = []
        for series in files:
            keys = list(series)
            payload = pa.array([self._random.bytes(row_bytes) for _ in keys], pa.binary())
            numbers = pa.array(itertools.islice(self._numbers, len(keys)), pa.int64())
            constants = {name: pa.repeat(value, len(keys)) for name, value in more.items()}
            tables.append(pa.table({"k": pa.array(keys, pa.int64()), "n": numbers, "payload": payload, **constants}))
        self.catalog.append("t", tables, partition, stream_position=next(self._positions))

    def delete(self, keys: Iterable[int], partition: dict[str, Any] | None = None, **sort_columns: Any) -> None:
        ids = pa.array(keys, pa.int64())
        columns = {name: pa.repeat(value, len(ids)) for name, value in sort_columns.items()}
        table = pa.table({"k": ids, **columns})
        self.catalog.append("t", table, partition, "delete", stream_position=next(self._positions))

    def compact(self, **how: Any) -> None:
        """What happened before the story begins: nothing is drawn."""
        self._compact(how)

    def scene(self, **how: Any) -> None:
        """Draw the files, print the plan, compact, draw the files again, show the table."""
        said = ", ".join(f"{name}={getattr(value, 'value', value)}" for name, value in how.items())
        self._lines += [f"=== compact({said}) ".ljust(120, "="), ""]
        table = how.get("destination", "t")
        before = {partition: self._state(table, partition) for partition in self.catalog.partitions("t")}
        self._say("before", [line for partition in before for line in self._before(table, partition)])
        self._say("plan", self._plan(how))
        self._say("compact", self._compact(how))
        self._say("after", [line for partition in before for line in self._after(table, partition, before[partition])])
        self._say("show", self._show(table))

    # What is printed

    def _say(self, title: str, lines: Sequence[str]) -> None:
        self._lines += [title, *("  " + line if line else "" for line in lines), ""]

    def _plan(self, how: dict[str, Any]) -> list[str]:
        request = Request("t", destination_table_id=how.get("destination"), options=_options(how))
        return self._printed(
            plan_report.print_plans, plan_report.plan_report(self.catalog, request), Detail(files=True)
        )

    def _compact(self, how: dict[str, Any]) -> list[str]:
        options = _options(how)
        result = compact(
            "t",
            delta_catalog_client=self.catalog,
            destination_compacted_table_id=how.get("destination"),
            rows_per_compacted_file=options.rows_per_compacted_file,
            hash_bucket_count=options.hash_bucket_count,
            compacted_file_content_type=options.content_type,
            settings=options,
            purge=options.purge,
        )
        return [
            line
            for line in self._printed(result_report.print_result, result, 0.0, Detail(verbose=True))
            if not line.startswith(("  seconds: ", "  seconds of all", "Done"))
        ]

    def _show(self, table: str) -> list[str]:
        return self._printed(table_report.print_table, table_report.table_document(self.catalog, table), Detail())

    def _printed(self, print_: Any, *shown: Any) -> list[str]:
        out = io.StringIO()
        print_(Console(file=out, highlight=False, markup=False, emoji=False, soft_wrap=True), *shown)
        return self._named(out.getvalue()).splitlines()

    def _named(self, text: str) -> str:
        """Names in the place of random ones, and sizes with two digits."""
        for path, label in self._labels.items():
            text = text.replace(path, label).replace(path.rpartition("/")[2], label)
        text = _TIME.sub("…", _VERSION.sub(r"\1-…", text))
        return _SIZE.sub(lambda size: size_of(float(size[1].replace(",", "")) * _UNITS[size[2]]), text)

    # What is drawn

    def _before(self, table: str, partition: Partition) -> list[str]:
        state, live = self._state(table, partition), self._live(partition)
        files: list[tuple[str, DataFile]] = []
        for file in _compacted(state):
            self._labels[file.path] = f"file {file.number}"
            files.append(("base", file))
        for delta in self._deltas(table, partition):
            for file in delta.files:
                self._labels[file.path] = f"delta {delta.position} file {file.number}"
                files.append((delta.operation.value, file))
        scale = _scale([file for _, file in files])
        lines = [self._line(kind, self._labels[file.path], file, live, scale) for kind, file in files]
        return [*_titled(partition, lines), *self._index(state)]

    def _after(self, table: str, partition: Partition, before: StreamState | None) -> list[str]:
        state, live = self._state(table, partition), self._live(partition)
        old = {file.number: file for file in _compacted(before)}
        new = {file.number: file for file in _compacted(state)}
        scale = _scale([*new.values()])
        lines = []
        for number in sorted(old.keys() | new.keys()):
            if number not in new:
                file = old[number]
                left = sum(row in live for row in self._rows(file))
                fate = "rewritten" if left else "dropped"
                lines.append(f"{fate:<10}  {self._labels[file.path]:<22}  {left:,} of {file.rows:,} rows live")
                continue
            file = new[number]
            label = f"file {number}"
            if number in old:
                fate = "kept" if old[number] == file else "marked"
            elif file.path in self._labels:
                fate, label = "kept", f"{label}: {self._labels[file.path]}"
            else:
                fate = "new"
            lines.append(self._line(fate, label, file, live, scale))
        return [*_titled(partition, lines), *self._index(state)]

    def _line(self, kind: str, label: str, file: DataFile, live: set[int], scale: int) -> str:
        """One file: `scale` rows in a cell."""
        rows = counted(file.rows, "row")
        if kind == "delete":
            bar = "~" * math.ceil(file.rows / scale)
        else:
            lives = [row in live for row in self._rows(file)]
            cells = [lives[first : first + scale] for first in range(0, len(lives), scale)]
            bar = "".join("=" if all(cell) else "-" if any(cell) else "x" for cell in cells)
            dead = len(lives) - sum(lives)
            rows += f", {dead:,} dead" if dead else ""
            rows += f" ({file.deletions.dead_rows:,} in its deletion vector)" if file.deletions else ""
        bar, size = f"|{bar}|", size_of(file.bytes)
        return f"{kind:<10}  {label:<22}  {bar:<{CELLS_MAX + 2}}  {rows}, {size}{_unusual(file)}"

    def _index(self, state: StreamState | None) -> list[str]:
        if state is None or state.index is None:
            return []
        manifest = read_manifest(self.catalog.store, state.index)
        runs = " + ".join(f"{manifest.run_entries(run):,}" for run in range(len(manifest.runs)))
        return [f"index       runs of {runs} entries, {counted(len(manifest.relocations), 'relocation')}"]

    def _state(self, table: str, partition: Partition) -> StreamState | None:
        if table not in self.catalog.tables() or not self.catalog.log(table, partition).exists():
            return None
        return self.catalog.state(table, partition)

    def _deltas(self, table: str, partition: Partition) -> tuple[Delta, ...]:
        """Those of the source, as far as the destination does not have them."""
        state = self._state("t", partition)
        assert state is not None
        if table == "t":
            return state.deltas
        destination = self._state(table, partition)
        watermark = destination.compacted.watermark if destination and destination.compacted else 0
        return tuple(delta for delta in state.deltas if delta.position > watermark)

    def _live(self, partition: Partition) -> set[int]:
        """The numbers of the rows that the table shows."""
        return set(self.catalog.read("t", dict(partition.values), columns=["n"])["n"].to_pylist())

    def _rows(self, file: DataFile) -> list[int]:
        """The numbers of a file's rows."""
        source = pa.BufferReader(self.catalog.store.get(file.path))
        match file.content_type:
            case ContentType.PARQUET:
                table = pq.ParquetFile(source).read(columns=["n"])
            case ContentType.ORC:
                table = pyarrow.orc.ORCFile(source).read(columns=["n"])
            case _:
                table = pyarrow.feather.read_table(source, columns=["n"])
        return list(table["n"].to_pylist())


def size_of(count: float) -> str:
    """A size in two digits; where it is hardly more than a file's frame, only that it is small."""
    if count < SMALL_BYTES:
        return "small"
    unit = next(unit for unit in ("GiB", "MiB", "KiB") if count >= _UNITS[unit])
    value = count / _UNITS[unit]
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):.{max(0, digits)}f} {unit}"


def _options(how: dict[str, Any]) -> Options:
    """Files of at most 100 rows, where the story says nothing else."""
    chosen = {name: value for name, value in how.items() if name != "destination"}
    return Options(**{**MACHINE, "rows_per_compacted_file": 100, **chosen})


def _compacted(state: StreamState | None) -> tuple[DataFile, ...]:
    return state.compacted.files if state and state.compacted else ()


def _unusual(file: DataFile) -> str:
    """The format where it is not Parquet, and columns besides the usual ones."""
    more = [name for name in file.schema.names if name not in _COLUMNS]
    kind = f", {file.content_type.name.lower()}" if file.content_type is not ContentType.PARQUET else ""
    return kind + (f", with {' and '.join(more)}" if more else "")


def _scale(files: Sequence[DataFile]) -> int:
    """How many rows a cell stands for: 1, 2, 5, 10, …, so that the longest bar fits."""
    rows = max((file.rows for file in files), default=0)
    scales = (digit * 10**power for power in itertools.count() for digit in (1, 2, 5))
    return next(scale for scale in scales if rows <= scale * CELLS_MAX)


def _titled(partition: Partition, lines: list[str]) -> list[str]:
    lines = lines or ["(no files)"]
    return [f"{partition}", *lines] if partition.values else lines
