"""Clusters by Ray's launcher: what is rendered, and which commands run in which order.

`ray up` needs EC2 and ssh, so a stand-in for the command plays it. What is rendered is held against Ray's own schema,
and clusters are listed from EC2 by moto. The reaper has the same launcher.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
import time
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml
from sessions_processes import until

from deltacompact.base.errors import StoreError
from deltacompact.storage.memory import MemoryStore
from sessions.base.exits import EXIT_AGAIN, EXIT_ENDED
from sessions.base.model import JobRun, JobRunState, Lease
from sessions.dispatch.dispatcher import Dispatcher
from sessions.launchers import ray_jobs
from sessions.launchers.launcher import GroupSpec, GroupState, GroupStatus
from sessions.launchers.launchers import InBackground
from sessions.launchers.ray_cluster import ClusterOptions, RayClusterLauncher, render
from sessions.launchers.reaper import Reaper, orphans
from sessions.launchers.tools import Launched, cluster_name
from sessions.planning.prices import read_prices
from sessions.records.state_store import StateStore

pytestmark = pytest.mark.processes

GOLDEN = Path(__file__).parents[2] / "golden" / "cluster.yaml"
TEMPLATE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "cluster.yaml").read_text())
PRICES = read_prices()
STATE = "s3://lake/compaction-state"
SPEC = GroupSpec("run-1.3.g1.1", STATE, "run-1", "g1", 3, "ray", "ray_cluster", "r6in.8xlarge", 2, 8, 4 << 30)
NAME = cluster_name(SPEC.id)


def test_rendered_as_the_golden_file_has_it() -> None:
    text = yaml.safe_dump(render(TEMPLATE, SPEC, PRICES, ClusterOptions()), sort_keys=False, width=120)
    if os.environ.get("DELTACOMPACT_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("node_type", sorted(PRICES.nodes))
def test_ray_accepts_what_is_rendered(node_type: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    options = ClusterOptions("eu-central-1", "registry/image:1", "profile", spot=False)
    rendered = render(TEMPLATE, replace(SPEC, node_type=node_type), PRICES, options)
    validate_config(prepare_config(rendered))
    assert rendered["provider"]["region"] == "eu-central-1" and rendered["docker"]["image"] == "registry/image:1"
    for node in rendered["available_node_types"].values():
        assert node["node_config"]["IamInstanceProfile"] == {"Name": "profile"}
        assert "InstanceMarketOptions" not in node["node_config"]


def test_rendering_leaves_the_template_alone_and_says_whose_cluster_it_is() -> None:
    before = json.dumps(TEMPLATE)
    rendered = render(TEMPLATE, SPEC, PRICES, ClusterOptions())
    assert json.dumps(TEMPLATE) == before
    types = rendered["available_node_types"]
    assert rendered["cluster_name"] == NAME and rendered["max_workers"] == 8
    assert (types["worker"]["min_workers"], types["worker"]["max_workers"]) == (2, 8)
    assert types["worker"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    for node in types.values():
        tags = {tag["Key"]: tag["Value"] for tag in node["node_config"]["TagSpecifications"][0]["Tags"]}
        assert tags == {
            "project": "deltacompact",
            "cost-center": "data-platform",
            "deltacompact-group": "run-1.3.g1.1",
            "deltacompact-job-run": "run-1",
            "deltacompact-epoch": "3",
            "deltacompact-state": STATE,
        }


class StandIn:
    """A `ray` that notes its arguments, and answers as it is told: by a file for each command, text and exit status."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "ray"
        self.path.write_text(
            f"#!{sys.executable}\n"
            "import json, pathlib, sys\n"
            f"folder = pathlib.Path({str(folder)!r})\n"
            "with (folder / 'calls').open('a') as calls: calls.write(json.dumps(sys.argv[1:]) + '\\n')\n"
            "answer = folder / sys.argv[1]\n"
            "text, code = json.loads(answer.read_text()) if answer.exists() else ['', 0]\n"
            "print(text, flush=True)\n"
            "if sys.argv[1] == 'dashboard' and not code:\n"
            "    import socket, time\n"
            "    listener = socket.create_server(('127.0.0.1', int(sys.argv[sys.argv.index('--port') + 1])))\n"
            "    time.sleep(60)\n"
            "sys.exit(code)\n"
        )
        self.path.chmod(self.path.stat().st_mode | stat.S_IEXEC)

    def answers(self, word: str, text: str, code: int = 0) -> None:
        (self.folder / word).write_text(json.dumps([text, code]))

    @property
    def calls(self) -> list[list[str]]:
        calls = self.folder / "calls"
        return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []


