"""Commands of a matrix of job runs that is small."""

from __future__ import annotations

from pathlib import Path

from benchmarks.matrix import commands as run
from benchmarks.matrix.points import Matrix


def commands_of(tmp_path: Path) -> list[run.ClusterCommands]:
    matrix = Matrix((1_000,), (0, 4), (16,))
    return run.ec2_commands(matrix, str(tmp_path / "base"), "workers", {16: tmp_path / "cluster.yaml"})
