"""What plan and compact say of files, and the capacity that plan goes by."""

from __future__ import annotations

import click
import pytest
from hand_made import LARGE, MIB, delete, file, planned, upsert

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.events import FilesDecided
from deltacompact.base.settings import Options
from deltacompact.cli.byte_size import ByteSize
from deltacompact.executors.choose import foresee
from deltacompact.executors.local import LocalExecutor
from deltacompact.planning.decisions import DecidedFile, FileAction, FileReason, decided_words
from deltacompact.planning.lanes import Lane
from deltacompact.reports.decisions import (
    decided_documents,
    forecast_documents,
    forecast_lines,
)
from deltacompact.storage.memory import MemoryStore


def test_every_file_of_a_plan_has_a_line() -> None:
    plan = planned(
        [file(100, LARGE, 14), file(100, LARGE, 15, dead=5)],
        [upsert(file(3_000_000, LARGE, 1), file(1, MIB, 2)), delete(file(1, MIB, 3))],
        options=Options(rewrite_dead_fraction=0.06),
    )
    assert list(forecast_lines(forecast_documents(plan), True)) == [
        "t/data/14.parquet  100 rows  compacted: keep (no row died); "
        "if rows die: mark (few rows died, deletion vector)",
        "t/data/15.parquet  100 rows  compacted: keep (no row died); if rows die: rewrite (rows died)",
        "t/data/1.parquet  3,000,000 rows  upsert at 80: keep (large delta file, no row died); "
        "if rows die: rewrite (rows died)",
        "t/data/2.parquet  1 row  upsert at 80: rewrite (small, merged)",
        "t/data/3.parquet  1 row  delete at 90: drop (keys deleted)",
    ]


def test_many_files_are_counted_by_what_is_said_of_them() -> None:
    base = [file(1000, LARGE, number) for number in range(40)]
    plan = planned([*base, file(10, MIB, 99)], [upsert(file(2, MIB)), delete(file(1, MIB))])
    assert list(forecast_lines(forecast_documents(plan), False)) == [
        "40 compacted files, 40,000 rows: keep (no row died); if rows die: rewrite (rows died)",
        "1 compacted file, 10 rows: rewrite (small, merged)",
        "1 upsert file, 2 rows: rewrite (small, merged)",
        "1 delete file, 1 row: drop (keys deleted)",
    ]


def test_what_was_decided_is_said_in_numbers_and_file_by_file() -> None:
    files = [
        DecidedFile("a", FileAction.KEEP, FileReason.NO_ROW_DIED),
        DecidedFile("b", FileAction.KEEP, FileReason.NO_ROW_DIED),
        DecidedFile("c", FileAction.MARK, FileReason.FEW_ROWS_DIED),
    ]
    assert decided_words(files) == "2 kept: no row died; 1 marked: few rows died, deletion vector"
    assert decided_documents(files)[2] == {"path": "c", "action": "mark", "reason": "few_rows_died"}


@pytest.fixture
def catalog() -> DeltaStreamCatalog:
    import pyarrow as pa

    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1, 2]}), stream_position=1)
    catalog.append("t", pa.table({"id": [1]}), operation="delete", stream_position=2)
    return catalog


def test_result_and_event_carry_the_reasons(catalog: DeltaStreamCatalog) -> None:
    events: list[object] = []
    settings = Settings(executor="local")
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings, event_sinks=[events.append]).sessions
    assert [(decided.action, decided.reason) for decided in session.decisions] == [
        (FileAction.REWRITE, FileReason.SMALL),
        (FileAction.DROP, FileReason.DELETES),
    ]
    (event,) = [event for event in events if isinstance(event, FilesDecided)]
    assert event.files == (("rewrite", "small", 1), ("drop", "deletes", 1))


def test_small_work_is_planned_with_the_capacity_of_this_process() -> None:
    settings = Settings(local_threads=3, memory_per_task_bytes=123 << 20)
    foreseen = foresee(settings, Lane.POOL)
    assert (foreseen.executor, foreseen.assumed) == ("local", None)
    assert foreseen.capacity == LocalExecutor(settings).capacity
    assert foreseen.capacity.slots == 3
    assert foreseen.capacity.is_near
    far = foresee(settings, Lane.POOL, waits=True).capacity
    assert far == LocalExecutor(settings, waits=True).capacity and not far.is_near


@pytest.mark.parametrize(
    ("text", "size"),
    [("300MB", 300_000_000), ("2GiB", 2 << 30), ("1.5 g", 1_500_000_000), ("7", 7)],
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert ByteSize()(text) == size


@pytest.mark.parametrize("text", ["", "much", "3 XB", "1.2.3MB", "-5MB", "1e999", "1e400GB"])
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 300MB or 2GiB"):
        ByteSize()(text)


def test_without_a_cluster_the_capacity_is_assumed_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("a cluster was started"))
    foreseen = foresee(Settings(executor="ray", object_store_bytes=77 << 20), Lane.CLUSTER)
    assert (foreseen.executor, foreseen.assumed) == ("ray", "no Ray cluster runs yet")
    assert foreseen.capacity.object_store_bytes == 77 << 20
    assert foreseen.capacity.slots >= 1 and foreseen.capacity.memory_per_task_bytes > 1 << 20
