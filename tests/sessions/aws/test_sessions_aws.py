"""High availability on AWS: moto runs the state machine, which replaces a silent dispatcher; the template is sound.

moto has no virtual machines: the harness starts a process for each instance that the state machine launched, and ends
it when the state machine terminated the instance. The process answers the task token, as a dispatcher's node does.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import signal
import socket
import subprocess
import textwrap
import threading
import time
import urllib.request
import uuid
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import boto3
import pytest
import yaml
from botocore.config import Config
from sessions_processes import forked

from sessions.aws.task_token import HEARTBEAT_S, HEARTBEAT_TIMEOUT_S, TaskToken
from sessions.cli import run
from sessions.records.state_store import StateStore

pytestmark = pytest.mark.processes

DEPLOY = Path(__file__).parents[3] / "deploy" / "aws"
MACHINE = DEPLOY / "dispatchers.asl.json"
TEMPLATE = DEPLOY / "dispatchers.yaml"
HEARTBEATS_S = 4
"""Here, for the 300 of the deployment."""
_DEFINITION = "      Definition:\n"


def _lint(template: str) -> list[str]:
    import cfnlint  # 7 s of CPU, in one of the processes that collect this module

    return [str(found) for found in cfnlint.api.lint(template, config=cfnlint.ManualArgs(regions=["eu-west-1"]))]


def test_the_template_is_sound_and_holds_the_state_machine():
    text = TEMPLATE.read_text()
    rendered = text.partition(_DEFINITION)[0] + _DEFINITION + textwrap.indent(MACHINE.read_text(), " " * 8)
    if os.environ.get("DELTACOMPACT_WRITE_TEMPLATE"):
        TEMPLATE.write_text(rendered)
    assert TEMPLATE.read_text() == rendered
    assert _lint(rendered) == []
    assert _lint(rendered.replace("!GetAtt DeadLetters.Arn", "!GetAtt DeadLetter.Arn")) != []


def test_roles_have_no_wildcards_that_no_condition_narrows():
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, tag, node: f"{tag} {getattr(node, 'value', '')}")
    template = yaml.load(TEMPLATE.read_text(), Loader)
    roles = [found for found in template["Resources"].values() if found["Type"] == "AWS::IAM::Role"]
    statements = [
        statement
        for role in roles
        for policy in role["Properties"]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
    assert len(statements) == 15
    for statement in statements:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert not any("*" in action for action in actions)
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        assert not any(str(resource).strip() in ("*", "!Sub *") for resource in resources), statement["Sid"]


def test_what_nobody_sees_raises_an_alarm_and_logs_are_kept_for_a_while():
    text = TEMPLATE.read_text()
    for metric in ("ApproximateAgeOfOldestMessage", "ApproximateNumberOfMessagesVisible", "-failed-job-runs"):
        assert metric in text
    assert text.count("AWS::CloudWatch::Alarm") == 3 and "RetentionInDays" in text
    failed = {"message": "job run nightly failed: 1 of 2 sessions failed"}
    pattern = re.search(r"FilterPattern: '\{ \$\.message = \"(.+)\" \}'", text)[1]
    assert fnmatch.fnmatch(failed["message"], pattern), "the line that a dispatcher logs"
    source = (DEPLOY.parent.parent / "sessions" / "dispatch" / "job_run_work.py").read_text()
    assert '_LOG.info("job run %s %s%s", self._held.run.id, state' in source


def test_a_node_removes_what_would_grow_for_months():
    """Records of job runs stayed for ever, and a task token for each node that ever was."""
    script = TEMPLATE.read_text().partition("#!/bin/bash\n")[2].partition("\n\n")[0]
    assert '--older-than "${LogRetentionDays}d"' in script.partition("deltacompact-sessions job-runs expire ")[2]
    assert script.index("aws s3 cp") < script.index('aws s3 rm --quiet "s3://${StateBucket}/${StatePrefix}nodes/$node/')
    checked = subprocess.run(["bash", "-n"], input=textwrap.dedent(script), text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr


def token_that_a_node_reads(body: str) -> str:
    """What the lines of the template's script make of an object that is there at their second look."""
    template = TEMPLATE.read_text()
    options = re.search(r"set -.*\n", template)[0]  # without pipefail it would begin with an empty token
    loop = re.search(r"until DELTACOMPACT_TASK_TOKEN=.*?done\n", template, re.DOTALL)[0]
    script = f"""
        {options}
        StateBucket=b StatePrefix=p/ node=i-1 there=
        sleep() {{ there=yes; }}
        aws() {{ [[ $there ]] && printf %s "$BODY"; }}
        {loop}
        printf %s "$DELTACOMPACT_TASK_TOKEN"
    """
    read = subprocess.run(["bash", "-c", script], env={**os.environ, "BODY": body}, text=True, capture_output=True)
    assert read.returncode == 0, read.stderr
    return read.stdout


