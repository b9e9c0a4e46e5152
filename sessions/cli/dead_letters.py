"""dlq list, show, redrive, drop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from deltacompact.base.errors import DeltaCompactError, InputError, NotFoundError, StoreError
from deltacompact.base.printable import LINES, printable
from deltacompact.base.wording import counted, error_document
from deltacompact.cli.answers import Failed, answer, note, say_json
from sessions.cli.options import dead_letters_option, json_option, queue_option

if TYPE_CHECKING:
    from sessions.queues.queue import DeadLetter, Queue

reason_option = click.option("--reason", metavar="REASON", help="Only those of this reason, as list shows it.")


@click.group()
def dlq() -> None:
    """List, show, send back and delete dead letters.

    A dead letter is a message that can never be served. It is kept with the reason and the field that is wrong. What
    SQS moved to the dead-letter queue from another queue is left out. Of a FIFO queue, SQS shows ten of a message group
    at a time: repeat the command until none is left.

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
        answer(False, None, *(printable(f"{letter.id}  {letter.reason}  {letter.text}") for letter in found))


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
        printable(f"id      {letter.id}"),
        printable(f"reason  {letter.reason}"),
        printable(f"field   {letter.field or '(the document)'}"),
        printable(f"text    {letter.text}"),
        "",
        printable(letter.body, LINES),
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
    done.answer(as_json, "redriven", f"sent back to {queue}")


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
    done.answer(as_json, "dropped", f"deleted from {queue}")


def _opened(queue: str, dead_letters: str | None) -> Queue:
    from sessions.queues.opening import open_queue

    return open_queue(queue, dead_letters, make=False)


def _chosen(letters: Sequence[DeadLetter], message_ids: Collection[str], queue: str, done: str) -> Sequence[DeadLetter]:
    """Those with an id, or all where no id is named. Raises NotFoundError for an id that is not there."""
    found = [letter for letter in letters if not message_ids or letter.id in message_ids]
    if missing := set(message_ids) - {letter.id for letter in found}:
        raise NotFoundError(f"no dead letter {min(missing)!r} in {queue}; nothing was {done}")
    return found


@dataclass(frozen=True, slots=True)
class _Done:
    """The ids of the letters that were dealt with, and why not all of them were."""

    ids: list[str]
    error: DeltaCompactError | None = None

    def answer(self, as_json: bool, name: str, done: str) -> None:
        """Raises Failed if some letters are left."""
        failed = {"error": error_document(self.error)} if self.error else {}
        answer(as_json, {name: self.ids, **failed}, f"{len(self.ids)} {done}")
        if self.error:
            raise Failed(self.error)


def _each(queue: Queue, chosen: Sequence[DeadLetter], do: Callable[[DeadLetter], None]) -> _Done:
    """Do this with each chosen letter, by the receipt of a second listing.

    A letter that comes meanwhile stays: a dispatcher may have refused again what we have just sent back. One that the
    queue refuses stays, too, and the others go on.
    """
    from sessions.queues.queue import RefusedMessage

    left, done = {letter.id for letter in chosen}, []
    refused: list[DeltaCompactError] = []
    try:
        with contextlib.closing(queue.dead_letters()) as letters:  # which shows the others again
            while left and (letter := next(letters, None)) is not None:
                if letter.id in left:
                    left.remove(letter.id)
                    try:
                        do(letter)
                        done.append(letter.id)
                    except RefusedMessage as error:
                        refused.append(RefusedMessage(f"dead letter {letter.id} stays: {error}"))
    except DeltaCompactError as error:
        return _Done(done, error)
    if left:
        said = f"{counted(len(left), 'dead letter')} could not be received again: repeat this"
        refused.append(StoreError(f"{said}, unless somebody else has dealt with {'it' if len(left) == 1 else 'them'}"))
    return _Done(done, next(iter(refused), None))


def _letters(queue: Queue, reason: str | None) -> list[DeadLetter]:
    letters = list(queue.dead_letters())
    found = [letter for letter in letters if reason in (None, letter.reason)]
    if letters and not found:
        note(f"no dead letter has the reason {reason!r}, only {', '.join(sorted({each.reason for each in letters}))}")
    return found
