"""The commands of a run of the matrix, and running them.

    ray up --yes deltacompact-bench-32.yaml                                      a cluster for each number of vCPUs
    ray exec deltacompact-bench-32.yaml 'python -m benchmarks job …'             one job run after another
    ray down --yes deltacompact-bench-32.yaml                                    whatever happened before

Here, on one machine, the job runs are the same and start clusters of their own. A job run whose outcome is kept already
is not run again: an interrupted matrix is carried on by the same command.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT

from benchmarks.matrix.points import JobRun, Matrix, Point, keep, path_of, read
from deltacompact.base.errors import NotFoundError
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_store
from sessions.base.signals import handled

DOWN_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class JobCommand:
    """One job run. `argv` is what this machine executes for it."""

    point: Point
    repeat: int
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterCommands:
    """What happens on one cluster. `up` and `down` are empty where the job runs start their own."""

    vcpus: int
    up: tuple[str, ...]
    jobs: tuple[JobCommand, ...]
    down: tuple[str, ...]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        yield from filter(None, (self.up, *(job.argv for job in self.jobs), self.down))


def local_commands(matrix: Matrix, base: str, producer: str) -> list[ClusterCommands]:
    """Every job run in a process of its own, on this machine."""
    return [
        ClusterCommands(
            vcpus,
            (),
            tuple(
                JobCommand(point, repeat, (sys.executable, *_job(base, point, repeat, producer), "--here"))
                for point, repeat in matrix.attempts(vcpus)
            ),
            (),
        )
        for vcpus in matrix.vcpus
    ]


def ec2_commands(matrix: Matrix, base: str, producer: str, files: dict[int, Path]) -> list[ClusterCommands]:
    """A cluster for each number of vCPUs, from its rendered file."""
    commands = []
    for vcpus in matrix.vcpus:
        file = str(files[vcpus])
        jobs = tuple(
            JobCommand(
                point, repeat, ("ray", "exec", file, shlex.join(["python", *_job(base, point, repeat, producer)]))
            )
            for point, repeat in matrix.attempts(vcpus)
        )
        commands.append(
            ClusterCommands(vcpus, ("ray", "up", "--yes", file), jobs, ("ray", "down", "--yes", file)),
        )
    return commands


def _job(base: str, point: Point, repeat: int, producer: str) -> list[str]:
    given = {
        "--base": base,
        "--rows": point.rows,
        "--payload-bytes": point.payload_bytes,
        "--hash-buckets": point.hash_buckets,
        "--vcpus": point.vcpus,
        "--repeat": repeat,
        "--producer": producer,
    }
    return ["-m", "benchmarks", "job", *(str(part) for pair in given.items() for part in pair)]


class LeftRunning(Exception):
    """A cluster could not be brought down. It costs money until somebody ends it."""


def run_all(commands: Sequence[ClusterCommands], base: str, tell: Callable[[str], None]) -> None:
    """Run what has no outcome yet. A cluster that is up is brought down again, after errors and interruptions too.

    Raises LeftRunning where that failed.
    """
    store = open_store(base)
    for cluster in commands:
        missing = [job for job in cluster.jobs if not _succeeded(store, job)]
        if not missing:
            tell(f"{cluster.vcpus} vCPUs: every job run is there")
            continue
        try:
            if cluster.up and (code := _call(cluster.up, tell)):
                for job in missing:
                    error = f"the cluster did not start: ray up ended with {code}"
                    keep(store, JobRun.failed(job.point, job.repeat, error))
                continue
            for job in missing:
                store.delete([path_of(job.point, job.repeat)])
                code = _call(job.argv, tell)
                if code and not _is_kept(store, job):
                    error = f"the job run ended with {code} and left no outcome"
                    keep(store, JobRun.failed(job.point, job.repeat, error))
        finally:
            if cluster.down:
                _bring_down(cluster, tell)


def _bring_down(cluster: ClusterCommands, tell: Callable[[str], None]) -> None:
    """Bring the cluster down. Ctrl-C is ignored meanwhile, and the command inherits that."""
    with handled(None, (SIGINT,)):
        for _ in range(DOWN_ATTEMPTS):
            if not _call(cluster.down, tell):
                return
    raise LeftRunning(f"the cluster of {cluster.vcpus} vCPUs may still run: {shlex.join(cluster.down)} failed")


def _call(argv: Sequence[str], tell: Callable[[str], None]) -> int:
    tell(shlex.join(argv))
    return subprocess.call(argv)


def _is_kept(store: ObjectStore, job: JobCommand) -> bool:
    try:
        store.stat(path_of(job.point, job.repeat))
    except NotFoundError:
        return False
    return True


def _succeeded(store: ObjectStore, job: JobCommand) -> bool:
    return _is_kept(store, job) and read(store, path_of(job.point, job.repeat)).error is None
