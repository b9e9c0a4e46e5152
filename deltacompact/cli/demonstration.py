"""The main job, end to end, on one machine: Spark produces deltas, Ray compacts them, Spark validates."""

from __future__ import annotations

import contextlib
import tempfile
import time

from rich.console import Console

from deltacompact.base.errors import CorruptionError
from deltacompact.base.settings import Settings
from deltacompact.catalog.compact import compact
from deltacompact.catalog.delta_streams import open_catalog
from deltacompact.cli.progress import progress
from deltacompact.cli.result_report import print_result
from deltacompact.reports.scale import Detail
from deltacompact.results import CompactionResult

TABLE = "demo.orders"


def run_demo(
    catalog_uri: str | None, rows_per_delta: int, executor: str, out: Console, err: Console
) -> CompactionResult:
    """Run the demo in `catalog_uri` (kept), or in a temporary folder. Returns the result of the compaction.

    Raises CorruptionError if Spark finds other rows.
    """
    from deltacompact.spark.producer import produce
    from deltacompact.spark.quiet_start import quiet_session
    from deltacompact.spark.validate import validate

    with contextlib.ExitStack() as stack:
        uri = catalog_uri or stack.enter_context(tempfile.TemporaryDirectory(prefix="deltacompact-demo-"))
        seconds: dict[str, float] = {}
        err.print("starting Spark …", style="dim")
        spark = quiet_session("deltacompact demo")
        stack.callback(spark.stop)
        began = time.perf_counter()
        produced = produce(spark, uri, TABLE, rows_per_delta=rows_per_delta)
        seconds["spark writes deltas"] = time.perf_counter() - began
        out.print(f"Spark wrote {produced} to {TABLE}", markup=False)

        began = time.perf_counter()
        catalog = open_catalog(uri)
        with progress(err) as sink:
            result = compact(
                TABLE, delta_catalog_client=catalog, settings=Settings(executor=executor), event_sinks=[sink]
            )
        seconds[f"{executor} compacts"] = time.perf_counter() - began
        print_result(out, result, seconds[f"{executor} compacts"], Detail())

        began = time.perf_counter()
        reports = validate(catalog, TABLE, spark)
        seconds["spark validates"] = time.perf_counter() - began
        for report in reports:
            out.print(str(report), markup=False)

        def total(name: str) -> str:
            return f"{sum(getattr(session, name) for session in result.sessions):,}"

        out.print(
            f"\nrows in {total('rows_in')}, live {total('live')}, "
            f"superseded {total('superseded')}, deleted {total('deleted')}; "
            f"files before {total('files_before')}, after {total('files_after')}"
        )
        out.print("seconds: " + ", ".join(f"{stage} {taken:.1f}" for stage, taken in seconds.items()))
        if any(not report.ok for report in reports):
            raise CorruptionError("Spark does not find what was compacted")
        out.print(f"validated: {sum(report.rows for report in reports):,} rows identical, index sound")
        return result
