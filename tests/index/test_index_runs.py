"""An index of runs and relocations says what one run would say."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Oracle
from tables import compacted_files, problems

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits
from deltacompact.base.model import Partition
from deltacompact.executors.local import LocalExecutor
from deltacompact.index.entries import TOMBSTONE, fields
from deltacompact.index.live_bitmaps import LiveBits
from deltacompact.index.primary_key_index import FileOrdinals, IndexManifest, read_index, read_manifest
from deltacompact.maintenance.check import rehash_table
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.memory import MemoryStore

NEVER_MERGED = Limits(runs_max=math.inf, runs_share_max=math.inf, masks_share_of_index=math.inf)
LOCAL = Settings(executor="local", local_threads=1, row_group_rows=4, limits=NEVER_MERGED)


def manifest_of(catalog: DeltaStreamCatalog) -> IndexManifest:
    ref = catalog.state("t", Partition()).index
    assert ref is not None
    return read_manifest(catalog.store, ref)


def run(catalog: DeltaStreamCatalog, limits: Limits = NEVER_MERGED, **arguments: object) -> None:
    settings = dataclasses.replace(LOCAL, limits=limits)
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings, **arguments).sessions
    assert session.error is None and session.rows_in == session.live + session.superseded + session.deleted


def sound(catalog: DeltaStreamCatalog) -> None:
    assert problems(catalog) == []


def entries(catalog: DeltaStreamCatalog) -> Iterator[bytes]:
    manifest = manifest_of(catalog)
    for bucket in range(manifest.hash_bucket_count):
        for chunk in read_index(catalog.store, manifest, bucket):
            yield from (entry.tobytes() for entry in chunk)


KEYS = st.lists(st.integers(0, 30), min_size=1, max_size=5, unique=True)
EVENTS = st.lists(st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), KEYS, st.integers(0, 4)), max_size=8)


@pytest.mark.slow
@given(EVENTS, st.booleans(), st.sampled_from([5, 12, 4_000_000]), st.sampled_from([1, 3]))
@settings(deadline=None, max_examples=examples(60))
def test_sessions_of_small_changes_give_the_oracles_rows(
    events: list[tuple[str, list[int], int]], sorted_: bool, rows_per_file: int, buckets: int
) -> None:
    sort_keys = [("s", "ascending")] if sorted_ else []
    catalog, oracle = DeltaStreamCatalog(MemoryStore()), Oracle(["k"], sort_keys, None)
    catalog.create_table("t", (), ["k"], sort_keys)
    first = ("upsert", list(range(30)), 1)
    for position, (operation, keys, sort) in enumerate([first, *events]):
        rows = [{"k": key, "s": sort, "v": f"{position}/{key}"} for key in keys]
        catalog.append("t", pa.Table.from_pylist(rows), {}, operation, position)
        oracle.apply(position, operation, [rows])
        run(catalog, rows_per_compacted_file=rows_per_file, hash_bucket_count=buckets)
        sound(catalog)
        expected = sorted(oracle.rows(), key=lambda row: row["k"])
        assert sorted(catalog.read("t").to_pylist(), key=lambda row: row["k"]) == expected
    assert len(manifest_of(catalog).runs) <= len(events) + 1  # one that changed nothing adds none
    before = sorted(entries(catalog))
    if buckets != 2:
        rehash_table(catalog, "t", 2, LocalExecutor(LOCAL))
        assert len(manifest_of(catalog).runs) == 1 and sorted(entries(catalog)) == before
        sound(catalog)


@pytest.fixture
def three_times_relocated() -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", (), ["k"])
    catalog.append("t", pa.table({"k": list(range(20))}))
    run(catalog)
    for key in (3, 7, 11):
        catalog.append("t", pa.table({"k": [key]}), operation="delete")
        run(catalog)
    return catalog


def test_rows_are_found_through_one_relocation_after_the_other(three_times_relocated: DeltaStreamCatalog) -> None:
    catalog = three_times_relocated
    manifest = manifest_of(catalog)
    assert (len(manifest.runs), len(manifest.relocations), manifest.rows) == (4, 3, 17)
    assert [manifest.run_entries(number) for number in range(4)] == [20, 1, 1, 1]
    sound(catalog)
    assert catalog.read("t")["k"].to_pylist() == [k for k in range(20) if k not in (3, 7, 11)]


def test_an_index_that_grew_too_many_runs_is_merged(three_times_relocated: DeltaStreamCatalog) -> None:
    catalog = three_times_relocated
    catalog.append("t", pa.table({"k": [0]}), operation="delete")
    run(catalog, dataclasses.replace(NEVER_MERGED, runs_max=4))
    manifest = manifest_of(catalog)
    assert (len(manifest.runs), manifest.relocations, manifest.run_entries(0)) == (1, (), 16)
    sound(catalog)


def test_tombstones_go_when_their_time_is_over_whatever_run_they_were_in() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", (), ["k"], [("s", "ascending")], tombstone_retention=3)
    catalog.append("t", pa.table({"k": list(range(9)), "s": [1] * 9}), stream_position=0)
    run(catalog)
    left = []
    for position in (2, 4, 6, 8):
        if position == 2:
            catalog.append("t", pa.table({"k": [0], "s": [5]}), {}, "delete", position)
        else:
            catalog.append("t", pa.table({"k": [50 + position], "s": [5]}), {}, "upsert", position)
        run(catalog)
        sound(catalog)
        left.append(manifest_of(catalog).tombstones)
    assert left == [1, 1, 0, 0]  # watermark - 2 >= 3 from position 6 on


def test_a_vacuum_leaves_masks_and_runs_that_the_index_needs(three_times_relocated: DeltaStreamCatalog) -> None:
    catalog = three_times_relocated
    deleted = vacuum(catalog, "t", age_min_s=0, force=True)[0].deleted
    assert deleted
    sound(catalog)
    catalog.append("t", pa.table({"k": [5, 50]}))
    run(catalog)
    sound(catalog)


def test_a_mask_that_was_overwritten_is_found(three_times_relocated: DeltaStreamCatalog) -> None:
    catalog = three_times_relocated
    path = manifest_of(catalog).relocations[0].files[0].masks_path
    data = bytearray(catalog.store.get(path))
    table = pa.ipc.open_file(pa.BufferReader(bytes(data))).read_all()
    bits = table["bits"][0].as_py()
    place = bytes(data).find(bits)
    data[place] ^= 0xFF
    catalog.store.put(path, bytes(data))
    with pytest.raises(CorruptionError, match="CRC-32 of a mask differs"):
        list(entries(catalog))


def test_a_file_whose_live_rows_contradict_the_index_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a ValueError of the kernels about an ordinal."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", pa.table({"k": range(99)}))
    run(catalog)
    (file,) = compacted_files(catalog)
    catalog.append("t", pa.table({"k": [5]}), operation="delete")

    def none_lives(_: object, asked: DataFile) -> np.ndarray | None:
        return np.zeros(13, np.uint8) if asked.path == file.path else None

    monkeypatch.setattr(LiveBits, "of", none_lives)
    said = f"^{file.path}: the primary key index contradicts the live rows of this file: row 5 is not marked"
    for work in (lambda: catalog.read("t"), lambda: run(catalog)):
        with pytest.raises(CorruptionError, match=said):
            work()


def test_a_file_that_only_the_index_knows_is_named_with_the_index() -> None:
    entries = np.zeros((3, 32), np.uint8)
    fields(entries)["file"] = [15, TOMBSTONE, 14]
    found = FileOrdinals.of({15: 1, 14: 0}, "t/index/1.json").renumbered(entries)
    assert fields(found)["file"].tolist() == [1, TOMBSTONE, 0]
    for known in ({14: 0}, {}):
        with pytest.raises(CorruptionError, match=r"^t/index/1.json: the index points to file 15, which its version"):
            FileOrdinals.of(known, "t/index/1.json").renumbered(entries)
    assert len(FileOrdinals.of({}, "").renumbered(entries[:0])) == 0
