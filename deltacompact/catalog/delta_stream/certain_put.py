"""Put if absent until it is known who won the slot, and say so where it cannot be known.

    put -> created                                    committed
    put -> no reply, look -> our bytes                committed: the reply alone was lost
    put -> no reply, look -> nothing, put -> …        again, three times in all
    put -> no reply, look -> access refused           OutcomeUnknownError: "may or may not be committed"
    put -> Ctrl-C,   look -> our bytes                Interrupted: "committed at position 7, interrupted afterwards"

The bytes of an entry are unique (every commit has a fresh id), so reading the slot tells who won it. An `Effect` says
in words what a put does; an object that nobody sees yet (the log of a successor before its seal) has none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from deltacompact.base.errors import InputError, Interrupted, NotFoundError, OutcomeUnknownError
from deltacompact.base.wording import text_of

if TYPE_CHECKING:
    from deltacompact.storage.objects import ObjectStore

_PUT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Effect:
    """What a put does, as the end of "table orders: …", and what to do where its outcome is unknown."""

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
def telling_interrupts() -> Iterator[None]:
    """Turn Ctrl-C in this block into Interrupted, which says what the block has put into effect so far.

    Where the block has put nothing yet, KeyboardInterrupt stays what it is. Blocks nest: the outermost one tells.
    """
    if _attempts.get() is not None:
        yield
        return
    attempts: list[_Attempt] = []
    previous = _attempts.set(attempts)
    try:
        yield
    except KeyboardInterrupt:
        said = [sentence for attempt in attempts if (sentence := _said(attempt))]
        if not said:
            raise
        raise Interrupted("; ".join(said)) from None
    finally:
        _attempts.reset(previous)


def put_certainly(store: ObjectStore, path: str, data: bytes, effect: Effect | None = None) -> bool:
    """Put, and put again where the reply was lost; False where somebody else won the slot.

    Raises OutcomeUnknownError where an effect may have taken place, and the store's own error where it has not.
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
            if isinstance(error, InputError) and number == 1:
                raise error from None  # refused, and looked at: it is not there
        except Exception as unseen:
            error = error or unseen
        if number == _PUT_ATTEMPTS:
            raise _unknown(store.uri + path, effect, error) from error
    raise AssertionError("unreachable")


def _unknown(uri: str, effect: Effect | None, error: Exception | None) -> Exception:
    what = text_of(error or "the slot was taken and is empty")
    if effect is None:
        return error or OutcomeUnknownError(f"{uri}: {what}")
    return OutcomeUnknownError(f"{effect.subject} may or may not be {effect.done} ({what}): {effect.advice}")


def _said(attempt: _Attempt) -> str | None:
    """What became of a put, for the reader of an interrupted command; None where somebody else won the slot."""
    won, effect = attempt.won, attempt.effect
    if won is None:
        try:
            won = attempt.store.get(attempt.path) == attempt.data
        except NotFoundError:
            return f"{effect.subject} was not {effect.done} when it was last looked at: {effect.advice}"
        except (Exception, KeyboardInterrupt):
            return f"{effect.subject} may or may not be {effect.done}: {effect.advice}"
    return f"{effect.subject} is {effect.done}" if won else None