@pytest.mark.parametrize("body", ['"AQCk+/8="', "AQCk+/8="], ids=["written as JSON", "as it is"])
def test_a_node_reads_its_task_token_without_the_quotes_of_json(body):
    assert token_that_a_node_reads(body) == "AQCk+/8="


def test_an_execution_ends_before_its_history_is_full():
    slot = json.loads(MACHINE.read_text())["States"]["Keep every slot"]["ItemProcessor"]["States"]
    (often,) = slot["Long enough?"]["Choices"]
    launches = often["NumericGreaterThanEquals"]
    # a state's entry and exit, and three events for each attempt of its task
    events = {
        name: 2 + 3 * (1 + sum(retry["MaxAttempts"] for retry in state.get("Retry", ()))) if "Resource" in state else 2
        for name, state in slot.items()
    }
    last = events.pop("Continue as new")
    name = slot["Continue as new"]["Parameters"]["Name.$"]
    assert name.startswith("States.Format('slot-{}', States.Hash("), "a name has 80 characters at most, a slot's any"
    slots = 10
    assert slots * (launches * sum(events.values()) + last) < 25_000
    week_s = 7 * 24 * 3600
    wait = slot["Wait on the dispatcher"]
    assert week_s < wait["TimeoutSeconds"] and "timeout --signal TERM 7d" in TEMPLATE.read_text()
    assert launches * wait["TimeoutSeconds"] < 365 * 24 * 3600
    assert wait["HeartbeatSeconds"] == HEARTBEAT_TIMEOUT_S >= 4 * HEARTBEAT_S
    assert {"States.HeartbeatTimeout", "States.Timeout"} == set(wait["Catch"][0]["ErrorEquals"])


class Nodes:
    """A dispatcher for each instance that the state machine runs; they share a queue and a state."""

    def __init__(self, bucket: str, folder: Path) -> None:
        self.bucket = bucket
        self.folder = folder
        self.ec2, self.s3 = boto3.client("ec2"), boto3.client("s3")
        self.processes: dict[str, ForkServerProcess] = {}
        self.subnets: dict[str, str] = {}
        self.unplugged: set[str] = set()
        self.before = set(self.instances())

    def instances(self) -> dict[str, dict]:
        found = self.ec2.describe_instances()["Reservations"]
        return {node["InstanceId"]: node for group in found for node in group["Instances"]}

    def follow(self) -> None:
        """Start what was launched, end what was terminated."""
        for name, node in self.instances().items():
            if name in self.before:
                continue
            running = node["State"]["Name"] == "running"
            if running and name not in self.processes:
                with contextlib.suppress(self.s3.exceptions.NoSuchKey):
                    key = f"prod/nodes/{name}/task-token"
                    body = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read().decode()
                    self.processes[name] = self.started(token_that_a_node_reads(body))
                    self.subnets[name] = node["SubnetId"]
            if not running and name in self.processes and name not in self.unplugged:
                self.processes[name].kill()

    def started(self, token: str) -> ForkServerProcess:
        # it gives itself up after five heartbeats, when the state machine does: the ratio of the deployment
        command = ["dispatch", "--heartbeat", str(HEARTBEATS_S / 5)]
        command += ["--queue", str(self.folder / "queue"), "--state", str(self.folder / "state")]
        return forked(run, command, log=self.folder / "log", DELTACOMPACT_TASK_TOKEN=token)

    def alive(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.is_alive()]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()


