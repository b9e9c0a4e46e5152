"""submit."""

from __future__ import annotations

import json

import click

from deltacompact.cli.answers import answer
from sessions.cli.options import document_argument, document_at, json_option, queue_option


@click.command()
@document_argument
@queue_option
@click.option("--job-run-id", metavar="NAME", help="Id of the job run, which runs once, however often it is submitted.")
@json_option
def submit(document: str, queue: str, job_run_id: str | None, as_json: bool) -> None:
    """Send a document to a queue, and print the id of its job run.

    \b
    deltacompact-sessions submit nightly.json --queue /srv/queue
    deltacompact-sessions submit nightly.json --queue https://sqs.eu-west-1.amazonaws.com/123456789012/job-runs
    """
    from sessions.base.ids import new_job_run_id
    from sessions.documents.instruction import parse, values_of
    from sessions.queues.queue import open_queue

    values = values_of(document_at(document))
    values["job_run_id"] = job_run_id or values.get("job_run_id") or new_job_run_id()
    body = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    instruction = parse(body)  # as a dispatcher will read it
    message_id = open_queue(queue).send(body, instruction.source_table_id)
    sent = {"job_run_id": instruction.job_run_id, "message_id": message_id, "queue": queue}
    answer(as_json, sent, f"job run {instruction.job_run_id}: sent to {queue}")
