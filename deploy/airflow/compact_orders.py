"""A DAG for Airflow 3: a job run each night, for which only the triggerer waits. A task that is tried again finds it.
Set CATALOG, QUEUE and STATE; `deltacompact-sessions` must be on PATH, this file on PYTHONPATH or in plugins/."""

import json
from os import environ

import anyio
from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

SUBMIT = "deltacompact-sessions submit - --wait --json --queue {QUEUE} --state {STATE} --job-run-id"
DOCUMENT = json.dumps({"version": 1, "catalog": environ["CATALOG"], "source_table_id": "orders"}).encode()


class JobRunEnds(BaseTrigger):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def serialize(self):
        return f"{__name__}.JobRunEnds", {"name": self.name}

    async def run(self):
        done = await anyio.run_process([*SUBMIT.format_map(environ).split(), self.name], input=DOCUMENT, check=False)
        yield TriggerEvent({"status": done.returncode, "said": done.stdout.decode()})


class Compact(BaseOperator):
    def execute(self, context):
        name = f"orders-{context['ti'].run_id}".translate(str.maketrans(":+", "-_"))
        self.defer(trigger=JobRunEnds(name), method_name="ended", timeout=4 * 3600)

    def ended(self, context, event):
        if event["status"] != 0:
            raise RuntimeError(event["said"])
        return json.loads(event["said"])


with DAG("compact_orders", schedule="0 1 * * *") as dag:
    Compact(task_id="compact", retries=2)