@pytest.fixture
def step_functions(moto_endpoint, monkeypatch):
    """moto's Step Functions, which really run state machines. They write a text body as JSON, as those of AWS do."""
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_aws_sdk import (
        StateTaskServiceAwsSdk,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
        StateTaskServiceSfn,
    )

    spelled = StateTaskServiceSfn._normalise_parameters

    def as_boto3_spells_them(self, parameters, *arguments, **options):
        # moto 5.2 hands `StateMachineArn` to boto3, which calls it `stateMachineArn`
        spelled(self, parameters, *arguments, **options)
        for name in list(parameters):
            parameters[name[0].lower() + name[1:]] = parameters.pop(name)

    called = StateTaskServiceAwsSdk._eval_service_task

    def with_a_body_of_json(self, env, resource_runtime_part, normalised_parameters, state_credentials):
        if "Body" in normalised_parameters:
            normalised_parameters["Body"] = json.dumps(normalised_parameters["Body"])
        called(self, env, resource_runtime_part, normalised_parameters, state_credentials)

    monkeypatch.setattr(StateTaskServiceSfn, "_normalise_parameters", as_boto3_spells_them)
    monkeypatch.setattr(StateTaskServiceAwsSdk, "_eval_service_task", with_a_body_of_json)
    monkeypatch.setenv("MOTO_PORT", moto_endpoint.rpartition(":")[2])
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)  # state machines read the S3 beside them
    for really in (True, False):
        body = json.dumps({"stepfunctions": {"execute_state_machine": really}}).encode()
        request = urllib.request.Request(f"{moto_endpoint}/moto-api/config", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request).close()
        if really:
            yield boto3.client("stepfunctions")


def eventually(happened, nodes: Nodes) -> None:
    until = time.monotonic() + 90.0
    while not happened():
        assert time.monotonic() < until, "it did not happen"
        nodes.follow()
        time.sleep(0.05)


def state_machine(step_functions, bucket: str, launches: int) -> str:
    ec2 = boto3.client("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    template = ec2.create_launch_template(
        LaunchTemplateName=f"dispatcher-{uuid.uuid4().hex}",
        LaunchTemplateData={"ImageId": image, "InstanceType": "t3.small"},
    )["LaunchTemplate"]["LaunchTemplateId"]
    definition = MACHINE.read_text()
    for told, here in {
        "${LaunchTemplate}": template,
        "${StateBucket}": bucket,
        "${StatePrefix}": "prod/",
        '"HeartbeatSeconds": 300': f'"HeartbeatSeconds": {HEARTBEATS_S}',
        '"NumericGreaterThanEquals": 12': f'"NumericGreaterThanEquals": {launches}',
    }.items():
        assert told in definition
        definition = definition.replace(told, here)
    name = f"dispatchers-{uuid.uuid4().hex[:8]}"
    made = step_functions.create_state_machine(
        name=name, definition=definition, roleArn="arn:aws:iam::123456789012:role/states"
    )
    return made["stateMachineArn"]


