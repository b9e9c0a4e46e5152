"""What Ray says of its cluster: a line each in our log, and nothing on stdout, where results go."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from deltacompact.base.errors import ClusterError
from deltacompact.base.settings import Settings
from deltacompact.executors.ray_messages import in_one_line

DEAD_WORKER = (
    "A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, "
    "check the logs for the dead worker. Lease ID: 0100 Worker ID: 64f4 Node ID: 9b0a Worker IP address: 10.0.0.7 "
    "Worker port: 46687 Worker PID: 839 Worker exit type: SYSTEM_ERROR Worker exit detail: RPC error: Socket closed"
)
SAID = "a Ray worker died (process 839 of 10.0.0.7): its task runs again if task_retries allows it"
REPEATED = "Task _run failed. There are 3 retries remaining, so the task will be retried. Error: "


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (DEAD_WORKER, SAID),
        (REPEATED, None),
        (
            f"{REPEATED}the node is dead\nsee `ray list nodes`",
            "Ray repeats a task: the node is dead see `ray list nodes`",
        ),
        ("\x1b[33m2 Workers\x1b[0m killed due to\n\tmemory pressure", "Ray: 2 Workers killed due to memory pressure"),
        (
            "Raylet is terminated. " + 30 * "[state-dump]\n",
            "Ray: " + ("Raylet is terminated. " + 30 * "[state-dump] ")[:200],
        ),
    ],
)
def test_a_message_of_ray_is_one_line(message, line):
    assert in_one_line(message) == line


@pytest.fixture
def printed(monkeypatch):
    """How Ray prints, before a process joins a cluster."""
    from ray._private import worker

    monkeypatch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "removed again, also after the test")
    monkeypatch.delenv("RAY_IGNORE_UNHANDLED_ERRORS")
    monkeypatch.setattr(worker, "print_to_stdstream", printed := Mock())
    return printed


@pytest.fixture
def joins(monkeypatch, printed):
    """Joins a cluster that goes away again."""
    from deltacompact.executors import ray_connection

    monkeypatch.setattr(ray_connection.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_connection.ray, "init", Mock(side_effect=ConnectionError("gone")))
    monkeypatch.setattr(ray_connection, "_answers", lambda *_: True)

    def join():
        with pytest.raises(ClusterError):
            ray_connection.connect(Settings(ray_address="head:6379"))

    return join


def test_what_ray_prints_of_its_cluster_is_logged_and_what_workers_print_is_not(printed, joins, caplog, capsys):
    """As Ray's thread does it, with the function that it looks up for each message."""
    from ray._private import worker

    joins()
    joins()
    from_ray = {"lines": [DEAD_WORKER, REPEATED, DEAD_WORKER], "pid": "raylet", "is_err": False}
    worker.print_to_stdstream(from_ray, ignore_prefix=False)
    assert [record.getMessage() for record in caplog.records if record.name == "deltacompact"] == [SAID]
    worker.print_to_stdstream(of_worker := {"lines": ["print"], "pid": 839, "is_err": False}, ignore_prefix=True)
    printed.assert_called_once_with(of_worker, ignore_prefix=True)
    assert capsys.readouterr().out == ""


def test_ray_does_not_print_the_error_of_a_task_that_is_raised(joins, caplog):
    """Ray calls this for each value of a task that failed, if nobody has asked for it."""
    from ray._private.worker import Worker

    failed = Mock(spec=Worker, deserialize_objects=Mock(return_value=[ValueError("the first task's")]))
    Worker.raise_errors(failed, [Mock()], [Mock()])
    assert caplog.text.count("Unhandled error") == 1
    joins()
    Worker.raise_errors(failed, [Mock()], [Mock()])
    assert caplog.text.count("Unhandled error") == 1
