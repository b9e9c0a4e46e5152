"""Tables of many sizes and habits for `sla`: what they hold, and what comes between two compactions.

    narrow, 60 bytes a row      1.2 M rows in 4 files, in order of their keys     8 deltas of 0.5 %, of the newest rows
    wide, 1.1 KB a row           40 k rows in 1 file, shuffled                    1 delta of 20 %, anywhere

A table keeps its habits: where its deltas fall, in which format, and about how large they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from deltacompact import DeltaStreamCatalog

WIDTHS = {"narrow": 0, "medium": 150, "wide": 1_050}
"""Random bytes of a row besides key, numbers and a short text."""
_CUSTOMERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """What tables are drawn from. Pairs are the least and the most, as powers of ten.

    `most_bytes`: a table of any scale has no more at first, so that its first session stays within a minute, and is
    left when it has twice as many: it is on the disk four times while a session runs on a copy. `shares`: new rows
    between two compactions, as a share of the table's. `newest`: the share that deltas on the newest keys fall into.
    `texts`: how many of the narrow tables get CSV files.
    """

    rows: Mapping[str, tuple[float, float]]
    most_bytes: int
    shares: tuple[float, float]
    newest: float
    texts: float


ALL_SIZES = Sizes(
    {"narrow": (5.5, 7.2), "medium": (5.0, 6.7), "wide": (4.6, 6.0)},
    most_bytes=2_000_000_000,
    shares=(-3.0, -0.7),
    newest=0.03,
    texts=0.2,
)
"""Most sessions take less than 5 s of CPU, as most sessions of a fleet do."""
LARGE = Sizes(
    {"narrow": (7.5, 7.9), "medium": (7.0, 7.3), "wide": (6.4, 6.65)},
    most_bytes=3_000_000_000,
    shares=(-1.7, -0.5),
    newest=0.3,
    texts=0.0,
)
"""Most sessions take 5 to 60 s of CPU, wherever their deltas fall."""


@dataclass(slots=True)
class GrowingTable:
    """One table. `top` is the key after the last one."""

    name: str
    width: str
    rows: int
    shuffled: bool
    where: str
    text: bool
    share: float
    newest: float
    dice: np.random.Generator = field(repr=False)
    top: int = 0

    @classmethod
    def drawn(cls, name: str, dice: np.random.Generator, sizes: Sizes, scale: float) -> GrowingTable:
        width = str(dice.choice(list(WIDTHS), p=[0.5, 0.3, 0.2]))
        low, high = sizes.rows[width]
        most = sizes.most_bytes // _row_bytes(width)
        return cls(
            name,
            width,
            max(100, min(most, int(scale * 10 ** dice.uniform(low, high)))),
            bool(dice.random() < 0.5),
            str(dice.choice(["newest", "anywhere", "new keys"])),
            bool(width == "narrow" and dice.random() < sizes.texts),
            float(10 ** dice.uniform(*sizes.shares)),
            sizes.newest,
            dice,
        )

    @property
    def bytes(self) -> int:
        """Of its live rows, about."""
        return self.top * _row_bytes(self.width)

    def begin(self, catalog: DeltaStreamCatalog, folder: Path) -> None:
        """Create the table with its first rows, in a few files."""
        catalog.create_table(self.name, primary_keys=["key"])
        keys = self.dice.permutation(self.rows) if self.shuffled else np.arange(self.rows)
        for part in np.array_split(keys, int(self.dice.integers(1, 6))):
            self._append(catalog, folder, part)
        self.top = self.rows

    def go_on(self, catalog: DeltaStreamCatalog, folder: Path) -> None:
        """Append what came since the last compaction."""
        deltas = int(10 ** self.dice.uniform(0, 1.3))
        count = max(1, int(self.rows * self.share * self.dice.uniform(0.5, 2) / deltas))
        for _ in range(deltas):
            self._append(catalog, folder, self._keys(count))

    def _keys(self, count: int) -> Any:
        match self.where:
            case "new keys":
                self.top += count
                return np.arange(self.top - count, self.top)
            case "newest":
                return np.unique(self.dice.integers(int(self.top * (1 - self.newest)), self.top, count))
            case _:
                return np.unique(self.dice.integers(0, self.top, count))

    def _append(self, catalog: DeltaStreamCatalog, folder: Path, keys: Any) -> None:
        if not len(keys):
            return
        rows = self._rows(keys)
        if not self.text:
            catalog.append(self.name, rows)
            return
        file = folder / f"{self.name}.csv"
        pa.csv.write_csv(rows, file)
        catalog.append_files(self.name, [file])
        file.unlink()

    def _rows(self, keys: Any) -> pa.Table:
        count, payload = len(keys), WIDTHS[self.width]
        columns: dict[str, Any] = {
            "key": keys.astype(np.int64),
            "amount": self.dice.random(count),
            "status": self.dice.integers(0, 20, count).astype(np.int32),
            "customer": _customers().take(pa.array(self.dice.integers(0, _CUSTOMERS, count))),
        }
        if payload:
            data = pa.py_buffer(self.dice.bytes(count * payload))
            columns["payload"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(payload), count, [None, data])
        return pa.table(columns)


def _row_bytes(width: str) -> int:
    return 60 + WIDTHS[width]


@cache
def _customers() -> Any:
    return pa.array([f"customer-{number}" for number in range(_CUSTOMERS)])


def tables(seed: int, sizes: Sizes, scale: float) -> Iterator[tuple[GrowingTable, int]]:
    """Endless: a table, and how often it is compacted before the next table comes."""
    dice = np.random.default_rng(seed)
    number = 0
    while True:
        yield GrowingTable.drawn(f"t{number:03d}", dice, sizes, scale), int(dice.integers(4, 17))
        number += 1
