"""Files of deltas with rows that are dead already: nobody folds them, counts them or brings them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_catalog import ToyCatalog
from toy_runs import KEYS, live, run, snapshot

from deltacompact.base.errors import CorruptionError, SchemaError
from deltacompact.base.limits import LIMITS
from deltacompact.base.table_keys import SortKey, TableKeys
from deltacompact.index.live_bitmaps import LiveBits, live_mask
from deltacompact.index.primary_key_index import read_index, read_manifest
from deltacompact.storage.memory import MemoryStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@dataclass(frozen=True)
class Step:
    """A delta of one file, some rows of which are dead; and whether a compaction follows, with what arguments."""

    operation: str
    keys: tuple[int, ...]
    dead: frozenset[int]
    compaction: dict[str, Any] | None

    @property
    def places(self) -> list[int]:
        return sorted(place for place in self.dead if place < len(self.keys))

    @property
    def living(self) -> list[int]:
        return [key for place, key in enumerate(self.keys) if place not in self.dead]


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["upsert", "upsert", "delete"]),
        st.lists(st.integers(0, 9), max_size=8).map(tuple),
        st.frozensets(st.integers(0, 7)),
        st.none()
        | st.fixed_dictionaries(
            {
                "rows_per_round": st.sampled_from([1, 5, 100]),
                "rewrite_dead_fraction": st.sampled_from([0.0, 0.5, 1.0]),
                "purge": st.booleans(),
            }
        ),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=examples(150))
def test_dead_rows_of_deltas_count_nowhere(steps: list[Step]) -> None:
    toy, expected, waiting = ToyCatalog(MemoryStore(), KEYS), dict[int, str](), []
    for position, step in enumerate(steps, 1):
        table = pa.table([list(step.keys), [f"{position}.{n}" for n in range(len(step.keys))]], schema=SCHEMA)
        toy.append(position, table.select(["k"]) if step.operation == "delete" else table, step.operation, step.places)
        waiting.append(step)
        for place, key in enumerate(step.keys):
            if place not in step.dead and step.operation == "delete":
                expected.pop(key, None)
            elif place not in step.dead:
                expected[key] = f"{position}.{place}"
        assert live(toy) == expected
        if step.compaction is not None:
            _, published = run(toy, **step.compaction)
            assert live(toy) == expected
            assert published.counts.live == published.compacted.rows == len(expected)
            assert published.counts.upserts == sum(len(s.living) for s in waiting if s.operation == "upsert")
            assert published.counts.deletes == sum(len(s.living) for s in waiting if s.operation == "delete")
            check_index(toy)
            waiting.clear()


def check_index(toy: ToyCatalog) -> None:
    """Every live row of the compacted files has one entry, and no dead row has any."""
    found = toy.snapshot(*toy.newest())
    assert found.base is not None
    manifest = read_manifest(toy.store, found.base.index)
    pointers = set()
    for bucket in range(manifest.hash_bucket_count):
        for chunk in read_index(toy.store, manifest, bucket):
            files, rows = (np.ascontiguousarray(part) for part in (chunk[:, -12:-8], chunk[:, -8:]))
            pointers |= set(zip(files.view("<u4")[:, 0].tolist(), rows.view("<u8")[:, 0].tolist(), strict=True))
    expected, live = set(), LiveBits(toy.store)
    for file in found.base.files:
        bits = live.of(file)
        lives = np.ones(file.rows, bool) if bits is None else live_mask(bits, file.rows)
        expected |= {(file.number, int(row)) for row in np.flatnonzero(lives)}
    assert {pointer for pointer in pointers if pointer[0] < 0xFFFFFFFE} == expected


def large(rows: int) -> pa.Table:
    """A file that is as large as a kept delta file must be."""
    wide = np.random.default_rng(7).bytes(LIMITS.delta_kept_bytes_min * 5 // 4)
    size = len(wide) // rows
    values = [wide[row * size : (row + 1) * size] for row in range(rows)]
    return pa.table({"k": pa.array(range(rows), pa.int64()), "v": pa.array(values, pa.binary())})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fraction", "purge", "kept"), [(0.5, False, True), (0.01, False, False), (0.0, False, False), (0.5, True, False)]
)
def test_a_large_delta_file_stays_with_its_deletion_vector_or_is_rewritten(
    fraction: float, purge: bool, kept: bool
) -> None:
    toy = ToyCatalog(MemoryStore(), KEYS)
    toy.append(1, large(100), dead=[0, 7, 99])
    path = snapshot(toy).deltas[0].files[0].path
    session, published = run(toy, rows_per_compacted_file=150, rewrite_dead_fraction=fraction, purge=purge)
    (file,) = published.compacted.files
    assert (file.path == path, file.rows, file.live_rows) == (kept, 100 if kept else 97, 97)
    assert published.counts.upserts == 97 and session.measured.rows_copied == 0
    assert set(live(toy)) == set(range(100)) - {0, 7, 99}
    check_index(toy)
    # What is kept loses another row, and then all that is dead.
    toy.append(2, pa.table({"k": pa.array([5], pa.int64())}), "delete")
    _, published = run(toy, rows_per_compacted_file=150, rewrite_dead_fraction=0.5)
    assert [file.live_rows for file in published.compacted.files] == [96]
    check_index(toy)
    toy.append(3, pa.table({"k": pa.array([6], pa.int64())}), "delete")
    _, published = run(toy, rows_per_compacted_file=150, purge=True)
    assert [(file.rows, file.deletions) for file in published.compacted.files] == [(95, None)]
    assert set(live(toy)) == set(range(100)) - {0, 5, 6, 7, 99}
    check_index(toy)


def test_a_file_of_which_every_row_is_dead_leaves_nothing() -> None:
    toy = ToyCatalog(MemoryStore(), KEYS)
    toy.append(1, pa.table({"k": [1, 2], "v": ["a", "b"]}), dead=[0, 1])
    _, published = run(toy, rewrite_dead_fraction=1.0)
    assert published.compacted.files == () and live(toy) == {}


def test_dead_rows_have_no_say_in_what_a_table_can_hold() -> None:
    """A sort value that is too long, and a key that no kernel takes."""
    toy = ToyCatalog(MemoryStore(), TableKeys.of(["k"], [SortKey("s")]))
    rows = pa.table({"k": [1, 2], "v": ["a", "b"], "s": ["1", "9" * 100]})
    toy.append(1, rows, dead=[1])
    run(toy)
    assert live(toy) == {1: "a"}
    toy.append(2, rows)
    with pytest.raises(SchemaError, match="value of 100 bytes"):
        run(toy)


def test_a_bitmap_that_is_not_there_is_told() -> None:
    toy = ToyCatalog(MemoryStore(), KEYS)
    toy.append(1, pa.table({"k": [1, 2], "v": ["a", "b"]}), dead=[1])
    deletions = snapshot(toy).deltas[0].files[0].deletions
    assert deletions is not None
    with toy.store.writer(deletions.masks_path) as sink:
        sink.write(b"no Arrow file")
    with pytest.raises(CorruptionError, match="cannot be read"):
        run(toy)