@pytest.fixture
def ray(tmp_path: Path) -> StandIn:
    (tmp_path / "bin").mkdir()
    return StandIn(tmp_path / "bin")


@dataclass
class Info:
    status: str
    message: str = ""
    driver_exit_code: int | None = None


class Jobs:
    """What Ray's JobSubmissionClient answers: a head with a dashboard needs `ray[default]`, which tests do without."""

    def __init__(self) -> None:
        self.submitted: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.answers: Info | Exception = Info("RUNNING")
        self.asked = 0

    def submit_job(self, *, entrypoint: str, submission_id: str, runtime_env: dict[str, Any]) -> str:
        if isinstance(self.answers, Exception):
            raise self.answers
        if submission_id in self.submitted:
            raise RuntimeError(
                f"Request failed with status code 500: Job with submission_id {submission_id} already exists"
            )
        self.submitted[submission_id] = entrypoint
        self.environment = runtime_env["env_vars"]
        return submission_id

    def get_job_info(self, job_id: str) -> Info:
        self.asked += 1
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def get_job_logs(self, job_id: str) -> str:
        return "round 1 of 3\n"


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def launcher(ray: StandIn, jobs: Jobs, tmp_path: Path) -> RayClusterLauncher:
    folder = tmp_path / "clusters"
    options = ClusterOptions(environment={"DELTACOMPACT_S3_KMS_KEY_ID": "k"})
    return RayClusterLauncher(
        TEMPLATE, PRICES, folder, STATE, options, ray=str(ray.path), open_client=lambda address: jobs
    )


def test_a_launch_brings_the_cluster_up_and_submits_the_runner_once(
    ray: StandIn, jobs: Jobs, launcher: RayClusterLauncher, tmp_path: Path
) -> None:
    launcher.launch(SPEC)
    file = str(tmp_path / "clusters" / f"{NAME}.yaml")
    command = "deltacompact-sessions run-group --state s3://lake/compaction-state --job-run run-1 --group g1 --epoch 3"
    up, dashboard = ray.calls
    assert up == ["up", "--yes", "--no-config-cache", file]
    assert (dashboard[0], dashboard[-1]) == ("dashboard", file) and jobs.submitted == {NAME: command}
    assert jobs.environment == {"DELTACOMPACT_S3_KMS_KEY_ID": "k"}
    assert yaml.safe_load(Path(file).read_text()) == render(TEMPLATE, SPEC, PRICES, ClusterOptions())
    launcher.launch(SPEC)
    assert [call[0] for call in ray.calls[2:]] == ["up", "dashboard"], "it is there already: nothing is brought down"


@pytest.mark.parametrize("word", ["up", "dashboard", "submit"])
def test_a_launch_that_fails_leaves_nothing(
    ray: StandIn, jobs: Jobs, launcher: RayClusterLauncher, tmp_path: Path, word: str
) -> None:
    ray.answers(word, "VcpuLimitExceeded: you have requested more vCPUs", 1)
    if word == "submit":
        jobs.answers = RuntimeError("Request failed with status code 500: VcpuLimitExceeded")
    with pytest.raises(StoreError, match="VcpuLimitExceeded"):
        launcher.launch(SPEC)
    assert ray.calls[-1][:2] == ["down", "--yes"]
    assert list((tmp_path / "clusters").iterdir()) == []


@pytest.mark.parametrize(
    ("answers", "state", "exit_status"),
    [
        (Info("RUNNING", "nothing has failed"), GroupState.RUNNING, None),
        (Info("PENDING"), GroupState.RUNNING, None),
        (Info("SUCCEEDED", driver_exit_code=0), GroupState.ENDED, EXIT_ENDED),
        (Info("STOPPED"), GroupState.ENDED, EXIT_AGAIN),
        (Info("FAILED", "it failed", 76), GroupState.ENDED, 76),
        (Info("FAILED", "the head's node died"), GroupState.ENDED, EXIT_AGAIN),
        (RuntimeError(f"Request failed with status code 404: Job {NAME} does not exist"), GroupState.UNKNOWN, None),
    ],
)
def test_status_is_what_ray_says_of_the_job(
    jobs: Jobs, launcher: RayClusterLauncher, answers: Info | Exception, state: GroupState, exit_status: int | None
) -> None:
    jobs.answers = answers
    found = launcher.status(SPEC.id)
    assert (found.state, found.exit_status) == (state, exit_status)


@pytest.mark.parametrize("error", [ConnectionError("refused"), RuntimeError("status code 500: internal")])
def test_a_head_that_does_not_answer_says_nothing_of_the_job(
    jobs: Jobs, launcher: RayClusterLauncher, error: Exception
) -> None:
    jobs.answers = error
    with pytest.raises(StoreError):
        launcher.status(SPEC.id)


