"""Rates of the kernels on one core: `make bench`, or pytest benchmarks/test_kernels_bench.py.

Million rows a second are in each benchmark's extra_info. The aims: 15 for digests of integer keys (10 with avx2 alone),
15 for the fold of new entries into an index of the same size; packing and grouping as fast as memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from deltacompact import _kernels as kernels

ROWS = 4_000_000


def measure(benchmark: BenchmarkFixture, rows: int, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    result = benchmark.pedantic(work, arguments, named, rounds=5, warmup_rounds=1)
    if benchmark.stats is not None:
        benchmark.extra_info["million_rows_per_second"] = round(rows / benchmark.stats["min"] / 1e6, 1)
    return result


@pytest.fixture(scope="module")
def ids() -> pa.Array:
    return pa.array(np.random.default_rng(0).integers(0, 2**62, ROWS))


@pytest.fixture(scope="module")
def digests(ids: pa.Array) -> np.ndarray:
    return kernels.key_digests([ids], [1], ROWS)


def entries_of(digests: np.ndarray, sort_key_bytes: int, ordinal: int) -> np.ndarray:
    stamps = np.random.default_rng(1).integers(0, 256, (len(digests), sort_key_bytes), np.uint8)
    return kernels.pack_entries(digests, stamps, ordinal, np.arange(len(digests), dtype=np.uint64))


@pytest.mark.parametrize("backend", ["avx512", "sha-ni", "avx2", "portable"])
def test_key_digests_int64(benchmark: BenchmarkFixture, ids: pa.Array, backend: str) -> None:
    try:
        kernels.key_digests([], [], 0, backend=backend)
    except ValueError as error:
        pytest.skip(str(error))
    measure(benchmark, ROWS, kernels.key_digests, [ids], [1], ROWS, backend=backend)


def test_key_digests_int64_with_nulls(benchmark: BenchmarkFixture, ids: pa.Array) -> None:
    some = pa.array(ids.to_numpy(), mask=np.random.default_rng(2).random(ROWS) < 0.1)
    measure(benchmark, ROWS, kernels.key_digests, [some], [1], ROWS)


def test_key_digests_int64_date_int32(benchmark: BenchmarkFixture, ids: pa.Array) -> None:
    numbers = ids.to_numpy()
    columns = [
        ids,
        pa.array((numbers % 20_000).astype(np.int32), pa.date32()),
        pa.array((numbers % 97).astype(np.int32)),
    ]
    measure(benchmark, ROWS, kernels.key_digests, columns, [1, 6, 1], ROWS)


@pytest.mark.parametrize("kind", ["string", "string_view"])
def test_key_digests_uuid_strings(benchmark: BenchmarkFixture, digests: np.ndarray, kind: str) -> None:
    rows = ROWS // 4
    texts = pa.array([digest.tobytes().hex()[:36] for digest in digests[:rows]]).cast(getattr(pa, kind)())
    measure(benchmark, rows, kernels.key_digests, [texts], [9], rows)


def test_key_digests_strings_of_0_to_200_bytes(benchmark: BenchmarkFixture) -> None:
    rows = ROWS // 8
    texts = pa.array(["x" * int(n) for n in np.random.default_rng(3).integers(0, 200, rows)])
    measure(benchmark, rows, kernels.key_digests, [texts], [9], rows)


@pytest.mark.parametrize("count", [313, 1024, 40_000])
def test_buckets(benchmark: BenchmarkFixture, digests: np.ndarray, count: int) -> None:
    measure(benchmark, ROWS, kernels.buckets, digests, count)


def test_sort_keys_timestamp(benchmark: BenchmarkFixture, ids: pa.Array) -> None:
    measure(benchmark, ROWS, kernels.sort_keys, [ids.view(pa.timestamp("us"))], [False], ROWS)


@pytest.mark.parametrize("sort_key_bytes", [0, 9])
def test_pack_entries(benchmark: BenchmarkFixture, digests: np.ndarray, sort_key_bytes: int) -> None:
    keys, rows = np.zeros((ROWS, sort_key_bytes), np.uint8), np.arange(ROWS, dtype=np.uint64)
    measure(benchmark, ROWS, kernels.pack_entries, digests, keys, 7, rows)


@pytest.mark.parametrize("sort_key_bytes", [0, 9, 17])
@pytest.mark.parametrize("count", [16, 313, 40_000])
def test_group_entries(benchmark: BenchmarkFixture, digests: np.ndarray, sort_key_bytes: int, count: int) -> None:
    entries = entries_of(digests, sort_key_bytes, 3)
    measure(benchmark, ROWS, kernels.group_entries, np.array_split(entries, 4), count)


def fold_all(parts: list[np.ndarray], sort_key_bytes: int, base: np.ndarray) -> int:
    fold = kernels.Fold(parts, sort_key_bytes, np.arange(10, dtype=np.int64))
    out = sum(len(fold.push(chunk)) for chunk in np.array_split(base, max(1, len(base) // 1_000_000)))
    return out + len(fold.finish())


@pytest.mark.parametrize("sort_key_bytes", [0, 9])
@pytest.mark.parametrize("case", ["initial", "same size, half the keys known", "a tenth of the index"])
def test_fold(benchmark: BenchmarkFixture, digests: np.ndarray, sort_key_bytes: int, case: str) -> None:
    """Rates count new entries and index entries alike."""
    entries = entries_of(digests, sort_key_bytes, 1)
    known = {"initial": slice(0, 0), "same size, half the keys known": slice(0, ROWS // 2)}.get(case, slice(0, ROWS))
    new = {"initial": slice(0, ROWS), "same size, half the keys known": slice(ROWS // 4, 3 * ROWS // 4)}
    later = entries_of(digests, sort_key_bytes, 2)[new.get(case, slice(0, ROWS // 10))]
    base = kernels.Fold([entries[known]], sort_key_bytes, np.arange(10, dtype=np.int64)).finish()
    measure(benchmark, len(base) + len(later), fold_all, np.array_split(later, 8), sort_key_bytes, base)


def test_survivor_ranks(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(4)
    pointers = rng.permutation(ROWS)
    ordinals, rows = (pointers // 1_000_000).astype(np.uint32), (pointers % 1_000_000).astype(np.uint64)

    def ranks() -> None:
        survivors = kernels.SurvivorRanks(np.arange(4, dtype=np.uint32), np.full(4, 1_000_000, np.int64))
        survivors.mark(ordinals, rows)
        survivors.ranks(ordinals, rows)

    measure(benchmark, ROWS, ranks)


def test_is_ascending(benchmark: BenchmarkFixture, digests: np.ndarray) -> None:
    index = kernels.Fold([entries_of(digests, 0, 0)], 0, np.zeros(1, np.int64)).finish()
    assert measure(benchmark, ROWS, kernels.is_ascending, index)


def test_crc32(benchmark: BenchmarkFixture, digests: np.ndarray) -> None:
    measure(benchmark, ROWS, kernels.crc32, digests)
