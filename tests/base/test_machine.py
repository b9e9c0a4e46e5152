"""The memory and CPUs of a process: the least of the machine and its cgroups, of both versions."""

from __future__ import annotations

import os

import pytest

from deltacompact.base import machine
from deltacompact.base.machine import bytes_of, cpus_of, folders_of
from deltacompact.base.settings import Settings
from deltacompact.executors.local import LocalExecutor
from sessions.cli.dispatch import dispatcher_of

GIB = 1 << 30
VERSION_1 = """12:pids:/kubepods/pod7/c1
4:memory:/kubepods/pod7/c1
2:cpu,cpuacct:/kubepods/pod7/c1
1:name=systemd:/
0::/
"""


@pytest.mark.parametrize(
    ("text", "limit"), [("max\n", None), ("8589934592\n", 8 * GIB), ("9223372036854771712\n", 2**63 - 4096), ("", None)]
)
def test_a_memory_limit(text, limit):
    assert bytes_of(text) == limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max 100000\n", None),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("5000 100000\n", 1),
        ("-1\n 100000\n", None),
        (" ", None),
        ("200000 0", None),
    ],
)
def test_a_cpu_limit(text, limit):
    assert cpus_of(text) == limit


def test_the_folders_of_a_process():
    assert folders_of("0::/\n", "memory") == [""]
    assert folders_of("0::/kubepods/pod7/c1\n", "cpu") == ["kubepods/pod7/c1", "kubepods/pod7", "kubepods", ""]
    assert folders_of("0::/../../other\n", "cpu") == ["other", ""]
    found = folders_of(VERSION_1, "cpu")
    assert found == ["cpu/kubepods/pod7/c1", "cpu/kubepods/pod7", "cpu/kubepods", "cpu/", ""]
    assert folders_of("", "memory") == folders_of("no line of it\n", "memory") == []


def written(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def process(tmp_path):
    file = tmp_path / "cgroup"
    file.write_text("0::/pod/main\n")
    return file


def test_the_least_limit_on_the_way_to_the_root_counts(tmp_path, process):
    own = machine.memory_bytes(process, tmp_path), machine.cpus(process, tmp_path)
    assert own == (machine.memory_bytes(tmp_path / "none"), machine.cpus(tmp_path / "none"))
    written(tmp_path / "pod" / "main", memory__max="max\n", cpu__max="max 100000\n")
    assert (machine.memory_bytes(process, tmp_path), machine.cpus(process, tmp_path)) == own
    written(tmp_path / "pod", memory__max="268435456\n", cpu__max="100000 100000\n")
    assert (machine.memory_bytes(process, tmp_path), machine.cpus(process, tmp_path)) == (GIB // 4, 1)
    written(tmp_path / "pod" / "main", memory__max="134217728\n")
    assert machine.memory_bytes(process, tmp_path) == GIB // 8


def test_a_process_that_is_bound_to_some_cpus_has_these(tmp_path):
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(bound)})
    try:
        assert machine.cpus(tmp_path / "none") == 1
    finally:
        os.sched_setaffinity(0, bound)


def test_the_limits_of_version_1_and_of_a_container_that_sees_its_folder_as_the_root(tmp_path):
    (tmp_path / "cgroup").write_text(VERSION_1)
    written(tmp_path / "memory", memory__limit_in_bytes="268435456\n")
    written(tmp_path / "cpu", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    assert machine.memory_bytes(tmp_path / "cgroup", tmp_path) == GIB // 4
    assert machine.cpus(tmp_path / "cgroup", tmp_path) == 1


def test_executors_and_dispatchers_plan_with_the_limits_of_their_container(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "memory_bytes", lambda: 10 * GIB)
    monkeypatch.setattr(machine, "cpus", lambda: 5)
    capacity = LocalExecutor(Settings()).capacity
    assert (capacity.slots, capacity.memory_per_task_bytes) == (5, 2 * GIB)
    limits = dispatcher_of(str(tmp_path / "queue"), str(tmp_path / "state"))._admission.limits
    assert (limits.memory_bytes, limits.slots, limits.sessions_max) == (8 * GIB, 5, 5)


@pytest.mark.parametrize(
    ("address", "slots"), [("local", machine.cpus()), ("", machine.cpus()), ("10.0.0.1:6379", None)]
)
def test_only_a_running_ray_cluster_lifts_the_limit_of_cpus(tmp_path, monkeypatch, address, slots):
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert dispatcher_of(str(tmp_path / "queue"), str(tmp_path / "state"))._admission.limits.slots == slots
