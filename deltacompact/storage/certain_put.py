"""Repeats put if absent until the winner of the slot is known; raises OutcomeUnknownError where nobody can know it.

    put -> created                                    committed
    put -> no reply, get -> our bytes                 committed: only the reply was lost
    put -> no reply, get -> nothing, put -> …         again, three times in all
    put -> no reply, get -> access refused            OutcomeUnknownError: "may or may not be committed"
    put -> Ctrl-C,   get -> our bytes                 Interrupted: "committed at position 7, interrupted afterwards"

The bytes must be unique, as those of log entries are: every commit has a fresh id. Then the stored bytes say who won
the slot. An `Effect` says in words what a put does. A put that nobody can see yet (into the log of a successor before
its seal) has no Effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from deltacompact.base.errors import CredentialsError, InputError, Interrupted, NotFoundError, OutcomeUnknownError
from deltacompact.base.wording import text_of

if TYPE_CHECKING:
    from deltacompact.storage.objects import ObjectStore

_PUT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Effect:
    """What a put does, in words ("commit 7", "committed"), and what the user can do if its outcome is unknown."""

    subject: str
    done: str
    advice: str


@dataclass(slots=True)
class _Attempt:
    store: ObjectStore
    path: str
    data: bytes
    effect: Effect
    won: bool | None = None


_attempts: ContextVar[list[_Attempt] | None] = ContextVar("attempts", default=None)


@contextlib.contextmanager
def telling_interrupts(summary: Callable[[int], str] | None = None) -> Iterator[None]:
    """Turn Ctrl-C in this block into Interrupted, which lists what the block has put so far.

    If the block has put nothing yet, KeyboardInterrupt passes unchanged. Of nested blocks, the outermost raises. But a
    block with a `summary` raises itself, with `summary(number of puts that took effect)` in place of the list.
    """
    if summary is None and _attempts.get() is not None:
        yield
        return
    attempts: list[_Attempt] = []
    previous = _attempts.set(attempts)
    try:
        yield
    except KeyboardInterrupt:
        outcomes = [outcome for attempt in attempts if (outcome := _outcome(attempt))]
        if not outcomes:
            raise
        took_effect = sum(attempt.won is True for attempt in attempts)
        raise Interrupted("; ".join(outcomes) if summary is None else summary(took_effect)) from None
    finally:
        _attempts.reset(previous)


def put_certainly(store: ObjectStore, path: str, data: bytes, effect: Effect | None = None) -> bool:
    """Put, and put again if the reply was lost. False: another writer won the slot.

    Raises OutcomeUnknownError if the put may have happened, and the store's own error if the store refused it. Without
    an `effect`, it raises the store's own error in both cases.
    """
    if effect is None:
        return _put(store, path, data, None)
    attempt = _Attempt(store, path, data, effect)
    if (attempts := _attempts.get()) is not None:
        attempts.append(attempt)
    attempt.won = _put(store, path, data, effect)
    return attempt.won


def _put(store: ObjectStore, path: str, data: bytes, effect: Effect | None) -> bool:
    for number in count(1):
        try:
            if store.put_if_absent(path, data):
                return True
            error: Exception | None = None
        except Exception as raised:
            error = raised
        try:
            return store.get(path) == data
        except NotFoundError:
            if isinstance(error, (InputError, CredentialsError)) and number == 1:
                raise error from None  # the store refused it, and nothing is stored
        except Exception as unreadable:
            error = error or unreadable
        if number == _PUT_ATTEMPTS:
            raise _unknown(store.uri + path, effect, error) from error
    raise AssertionError("unreachable")


def _unknown(uri: str, effect: Effect | None, error: Exception | None) -> Exception:
    what = text_of(error or "the slot was taken and is empty")
    if effect is None:
        return error or OutcomeUnknownError(f"{uri}: {what}")
    return OutcomeUnknownError(f"{effect.subject} may or may not be {effect.done} ({what}): {effect.advice}")


def _outcome(attempt: _Attempt) -> str | None:
    """The outcome of a put in words, for an interrupted command; None where another writer won the slot."""
    effect = attempt.effect
    if attempt.won is None:
        try:
            attempt.won = attempt.store.get(attempt.path) == attempt.data
        except NotFoundError:
            return f"{effect.subject} was not {effect.done} when last checked: {effect.advice}"
        except (Exception, KeyboardInterrupt):
            return f"{effect.subject} may or may not be {effect.done}: {effect.advice}"
    return f"{effect.subject} is {effect.done}" if attempt.won else None
