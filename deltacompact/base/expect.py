"""Refuses arguments of the wrong type, in one line, before any work begins.

text("token", 7)              InputError: token is 7 (int), it must be a string
names("columns", "id")        ("id",): one name is a list of one
names("primary_keys", [1])    InputError: primary_keys holds 1 (int), it must hold strings
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from deltacompact.base.errors import InputError

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def text(argument: str, value: Any) -> str:
    """A string that is not empty."""
    if not isinstance(value, str):
        raise InputError(f"{argument} is {_shown(value)}, it must be a string")
    if not value:
        raise InputError(f"{argument} is empty")
    return value


def is_text(value: Any) -> bool:
    """Whether the value is a text that UTF-8 can encode (it cannot encode half of a surrogate pair)."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def text_or_none(argument: str, value: Any) -> str | None:
    return None if value is None else text(argument, value)


def path(argument: str, value: Any) -> str:
    """A string or a path object."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise InputError(f"{argument} is {_shown(value)}, it must be a string or a path")
    return os.fspath(value)


def names(argument: str, value: Any) -> tuple[str, ...]:
    """Names of columns, as a list, or one name as a string."""
    if isinstance(value, str):
        value = (value,)
    found = several(argument, value)
    for name in found:
        if not isinstance(name, str):
            raise InputError(f"{argument} holds {_shown(name)}, it must hold strings")
        if not name:
            raise InputError(f"{argument} holds an empty name")
        if not is_text(name):
            raise InputError(f"{argument} holds {name!r}, which is not a text that UTF-8 can hold")
    return found


def several(argument: str, value: Any) -> tuple[Any, ...]:
    """A list, a tuple or another iterable. Refuses a dict, because iterating over it loses the values."""
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
        raise InputError(f"{argument} is {_shown(value)}, it must be a list")
    return tuple(value)


def options(argument: str, value: Any) -> Mapping[str, Any]:
    """Options by name. None means no options."""
    if not isinstance(value or {}, Mapping):
        raise InputError(f"{argument} is {_shown(value)}, it must be a dict of option names")
    return value or {}


def instance(argument: str, value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise InputError(f"{argument} is {_shown(value)}, it must be a {kind.__name__}")
    return value


def callables(argument: str, value: Any) -> list[Any]:
    found = list(several(argument, value))
    for each in found:
        if not callable(each):
            raise InputError(f"{argument} holds {_shown(each)}, it must hold callables")
    return found


def at_most_one(**arguments: Any) -> None:
    """Raise InputError for two arguments of which each asks for another answer."""
    given = [name for name, value in arguments.items() if value]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} ask two questions: ask one at a time")


def choice(argument: str, value: Any, kind: type[E]) -> E:
    """A member of an enumeration, or its text in any case."""
    try:
        return kind(str(value).lower())
    except ValueError:
        known = " or ".join(repr(str(member)) for member in kind)
        raise InputError(f"{argument} is {value!r}, it must be {known}") from None


def flag(argument: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{argument} is {_shown(value)}, it must be True or False")
    return value


def number(argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise InputError(f"{argument} is {_shown(value)}, it must be a number")
    return value


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= 60 else text[:59] + '…'} ({type(value).__name__})"
