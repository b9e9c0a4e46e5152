"""Files that lost few rows stay, with a deletion vector that every reader honours, until they are purged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from counting_store import CountingStore
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Oracle
from spark_fixtures import spark  # noqa: F401  (fixture)
from tables import compacted_files, problems

from deltacompact import DeltaStreamCatalog, InputError, SessionResult, Settings, compact
from deltacompact.base.events import Event, FilesDecided
from deltacompact.base.model import Partition
from deltacompact.index.live_bitmaps import LiveBits
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore


def run(catalog: DeltaStreamCatalog, fraction: float = 0.5, **arguments: Any) -> SessionResult:
    limits = Settings(executor="local", local_threads=1, rewrite_dead_fraction=fraction, row_group_rows=4)
    (session,) = compact("t", delta_catalog_client=catalog, settings=limits, **arguments).sessions
    assert session.error is None and session.rows_in == session.live + session.superseded + session.deleted
    assert problems(catalog) == []
    return session


def keys(catalog: DeltaStreamCatalog) -> list[int]:
    return sorted(catalog.read("t")["k"].to_pylist())


@pytest.fixture
def catalog(tmp_path: Path) -> DeltaStreamCatalog:
    """Twenty rows, of which one was deleted and is still in its file."""
    made = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    made.create_table("t", (), ["k"])
    made.append("t", pa.table({"k": list(range(20)), "v": [f"secret {k}" for k in range(20)]}))
    run(made)
    made.append("t", pa.table({"k": [7]}), operation="delete")
    session = run(made)
    assert (session.files_marked, session.files_rewritten, session.files_new, session.live) == (1, 0, 0, 19)
    return made


def test_every_reader_leaves_the_dead_row_out(catalog: DeltaStreamCatalog, tmp_path: Path, spark) -> None:
    from deltacompact.spark.validate import validate

    expected = [k for k in range(20) if k != 7]
    (file,) = compacted_files(catalog)
    assert file.deletions is not None and (file.rows, file.live_rows) == (20, 19)
    assert pq.read_metadata(catalog.store.open(file.path)).num_rows == 20
    assert keys(catalog) == expected
    assert catalog.table("t").export(str(tmp_path / "out.parquet")) == 19
    assert sorted(pq.read_table(tmp_path / "out.parquet")["k"].to_pylist()) == expected
    options = {"catalog": catalog.uri, "table": "t"}
    frame = spark.read.format("deltacompact").options(**options).load()
    assert sorted(row.k for row in frame.collect()) == expected
    assert all(report.ok for report in validate(catalog, "t", spark))
    catalog.append("t", pa.table({"k": [3, 7]}))  # read with a delta on top, too
    assert keys(catalog) == list(range(20))
    assert sorted(row.k for row in spark.read.format("deltacompact").options(**options).load().collect()) == list(
        range(20)
    )
    run(catalog)
    assert all(report.ok for report in validate(catalog, "t", spark))


def test_a_file_is_rewritten_once_its_dead_rows_come_to_the_share(catalog: DeltaStreamCatalog) -> None:
    for dead in range(8):
        catalog.append("t", pa.table({"k": [10 + dead]}), operation="delete")
        session = run(catalog)
        assert (session.files_marked, session.files_rewritten) == (1, 0)
        assert compacted_files(catalog)[0].live_rows == 18 - dead
    catalog.append("t", pa.table({"k": [18]}), operation="delete")  # the tenth of twenty
    session = run(catalog)
    assert (session.files_marked, session.files_rewritten, session.files_new) == (0, 1, 1)
    assert compacted_files(catalog)[0].deletions is None and keys(catalog) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 19]


@pytest.mark.parametrize(("fraction", "files_new"), [(0.5, 0), (0.0, 1)])
def test_rows_that_die_while_a_file_is_marked_or_rewritten_cost_no_work(catalog, fraction, files_new) -> None:
    """Upserts and deletes come as deltas, which name keys and no files: they never conflict with a compaction."""
    catalog.append("t", pa.table({"k": [8]}), operation="delete")

    def others(event: Event) -> None:
        if isinstance(event, FilesDecided):  # what becomes of each file stands, nothing is published
            for number in range(50):
                operation, key = ("delete", number % 10) if number % 2 else ("upsert", 30 + number)
                catalog.append("t", pa.table({"k": [key], "v": ["late"]}), operation=operation)

    before = {path.name for path in data_files(catalog)}
    session = run(catalog, fraction, event_sinks=[others])
    assert (session.files_new, session.live) == (files_new, 18)
    appended = {Path(file.path).name for delta in catalog.state("t", Partition()).deltas for file in delta.files}
    outputs = {Path(file.path).name for file in compacted_files(catalog)}
    assert len(appended) == 50
    assert {
        path.name for path in data_files(catalog)
    } - before - appended == outputs - before  # nothing was written twice
    expected = [0, 2, 4, 6, *range(10, 20), *range(30, 80, 2)]
    assert keys(catalog) == expected
    assert run(catalog, fraction).live == len(expected)
    assert keys(catalog) == expected


def data_files(catalog: DeltaStreamCatalog) -> list[Path]:
    return list(Path(catalog.store.root).rglob("*.parquet"))


def test_by_default_no_dead_row_stays(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", pa.table({"k": [8]}), operation="delete")
    session = run(catalog, 0.0)
    assert (session.files_marked, session.files_rewritten) == (0, 1)
    assert all(file.deletions is None for file in compacted_files(catalog))


def test_a_purge_rewrites_and_a_vacuum_says_what_went(catalog: DeltaStreamCatalog) -> None:
    assert vacuum(catalog, "t")[0].dead_rows == 1
    assert run(catalog).nothing_to_do is not None
    session = run(catalog, purge=True)
    assert (session.files_rewritten, session.files_new, session.live) == (1, 1, 19)
    assert all(file.deletions is None for file in compacted_files(catalog))
    assert run(catalog, purge=True).nothing_to_do is not None
    (result,) = vacuum(catalog, "t")
    assert not result.deleted and len(result.waiting) == 3  # two deltas, and the file of the version before
    (result,) = vacuum(catalog, "t", age_min_s=0, force=True)
    assert not result.waiting and len([stat for stat in result.deleted if stat.path.endswith(".parquet")]) == 3
    held = [path.read_bytes() for path in Path(catalog.store.root).rglob("*.parquet")]
    assert len(held) == 1 and b"secret 7" not in held[0] and b"secret 8" in held[0]
    assert keys(catalog) == [k for k in range(20) if k != 7]


def test_the_readers_of_a_table_read_an_object_of_masks_once() -> None:
    """They read it again for each of its files."""
    store = CountingStore(MemoryStore())
    made = DeltaStreamCatalog(store)
    made.create_table("t", (), ["k"])
    made.append("t", pa.table({"k": range(80)}))
    run(made, rows_per_compacted_file=10)
    made.append("t", pa.table({"k": range(0, 80, 10)}), operation="delete")
    run(made, rows_per_compacted_file=10)
    marked = [file for file in compacted_files(made) if file.deletions is not None]
    assert len(marked) >= 8
    paths = {file.deletions.masks_path for file in marked if file.deletions}

    def requests(read: Callable[[], object]) -> int:
        store.reset()
        read()
        return sum(path in paths for _, path in store.requests)

    once = requests(lambda: [LiveBits(store).read(marked, 1)])
    assert once >= len(paths)
    for _ in range(2):
        assert requests(lambda: made.read("t")) == once
        assert requests(lambda: made.table("t").changes("0").read_all()) <= 2 * once
        assert requests(lambda: made.table("t").check()) <= 4 * once
        made.append("t", pa.table({"k": [3, 7]}))  # read with a delta on top, too


def test_a_share_outside_of_zero_and_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"rewrite_dead_fraction is 1\.5"):
        Settings(rewrite_dead_fraction=1.5)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "delete"]),
        st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True),
        st.sampled_from([0.0, 0.2, 0.5, 1.0]),
        st.booleans(),
    ),
    max_size=8,
)


@pytest.mark.slow
@given(EVENTS, st.sampled_from([5, 4_000_000]), st.booleans())
@settings(deadline=None, max_examples=examples(60))
def test_whatever_stays_the_rows_are_the_oracles(
    events: list[tuple[str, list[int], float, bool]], rows_per_file: int, several_buckets: bool
) -> None:
    made, oracle = DeltaStreamCatalog(MemoryStore()), Oracle(["k"], [], None)
    made.create_table("t", (), ["k"])
    first = ("upsert", list(range(30)), 0.0, False)
    for position, (operation, touched, fraction, purge) in enumerate([first, *events]):
        rows = [{"k": key, "v": f"{position}/{key}"} for key in touched]
        made.append("t", pa.Table.from_pylist(rows), {}, operation, position)
        oracle.apply(position, operation, [rows])
        buckets = 1 + position % 2 if several_buckets else None
        run(made, fraction, purge=purge, rows_per_compacted_file=rows_per_file, hash_bucket_count=buckets)
        expected = sorted(oracle.rows(), key=lambda row: row["k"])
        assert sorted(made.read("t").to_pylist(), key=lambda row: row["k"]) == expected
        if purge or not fraction:
            assert purge is False or all(file.deletions is None for file in compacted_files(made))
