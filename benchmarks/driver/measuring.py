"""A session on a simulated cluster, and what it took of the driver: in a process of its own, for its memory.

The table's log and the session's records lie in a folder. The process's CPU seconds and memory hold what the driver
does from reading the log on; the simulation's CPU seconds are left out, its memory is not.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.driver.cluster import Trouble
from benchmarks.driver.executor import SimulatedExecutor
from benchmarks.driver.table import Shape, append, job_of
from benchmarks.driver.tasks import SimulatedTasks
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.job import plan_work
from deltacompact.running import run_session
from deltacompact.storage.local import LocalStore
from deltacompact.table.ports import PartitionSnapshot
from deltacompact.tabular.allocator import session_memory


@dataclass(frozen=True, slots=True)
class Measured:
    """One session.

    virtual_s      of the session, on the virtual clock
    driver_s       CPU seconds of the driver's own code; `read_s` and `plan_s` of them before the session
    ray_s          what Ray would take of the driver besides, by the constants of sizing/driver_time.py
    peak_bytes     resident memory of the driver's process, the simulation in it
    objects        most values of tasks that the driver refers to at a time; `arguments`: those handed to tasks
    handed_bytes   of all else that tasks are told, pickled
    written        objects that the session put: log, records, manifests; `written_bytes` together
    """

    files: int
    hash_buckets: int
    slots: int
    rounds: int
    tasks: int
    virtual_s: float
    efficiency: float
    read_s: float
    plan_s: float
    driver_s: float
    ray_s: float
    peak_bytes: int
    objects: int
    arguments: int
    handed_bytes: int
    written: int
    written_bytes: int
    nodes_lost: int
    tasks_repeated: int
    error: str | None

    @property
    def share(self) -> float:
        return self.driver_s / self.virtual_s


def measure(shape: Shape, trouble: Trouble, seed: int = 1) -> Measured:
    """Run the session in a fresh process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process, TemporaryDirectory() as folder:
        process.submit(_append, Path(folder), shape).result()
        process.shutdown()
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            return Measured(**fresh.submit(_run, Path(folder), shape, trouble, seed).result())


def _append(folder: Path, shape: Shape) -> None:
    append(LocalStore(folder), shape)


def _run(folder: Path, shape: Shape, trouble: Trouble, seed: int) -> dict[str, Any]:
    with session_memory():
        return asdict(run(DeltaStreamCatalog(LocalStore(folder)), shape, trouble, seed))


def run(catalog: DeltaStreamCatalog, shape: Shape, trouble: Trouble, seed: int = 1, charged: bool = True) -> Measured:
    """Compact the table of the catalog on a simulated cluster. `charged` as for SimulatedExecutor."""
    before, began = {stat.path for stat in catalog.store.list("")}, time.process_time()
    job = job_of(catalog, shape)
    (work,) = job.work
    assert isinstance(work.found, PartitionSnapshot)
    read, capacity = time.process_time(), shape.capacity
    plan = plan_work(job, work, work.found, capacity)
    planned = time.process_time()
    executor = SimulatedExecutor(capacity, SimulatedTasks(plan), trouble, seed, charged)
    result = run_session(job, work, plan, executor, lambda _event: None)
    executor.used()
    written = [stat.bytes for stat in catalog.store.list("") if stat.path not in before]
    return Measured(
        shape.files,
        plan.hash_bucket_count,
        capacity.slots,
        len(plan.rounds),
        executor.submitted,
        executor.nodes.now_s,
        executor.efficiency,
        read - began,
        planned - read,
        planned - began + executor.used_s,
        executor.ray_s,
        _peak_bytes(),
        executor.objects.most,
        executor.arguments,
        executor.handed_bytes,
        len(written),
        sum(written),
        executor.nodes.nodes_lost,
        executor.nodes.works_repeated,
        None if result.error is None else str(result.error),
    )


def _peak_bytes() -> int:
    """The most resident memory of this process so far. (getrusage counts that of the process that started it, too.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
