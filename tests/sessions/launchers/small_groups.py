"""What groups do in tests of launchers. The process of a group imports this module, and little else."""

from __future__ import annotations

import os
import signal
import time


def killed(state_uri: str, job_run_id: str, group: str, epoch: int) -> int:
    print("the last that it said", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def talking(state_uri: str, job_run_id: str, group: str, epoch: int) -> int:
    print("x" * 100_000, flush=True)
    print("it goes on", flush=True)
    while True:
        time.sleep(0.05)


def ended_well(state_uri: str, job_run_id: str, group: str, epoch: int) -> int:
    print(f"{job_run_id} {group} {epoch}")
    return 0


def telling_its_heap(state_uri: str, job_run_id: str, group: str, epoch: int) -> int:
    import pyarrow

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    print(job_run_id, pyarrow.default_memory_pool().backend_name, os.environ.get("MALLOC_ARENA_MAX"), blocked)
    return 0
