"""One job run, as a program on the cluster's head (or here): the table, unless it is there; a compaction; a check.

    base URI   <base>/catalog/input-4000000-0          the table that all job runs of this size compact
               <base>/catalog/output-…                 compacted into, checked, and taken away again
               <base>/runs/job-4000000-32-2-0-r0.json  the outcome, failure or not

The compaction alone is timed: not the cluster's start, nor the making of the table, nor a tiny compaction before it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.matrix import table as data
from benchmarks.matrix.points import JobRun, Point, keep
from deltacompact import Settings, compact, open_catalog
from deltacompact.base.errors import DeltaCompactError
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.paths import table_root
from deltacompact.delta_streams.streams import stream_files
from deltacompact.results import SessionResult
from deltacompact.storage.opening import open_store

WARM_UP = data.Shape(20_000, 0)


@dataclass(frozen=True, slots=True)
class Job:
    """What to run. `here` starts a cluster of the point's vCPUs on this machine; otherwise the running one is joined.

    `patience_s` is how long to wait for the cluster's vCPUs.
    """

    base: str
    point: Point
    repeat: int
    producer: str
    here: bool
    patience_s: float = 900.0


def run_job(job: Job, tell: Callable[[str], None]) -> JobRun:
    """Run it and keep what came of it. Whatever it fails by is an outcome too, except an interruption."""
    store = open_store(job.base)
    try:
        run = _run(job, tell)
    except Exception as error:
        known = isinstance(error, (DeltaCompactError, TimeoutError))
        text = " ".join(str(error).split())[:300]
        run = JobRun.failed(job.point, job.repeat, text if known else f"{type(error).__name__}: {text}")
    keep(store, run)
    return run


def _run(job: Job, tell: Callable[[str], None]) -> JobRun:
    _connect(job)
    catalog = open_catalog(f"{job.base.rstrip('/')}/catalog")
    shape = data.Shape(job.point.rows, job.point.payload_bytes)
    for table_shape in (WARM_UP, shape):
        _make(catalog, table_shape, job.producer if table_shape is shape else "workers", tell)
    _compacted(catalog, WARM_UP, None)
    tell(f"compacting {shape.rows:,} rows by {job.point.vcpus} vCPUs")
    result, seconds = _compacted(catalog, shape, job.point.hash_buckets or None)
    table = data.made(catalog.store, shape)
    assert table is not None
    return JobRun(
        vcpus=job.point.vcpus,
        payload_bytes=job.point.payload_bytes,
        rows=job.point.rows,
        hash_buckets=job.point.hash_buckets,
        repeat=job.repeat,
        seconds=seconds,
        hash_buckets_used=result.hash_bucket_count,
        rows_out=result.live,
        input_bytes=table.input_bytes,
        decompressed_bytes=table.decompressed_bytes,
        output_bytes=result.bytes_out,
        rounds=result.rounds,
        stages_s=result.seconds,
        scheduling_share=result.scheduling_share,
        planned_peak_bytes=result.planned_peak_bytes,
        measured_peak_bytes=result.measured_peak_bytes,
        spilled_bytes=result.spilled_bytes,
    )


def _connect(job: Job) -> None:
    """Join the cluster, ask it for its vCPUs and wait for them. Raises TimeoutError where they do not come."""
    import ray

    from deltacompact.executors.ray import RayExecutor
    from deltacompact.executors.ray_connection import WORKER_ENVIRONMENT

    wanted = job.point.vcpus
    if job.here:
        os.environ.pop("RAY_ADDRESS", None)
        os.environ.update(WORKER_ENVIRONMENT)
        ray.init("local", num_cpus=wanted, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    address = None if job.here else "auto"
    settings = Settings(executor="ray", ray_address=address, ray_cpus=wanted, ray_wait_s=job.patience_s)
    there = RayExecutor(settings).capacity.slots
    if there < wanted:
        raise TimeoutError(f"{there} of {wanted} vCPUs came within {job.patience_s:.0f} s")


def _make(catalog: DeltaStreamCatalog, shape: data.Shape, producer: str, tell: Callable[[str], None]) -> None:
    """The table, unless it is there. An attempt that was cut off is begun anew: its commits have tokens."""
    if data.made(catalog.store, shape) is not None:
        return
    tell(f"making {shape.name}: {shape.rows:,} rows, by {producer}")
    catalog.create_table(shape.name, primary_keys=[data.KEY])
    prior, delta = data.parts(shape, delta=False), data.parts(shape, delta=True)
    decompressed_bytes = 0
    if producer == "spark":
        data.write_by_spark(catalog, shape)
        decompressed_bytes = shape.rows * (data.ROW_BYTES + shape.payload_bytes)
    else:
        written = _on_cluster(data.write_part, [(catalog.store, part) for part in [*prior, *delta]])
        files = [file for file, _ in written]
        decompressed_bytes = sum(size for _, size in written)
        data.commit(catalog, shape, (files[: len(prior)], files[len(prior) :]))
    expected = data.together(iter(_on_cluster(data.expected_of, [(part,) for part in [*prior, *delta]])))
    state = catalog.state(shape.name, catalog.partition(shape.name, None))
    input_bytes = sum(file.bytes for file in stream_files(state))
    table = data.Made(shape.rows, input_bytes, decompressed_bytes, expected.rows, expected.checksum)
    data.mark_made(catalog.store, shape, table)


def _compacted(catalog: DeltaStreamCatalog, shape: data.Shape, hash_buckets: int | None) -> tuple[SessionResult, float]:
    """Compact into a table of its own, check that, and take it away. Raises ValueError where it is wrong."""
    destination = f"output-{uuid.uuid4().hex}"
    try:
        began = time.perf_counter()
        done = compact(
            shape.name,
            delta_catalog_client=catalog,
            destination_compacted_table_id=destination,
            hash_bucket_count=hash_buckets,
            settings=Settings(executor="ray"),
        )
        seconds = time.perf_counter() - began
        state = catalog.state(destination, catalog.partition(destination, None))
        work = [(catalog.store, file.path) for file in stream_files(state)]
        found, table = data.together(iter(_on_cluster(data.found_in, work))), data.made(catalog.store, shape)
        if table is None or found != table.expected:
            raise ValueError(f"wrong result: {found}, expected {table and table.expected}")
        return done.sessions[0], seconds
    finally:
        catalog.store.delete(stat.path for stat in catalog.store.list(f"{table_root(destination)}/"))


def _on_cluster(task: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Every call as a task of its own; the results in order."""
    import ray

    remote = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(task)
    return list(ray.get([remote.remote(*call) for call in calls]))
