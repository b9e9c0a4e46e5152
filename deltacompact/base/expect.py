"""Refuses arguments of the wrong type, in one line, before any work begins.

text("token", 7)              InputError: token is 7 (int), it must be a string
names("columns", "id")        ("id",): one name is a list of one
names("primary_keys", [1])    InputError: primary_keys holds 1 (int), it must hold strings

    catalog.append("orders", rows, operation_colum="op")
    TypeError: append() has an unknown argument 'operation_colum': did you mean 'operation_column'?

`@users_calls` gives the public methods of a class these checks and their users' names; `@user_call`, one function.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from deltacompact.base.errors import InputError
from deltacompact.base.wording import unknown_option

T = TypeVar("T")


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


def arguments(call: str, given: Collection[str], known: Collection[str]) -> None:
    """Raises TypeError for an argument that the call does not have. The message names the call as users write it."""
    for name in given:
        if name not in known:
            if "settings" in known and name in _settings():
                raise TypeError(f"{call}() has no argument {name!r}, it is a setting: settings=Settings({name}=…)")
            raise TypeError(f"{call}() has an {unknown_option(name, known, 'argument')}")


def _settings() -> Collection[str]:
    module = importlib.import_module("deltacompact.base.settings")  # at run time: it checks its values by this module
    names: Collection[str] = module.Settings.__annotations__
    return names


# Calls, checked and named as users write them

Call = TypeVar("Call", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)

_MODULES = {
    "ChangeEventOptions": "catalog.delta_stream_calls",
    "ChangesOptions": "change_feed.request",
    "CompactionArguments": "arguments",
    "IcebergSelection": "catalog.iceberg_table",
    "ReportedReads": "catalog.iceberg_table",
    "Selection": "delta_streams.scan",
}
"""The modules of the argument lists that several calls share. A call imports its list when it is made."""


def arguments_of(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The names of a call's arguments. None: the call passes on any argument."""
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.append(name)
        elif (several := re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))) is None:
            return None
        else:
            module = importlib.import_module(f"deltacompact.{_MODULES[several[1]]}")
            names += getattr(module, several[1]).__annotations__
    return tuple(name for name in names if name not in ("self", "cls"))


def user_call(function: Call) -> Call:
    """The function with checked arguments, under its own name: users do not know the class that holds it."""
    function.__qualname__ = function.__name__
    known = functools.cache(lambda: arguments_of(function))

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if named and (names := known()) is not None:
            arguments(function.__name__, named, names)
        return function(*given, **named)

    return call  # type: ignore[return-value]


def users_calls(kind: Kind) -> Kind:
    """Makes the methods of a class `user_call`s: its own public ones, or those in `_words`, inherited ones too."""
    for name in getattr(kind, "_words", ()) or [name for name in vars(kind) if not name.startswith("_")]:
        member = inspect.getattr_static(kind, name)
        if inspect.isfunction(member):
            setattr(kind, name, user_call(member))
        elif isinstance(member, classmethod):
            setattr(kind, name, classmethod(user_call(member.__func__)))
    return kind