def test_nothing_of_a_forwarded_port_is_left(ray: StandIn, launcher: RayClusterLauncher) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    launcher.status(SPEC.id)
    ray.answers("dashboard", "Host key verification failed", 255)
    with pytest.raises(StoreError, match="Host key verification failed"):
        launcher.status(SPEC.id)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


class AtOnce(Executor):
    """Does what it is given before `submit` returns."""

    def submit(self, work: Any, /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*args, **named))
        return done


def test_a_backend_that_is_slow_keeps_nobody_waiting() -> None:
    """Each question was a command in the thread of the job run: thirty clusters took minutes in each round."""
    answer, asked, now_s = threading.Event(), [], [0.0]

    class Slow:
        def status(self, group_id: str) -> GroupStatus:
            asked.append(group_id)
            assert answer.wait(60)
            return GroupStatus(GroupState.ENDED, 0)

    background = InBackground(Slow(), lambda: now_s[0])  # type: ignore[arg-type]
    for _ in range(5):
        now_s[0] += 100.0
        assert background.status("a").state is background.status("b").state is GroupState.RUNNING
    answer.set()
    until(lambda: background.status("a").state is background.status("b").state is GroupState.ENDED, "both end")
    assert sorted(asked) == ["a", "b"], "one question about each at a time"


def test_a_question_that_fails_is_asked_again_and_never_the_last_word(ray: StandIn, jobs: Jobs, tmp_path: Path) -> None:
    """One failed question was taken for the end of a group that ran, and nobody asked any more."""
    now_s = [0.0]

    class Asked:
        """A launcher whose cluster is there; what it says of the job comes from `jobs`."""

        def status(self, group_id: str) -> GroupStatus:
            return ray_jobs.status(jobs, NAME)

    background = InBackground(Asked(), lambda: now_s[0], AtOnce())  # type: ignore[arg-type]
    for answers in (ConnectionError("no"), RuntimeError("404: Job does not exist"), RuntimeError("500")):
        jobs.answers = answers
        asked = jobs.asked
        for _ in range(3):
            now_s[0] += 30.0
            assert background.status(SPEC.id).state is GroupState.RUNNING
        assert jobs.asked > asked
    jobs.answers = Info("RUNNING")
    now_s[0] += 200.0
    assert background.status(SPEC.id).state is GroupState.RUNNING
    jobs.answers, asked = ConnectionError("no"), jobs.asked
    for _ in range(900):
        now_s[0] += 1.0
        told = background.status(SPEC.id)
    assert told.state is GroupState.UNKNOWN and told.cause is not None and jobs.asked - asked < 12, (
        "less and less often"
    )
    jobs.answers = Info("SUCCEEDED")
    now_s[0] += 200.0
    assert background.status(SPEC.id).state is GroupState.ENDED


def test_another_dispatcher_finds_the_cluster_by_its_name(ray: StandIn, launcher: RayClusterLauncher) -> None:
    assert launcher.logs(SPEC.id) == "round 1 of 3\n"
    (call,) = ray.calls
    found = yaml.safe_load(Path(call[-1]).read_text())
    assert found == {**TEMPLATE, "cluster_name": NAME} and call[0] == "dashboard"


def test_what_cannot_be_brought_down_is_tried_again_and_then_said(ray: StandIn, launcher: RayClusterLauncher) -> None:
    launcher.terminate(SPEC.id)
    assert [call[0] for call in ray.calls] == ["down"]
    ray.answers("down", "botocore: RequestLimitExceeded", 1)
    with pytest.raises(StoreError, match=r"run-1\.3\.g1\.1 may still run.*RequestLimitExceeded"):
        launcher.terminate(SPEC.id)
    assert [call[0] for call in ray.calls] == ["down"] * 4


# What nobody owns


def run(id_: str, epoch: int | None = 3, state: JobRunState = JobRunState.RUNNING) -> JobRun:
    return JobRun(id_, {}, state, 0.0, lease=None if epoch is None else Lease("host", epoch, 60.0))


@pytest.mark.parametrize(
    ("known", "orphan"),
    [
        (run("run-1"), False),
        (run("run-1", epoch=2), False),  # the record that was read is older than the launch
        (run("run-1", epoch=4), True),
        (run("run-1", epoch=None), False),  # nobody holds it now: it may be claimed again
        (run("run-1", state=JobRunState.SUCCEEDED), True),
        (run("run-1", state=JobRunState.FAILED), True),
        (None, True),
    ],
)
def test_an_orphan_is_what_no_living_job_run_owns(known: JobRun | None, orphan: bool) -> None:
    one = Launched("run-1.3.g1.1", "run-1", 3, 0.0)
    assert orphans([one], {} if known is None else {"run-1": known}) == ([one] if orphan else [])


