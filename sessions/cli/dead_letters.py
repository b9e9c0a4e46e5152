"""dlq list, show, redrive, drop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.cli.answers import answer, say_json
from sessions.cli.options import dead_letters_option, json_option, queue_option
from sessions.cli.printed import visible

if TYPE_CHECKING:
    from sessions.queues.queue import DeadLetter, Queue

reason_option = click.option("--reason", metavar="REASON", help="Only those of this reason, as list shows it.")


@click.group()
def dlq() -> None:
    """List, show, send back and delete dead letters.

    A dead letter is a message that can never be served. It is kept with the reason and the field that is wrong.

    \b
    deltacompact-sessions dlq list    --queue /srv/queue
    deltacompact-sessions dlq show    --queue /srv/queue 01763778…
    deltacompact-sessions dlq redrive --queue /srv/queue --reason catalog_not_allowed
    deltacompact-sessions dlq drop    --queue /srv/queue --reason invalid_document
    """


@dlq.command("list")
@queue_option
@dead_letters_option
@reason_option
@json_option
def list_(queue: str, dead_letters: str | None, reason: str | None, as_json: bool) -> None:
    """Print one line for each dead letter."""
    found = _letters(_opened(queue, dead_letters), reason)
    if as_json:
        say_json([{**asdict(letter), "receipt": None} for letter in found])
    elif not found:
        answer(False, None, "no dead letter")
    else:
        answer(False, None, *(visible(f"{letter.id}  {letter.reason}  {letter.text}") for letter in found))


@dlq.command()
@queue_option
@dead_letters_option
@click.argument("message_id", metavar="ID")
@json_option
def show(queue: str, dead_letters: str | None, message_id: str, as_json: bool) -> None:
    """Print one dead letter in full."""
    found = [letter for letter in _letters(_opened(queue, dead_letters), None) if letter.id == message_id]
    if not found:
        raise NotFoundError(f"no dead letter {message_id!r} in {queue}")
    letter = found[0]
    answer(
        as_json,
        {**asdict(letter), "receipt": None},
        visible(f"id      {letter.id}"),
        visible(f"reason  {letter.reason}"),
        visible(f"field   {letter.field or '(the document)'}"),
        visible(f"text    {letter.text}"),
        "",
        visible(letter.body, kept="\n\t"),
    )


@dlq.command()
@queue_option
@dead_letters_option
@click.argument("message_ids", metavar="[ID ...]", nargs=-1)
@reason_option
@json_option
def redrive(
    queue: str, dead_letters: str | None, message_ids: tuple[str, ...], reason: str | None, as_json: bool
) -> None:
    """Send dead letters back to the queue: all, those with an ID, or those of one --reason."""
    opened = _opened(queue, dead_letters)
    done = _each(opened, _chosen(_letters(opened, reason), message_ids, queue, "sent"), opened.redrive)
    answer(as_json, {"redriven": done}, f"{len(done)} sent back to {queue}")


@dlq.command()
@queue_option
@dead_letters_option
@click.argument("message_ids", metavar="[ID ...]", nargs=-1)
@reason_option
@click.option("--all", "all_", is_flag=True, help="Without an ID and --reason: all dead letters.")
@json_option
def drop(
    queue: str, dead_letters: str | None, message_ids: tuple[str, ...], reason: str | None, all_: bool, as_json: bool
) -> None:
    """Delete dead letters for good: those with an ID, those of one --reason, or --all."""
    if all_ == bool(message_ids or reason):
        raise InputError("say which dead letters to delete: their IDs, a --reason, or --all")
    opened = _opened(queue, dead_letters)
    done = _each(opened, _chosen(_letters(opened, reason), message_ids, queue, "deleted"), opened.drop)
    answer(as_json, {"dropped": done}, f"{len(done)} deleted from {queue}")


def _opened(queue: str, dead_letters: str | None) -> Queue:
    from sessions.queues.opening import open_queue

    return open_queue(queue, dead_letters, make=False)


def _chosen(letters: Sequence[DeadLetter], message_ids: Collection[str], queue: str, done: str) -> Sequence[DeadLetter]:
    """Those with an id, or all where no id is named. Raises NotFoundError for an id that is not there."""
    found = [letter for letter in letters if not message_ids or letter.id in message_ids]
    if missing := set(message_ids) - {letter.id for letter in found}:
        raise NotFoundError(f"no dead letter {min(missing)!r} in {queue}; nothing was {done}")
    return found


def _each(queue: Queue, chosen: Sequence[DeadLetter], do: Callable[[DeadLetter], None]) -> list[str]:
    """Do this with each chosen letter, by the receipt of a second listing. Returns the ids of those still there.

    A letter that comes meanwhile stays: a dispatcher may have refused again what we have just sent back.
    """
    left = {letter.id for letter in chosen}
    done = []
    with contextlib.closing(queue.dead_letters()) as letters:  # which shows the others again
        while left and (letter := next(letters, None)) is not None:
            if letter.id in left:
                do(letter)
                left.remove(letter.id)
                done.append(letter.id)
    return done


def _letters(queue: Queue, reason: str | None) -> list[DeadLetter]:
    return [letter for letter in queue.dead_letters() if reason in (None, letter.reason)]
