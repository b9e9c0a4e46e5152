"""What is measured: seven things that people do with a table on S3, each on the same files wherever the table lies.

narrow full            8 M + 2 M rows of 60 bytes, compacted for the first time
wide full              1.6 M + 0.4 M rows of 1.1 KB, the same
narrow, 1,000 rows     8 M narrow rows, compacted before; a delta of 1,000 rows, half updates anywhere and half new keys
                       then the same for readers of deletion vectors: few dead rows are marked, not rewritten
append                 twenty appends of 1,000 rows, one after another, in a process that has appended before
one partition          one changed partition of 1,000
all partitions         1,000 partitions, each with 10 deltas of 100 rows, compacted for the first time

made = scenario.make(folder)              the table as it is before, on local files, made once and kept
scenario.prepare(catalog, files)          not timed; `files` is where made.files are at the place
scenario.work(catalog, settings)          timed; what it returns tells how many rows live now
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import deltacompact
from benchmarks import data
from benchmarks.checksum import Fingerprint, fingerprint
from benchmarks.configurations import Case, Configuration
from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.delta_streams.streams import stream_files
from deltacompact.results import CompactionResult
from deltacompact.storage.opening import open_object

TABLE = "bench"
DELTA_ROWS = 1_000
APPENDS = 20
DELTAS = 10
PARTITION_ROWS = 100
_LOCAL = Settings(executor="local")


@dataclass(frozen=True, slots=True)
class Made:
    """A catalog's folder to begin with (None: an empty catalog), and files that a scenario refers to."""

    catalog: Path | None = None
    files: tuple[Path, ...] = ()


class Scenario(Protocol):
    """See above. `operations` is how many the timed part does; `decoded_bytes` what a full compaction has to move."""

    @property
    def name(self) -> str: ...

    @property
    def operations(self) -> int: ...

    def make(self, folder: Path) -> Made: ...

    def prepare(self, catalog: DeltaStreamCatalog, files: str) -> None: ...

    def work(self, catalog: DeltaStreamCatalog, settings: Settings) -> CompactionResult | None: ...

    def check(self, catalog: DeltaStreamCatalog, result: CompactionResult | None) -> str | None:
        """What is wrong with the result, or None."""


class Compaction:
    """Scenarios whose timed part is one compaction."""

    __slots__ = ()

    def work(self, catalog: DeltaStreamCatalog, settings: Settings) -> CompactionResult:
        return deltacompact.compact(TABLE, delta_catalog_client=catalog, settings=settings)


@dataclass(frozen=True, slots=True)
class Full(Compaction):
    """The first compaction of a table whose rows lie in files that are appended by reference."""

    configuration: Configuration
    folder: Path
    seed: int
    operations: int = 1

    @property
    def name(self) -> str:
        return f"{self.configuration.name} full"

    @property
    def inputs(self) -> data.Inputs:
        return data.inputs_of(self.configuration, Case.FULL, self.folder, self.seed)

    def make(self, folder: Path) -> Made:
        return Made(files=self.inputs.files)

    def prepare(self, catalog: DeltaStreamCatalog, files: str) -> None:
        inputs = self.inputs
        catalog.create_table(TABLE, primary_keys=inputs.keys)
        for of_delta in (inputs.prior, *(delta.files for delta in inputs.deltas)):
            catalog.append_files(TABLE, [f"{files}/{name_of(path)}" for path in of_delta], reference=True)

    def check(self, catalog: DeltaStreamCatalog, result: CompactionResult | None) -> str | None:
        inputs = self.inputs
        state = catalog.state(TABLE, catalog.partition(TABLE, None))
        found = fingerprint(_opened(catalog, [file.path for file in stream_files(state)]), inputs.columns)
        return _differs(found, inputs.expected)


