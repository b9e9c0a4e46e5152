"""CPU and memory of a process and all its children, read from outside.

CPU seconds are those of the living, and of the children that they have waited for; so nothing is counted twice and
nothing is lost. Memory is USS: what would be freed if the process ended, and with it the pages of files that it alone
has mapped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

INTERVAL_S = 0.2
UNCHANGED_BYTES = 1_000_000
SHARE_MAX = 0.05
"""Sampling may take this share of one core at most: with many large processes it gets rarer."""


class Meter:
    """Watches one tree of processes, and the folder to which they spill. Peaks are in bytes."""

    def __init__(self, pid: int, temporary: Path) -> None:
        self._root = psutil.Process(pid)
        self._temporary = temporary
        self.peak_temporary_bytes = 0
        self.peak_process_bytes = 0
        self.peak_process_name = ""
        self.peak_tree_bytes = 0
        self.first_tree_bytes = 0
        self._seen: dict[psutil.Process, tuple[int, int]] = {}
        self.samples = 0
        self.own_s = 0.0

    def cpu_seconds(self) -> float:
        """User and system time of the tree so far."""
        total = 0.0
        for process in self._tree():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def sample(self) -> float:
        """Read the memory of each process, and what is spilled. Returns the seconds to wait before the next reading."""
        began = time.thread_time()
        tree_bytes = 0
        for process in self._tree():
            try:
                unshared = self._unshared_bytes(process)
                tree_bytes += unshared
                if unshared > self.peak_process_bytes:
                    self.peak_process_bytes, self.peak_process_name = unshared, process.name()
            except psutil.Error:
                continue
        self.peak_temporary_bytes = max(self.peak_temporary_bytes, _folder_bytes(self._temporary))
        if not self.samples:
            self.first_tree_bytes = tree_bytes
        self.samples += 1
        self.peak_tree_bytes = max(self.peak_tree_bytes, tree_bytes)
        took = time.thread_time() - began
        self.own_s += took
        return max(INTERVAL_S - took, took / SHARE_MAX)

    def _unshared_bytes(self, process: psutil.Process) -> int:
        """The memory that the process shares with nobody (USS). Read it again only if the resident size has changed."""
        resident = process.memory_info().rss
        known = self._seen.get(process)
        if known is None or abs(resident - known[0]) > UNCHANGED_BYTES:
            known = self._seen[process] = resident, int(process.memory_full_info().uss)
        return known[1]

    def _tree(self) -> Iterator[psutil.Process]:
        try:
            yield self._root
            yield from self._root.children(recursive=True)
        except psutil.Error:
            return


def _folder_bytes(folder: Path) -> int:
    """The bytes of the files in a folder. Files may vanish at any time."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if path.is_file() else 0
    return total