class Clusters:
    """A launcher with clusters, some of which will not go."""

    def __init__(self, *running: Launched, stubborn: str = "") -> None:
        self.running, self.stubborn = {launch.group_id: launch for launch in running}, stubborn

    def launched(self) -> list[Launched]:
        return list(self.running.values())

    def terminate(self, group_id: str) -> None:
        if group_id == self.stubborn:
            raise StoreError("not now")
        self.running.pop(group_id, None)


def test_an_orphan_has_a_time_of_grace_and_is_then_terminated() -> None:
    owned, orphan = Launched("a", "run-1", 3, 0.0), Launched("b", "run-2", 1, 0.0)
    clusters = Clusters(owned, orphan)
    reaper, job_runs = Reaper(clusters, grace_s=600.0), {"run-1": run("run-1")}
    assert reaper.sweep(reaper.listed(), job_runs, 10_000.0) == []
    assert reaper.sweep(reaper.listed(), job_runs, 10_599.0) == []
    assert reaper.sweep(reaper.listed(), job_runs, 10_600.0) == ["b"]
    assert list(clusters.running) == ["a"]


def test_the_grace_of_an_orphan_does_not_end_because_the_calendar_jumps(monkeypatch) -> None:
    clusters, dispatcher = Clusters(Launched("a", "run-1", 3, 0.0)), SimpleNamespace(state=StateStore(MemoryStore()))
    reaper, now_s = Reaper(clusters), time.time()
    for ahead_s in (0, 86_400):
        monkeypatch.setattr(time, "time", lambda ahead_s=ahead_s: now_s + ahead_s)
        Dispatcher._reap(dispatcher, reaper)
    assert list(clusters.running) == ["a"]


def test_one_that_is_owned_again_has_its_grace_anew() -> None:
    clusters = Clusters(Launched("a", "run-1", 3, 0.0))
    reaper = Reaper(clusters, grace_s=600.0)
    for now, known, gone in (
        (0.0, {}, []),
        (500.0, {"run-1": run("run-1")}, []),
        (700.0, {}, []),
        (1_300.0, {}, ["a"]),
    ):
        assert reaper.sweep(reaper.listed(), known, now) == gone


def test_one_that_will_not_go_holds_no_other_up_and_is_tried_again() -> None:
    clusters = Clusters(Launched("a", "run-1", 3, 0.0), Launched("b", "run-1", 3, 0.0), stubborn="a")
    reaper = Reaper(clusters, grace_s=0.0)
    assert reaper.sweep(reaper.listed(), {}, 1.0) == ["b"]
    clusters.stubborn = ""
    assert reaper.sweep(reaper.listed(), {}, 2.0) == ["a"]


def test_clusters_are_listed_from_ec2_by_their_tags(
    moto_endpoint: str, ray: StandIn, launcher: RayClusterLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    monkeypatch.setenv("DELTACOMPACT_S3_PROFILE", "another-store")  # `ray up` knows nothing of it

    ec2 = boto3.client("ec2", region_name="us-east-1")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]

    def start(spec: GroupSpec, count: int) -> list[str]:
        node = render(TEMPLATE, spec, PRICES, ClusterOptions())["available_node_types"]["worker"]["node_config"]
        tags = node["TagSpecifications"]
        made = ec2.run_instances(ImageId=image, MinCount=count, MaxCount=count, TagSpecifications=tags)
        return [instance["InstanceId"] for instance in made["Instances"]]

    start(SPEC, 3)
    start(replace(SPEC, id="run-2.1.g1.1", job_run_id="run-2", epoch=1), 1)
    start(replace(SPEC, id="run-3.1.g1.1", state_uri="s3://other/state"), 1)
    gone = start(replace(SPEC, id="run-4.1.g1.1"), 1)
    ec2.terminate_instances(InstanceIds=gone)
    found = {launch.group_id: (launch.job_run_id, launch.epoch) for launch in launcher.launched()}
    assert found == {"run-1.3.g1.1": ("run-1", 3), "run-2.1.g1.1": ("run-2", 1)}
    reaper = Reaper(launcher, grace_s=0.0)
    assert reaper.sweep(reaper.listed(), {"run-1": run("run-1")}, 1.0) == ["run-2.1.g1.1"]
    (down,) = ray.calls
    assert down[:2] == ["down", "--yes"] and cluster_name("run-2.1.g1.1") in down[2]
