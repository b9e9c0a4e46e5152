"""Fixtures that are shared: one Ray cluster and one Spark session for the whole run, and an S3 of our own."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from functools import partialmethod

import hypothesis
import psutil
import pytest
from budgets import examples
from spark_fixtures import (  # noqa: F401  (fixtures)
    catalog,
    interpreted_spark,
    moto_endpoint,
    s3_bucket,
    s3_catalog_uri,
    s3_endpoint,
    spark,
)

gc.disable()  # until all is collected: what is imported stays, and walks through it take 5 s of CPU a process

IN_MEMORY = "/dev/shm"
ROOM_BYTES = 8 << 30
"""Where memory has so much room, tests' files lie there, unless TMPDIR says otherwise. This saves an eighth of the CPU
of tests that write many files: making and removing a folder takes a hundred times as long on a disk."""


def has_room(folder):
    if not os.path.isdir(folder) or os.statvfs(folder).f_flag & os.ST_NOEXEC:  # some tests write a program and start it
        return False
    return min(shutil.disk_usage(folder).free, psutil.virtual_memory().available) > ROOM_BYTES


if "TMPDIR" not in os.environ and has_room(IN_MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = IN_MEMORY

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_local_fs_capacity_threshold", "1")  # Ray spills nothing to a disk that is 95 % full
hypothesis.settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    max_examples=examples(100),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("default")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that runs the tests in the background ignores Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

WORKERS_KEPT = 16
"""Ray ends workers that idle above so many: as many as CPUs, without this. Workers belong to one driver, so with
several drivers at a time each stage of each of them waited for new processes, which import everything for seconds."""


@pytest.fixture(scope="session", autouse=True)
def the_machine_stays_up():
    """Nothing is synced to disk in this process: tests kill processes, never the machine, and a sync takes 1 to 7 ms.

    tests/storage/test_local.py sees that a file and its folder are synced.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def tasks_are_not_weighed():
    """A tenth of the CPU of a tiny compaction: each task has a thread that looks at the memory of this process.

    Memory is measured in processes of their own (tests/session/test_planned_memory.py).
    """
    from deltacompact.executors import measure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "_watching", lambda: contextlib.nullcontext([0]))
        yield


@pytest.fixture(scope="session")
def ray_nodes():
    """A cluster of one node with two CPUs. A test may add nodes, and takes away those that are left of them."""
    from ray.cluster_utils import Cluster

    from deltacompact.executors.ray_connection import WORKER_ENVIRONMENT

    head = {
        "num_cpus": 2,
        "object_store_memory": 300 << 20,
        "include_dashboard": False,
        "include_log_monitor": False,  # it looks for new lines all the time, and nobody reads them
        "_system_config": {"num_workers_soft_limit": WORKERS_KEPT},
    }
    with pytest.MonkeyPatch.context() as patch:  # its workers take the environment, processes of later tests do not
        for name, value in WORKER_ENVIRONMENT.items():
            patch.setenv(name, value)
        cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="session")
def ray_cluster(ray_nodes):
    """The address of that cluster; this process is connected to it as its executor would."""
    import ray

    from deltacompact.executors.ray_connection import log_what_ray_says

    log_what_ray_says()
    ray.init(address=ray_nodes.address, log_to_driver=False, logging_level="ERROR")
    yield ray_nodes.address
    ray.shutdown()


STARTS_PROCESSES = {"spark", "ray_cluster", "moto_endpoint", "browser"}
"""Fixtures that start a server or processes. What uses one of them, directly or not, is not in `make quick`."""
ONE_PROCESS = ("spark", "ray_cluster")
"""Fixtures that take so long to start that one of the processes has all tests of each."""


def pytest_itemcollected(item):
    """Mark tests by their fixtures: before xdist looks for the groups, which it does first of all with a collection."""
    if STARTS_PROCESSES & set(item.fixturenames):
        item.add_marker(pytest.mark.processes)
    if not is_quick(item):  # real leases and servers on a busy machine: tried once more, and shown as RERUN
        item.add_marker(pytest.mark.flaky(reruns=1))
    item.add_marker(pytest.mark.xdist_group(group_of(item)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Put first what takes long: what is left at the end fits in anywhere."""
    if getattr(config.option, "loadgroup", False) and not all("@" in item.nodeid for item in items):
        raise pytest.UsageError("pytest-xdist has put the tests into no groups: each process would start Spark and Ray")
    items.sort(
        key=lambda item: ("spark" not in item.fixturenames, "ray_cluster" not in item.fixturenames, is_quick(item))
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """What is imported and collected by now stays: no collection of garbage walks through it (8 % of the CPU)."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_unconfigure():
    """Extensions complain at the end of a process about what is never collected."""
    gc.unfreeze()


def group_of(item):
    """The tests of a group run in one process: Spark, Ray and the fixtures of a module are started once."""
    return next((name for name in ONE_PROCESS if name in item.fixturenames), item.path.stem)


def is_quick(item):
    return item.get_closest_marker("processes") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """`make quick` shows which test lacks the mark. Nobody leaves a handler behind that swallows others' Ctrl-C."""
    handler = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        if item.config.option.markexpr.startswith("not processes"):
            patch.setattr(subprocess.Popen, "__init__", partialmethod(refuse, subprocess.Popen.__init__))
        result = yield
    assert signal.signal(signal.SIGINT, handler) == handler, "this test leaves a handler of Ctrl-C behind"
    return result


def refuse(process, start, command, *arguments, **named):
    """Only matplotlib may start one: where it was never used before, it asks `fc-list` for the fonts of the machine."""
    if command[0] != "fc-list":
        raise AssertionError("a test that starts a process is marked with @pytest.mark.processes")
    start(process, command, *arguments, **named)
