"""submit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.printable import printable
from deltacompact.cli.answers import answer
from sessions.cli.options import (
    Seconds,
    dead_letters_option,
    document_argument,
    document_at,
    json_option,
    only_with,
    queue_option,
)

if TYPE_CHECKING:
    from sessions.base.model import JobRun
    from sessions.queues.queue import Queue


@click.command()
@document_argument
@queue_option
@click.option("--job-run-id", metavar="NAME", help="Id of the job run, which runs once, however often it is submitted.")
@click.option("--wait", is_flag=True, help="Wait until the job run has ended. This needs --state.")
@click.option("--state", metavar="URI", help="With --wait: the folder or s3://bucket/prefix of the dispatchers.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(0),
    metavar="SECONDS",
    help="With --wait: stop waiting after so long; the job run goes on.",
)
@dead_letters_option
@json_option
def submit(
    document: str,
    queue: str,
    job_run_id: str | None,
    wait: bool,
    state: str | None,
    timeout_s: float | None,
    dead_letters: str | None,
    as_json: bool,
) -> None:
    """Send a document to a queue, and print the id of its job run. DOC.json may be -, which is stdin.

    With --wait, progress goes to stderr, and the exit status is that of the job run: 0 if it has succeeded; 1 if it has
    failed, was cancelled, or has not ended in time; 2 if its document is refused, which a dead letter tells; 3 if its
    id is taken. After Ctrl-C the job run goes on.

    \b
    deltacompact-sessions submit nightly.json --queue /srv/queue
    deltacompact-sessions submit nightly.json --queue https://sqs.eu-west-1.amazonaws.com/123456789012/job-runs
    """
    from sessions.base.ids import new_job_run_id
    from sessions.cli.waiting import check_outcome
    from sessions.documents.allow_list import place_of
    from sessions.documents.instruction import parse, values_of
    from sessions.queues.opening import open_queue

    if wait and state is None:
        raise click.UsageError("--wait needs --state: where the dispatchers keep their records.")
    only_with("--wait", wait, "--state", "--timeout", "--dead-letters")
    values = values_of(document_at(document))
    of_document = values.get("job_run_id") or new_job_run_id()
    values["job_run_id"] = of_document if job_run_id is None else job_run_id  # an empty one is refused
    body = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    instruction = parse(body)  # as a dispatcher will read it
    place_of(instruction)
    opened = open_queue(queue, dead_letters)
    message_id = opened.send(body, instruction.source_table_id)
    sent = {"job_run_id": str(instruction.job_run_id), "message_id": message_id, "queue": queue}
    said = f"job run {instruction.job_run_id}: sent to {queue}"
    if state is None:
        answer(as_json, sent, said)
        return
    click.echo(said, err=True)
    run = _waited_for(state, opened, sent, values_of(instruction), timeout_s)
    answer(as_json, {**sent, "state": run.state, "error": run.error}, f"job run {run.id}: {run.state}")
    check_outcome(run)


def _waited_for(
    state: str, queue: Queue, sent: dict[str, str], document: dict[str, Any], timeout_s: float | None
) -> JobRun:
    from sessions.cli.waiting import JobRunWait
    from sessions.records.state_store import StateStore

    def say(text: str) -> None:
        click.echo(f"job run {sent['job_run_id']}: {printable(text)}", err=True)

    waiting = JobRunWait(StateStore(state), queue, sent["job_run_id"], sent["message_id"], document, say)
    return waiting.until_ended(timeout_s)
