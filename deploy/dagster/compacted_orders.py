"""An asset for Dagster: a job run compacts the table, and what it did is the asset's metadata.

`deltacompact-sessions` has to be on PATH; QUEUE and STATE are those of your dispatchers, CATALOG is the table's. A run
of Dagster that is tried again finds its job run, and does not compact twice.
"""

import json
import os
import subprocess

import dagster


def command(*words: str, document: dict | None = None) -> dict:
    given = json.dumps(document)
    done = subprocess.run(["deltacompact-sessions", *words, "--json"], input=given, capture_output=True, text=True)
    told = json.loads(done.stdout or "{}")
    if done.returncode:
        raise dagster.Failure(told.get("error", {}).get("message") or done.stderr[-2000:])
    return told


@dagster.asset(kinds={"deltacompact"}, retry_policy=dagster.RetryPolicy(max_retries=2))
def compacted_orders(context: dagster.AssetExecutionContext) -> dagster.MaterializeResult:
    places = ["--state", os.environ["STATE"]]
    name = f"orders-{context.run_id}"
    document = {"version": 1, "catalog": os.environ["CATALOG"], "source_table_id": "orders"}
    submit = ["submit", "-", "--job-run-id", name, "--queue", os.environ["QUEUE"], *places]
    command(*submit, "--wait", "--timeout", "14400", document=document)
    (run,) = command("status", *places, "--job-run", name)["job_runs"]
    outcomes = [session["outcome"] for session in run["sessions"] if session["outcome"]]
    counts = ("rows_in", "live", "superseded", "deleted", "bytes_in", "bytes_out", "seconds")
    totals = {count: sum(outcome[count] for outcome in outcomes) for count in counts}
    return dagster.MaterializeResult(metadata={"job run": name, "partitions": len(run["sessions"]), **totals})
