"""Tasks on a remote store: their next bytes are under way while they work, and each file is opened once."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from remote_store import CopyingStore, RemoteStore
from stores import InterceptedStore
from tables import compacted_files, problems

from deltacompact import ContentType, DeltaStreamCatalog, SessionResult, Settings, compact
from deltacompact.base.limits import READ_LIMITS, Limits, ReadLimits
from deltacompact.base.model import OperationType, Partition
from deltacompact.index.keys import Encoding, KeyClass, KeyColumn
from deltacompact.index.live_bitmaps import read_each_masks
from deltacompact.steps.hash_bucket import SourceSlice, hash_bucket
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import files, inspecting, writing
from deltacompact.tabular.files import Part
from deltacompact.tabular.parquet_read import PAGES_BYTES
from deltacompact.tabular.row_groups import WriteOptions

LOCAL = Settings(executor="local", local_threads=1)
ENCODING = Encoding((KeyColumn("k", KeyClass.INTEGER),))


def table(rows: int, start: int = 0, width: int = 40) -> pa.Table:
    values = np.random.default_rng(start).bytes(rows * width)
    texts = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(values)])
    return pa.table({"k": range(start, start + rows), "v": texts})


def hashed(store: Any, sources: list[SourceSlice], limits: ReadLimits) -> list[bytes]:
    (groups,) = hash_bucket(store, ENCODING, Partition.of((), {}), sources, 4, (0, 4), limits)
    return [array.tobytes() for bucket in range(4) for array in groups.of(bucket)]


def whole(file: Any, ordinal: int = 0) -> SourceSlice:
    return SourceSlice(file, ordinal, OperationType.UPSERT, (0, file.rows))


def run(catalog: DeltaStreamCatalog, settings: Settings = LOCAL, **how: Any) -> SessionResult:
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings, **how).sessions
    assert session.error is None
    return session


def test_row_groups_are_fetched_while_others_are_decoded() -> None:
    store, limits = RemoteStore(delay_s=0.01), ReadLimits(run_bytes=1, request_bytes=100_000, read_ahead_bytes=400_000)
    sink = io.BytesIO()
    pq.write_table(table(20_000, width=100), sink, row_group_size=1_000)
    store.inner.put("x.parquet", sink.getvalue())
    described = inspecting.inspect(store, "x.parquet", ContentType.PARQUET)
    store.forget()
    work = [whole(described)]
    assert hashed(store, work, limits) == hashed(store.inner, work, limits)
    assert store.opened == {"x.parquet": 1}
    assert store.under_way_max >= 4
    assert 20 <= store.fetches() <= 22  # the chunk of the key in each row group, the others are left out
    assert sum(length for _, _, length in store.ranges) < 0.4 * len(sink.getvalue())


def test_a_large_chunk_is_decoded_as_it_arrives_and_no_further_than_its_rows_are_wanted() -> None:
    store, limits = RemoteStore(delay_s=0.005), ReadLimits(batch_bytes=2 << 20, request_bytes=1 << 20)
    wide, sink = table(60_000, width=400), io.BytesIO()
    wide = wide.append_column("w", wide["v"])
    pq.write_table(wide, sink, row_group_size=60_000, use_dictionary=False, data_page_size=100_000)
    store.inner.put("x.parquet", sink.getvalue())
    described = inspecting.inspect(store, "x.parquet", ContentType.PARQUET)
    for rows in ((0, 60_000), (0, 20_000), (40_000, 45_000)):
        store.forget()
        slices = [piece for _, piece in files.read(store, described, rows=rows, limits=limits)]
        assert pa.concat_tables(slices).equals(wide.slice(rows[0], rows[1] - rows[0]))
        fetched = sum(length for _, _, length in store.ranges)
        assert fetched < 900 * rows[1] + 2 * (PAGES_BYTES + limits.request_bytes)
        assert store.under_way_max > 4
    half, begun = len(sink.getvalue()) // 2, [start for _, start, _ in store.ranges if start > 1_000_000]
    assert begun[1] < half < begun[0] < begun[2] and begun[3] < half, "the columns take turns"


@pytest.mark.parametrize("content_type", [ContentType.PARQUET, ContentType.ORC, ContentType.FEATHER, ContentType.CSV])
def test_of_many_small_files_the_next_are_fetched_with_one_request_each(content_type: ContentType) -> None:
    store, work = RemoteStore(delay_s=0.05), []
    for number in range(60):
        small = pa.table({"k": range(number, number + 10)})
        file = writing.write_table(store.inner, f"{number}", small, WriteOptions(content_type))
        work.append(whole(file, number))
    store.forget()
    assert hashed(store, work, READ_LIMITS) == hashed(store.inner, work, READ_LIMITS)
    assert store.opened == {f"{number}": 1 for number in range(60)}
    assert store.fetches() == 60
    assert 8 <= store.under_way_max <= 17
    assert {kind for kind, _ in store.requests} == {"fetch"}


def test_a_file_that_is_slow_to_answer_holds_up_no_other() -> None:
    """The footer of the slow file is asked for, and does not come, until another thread has read the other file."""
    inner, read_other = MemoryStore(), threading.Event()
    written = [writing.write_table(inner, f"{name}.parquet", table(100), WriteOptions()) for name in ("slow", "other")]

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert read_other.wait(10)
            return super().read(size)

    def late(kind: str, path: str, act: Callable[[], Any]) -> Any:
        return pa.PythonFile(Slow(act().read()), "r") if (kind, path) == ("open", "slow.parquet") else act()

    def rows(file: Any) -> int:
        return sum(part.num_rows for _, part in files.read(store, file))

    store = InterceptedStore(inner, late)
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(rows, written[0])
        assert threads.submit(rows, written[1]).result(10) == 100
        read_other.set()
        assert slow.result(10) == 100


def test_files_after_one_that_fails_are_let_go() -> None:
    store, parts = RemoteStore(), []
    for number in range(30):
        file = writing.write_table(store.inner, f"{number}", pa.table({"k": [number]}), WriteOptions())
        parts.append(Part(file))
    store.inner.put("3", b"PAR1 but no footer PAR1")
    seen = []
    with pytest.raises(Exception, match="3"):
        for slices in files.read_each(store, parts):
            seen += [rows["k"].to_pylist() for _, rows in slices]
    assert seen == [[0], [1], [2]]


def lake(store: RemoteStore, **how: Any) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["k"], **how)
    return catalog


def test_reading_or_adding_one_row_opens_the_index_files_of_its_bucket_only() -> None:
    store = RemoteStore()
    catalog = lake(store)
    catalog.append("t", table(5_000))
    run(catalog, hash_bucket_count=64)
    catalog.append("t", table(1, start=7))
    store.forget()
    assert DeltaStreamCatalog(store).read("t").num_rows == 5_000
    assert sum(path.endswith(".arrow") for path in store.opened.elements()) == 1
    store.forget()
    session = run(catalog)
    assert (session.live, session.superseded) == (5_000, 1)
    index_files = [path for path in store.opened if path.endswith(".arrow") and not path.endswith(".masks.arrow")]
    assert len(index_files) == 1
    assert problems(catalog) == []


def test_each_source_and_each_mask_is_opened_once_by_the_task_that_writes_an_output(tmp_path: Path) -> None:
    store = RemoteStore()
    catalog = lake(store)
    settings = Settings(executor="local", local_threads=1, row_group_rows=1_000)
    for number in range(3):
        pq.write_table(table(10_000, start=10_000 * number), tmp_path / "x.parquet", row_group_size=1_000)
        catalog.append_files("t", [tmp_path / "x.parquet"])
    run(catalog, settings)
    catalog.append("t", pa.table({"k": [3, 25_000]}), operation="delete")
    before = {file.path for file in compacted_files(catalog)}
    store.forget()
    session = run(catalog, settings)
    assert session.live == 29_998 and session.rows_copied > 20_000
    assert {path: store.opened[path] for path in before} == dict.fromkeys(before, 1)
    masks = [count for path, count in store.opened.items() if path.endswith(".masks.arrow")]
    assert masks == [1] * len(masks)
    assert [path for kind, path in store.requests if kind in ("stat", "open")] == []
    assert problems(catalog) == []
    assert catalog.read("t").num_rows == 29_998


def keys_of_each_group(path: Path) -> Iterator[Any]:
    found = pq.read_metadata(path)
    for group in range(found.num_row_groups):
        yield found.row_group(group).column(0)


@pytest.mark.slow
def test_long_runs_of_row_groups_are_copied_inside_the_store(tmp_path: Path) -> None:
    """The same file as one whose row groups travel through the task, and every engine reads it."""
    made = {}
    for store in (CopyingStore(), RemoteStore()):
        catalog = lake(store)
        rows, settings = 12_000, Settings(executor="local", local_threads=1, row_group_rows=1_000)
        pq.write_table(table(rows, width=6_000), tmp_path / "x.parquet", row_group_size=1_000, write_page_index=True)
        catalog.append_files("t", [tmp_path / "x.parquet"])
        run(catalog, settings)
        catalog.append("t", pa.table({"k": [1_500, 9_500]}), operation="delete")
        store.forget()
        assert run(catalog, settings).rows_copied == 10_000
        assert problems(catalog) == []
        (file,) = compacted_files(catalog)
        made[type(store)] = store.inner.get(file.path)
        if isinstance(store, CopyingStore):
            assert sum(store.copied) > 40_000_000
            base = [length for path, _, length in store.ranges if path.endswith(".parquet") and path != file.path]
            assert sum(base) < 35_000_000  # two groups decoded, the first one copied by hand
    assert made[CopyingStore] == made[RemoteStore]
    path = tmp_path / "out.parquet"
    path.write_bytes(made[CopyingStore])
    expected = table(12_000, width=6_000).filter(pa.array([k not in (1_500, 9_500) for k in range(12_000)]))
    pq.read_table(path).validate(full=True)
    assert pq.read_table(path).cast(expected.schema).equals(expected)
    assert all(chunk.has_offset_index and chunk.has_column_index for chunk in keys_of_each_group(path))
    assert duckdb.sql(f"select count(*), sum(k) from '{path}' where k between 8000 and 10000").fetchall() == [
        (2_000, sum(range(8_000, 10_001)) - 9_500)
    ]
    lazy = polars.scan_parquet(path).filter(polars.col("k") > 9_000)
    assert lazy.select("v").collect().height == 2_998
    assert polars.read_parquet(path)["v"].to_list() == expected["v"].to_pylist()


def test_many_files_of_masks_are_read_side_by_side(tmp_path: Path) -> None:
    from deltacompact.index.live_bitmaps import write_masks

    store = RemoteStore(delay_s=0.01)
    paths = [f"{number}.masks.arrow" for number in range(20)]
    for number, path in enumerate(paths):
        write_masks(store.inner, path, {number: np.full(number * 100_000, 255, np.uint8)})
    found = list(read_each_masks(store, paths))
    assert [len(masks[number]) for number, masks in enumerate(found)] == [number * 100_000 for number in range(20)]
    assert store.under_way_max >= 8


def test_index_and_masks_are_read_within_the_limits_of_the_settings() -> None:
    store = RemoteStore()
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", table(3_000))
    limits = Limits(reading=ReadLimits(request_bytes=2_000, tail_bytes=2_000, whole_bytes=2_000, gap_bytes=1))
    settings = Settings(executor="local", limits=limits)
    run(catalog, settings)
    catalog.append("t", table(1_000, start=2_500))
    store.forget()
    run(catalog, settings)
    lengths = [length for path, _, length in store.ranges if "/index/" in path]
    assert len(lengths) > 3_000 * 32 / 2_000 and max(lengths) == 2_000
    assert problems(catalog) == []


def test_a_store_in_memory_needs_no_fetching() -> None:
    store = MemoryStore()
    file = writing.write_table(store, "x", table(100), WriteOptions())
    assert next(iter(files.read(store, file)))[1].num_rows == 100
