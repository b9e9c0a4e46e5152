"""Clusters and stores that do not answer: one line, soon, and meanwhile it is said what is tried.

A closed port refuses; a socket that listens and says nothing is a black hole, as a firewall makes one.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures
from unittest.mock import Mock

import grpc
import pytest

import deltacompact
from deltacompact import cli
from deltacompact.base.errors import ClusterError, InputError, SchemaError, StoreError
from deltacompact.base.limits import Limits
from deltacompact.base.settings import Settings
from deltacompact.storage import s3 as s3_store
from deltacompact.storage import s3_clients

pytestmark = pytest.mark.processes


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"127.0.0.1:{port}"


@pytest.fixture
def black_hole():
    """Accepts connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def web_server():
    """Speaks HTTP/1 to whoever comes."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)

        def serve():
            while True:
                try:
                    there, _ = listening.accept()
                except OSError:
                    return
                with there:
                    there.recv(1000)
                    there.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def other_grpc_server():
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0)


IMPATIENT = Limits(ray_answer_s=1.5, ray_silent_s=0.2)


@pytest.fixture
def impatient(monkeypatch):
    """RayExecutor in a process that has joined no cluster, and starts none."""
    from deltacompact.executors import ray as executor

    monkeypatch.setattr(executor.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(executor.ray, "init", lambda **_: pytest.fail("ray.init was asked, which waits for minutes"))
    return executor.RayExecutor


# A client server is known by nothing but that it speaks gRPC: of another one behind ray:// only Ray's client can tell.
@pytest.mark.parametrize(
    ("kind", "scheme"),
    [
        *((kind, scheme) for kind in ("closed_port", "black_hole", "web_server") for scheme in ("", "ray://")),
        ("other_grpc_server", ""),
    ],
)
def test_a_ray_address_that_does_not_answer_is_refused_in_one_line(request, impatient, caplog, kind, scheme):
    address = scheme + request.getfixturevalue(kind)
    began = time.monotonic()
    with pytest.raises(ClusterError, match="no Ray cluster answers") as error:
        impatient(Settings(executor="ray", ray_address=address, limits=IMPATIENT))
    assert time.monotonic() - began < 5
    assert address in str(error.value) and "RAY_ADDRESS" in str(error.value)
    if kind != "other_grpc_server":  # it says at once that it is none
        assert f"connecting to the Ray cluster at {address}" in caplog.text


def test_ray_address_from_the_environment_and_auto(impatient, monkeypatch, closed_port):
    monkeypatch.setenv("RAY_ADDRESS", closed_port)
    with pytest.raises(ClusterError, match=closed_port):
        impatient(Settings(executor="ray", limits=IMPATIENT))
    port = closed_port.rpartition(":")[2]
    with pytest.raises(ClusterError, match=rf"auto \(.*:{port}\)"):  # Ray means the variable by auto, where it is set
        impatient(Settings(executor="ray", ray_address="auto", limits=IMPATIENT))


def test_a_cluster_of_this_machine_that_does_not_start_in_time_may_start_the_next_time(impatient, monkeypatch):
    import ray

    said = "The current node timed out during startup."
    monkeypatch.setattr(ray, "init", Mock(side_effect=Exception(said)))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(StoreError, match=f"no Ray cluster on this machine: {said}"):
        impatient(Settings(executor="ray", limits=IMPATIENT))


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (RuntimeError("Failed to connect to GCS. Last connection error: refused"), ClusterError),
        (ConnectionError("ray client connection timeout"), ClusterError),
        (RuntimeError("Version mismatch: The cluster was started with: Ray: 2.1"), InputError),
    ],
)
def test_a_cluster_that_goes_away_again_may_answer_the_next_time(impatient, monkeypatch, error, becomes):
    from deltacompact.executors import ray_connection

    monkeypatch.setattr(ray_connection, "_answers", lambda *_: True)
    monkeypatch.setattr(ray_connection.ray, "init", Mock(side_effect=error))
    with pytest.raises(becomes, match=f"no Ray cluster at head:6379: {error}") as refused:
        impatient(Settings(executor="ray", ray_address="head:6379", limits=IMPATIENT))
    assert type(refused.value) is becomes


def test_a_task_without_memory_is_not_restarted_without_end_on_a_cluster_that_is_joined(impatient, monkeypatch):
    """The driver counts the retries: Ray reads its variable when the driver joins."""
    from deltacompact.executors import ray_connection

    seen = {}

    def init(**_):
        seen.update(os.environ)
        raise ConnectionError("it is gone again")

    monkeypatch.setattr(ray_connection, "_answers", lambda *_: True)
    monkeypatch.setattr(ray_connection.ray, "init", init)
    with pytest.raises(ClusterError):
        impatient(Settings(executor="ray", ray_address="head:6379", task_retries=7, limits=IMPATIENT))
    assert seen["RAY_task_oom_retries"] == "7" and "RAY_task_oom_retries" not in os.environ


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "host:port", "host:99999", "http://host:1/x"])
def test_a_ray_address_that_is_none(impatient, address):
    with pytest.raises(InputError, match=r"is not a Ray address"):
        impatient(Settings(executor="ray", ray_address=address, limits=IMPATIENT))


def test_a_dead_ray_address_on_the_command_line(tmp_path, closed_port, impatient, monkeypatch, capfd):
    import pyarrow as pa

    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1]}))
    monkeypatch.setenv("RAY_ADDRESS", closed_port)
    assert cli.run(["compact", str(tmp_path), "t", "--executor", "ray"], IMPATIENT) == 1
    said = capfd.readouterr().err.splitlines()  # Ray's own threads may write, too
    tried, refused = (line for line in said if line.startswith("deltacompact: "))
    assert tried.startswith("deltacompact: connecting to the Ray cluster")
    assert refused.startswith("deltacompact: no Ray cluster answers at " + closed_port)


@pytest.fixture
def raised(monkeypatch):
    """The error of a task for one of Ray. Without a cluster: what ray.get raises carries the worker's, pickled."""
    from deltacompact.executors import ray as executor

    def raised(error):
        def get(_):
            raise error

        monkeypatch.setattr(executor.ray, "get", get)
        with pytest.raises(Exception) as found:
            executor.RayExecutor.get(object.__new__(executor.RayExecutor), None)
        assert found.value.__cause__ is error, "the worker's traceback is behind it"
        return found.value

    return raised


