"""A DAG for Airflow 3: a job run each night. While it goes on, only the triggerer waits for it.

Put it where the triggerer imports modules from, too: PYTHONPATH or plugins/. `deltacompact-sessions` must be on PATH.
A task that is tried again sends the same job run, which runs once; after a failure, it runs again.
"""

import asyncio
import json
import os
from datetime import datetime, timedelta

from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

DOCUMENT = {"version": 1, "catalog": os.environ.get("CATALOG", "s3://lake/tables"), "source_table_id": "orders"}
QUEUE, STATE = os.environ.get("QUEUE", "/srv/queue"), os.environ.get("STATE", "/srv/state")


class JobRunEnds(BaseTrigger):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def serialize(self):
        return f"{__name__}.JobRunEnds", {"name": self.name}

    async def run(self):
        words = ("submit", "-", "--job-run-id", self.name, "--queue", QUEUE, "--state", STATE, "--wait", "--json")
        process = await asyncio.create_subprocess_exec("deltacompact-sessions", *words, stdin=-1, stdout=-1)
        said, _ = await process.communicate(json.dumps(DOCUMENT).encode())
        yield TriggerEvent({"status": process.returncode, "said": said.decode()})


class Compact(BaseOperator):
    def execute(self, context):
        name = f"orders-{context['ti'].run_id}".translate(str.maketrans(":+", "-_"))
        self.defer(trigger=JobRunEnds(name), method_name="ended", timeout=timedelta(hours=4))

    def ended(self, context, event):
        if event["status"] != 0:
            raise RuntimeError(event["said"])
        return json.loads(event["said"])


with DAG("compact_orders", schedule="0 1 * * *", start_date=datetime(2026, 1, 1), catchup=False) as dag:
    Compact(task_id="compact", retries=2)
