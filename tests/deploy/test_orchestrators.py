"""The examples for Airflow and Dagster, run by themselves in environments of their own, against a real dispatcher.

`make test` makes the environments.
"""

from __future__ import annotations

import ast
import json

import pytest
from orchestrators import ROOT, made

DEPLOY = ROOT / "deploy"
EXAMPLES = {"airflow": DEPLOY / "airflow/compact_orders.py", "dagster": DEPLOY / "dagster/compacted_orders.py"}

MATERIALIZED = """
import json, sys
sys.path.insert(0, {folder!r})
import dagster, compacted_orders as example
result = dagster.materialize([example.compacted_orders])
(made,) = result.asset_materializations_for_node("compacted_orders")
print(json.dumps({{name: value.value for name, value in made.metadata.items()}}))
"""

DAG_RUN = """
import json, os, sys
sys.path.insert(0, {folder!r})
os.environ |= {{"AIRFLOW__CORE__DAGS_FOLDER": {folder!r}, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}}
from airflow.utils import db
db.initdb()
import compact_orders as example
run = example.dag.test()
(task,) = run.get_task_instances()
print(json.dumps({{"state": task.state, "tries": task.try_number}}))
"""


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_compiles(name):
    text = EXAMPLES[name].read_text()
    ast.parse(text)
    assert len(text.splitlines()) <= 40


@pytest.mark.processes
def test_dagster_materializes_a_compaction_with_what_it_did(tmp_path):
    place = made(tmp_path)
    with place.dispatcher():
        printed = place.run("dagster", MATERIALIZED.format(folder=str(EXAMPLES["dagster"].parent)))
    told = json.loads(printed.splitlines()[-1])
    assert (told["partitions"], told["rows_in"], told["live"], told["superseded"]) == (2, 12, 6, 6)
    assert told["job run"].startswith("orders-")


@pytest.mark.processes
def test_airflow_waits_for_a_job_run_in_its_triggerer(tmp_path):
    place = made(tmp_path)
    with place.dispatcher():
        printed = place.run("airflow", DAG_RUN.format(folder=str(EXAMPLES["airflow"].parent)))
    assert json.loads(printed.splitlines()[-1])["state"] == "success", printed
    assert [run["state"] for run in place.job_runs()] == ["succeeded"]