def of_a_task(cause):
    from ray.exceptions import RayTaskError

    return RayTaskError("task", "a traceback\nof many lines", cause).as_instanceof_cause()


def test_errors_of_tasks_keep_class_and_message_over_ray(raised):
    for cause in (SchemaError("x.parquet: column 'v'"), StoreError("gone"), ZeroDivisionError("surprise"), KeyError(1)):
        found = raised(of_a_task(cause))
        assert type(found) is type(cause) and str(found) == str(cause)


def test_what_ray_says_of_a_lost_input_is_said_as_of_a_lost_task(raised):
    """A task whose inputs cannot be made again fails with Ray's own error: nodes are lost, so it may pass."""
    from ray import exceptions

    for lost in (exceptions.ObjectLostError("id", None, "0a"), exceptions.WorkerCrashedError()):
        for error in (lost, of_a_task(lost), of_a_task(of_a_task(lost))):
            found = raised(error)
            assert type(found) is StoreError and f"lost a task for good ({type(lost).__name__})" in str(found)
    heavy = exceptions.OutOfMemoryError("the node ran low")
    for error in (heavy, of_a_task(heavy)):
        assert "plan smaller ones (memory_per_task_bytes)" in str(raised(error))


# S3


@pytest.fixture
def s3(monkeypatch, tmp_path):
    """Show the catalog at an S3 endpoint, in a process of its own: (status, stderr, seconds)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DELTACOMPACT"))}

    def show(endpoint, **variables):
        credentials = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}
        given = {**environment, "HOME": str(tmp_path), "AWS_ENDPOINT_URL": f"http://{endpoint}", **credentials}
        given = {name: value for name, value in {**given, **variables}.items() if value is not None}
        began = time.monotonic()
        command = [sys.executable, "-m", "deltacompact", "show", "s3://bucket/lake"]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr.strip().splitlines(), time.monotonic() - began

    return show


def test_an_s3_endpoint_that_refuses_is_told_within_ten_seconds(s3, closed_port):
    status, lines, seconds = s3(closed_port)
    assert status == 1 and seconds < 12, "ten seconds, and those of starting Python"
    assert closed_port in lines[-1] and "Traceback" not in "".join(lines)


def test_an_s3_endpoint_that_says_nothing_is_told_within_ten_seconds(s3, black_hole):
    status, lines, seconds = s3(black_hole)
    assert status == 1 and seconds < 12
    assert f"connecting to http://{black_hole}" in lines[0]
    assert black_hole in lines[-1] and len(lines) == 2


def test_no_credentials_and_a_metadata_service_that_says_nothing(s3, black_hole, closed_port):
    variables = {
        "AWS_ACCESS_KEY_ID": None,
        "AWS_SECRET_ACCESS_KEY": None,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{black_hole}",
        "AWS_METADATA_SERVICE_TIMEOUT": "60",
        "AWS_METADATA_SERVICE_NUM_ATTEMPTS": "10",
    }
    status, lines, seconds = s3(closed_port, **variables)
    assert status == 1 and seconds < 12
    assert "credentials" in lines[-1] and "connecting" in lines[0] and len(lines) == 2


def forget_answers(monkeypatch):
    answered = set()
    for module in (s3_store, s3_clients):
        monkeypatch.setattr(module, "ANSWERED", answered)


def test_after_the_first_answer_requests_are_patient(s3_catalog_uri, monkeypatch):
    from deltacompact.storage.opening import open_store

    forget_answers(monkeypatch)
    store = open_store(s3_catalog_uri)
    sent = []
    send = s3_clients.first_send

    def counted(*given):
        sent.append(given)
        return send(*given)

    monkeypatch.setattr(s3_clients, "first_send", counted)
    store.put("x", b"1")
    assert store.get("x") == b"1" and len(sent) == 1, "the first request alone is bounded, and it is no further one"
    travelled = pickle.loads(pickle.dumps(store))
    forget_answers(monkeypatch)
    assert pickle.loads(pickle.dumps(travelled)).get("x") == b"1"
