"""Arguments of the wrong type, refused in one line before any work is done.

text("token", 7)              InputError: token is 7 (int), it must be a string
names("columns", "id")        ("id",): one name is a list of one
names("primary_keys", [1])    InputError: primary_keys holds 1 (int), it must hold strings
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

from deltacompact.base.errors import InputError

T = TypeVar("T")


def text(what: str, value: Any) -> str:
    """A string that is not empty."""
    if not isinstance(value, str):
        raise InputError(f"{what} is {_shown(value)}, it must be a string")
    if not value:
        raise InputError(f"{what} is empty")
    return value


def text_or_none(what: str, value: Any) -> str | None:
    return None if value is None else text(what, value)


def path(what: str, value: Any) -> str:
    """A string or a path object."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise InputError(f"{what} is {_shown(value)}, it must be a string or a path")
    return os.fspath(value)


def names(what: str, value: Any) -> tuple[str, ...]:
    """Names of columns; a single string is one of them."""
    if isinstance(value, str):
        value = (value,)
    found = several(what, value)
    for name in found:
        if not isinstance(name, str):
            raise InputError(f"{what} holds {_shown(name)}, it must hold strings")
        if not name:
            raise InputError(f"{what} holds an empty name")
    return found


def several(what: str, value: Any) -> tuple[Any, ...]:
    """A list, a tuple, or whatever else can be gone through; not a mapping, whose values would be lost."""
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
        raise InputError(f"{what} is {_shown(value)}, it must be a list")
    return tuple(value)


def instance(what: str, value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise InputError(f"{what} is {_shown(value)}, it must be a {kind.__name__}")
    return value


def callable_(what: str, value: Any) -> Any:
    if not callable(value):
        raise InputError(f"{what} holds {_shown(value)}, it must hold callables")
    return value


def flag(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{what} is {_shown(value)}, it must be True or False")
    return value


def number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise InputError(f"{what} is {_shown(value)}, it must be a number")
    return value


def _shown(value: Any) -> str:
    said = " ".join(repr(value).split())
    return f"{said if len(said) <= 60 else said[:59] + '…'} ({type(value).__name__})"
