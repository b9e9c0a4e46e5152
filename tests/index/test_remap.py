"""Where the rows of rewritten files are, after one rewrite on the other, against a dictionary.

files      1: rows a b c    2: rows d e
rewritten  1 and 2 without b, in the order e a d c, two an output     3: e a    4: d c
again      3, in its order, with a delta's x                          5: e a x
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.index.entries import Entries, fields
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.index.number_blocks import numbers_sink
from deltacompact.index.remap import Moves, RelocatedFile, Relocation, Relocator, read_moves
from deltacompact.storage.memory import MemoryStore

Place = tuple[int, int]


@dataclass
class Rewrites:
    """Some files, their rewrites, and where each row that was ever somewhere is now. None: it died."""

    store: MemoryStore = field(default_factory=MemoryStore)
    relocations: list[Relocation] = field(default_factory=list)
    now: dict[Place, Place | None] = field(default_factory=dict)
    rows_of: dict[int, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def add(self, rows: int) -> int:
        number = next(self.numbers)
        self.rows_of[number] = rows
        self.now |= {(number, row): (number, row) for row in range(rows)}
        return number

    def rewrite(self, dead: set[Place], files: list[int], order: list[int] | None, each: int, cuts: list[int]) -> None:
        """Write the files' live rows, in an order (None: theirs). `cuts`: the rows of each output, `each` at most."""
        step, ordinals = len(self.relocations), {number: Ordinal(place) for place, number in enumerate(files)}
        live = [(number, row) for number in files for row in range(self.rows_of[number]) if (number, row) not in dead]
        bits = {number: [(number, row) not in dead for row in range(self.rows_of[number])] for number in files}
        masks = f"{step}.masks"
        write_masks(
            self.store, masks, {ordinals[number]: np.packbits(bits[number], bitorder="little") for number in files}
        )
        places = [(output, row) for output, rows in enumerate(cuts) for row in range(rows)]
        went = places if order is None else [places[number] for number in order]
        moves = () if order is None else tuple(self._moves(step, [each * output + row for output, row in went]))
        first = self.add(cuts[0]) if cuts else next(self.numbers)
        for rows in cuts[1:]:
            self.add(rows)
        to = {place: (first + output, row) for place, (output, row) in zip(live, went, strict=True)}
        gone = set(files)
        self.now = {
            place: to.get(now) if now is not None and now[0] in gone else now for place, now in self.now.items()
        }
        relocated = tuple(
            RelocatedFile(ChainFileNumber(number), self.rows_of.pop(number), masks, ordinals[number])
            for number in files
        )
        self.relocations.append(Relocation(relocated, ChainFileNumber(first), each, moves))

    def _moves(self, step: int, destinations: list[int]) -> Iterator[Moves]:
        """In two objects, as two tasks write them."""
        half = len(destinations) // 2
        for part, some in enumerate((destinations[:half], destinations[half:])):
            with numbers_sink(self.store, f"{step}-{part}.moves") as write:
                if some:
                    write(np.array(some))
            yield Moves(f"{step}-{part}.moves", len(some))


@st.composite
def rewrites(draw: st.DrawFn) -> Rewrites:
    """Up to four rewrites: of any files, with any dead rows, in any order, into outputs of any size; and deltas."""
    found = Rewrites()
    for _ in range(draw(st.integers(1, 4))):
        for rows in draw(st.lists(st.integers(1, 9), min_size=int(not found.rows_of), max_size=3)):
            found.add(rows)
        files = sorted(draw(st.sets(st.sampled_from(sorted(found.rows_of)), min_size=1)))
        places = [(number, row) for number in files for row in range(found.rows_of[number])]
        dead = draw(st.sets(st.sampled_from(places)))
        count, each = len(places) - len(dead), draw(st.integers(1, 8))
        is_sorted, cuts = draw(st.booleans()), list[int]()
        while (left := count - sum(cuts)) > 0:  # where rows keep their order, all outputs but the last are full
            cuts.append(draw(st.integers(1, min(left, each))) if is_sorted else min(left, each))
        found.rewrite(dead, files, draw(st.permutations(range(count))) if is_sorted else None, each, cuts)
    return found


def entries_of(places: list[Place]) -> Entries:
    digests = np.zeros((1, 20), np.uint8)
    packed = [
        _kernels.pack_entries(digests, np.empty((1, 0), np.uint8), number, np.array([row], np.uint64))
        for number, row in places
    ]
    return np.concatenate(packed)


@given(rewrites())
@settings(deadline=None, max_examples=examples(80))
def test_rows_are_found_after_any_rewrites_in_any_order(found: Rewrites) -> None:
    relocator = Relocator(found.store, found.relocations)
    lives = {place: now for place, now in found.now.items() if now is not None}
    if lives:
        view = fields(relocator.relocated(entries_of(list(lives))))
        assert list(zip(view["file"].tolist(), view["row"].tolist(), strict=True)) == list(lives.values())
    for number in {file for file, _ in found.now}:
        rows = [row for file, row in found.now if file == number]
        went = relocator.followed(ChainFileNumber(number), np.array(rows, np.int64))
        places = zip(went.files.tolist(), went.rows.tolist(), went.lives.tolist(), strict=True)
        assert [(file, row) if there else None for file, row, there in places] == [
            found.now[number, row] for row in rows
        ]
    died = [place for place, now in found.now.items() if now is None]
    for place in died[:3]:
        with pytest.raises(CorruptionError, match="not live"):
            relocator.relocated(entries_of([place]))


def test_a_task_holds_a_block_of_the_destinations_and_not_all() -> None:
    store, rows = MemoryStore(), 4_000_000
    destinations = np.random.default_rng(0).permutation(rows).astype(np.uint32)
    with numbers_sink(store, "x") as sink:
        sink(destinations)
    tracemalloc.start()
    try:
        found = read_moves(store, [Moves("x", rows)], READ_LIMITS)
        _, held_most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(found, destinations)
    assert held_most < destinations.nbytes / 4
