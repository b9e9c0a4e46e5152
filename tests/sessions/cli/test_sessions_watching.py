"""Watching real job runs: events on the topic, the page beside a dispatcher, the SLA report, status, the demo."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import boto3
import httpx
import jsonschema
import pyarrow as pa
import pytest
from rich.console import Console

import deltacompact
from sessions import cli
from sessions.events.event import SCHEMA_PATH
from sessions.overview.overview import OverviewReader
from sessions.queues.opening import open_queue
from sessions.records.state_store import StateStore

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
SECRET = "hunter2"


def started(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sessions", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A lake of two tables, one of which cannot be compacted: a value of a row is in its error."""
    root = tmp_path_factory.mktemp("watching")
    catalog = deltacompact.open_catalog(root / "lake")
    catalog.create_table("orders", ["day"], ["id"])
    for day in ("1", "2"):
        for _ in range(2):
            catalog.append("orders", pa.table({"id": [1, 2, 3], "name": [SECRET] * 3}), {"day": day})
    catalog.create_table("damaged", [], ["id"])
    delta = catalog.append("damaged", pa.table({"id": [1], "name": [SECRET]}))
    (root / "lake" / delta.files[0].path).write_bytes(SECRET.encode() * 99)
    queue = open_queue(str(root / "queue"))
    for table in ("orders", "damaged"):
        document = {"version": 1, "job_run_id": f"run-{table}", "catalog": str(root / "lake")}
        queue.send(json.dumps({**document, "source_table_id": table, "desired_sla": 600}))
    return root


@pytest.fixture(scope="module")
def told(folder, moto_endpoint):
    """What a topic got of a dispatcher that drained the queue, and what its page said meanwhile."""
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    name = f"events-{uuid.uuid4().hex[:8]}"
    arn, url = sns.create_topic(Name=name)["TopicArn"], sqs.create_queue(QueueName=name)["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue, Attributes={"RawMessageDelivery": "true"})
    arguments = ["--queue", str(folder / "queue"), "--state", str(folder / "state"), "--drain", "--tries", "1"]
    dispatcher = started("dispatch", *arguments, "--port", "0", "--topic", arn)
    address = None
    while address is None:
        line = json.loads(dispatcher.stderr.readline())
        if found := re.search(r"http://127\.0\.0\.1:\d+/", line["message"]):
            address = found[0]
    health = httpx.get(address + "healthz").json()
    overview = httpx.get(address + "api/overview").json()
    _, logs = dispatcher.communicate(timeout=120)
    assert dispatcher.returncode == 1, f"one of its job runs has failed: {logs}"
    messages = []
    while batch := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        messages += [message["Body"] for message in batch]
        for message in batch:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return messages, health, overview


def test_a_real_job_run_is_told_on_its_topic(told):
    messages, _, _ = told
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text()))
    events = [json.loads(message) for message in messages]
    for event in events:
        schema.validate(event)
    ids = [event["id"] for event in events]
    assert len(set(ids)) == len(ids)
    names = {re.sub(r"~\d+$", "", name) for name in ids if "sla.updated" not in name}
    orders = ["job_run.accepted~", "job_run.succeeded~"]
    for day in ("1", "2"):
        orders += [f"session.{what}~day={day}" for what in ("started", "round_completed", "succeeded")]
    damaged = ["job_run.accepted~", "job_run.failed~", "session.started~all", "session.failed~all"]
    assert names == {f"run-orders/{name}" for name in orders} | {f"run-damaged/{name}" for name in damaged}
    assert any("sla.updated" in name for name in ids)
    (failed,) = [event for event in events if event["type"] == "deltacompact.session.failed"]
    assert re.match(r"\w+Error", failed["data"]["error"])
    assert SECRET not in "".join(messages)


def test_the_page_lives_beside_the_dispatcher(told):
    _, health, overview = told
    assert health == {"status": "ok", "unreadable": 0}
    assert {"job_runs", "queue", "dispatchers", "kept"} <= set(overview)


def test_the_sla_report_holds_what_was_expected_against_what_it_took(told, folder, capsys):
    assert cli.run(["sla", "--state", str(folder / "state"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["job_runs"]["ended"], said["job_runs"]["failed"]) == (2, 1)
    (orders,) = [each for each in said["job_runs"]["each"] if each["job_run_id"] == "run-orders"]
    assert orders["desired_s"] == 600 and orders["kept_desired"] and orders["actual_s"] > 0
    assert said["sessions"]["ended"] == 3 and 0 <= said["sessions"]["expected"] <= 1
    assert cli.run(["sla", "--state", str(folder / "state"), "--sessions"]) == 0
    text = capsys.readouterr().out
    assert "day=1" in text and "3 ended, 1 failed" in text


def test_status_is_drawn_live(told, folder, capsys):
    from sessions.cli.live import drawn

    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(drawn(OverviewReader(StateStore(str(folder / "state"))).read()))
    text = console.export_text()
    assert "run-orders" in text and "2 succeeded" in text and "x" in text
    watch = ["status", "--state", str(folder / "state"), "--watch"]
    watching = started(*watch, FORCE_COLOR="1")  # rich takes it for a terminal
    assert any("run-orders" in line for line in watching.stdout)
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=20)
    assert watching.returncode == 0
    assert cli.run(watch) == 2 and "draws on a terminal" in capsys.readouterr().err, "a pipe showed nothing"


def test_watch_says_why(told, folder, capsys, tmp_path):
    policies = tmp_path / "policies.toml"
    policies.write_text(
        f'version = 1\n[[policies]]\nname = "p"\ncatalog = "{folder}/lake"\nsource_table_id = "orders"\n'
        "when = [{deltas = 5}]\n"
    )
    asked = ["watch", "--policies", str(policies), "--queue", str(folder / "queue"), "--state", str(folder / "state")]
    assert cli.run([*asked, "--once", "--json"]) == 0
    decisions = json.loads(capsys.readouterr().out)["decisions"]
    assert [(each["action"], each["reason"]) for each in decisions] == [("wait", "nothing_new")] * 2
    policies.write_text(policies.read_text().replace("orders", "typo"))
    assert cli.run([*asked, "--once", "--json"]) == 1, "cron is told that a table could not be looked at"
    told_of_typo = json.loads(capsys.readouterr().out)
    assert told_of_typo["decisions"] == [] and told_of_typo["errors"][0]["table"] == "typo"
    policies.write_text("version = 1\n")
    assert cli.run([*asked, "--once"]) == 2
    assert "policies" in capsys.readouterr().err


def test_the_demo_shows_three_job_runs_and_their_slas_and_may_be_repeated_in_its_folder(tmp_path):
    command = ["demo", "--rows", "2000", "--no-stay", "--folder", str(tmp_path)]
    started(*command).communicate(timeout=120)
    demo = started(*command)
    address = demo.stdout.readline().strip().removeprefix("the page is at ")
    page = httpx.get(address)
    assert page.status_code == 200 and "deltacompact" in page.text
    printed, errors = demo.communicate(timeout=120)
    assert demo.returncode == 0, errors
    assert "job runs: 6 ended, 0 failed" in printed and "sessions: 18 ended, 0 failed" in printed
    for table in ("orders", "visits", "returns"):
        assert f"demo-{table}" in printed
