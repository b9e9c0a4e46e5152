"""A table whose entries exceed the object store given to it: several rounds, each process bounded.

30 M rows, 32 bytes an entry = 960 MB; object store 256 MB  ->  rounds of at most 4 M rows
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import child, formats
from benchmarks.competitors import CORES, deltacompact
from benchmarks.configurations import ENTRY_BYTES, MEMORY, Case
from benchmarks.data import inputs_of
from benchmarks.environment import environment
from benchmarks.grids import markdown_table
from benchmarks.runner import Measurement, measure

ROUNDS_WHEN_SCALED = 8


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Rows are MEMORY's times `scale`. `object_store_bytes` is all that Ray's object store gets.

    `task_bytes` is what a task is planned for (None: what the machine has for each CPU).
    """

    scale: float
    executor: str
    object_store_bytes: int
    task_bytes: int | None
    seed: int
    data: Path
    out: Path
    timeout_s: float


def run_memory(plan: MemoryPlan, console: Console, tell: Callable[[str], None]) -> bool:
    """Compact once, print and write what it took. False where it failed, or came to one round only."""
    configuration = MEMORY.scaled(plan.scale)
    tell(f"memory: {configuration.rows:,} rows; making the files unless they are there")
    inputs = inputs_of(configuration, Case.FULL, plan.data, plan.seed)
    warm = inputs_of(configuration.tiny(), Case.FULL, plan.data, plan.seed)
    limits = {"object_store_bytes": plan.object_store_bytes}
    if plan.task_bytes is not None:
        limits["memory_per_task_bytes"] = plan.task_bytes
    if configuration.rows * ENTRY_BYTES <= plan.object_store_bytes:
        limits["rows_per_round"] = max(1, configuration.rows // ROUNDS_WHEN_SCALED)
        tell("memory: so few rows fit one round; rounds are made small by rows_per_round")
    work = plan.out / "work"
    (plan.out / "logs").mkdir(parents=True, exist_ok=True)
    log = plan.out / "logs" / "memory.log"
    log.unlink(missing_ok=True)
    spec = child.Spec(work / "memory", log, deltacompact(plan.executor, **limits), inputs, warm, work / "no-base")
    done = measure(spec, Measurement(MEMORY.name, Case.FULL, spec.entrant.label, 0), plan.timeout_s)
    facts = _facts(done, plan, configuration.rows)
    table = Table("", "", title="a table larger than the object store", title_justify="left", show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    console.print(table)
    document = {"scale": plan.scale, "limits": limits, "environment": environment(), "measurement": asdict(done)}
    (plan.out / "memory.json").write_text(json.dumps(document, indent=1))
    (plan.out / "memory.md").write_text(markdown_table(["memory", ""], list(facts.items())))
    return done.error is None and done.details["rounds"] > 1


def _facts(done: Measurement, plan: MemoryPlan, rows: int) -> dict[str, str]:
    if done.error:
        return {"failed": done.error}
    details, mb = done.details, formats.megabytes
    return {
        "rows in / live": f"{done.rows_in:,} / {done.rows_out:,}",
        "entries at 32 bytes, MB": mb(rows * ENTRY_BYTES),
        "object store, MB": mb(plan.object_store_bytes),
        "rounds": str(details["rounds"]),
        "hash buckets": str(details["hash_bucket_count"]),
        "spilled, peak MB": mb(done.peak_temporary_bytes),
        "task memory planned, MB": mb(details["planned_peak_bytes"]),
        "task memory measured (USS), MB": mb(details["measured_peak_bytes"]),
        "largest process (USS), MB": f"{mb(done.peak_process_bytes)} ({done.peak_process_name})",
        "all processes (USS), MB": mb(done.peak_tree_bytes),
        "all processes before, MB": mb(done.idle_tree_bytes),
        "seconds": formats.seconds(done.seconds),
        "rows/s": f"{done.rows_in / done.seconds:,.0f}",
        "rows/s for each core": f"{done.rows_in / done.seconds / CORES:,.0f}",
        "seconds by stage": ", ".join(f"{stage} {taken:.2f}" for stage, taken in details["seconds"].items()),
        "scheduling": formats.percent(details["scheduling_share"]),
    }
