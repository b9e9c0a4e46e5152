"""Where the logs of groups lie in a state.

    logs/run-1.3.g0.1.1.log     group g0.1, launched by epoch 3 of run-1 for the first time

If the state is a folder, processes on its machine write their logs there. For clusters, and for a state below an S3
prefix, the dispatcher keeps the last part of what a group printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from deltacompact.storage.objects import ObjectStore

_LOG_OF_GROUP = re.compile(r"logs/(?P<job_run_id>.+)\.\d+\.[^.]+\.\d+\.\d+\.log")


def log_path(group_id: str) -> str:
    return f"logs/{group_id}.log"


def kept_logs(store: ObjectStore, job_run_id: str | None = None) -> Iterator[tuple[str, str]]:
    """(job run, path) of each log, in byte order of the paths. `job_run_id`: only the logs of this one."""
    for stat in store.list("logs/" if job_run_id is None else f"logs/{job_run_id}."):
        named = _LOG_OF_GROUP.fullmatch(stat.path)  # an id may have dots
        if named and job_run_id in (None, named["job_run_id"]):
            yield named["job_run_id"], stat.path
