"""The files, made once for each configuration, size and seed, and what their compaction must come to.

<folder>/narrow-10000000-seed1/shuffled/prior-000.parquet …    random permutation of the keys 0‥8 M
                               full/delta-000.parquet …        1 M of them, and 1 M new ones
                               ascending/prior-000.parquet …   the prior rows in insertion order
                               recent/ uniform/ append/        80,000 rows
                               merge/                          the same, where the configuration has that case
                               data.json                       written last: expected rows and checksums
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.checksum import Fingerprint, row_hashes
from benchmarks.configurations import COMPRESSION, ROW_GROUP_ROWS, Case, Configuration

GENERATION = 1
"""Raised whenever other files come out, so that those made before are not taken for them."""

KEYS = ("key",)
Keys = npt.NDArray[np.int64]
EPOCH_US = 1_767_225_600_000_000
_CUSTOMERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Delta:
    """Files that are committed at once: rows to upsert, or the keys of rows to delete and no other column."""

    files: tuple[Path, ...]
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """What one compaction gets, and what it must come to. Deltas in order; `rows` of all files; bytes at rest.

    `distinct`: no two rows of the deltas have one key. `whole`: a row whose key the deltas lack leaves.
    """

    case: Case
    keys: tuple[str, ...]
    prior: tuple[Path, ...]
    deltas: tuple[Delta, ...]
    rows: int
    columns: tuple[str, ...]
    expected: Fingerprint
    distinct: bool = False
    whole: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, in fold order."""
        return sum((delta.files for delta in self.deltas), self.prior)

    @property
    def deletes(self) -> bool:
        """Whether any delta deletes."""
        return any(delta.deletes for delta in self.deltas)

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)


def inputs_of(configuration: Configuration, case: Case, folder: Path, seed: int) -> Inputs:
    """The files of one case, made now unless they are there."""
    home = folder / f"{configuration.name}-{configuration.rows}-seed{seed}"
    document = made_once(home, GENERATION, _Maker(configuration, home, seed).make)
    described = document["cases"][case]
    prior = tuple(sorted((home / ("ascending" if case.incremental else "shuffled")).glob("prior-*.parquet")))
    deltas = (Delta(tuple(sorted((home / case).glob("delta-*.parquet")))),)
    expected = Fingerprint(described["live"], described["checksum"])
    return Inputs(case, KEYS, prior, deltas, described["rows"], tuple(document["columns"]), expected)


def made_once(home: Path, generation: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The document of the files in a folder. `make` fills the folder, unless that was done before."""
    known = home / "data.json"
    document: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {}
    if document.get("generation") != generation:
        shutil.rmtree(home, ignore_errors=True)
        document = {"generation": generation, **make()}
        known.write_text(json.dumps(document, indent=1))
    return document


@dataclass(frozen=True, slots=True)
class _Maker:
    """Writes the files of one configuration."""

    configuration: Configuration
    home: Path
    seed: int

    def make(self) -> dict[str, Any]:
        wanted, prior_rows = self.configuration.cases, self.configuration.prior_rows
        dice = np.random.default_rng([self.seed, 0])
        cases = {}
        if Case.FULL in wanted:
            shuffled = dice.permutation(prior_rows)
            cases |= self._cases("shuffled", shuffled, {Case.FULL: self._changed(Case.FULL, dice)})
        if incremental := {case: self._changed(case, dice) for case in wanted if case.incremental}:
            cases |= self._cases("ascending", np.arange(prior_rows), incremental)
        return {"columns": self._table(np.arange(1), 0).schema.names, "cases": cases}

    def _changed(self, case: Case, dice: np.random.Generator) -> Keys:
        """The keys of the delta rows."""
        sizes, prior_rows = self.configuration, self.configuration.prior_rows
        count = sizes.incremental_delta_rows if case.incremental else sizes.full_delta_rows
        match case:
            case Case.RECENT:
                return prior_rows - 1 - dice.choice(sizes.newest_rows, count, replace=False)
            case Case.UNIFORM:
                return dice.choice(prior_rows, count, replace=False)
            case Case.APPEND:
                return np.arange(prior_rows, prior_rows + count)
        known = dice.choice(prior_rows, count // 2, replace=False)
        keys = np.concatenate([known, np.arange(prior_rows, prior_rows + count - count // 2)])
        dice.shuffle(keys)
        return keys

    def _cases(self, prior_name: str, prior: Keys, deltas: dict[Case, Keys]) -> dict[str, dict[str, int]]:
        """Write prior rows and the deltas on them; add up what lives, delta by delta."""
        live = dict.fromkeys(deltas, 0)
        total = dict.fromkeys(deltas, 0)
        updated = {case: np.zeros(len(prior), bool) for case in deltas}
        for case, keys in deltas.items():
            updated[case][keys[keys < len(prior)]] = True
            files = self.configuration.delta_files if case is Case.FULL else 1
            for _, table in self._write(self.home / case, "delta", keys, files, 1 + list(Case).index(case)):
                live[case] += table.num_rows
                total[case] += hash_sum(row_hashes(table, table.column_names))
        stream = 10 if prior_name == "shuffled" else 11
        for keys, table in self._write(self.home / prior_name, "prior", prior, self.configuration.prior_files, stream):
            hashes = row_hashes(table, table.column_names)
            for case in deltas:
                kept = ~updated[case][keys]
                live[case] += int(kept.sum())
                total[case] += hash_sum(hashes[kept])
        return {
            case: {"rows": len(prior) + len(keys), "live": live[case], "checksum": total[case] % 2**64}
            for case, keys in deltas.items()
        }

    def _write(self, folder: Path, name: str, keys: Keys, files: int, stream: int) -> Iterator[tuple[Keys, pa.Table]]:
        """One file after another, each of about the same rows, with what is in it."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, share in enumerate(np.array_split(keys, files)):
            table = self._table(share, 1_000 * stream + number)
            path = folder / f"{name}-{number:03d}.parquet"
            pq.write_table(table, path, compression=COMPRESSION, row_group_size=ROW_GROUP_ROWS)
            yield share, table

    def _table(self, keys: Keys, stream: int) -> pa.Table:
        dice, rows = np.random.default_rng([self.seed, 1, stream]), len(keys)
        columns = {
            "key": pa.array(keys, pa.int64()),
            "amount": pa.array(dice.random(rows)),
            "updated_at": pa.array(EPOCH_US + dice.integers(0, 86_400_000_000, rows), pa.timestamp("us")),
            "quantity": pa.array(dice.integers(1, 1_000, rows).astype(np.int32)),
            "customer": customers(dice, rows),
        }
        if width := self.configuration.payload_bytes:
            columns["payload"] = payloads(dice.bytes(rows * width), rows, width)
        return pa.table(columns)


def customers(dice: np.random.Generator, rows: int) -> pa.Array:
    """Names of customers: strings of 28 characters."""
    numbers = pc.utf8_lpad(pa.array(dice.integers(0, _CUSTOMERS, rows)).cast(pa.string()), 19, "0")
    return pc.binary_join_element_wise("customer-", numbers, "")


def payloads(data: bytes, rows: int, width: int) -> pa.Array:
    """Random payloads: binary values of one width."""
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(data)])


def hash_sum(hashes: npt.NDArray[np.uint64]) -> int:
    """The sum of hashes, modulo 2^64."""
    return int(hashes.sum(dtype=np.uint64))


def read_ahead(files: Sequence[Path]) -> None:
    """Bring files into the page cache, so that the first competitor does not pay for reading them from disk."""
    for file in files:
        with file.open("rb", buffering=0) as source:
            while source.read(16 << 20):
                pass
