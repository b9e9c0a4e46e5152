"""The work of a plan in terms: what `plan` expects, and what a dispatcher begins with."""

from __future__ import annotations

import pyarrow as pa

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.settings import Options
from deltacompact.job import Request, plan_work, prepare
from deltacompact.planning.driver_work import capacity_of
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.sizing.task_memory import GIB
from deltacompact.planning.work import WorkTerms, expected_s, work_of_plan
from deltacompact.storage.memory import MemoryStore

HERE = capacity_of(1, 2, 16 * GIB)
LOCAL = Settings(executor="local", local_threads=1)


def planned(catalog: DeltaStreamCatalog, **options: int) -> CompactionPlan:
    job = prepare(catalog, Request("t", options=Options(**options)))  # type: ignore[arg-type]
    return plan_work(job, job.work[0], job.snapshots[0], HERE)


def test_the_work_of_a_plan_is_the_most_that_it_may_come_to() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    for start in (0, 50):
        catalog.append("t", pa.table({"k": range(start, start + 50), "v": ["x" * 100] * 50}))
    first = work_of_plan(planned(catalog, rows_per_round=50), 1, 0.0)
    assert (first.delta_file, first.delta_row, first.base_row) == (2, 100, 0)
    assert (first.merged_row, first.written_entry, first.object) == (200, 200, 1), "two rounds, one hash bucket"
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    catalog.append("t", pa.table({"k": [7]}), operation="delete")
    change = work_of_plan(planned(catalog), 1, 0.5)
    assert (change.delta_row, change.merged_row, change.driver) == (1, 0, 0.5), "the index gets a run"
    assert change.written_entry == 1
    assert change.base_row == 100, "any base file may have lost a row"
    assert expected_s(change) > 0.5 + expected_s(first) / 2


def test_rows_that_are_laid_out_are_paid_for_and_a_base_that_waits_is_not() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    plain, laid_out = ((name, catalog.create_table(name, primary_keys=["k"])) for name in ("p", "t"))
    laid_out[1].declare_cluster_by("k")

    def work(name: str) -> WorkTerms:
        job = prepare(catalog, Request(name, options=Options(rows_per_compacted_file=400)))
        return work_of_plan(plan_work(job, job.work[0], job.snapshots[0], HERE), 1, 0.0)

    def append(start: int, count: int) -> None:
        for _, table in (plain, laid_out):
            table.append(pa.table({"k": range(start, start + count), "v": ["x" * 100] * count}))

    append(0, 1_000)
    first = work("t")
    assert first.arranged_byte > 30_000 and work("p").arranged_byte == 0
    assert expected_s(first) > expected_s(work("p"))
    laid_out[1].compact(settings=LOCAL, rows_per_compacted_file=400)
    append(500, 50)
    assert work("t").arranged_byte < first.arranged_byte / 10, "the base is larger than what is new"
    append(0, 900)
    assert work("t").arranged_byte > 1.5 * first.arranged_byte


def test_the_busiest_slot_decodes_a_whole_file_of_a_gibibyte() -> None:
    """A small file is decoded by one task, and a large table is shared by all slots."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", pa.table({"k": range(100), "v": ["x" * 100] * 100}))
    alone, shared = work_of_plan(planned(catalog), 1, 0.0), work_of_plan(planned(catalog), 8, 0.0)
    assert shared.delta_decoded == alone.delta_decoded > 0