@dataclass(frozen=True, slots=True)
class Few(Compaction):
    """A few rows onto a large table that was compacted before. `marked`: its readers honour deletion vectors."""

    configuration: Configuration
    folder: Path
    seed: int
    marked: bool = False
    operations: int = 1

    @property
    def name(self) -> str:
        return f"{self.configuration.name}, {DELTA_ROWS:,} rows{', marked' if self.marked else ''}"

    def make(self, folder: Path) -> Made:
        home = folder / f"few-{self.configuration.name}-{self.configuration.rows}-seed{self.seed}"
        prior = data.inputs_of(self.configuration, Case.RECENT, self.folder, self.seed).prior

        def build(catalog: DeltaStreamCatalog) -> None:
            catalog.create_table(TABLE, primary_keys=data.KEYS)
            catalog.append_files(TABLE, prior)
            deltacompact.compact(TABLE, delta_catalog_client=catalog, settings=_LOCAL)

        return Made(_built_once(home, build))

    def prepare(self, catalog: DeltaStreamCatalog, files: str) -> None:
        if self.marked:
            catalog.declare_readers(TABLE, "vectors")
        dice, prior = np.random.default_rng([self.seed, 2]), self.configuration.prior_rows
        known = dice.choice(prior, DELTA_ROWS // 2, replace=False)
        catalog.append(TABLE, _rows(np.concatenate([known, np.arange(prior, prior + DELTA_ROWS // 2)]), dice))

    def check(self, catalog: DeltaStreamCatalog, result: CompactionResult | None) -> str | None:
        return _differs(_live(result), self.configuration.prior_rows + DELTA_ROWS // 2)


@dataclass(frozen=True, slots=True)
class Append:
    """Appends one after another."""

    seed: int
    operations: int = APPENDS
    name: str = "append"

    def make(self, folder: Path) -> Made:
        return Made()

    def prepare(self, catalog: DeltaStreamCatalog, files: str) -> None:
        catalog.create_table(TABLE, primary_keys=data.KEYS)
        catalog.append(TABLE, self._delta(0))

    def work(self, catalog: DeltaStreamCatalog, settings: Settings) -> None:
        for number in range(1, APPENDS + 1):
            catalog.append(TABLE, self._delta(number))

    def check(self, catalog: DeltaStreamCatalog, result: CompactionResult | None) -> str | None:
        deltas = catalog.state(TABLE, catalog.partition(TABLE, None)).deltas
        return _differs(sum(file.rows for delta in deltas for file in delta.files), (APPENDS + 1) * DELTA_ROWS)

    def _delta(self, number: int) -> pa.Table:
        keys = np.arange(number * DELTA_ROWS, (number + 1) * DELTA_ROWS)
        return _rows(keys, np.random.default_rng([self.seed, number]))


@dataclass(frozen=True, slots=True)
class OnePartition(Compaction):
    """One changed partition of many that were compacted before, by a process that left its listing of them."""

    partitions: int
    seed: int
    operations: int = 1
    name: str = "one partition"

    def make(self, folder: Path) -> Made:
        def build(catalog: DeltaStreamCatalog) -> None:
            _partitioned(catalog, self.partitions, 1, self.seed)
            deltacompact.compact(TABLE, delta_catalog_client=catalog, settings=_LOCAL)

        return Made(_built_once(folder / f"one-of-{self.partitions}-seed{self.seed}", build))

    def prepare(self, catalog: DeltaStreamCatalog, files: str) -> None:
        deltacompact.compact(TABLE, delta_catalog_client=catalog, settings=_LOCAL)  # nothing to do
        keys = np.arange(PARTITION_ROWS // 2, PARTITION_ROWS * 3 // 2)
        catalog.append(TABLE, _rows(keys, np.random.default_rng(self.seed)), _partition(self.partitions // 2))

    def check(self, catalog: DeltaStreamCatalog, result: CompactionResult | None) -> str | None:
        return _differs(_live(result), PARTITION_ROWS * 3 // 2)


@dataclass(frozen=True, slots=True)
class AllPartitions(Compaction):
    """Many partitions, each with several small deltas that overlap."""

    partitions: int
    seed: int
    operations: int = 1
    name: str = "all partitions"

    def make(self, folder: Path) -> Made:
        home = folder / f"all-of-{self.partitions}-seed{self.seed}"
        return Made(_built_once(home, lambda catalog: _partitioned(catalog, self.partitions, DELTAS, self.seed)))

    def prepare(self, catalog: DeltaStreamCatalog, files: str) -> None:
        """Nothing more."""

    def check(self, catalog: DeltaStreamCatalog, result: CompactionResult | None) -> str | None:
        return _differs(_live(result), self.partitions * (DELTAS + 1) * PARTITION_ROWS // 2)


NAMES = ("narrow", "wide", "few", "marked", "append", "one", "all")


def scenarios(
    names: tuple[str, ...], narrow: Configuration, wide: Configuration, partitions: int, folder: Path, seed: int
) -> list[Scenario]:
    """Those of NAMES that are asked for. `folder` is where the files of configurations are made once."""
    known: dict[str, Scenario] = {
        "narrow": Full(narrow, folder, seed),
        "wide": Full(wide, folder, seed),
        "few": Few(narrow, folder, seed),
        "marked": Few(narrow, folder, seed, marked=True),
        "append": Append(seed),
        "one": OnePartition(partitions, seed),
        "all": AllPartitions(partitions, seed),
    }
    return [known[name] for name in names]


def name_of(path: Path) -> str:
    """A file's name at any place: two folders of a configuration have files of the same name."""
    return f"{path.parent.parent.name}/{path.parent.name}/{path.name}"


def _built_once(home: Path, build: Callable[[DeltaStreamCatalog], None]) -> Path:
    catalog = home / "catalog"

    def make() -> dict[str, Any]:
        catalog.mkdir(parents=True)
        build(deltacompact.open_catalog(catalog))
        return {}

    data.made_once(home, data.GENERATION, make)
    return catalog


def _partitioned(catalog: DeltaStreamCatalog, partitions: int, deltas: int, seed: int) -> None:
    """A table by partitions. Each delta has the second half of the keys of the one before it, and as many new ones."""
    catalog.create_table(TABLE, partition_keys=["part"], primary_keys=data.KEYS)

    def fill(number: int) -> None:
        dice = np.random.default_rng([seed, number])
        for delta in range(deltas):
            start = delta * PARTITION_ROWS // 2
            catalog.append(TABLE, _rows(np.arange(start, start + PARTITION_ROWS), dice), _partition(number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(fill, range(partitions)))


def _partition(number: int) -> dict[str, str]:
    return {"part": f"{number:05d}"}


def _rows(keys: data.Keys, dice: np.random.Generator) -> pa.Table:
    """Narrow rows."""
    return pa.table(
        {
            "key": pa.array(keys, pa.int64()),
            "amount": dice.random(len(keys)),
            "updated_at": pa.array(data.EPOCH_US + dice.integers(0, 86_400_000_000, len(keys)), pa.timestamp("us")),
            "quantity": dice.integers(1, 1_000, len(keys)).astype(np.int32),
            "customer": data.customers(dice, len(keys)),
        }
    )


def _opened(catalog: DeltaStreamCatalog, paths: list[str]) -> Iterator[pa.NativeFile]:
    for path in paths:
        store, name = open_object(catalog.store, path)
        with store.open(name) as file:
            yield file


def _live(result: CompactionResult | None) -> int:
    """Rows of the partitions that were compacted."""
    assert result is not None
    if result.errors:
        raise result.errors[0]
    return sum(session.live for session in result.sessions if session.nothing_to_do is None)


def _differs(found: Fingerprint | int, expected: Fingerprint | int) -> str | None:
    return None if found == expected else f"wrong result: {found} rows for {expected}"