def test_a_silent_dispatcher_is_replaced_and_the_machine_continues_as_new(step_functions, tmp_path):
    forked(int, log=tmp_path / "log").join()  # from now on a process starts in no time
    bucket = f"state-{uuid.uuid4().hex[:8]}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    machine = state_machine(step_functions, bucket, launches=2)
    first, second = [found["SubnetId"] for found in boto3.client("ec2").describe_subnets()["Subnets"]][:2]
    slots = [{"name": "a", "subnet": first}, {"name": "b", "subnet": second}]
    with contextlib.closing(Nodes(bucket, tmp_path)) as nodes:
        step_functions.start_execution(stateMachineArn=machine, input=json.dumps({"slots": slots}))
        eventually(lambda: len(nodes.alive()) == 2, nodes)
        silent = next(name for name in nodes.alive() if nodes.subnets[name] == first)
        steady = next(name for name in nodes.alive() if nodes.subnets[name] == second)
        eventually(lambda: len(list(StateStore(str(tmp_path / "state")).dispatchers())) == 2, nodes)

        nodes.unplugged.add(silent)  # EC2 says that it is terminated, and yet it will wake up
        os.kill(nodes.processes[silent].pid, signal.SIGSTOP)
        eventually(lambda: len(nodes.alive()) == 3, nodes)
        assert nodes.instances()[silent]["State"]["Name"] == "terminated"
        assert nodes.instances()[steady]["State"]["Name"] == "running"
        (replacement,) = set(nodes.alive()) - {steady, silent}
        assert nodes.subnets[replacement] == first

        os.kill(nodes.processes[silent].pid, signal.SIGCONT)
        eventually(lambda: silent not in nodes.alive(), nodes)  # it was told that it was given up, and ends itself
        assert nodes.processes[silent].exitcode == -signal.SIGKILL

        nodes.processes[replacement].terminate()  # it ends in order; the slot's second launch was its last one here
        executions = lambda: step_functions.list_executions(stateMachineArn=machine)["executions"]  # noqa: E731
        eventually(lambda: len(executions()) == 2, nodes)
        eventually(lambda: len(nodes.alive()) == 2 and replacement not in nodes.alive(), nodes)
        arns = [found["executionArn"] for found in executions()]
        inputs = [json.loads(step_functions.describe_execution(executionArn=arn)["input"]) for arn in arns]
        assert sorted(len(told["slots"]) for told in inputs) == [1, 2]
        assert [told["slots"] for told in inputs if len(told["slots"]) == 1] == [[slots[0]]]
        assert nodes.instances()[steady]["State"]["Name"] == "running" and steady in nodes.alive()
        for arn in arns:
            step_functions.stop_execution(executionArn=arn)


def test_a_dispatcher_that_was_given_up_is_told(step_functions):
    bucket = f"state-{uuid.uuid4().hex[:8]}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    lost = threading.Event()
    token = TaskToken("nobody gave this token out", lost.set, heartbeat_s=0.1)
    token.start()
    assert lost.wait(10) and token.lost
    token.succeed()  # says nothing more


def test_a_dispatcher_that_slept_before_it_read_an_answer_gives_itself_up():
    """The answer says that the heartbeat arrived, but the state machine has waited too long since."""
    now_s = 0.0

    class Client:
        sent = 0

        def send_task_heartbeat(self, taskToken: str) -> None:
            nonlocal now_s
            self.sent += 1
            now_s += 300  # suspended between the request and its answer

    client, lost = Client(), threading.Event()
    token = TaskToken("t", lost.set, heartbeat_s=60, timeout_s=300, client=client, clock=lambda: now_s)
    token.start()
    assert lost.wait(10) and token.lost
    assert client.sent == 1
    token.succeed()


def test_a_dispatcher_that_nobody_hears_gives_itself_up(moto_endpoint):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        host, port = unused.getsockname()
        once = Config(retries={"max_attempts": 0})
        client = boto3.client("stepfunctions", endpoint_url=f"http://{host}:{port}", config=once)
        lost = threading.Event()
        token = TaskToken("t", lost.set, heartbeat_s=0.1, timeout_s=0.5, client=client)
        began = time.monotonic()
        token.start()
        assert lost.wait(20) and time.monotonic() - began >= 0.5
