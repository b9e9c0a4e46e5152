"""The memory and CPUs that this process may use: those of the machine, or less where its cgroups limit it, or where
taskset, Slurm or `docker --cpuset-cpus` bind it to some CPUs.

/proc/self/cgroup       below /sys/fs/cgroup
0::/pod/main            pod/main/memory.max                       8589934592        8 GiB
                        pod/memory.max                            max               no limit
                        pod/main/cpu.max                          150000 100000     2 CPUs, rounded up
4:memory:/pod           memory/pod/memory.limit_in_bytes          8589934592        8 GiB, version 1
2:cpu,cpuacct:/pod      cpu/pod/cpu.cfs_quota_us, …_period_us     200000, 100000    2 CPUs

The limit of a folder holds below it, so the least one counts. A container may see its own folder as the root: then what
is missing on the way is skipped.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_PROCESS, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def memory_bytes(process: Path = _PROCESS, root: Path = _ROOT) -> int:
    """The memory that this process and its children may take together."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for folder in _folders(process, root, "memory"):
        found += _known(bytes_of(_text(folder / name)) for name in ("memory.max", "memory.limit_in_bytes"))
    return min(found)


def cpus(process: Path = _PROCESS, root: Path = _ROOT) -> int:
    """The CPUs that this process and its children may take together, at least 1."""
    found = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for folder in _folders(process, root, "cpu"):
        before = f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
        found += _known(map(cpus_of, (_text(folder / "cpu.max"), before)))
    return min(found)


def bytes_of(text: str) -> int | None:
    """The bytes that `memory.max` or `memory.limit_in_bytes` allows. None: no limit."""
    return int(text) if text.strip().isdecimal() else None


def cpus_of(text: str) -> int | None:
    """The CPUs that `cpu.max` allows: a quota in a period, rounded up. None: no limit, "max" or "-1"."""
    parts = text.split()
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or not int(parts[1]):
        return None
    return max(1, -(-int(parts[0]) // int(parts[1])))


def folders_of(text: str, controller: str) -> list[str]:
    """The folders below the root whose limits may hold for a process, by its /proc/self/cgroup: its own, then those
    above."""
    found = []
    for line in text.splitlines():
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        own, top = PurePosixPath(posixpath.normpath("/" + path)), controller if controllers else ""
        found += [posixpath.join(top, str(folder).lstrip("/")) for folder in (own, *own.parents)]
    return found


def _folders(process: Path, root: Path, controller: str) -> list[Path]:
    return [root / folder for folder in folders_of(_text(process), controller)]


def _text(path: Path) -> str:
    """What a file says; "" where there is none, or it cannot be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _known(limits: Iterator[int | None]) -> list[int]:
    return [limit for limit in limits if limit is not None]
