"""A table on S3 whose requests are reset, stalled, refused and cut off at random: the same rows, in bounded time.

Each case is a whole life of a table: appends, a first compaction in several rounds, changes that have files rewritten,
a second compaction. The same steps on a store in memory say what must come out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltacompact
from benchmarks.s3.faults import Fault, Faults
from benchmarks.s3.proxy import Conditions
from benchmarks.s3.proxy_process import Proxy
from benchmarks.s3.requests import Kind
from deltacompact import DeltaStreamCatalog, S3Settings, Settings
from deltacompact.base.errors import StoreError
from deltacompact.maintenance.check import check
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.opening import open_store

TIMEOUT_S = 1.0
BOUND_S = 90.0
"""For the life of a table that takes some seconds without faults. Each fault may cost a time-out and a pause."""

ROWS = 4_000
SETTINGS = Settings(executor="local", rows_per_round=2 * ROWS, target_file_bytes=200_000)


@pytest.fixture(scope="module")
def proxy(s3_endpoint: str) -> Iterator[Proxy]:
    with Proxy(s3_endpoint) as proxy:
        yield proxy


def rows(keys: range, value: str) -> pa.Table:
    """Values that do not compress, so that files are large enough to be cut in their middle."""
    dice = random.Random(value)
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [dice.randbytes(40).hex() for _ in keys]})


def life(catalog: DeltaStreamCatalog) -> None:
    """Four deltas in two rounds, then an upsert, new rows and a delete."""
    catalog.create_table("t", primary_keys=["k"])
    for number in range(4):
        start = number * ROWS // 2
        catalog.append("t", rows(range(start, start + ROWS), f"v{number}"))
    deltacompact.compact("t", delta_catalog_client=catalog, settings=SETTINGS)
    catalog.append("t", rows(range(0, 10 * ROWS, 17), "w"))
    catalog.append("t", pa.table({"k": pa.array(range(5, ROWS, 3), pa.int64())}), operation="delete")
    deltacompact.compact("t", delta_catalog_client=catalog, settings=SETTINGS)


def found(catalog: DeltaStreamCatalog) -> dict[int, str]:
    table = catalog.read("t")
    assert table.num_rows == len(set(table["k"].to_pylist()))
    return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def expected() -> dict[int, str]:
    catalog = DeltaStreamCatalog(MemoryStore())
    life(catalog)
    compacted = catalog.state("t", catalog.partition("t", None)).compacted
    assert compacted and len(compacted.files) > 2
    return found(catalog)


def through(proxy: Proxy, uri: str) -> DeltaStreamCatalog:
    return deltacompact.open_catalog(uri, s3=S3Settings(endpoint_url=proxy.url, timeout_s=TIMEOUT_S))


def spoilt(shares: dict[Fault, float], seed: int = 1, **rule: object) -> Conditions:
    return Conditions(faults=Faults(seed, shares, stall_s=4 * TIMEOUT_S, slow_s=0.5, **rule))  # type: ignore[arg-type]


EVERYTHING = dict.fromkeys(Fault, 0.01)
CASES = {
    "resets": ({Fault.RESET: 0.08, Fault.RESET_IN: 0.08}, 1),
    "truncated answers": ({Fault.TRUNCATED: 0.15}, 1),
    "500 and 503": ({Fault.INTERNAL: 0.06, Fault.SLOW_DOWN: 0.06}, 1),
    "answers lost after the act": ({Fault.LOST: 0.1}, 1),
    "stalls": ({Fault.STALL: 0.05, Fault.STALL_IN: 0.05}, 1),
    "slow answers": ({Fault.SLOW: 0.08}, 1),
    **{f"everything, seed {seed}": (EVERYTHING, seed) for seed in (1, 2)},
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_rows_in_bounded_time(
    proxy: Proxy, s3_endpoint: str, s3_catalog_uri: str, expected: dict[int, str], case: str
) -> None:
    shares, seed = CASES[case]
    began, before = time.monotonic(), proxy.counts()
    proxy.behave(spoilt(shares, seed))
    try:
        catalog = through(proxy, s3_catalog_uri)
        life(catalog)
        rows_through_faults = found(catalog)
    finally:
        proxy.behave(Conditions())
    seconds, counts = time.monotonic() - began, proxy.counts().since(before)
    assert sum(counts.faults.values()) >= 3, "the rule hits this table"
    assert seconds < BOUND_S
    assert rows_through_faults == expected
    direct = deltacompact.open_catalog(s3_catalog_uri, s3=S3Settings(endpoint_url=s3_endpoint))
    assert found(direct) == expected
    assert [result.problems for result in check(direct, "t")] == [()]
    assert_whole(s3_catalog_uri, s3_endpoint)


def assert_whole(uri: str, endpoint: str) -> None:
    """Files of attempts that failed are whole too, if they are there at all."""
    store = open_store(uri, S3Settings(endpoint_url=endpoint))
    files = [stat.path for stat in store.list("") if stat.path.endswith(".parquet")]
    assert files
    for path in files:
        with store.open(path) as source:
            pq.ParquetFile(source).read()


def test_every_append_arrives_once_whatever_its_answer(proxy: Proxy, s3_catalog_uri: str) -> None:
    """An answer that is lost leaves open whether the entry is in the log. It is, once, or the caller is told."""
    catalog = through(proxy, s3_catalog_uri)
    catalog.create_table("t", primary_keys=["k"])
    proxy.behave(spoilt({Fault.LOST: 0.1, Fault.RESET: 0.05, Fault.INTERNAL: 0.05}))
    try:
        with ThreadPoolExecutor(3) as writers:
            done = [writers.submit(catalog.append, "t", rows(range(n, n + 2), f"v{n}")) for n in range(0, 60, 2)]
            for append in done:
                append.result(BOUND_S)
    finally:
        proxy.behave(Conditions())
    deltas = catalog.state("t", catalog.partition("t", None)).deltas
    assert sum(file.rows for delta in deltas for file in delta.files) == 60
    assert set(found(catalog)) == set(range(60))


def test_a_store_that_is_down_is_an_error_soon_and_harms_nothing(
    proxy: Proxy, s3_catalog_uri: str, expected: dict[int, str]
) -> None:
    catalog = deltacompact.open_catalog(
        s3_catalog_uri, s3=S3Settings(endpoint_url=proxy.url, timeout_s=TIMEOUT_S, max_attempts=3)
    )
    life(catalog)
    catalog.append("t", rows(range(3), "new"))
    proxy.behave(spoilt({Fault.INTERNAL: 1.0}, kinds=frozenset(Kind) - {Kind.LIST}))
    began = time.monotonic()
    try:
        with pytest.raises(StoreError):
            catalog.append("t", rows(range(3), "newer"))
        with pytest.raises(StoreError):
            deltacompact.compact("t", delta_catalog_client=catalog, settings=SETTINGS)
    finally:
        proxy.behave(Conditions())
    assert time.monotonic() - began < BOUND_S
    deltacompact.compact("t", delta_catalog_client=catalog, settings=SETTINGS)
    new = rows(range(3), "new")
    assert found(catalog) == expected | dict(zip(range(3), new["v"].to_pylist(), strict=True))
