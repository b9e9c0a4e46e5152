"""Calls of users refuse an argument that they do not have, in words that name the call as users write it.

    catalog.append("orders", rows, operation_colum="op")
    TypeError: append() has an unknown argument 'operation_colum': did you mean 'operation_column'?

    compact(catalog, "orders", hash_buckets=4)
    TypeError: compact() has no argument 'hash_buckets', it is a setting: settings=Settings(hash_buckets=…)

`@user_call` checks the arguments of one function, `@users_calls` those of the public methods of a class.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from deltacompact.base.settings import Settings
from deltacompact.base.wording import unknown_option

Call = TypeVar("Call", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)


def arguments_of(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The names of a call's arguments. None: the call passes on any argument."""
    names, known = list[str](), inspect.unwrap(function).__globals__
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.append(name)
        elif (several := re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))) is None:
            return None
        else:
            names += known[several[1]].__annotations__
    return tuple(name for name in names if name not in ("self", "cls"))


def user_call(function: Call) -> Call:
    """The function with checked arguments, under its own name: users do not know the class that holds it."""
    function.__qualname__ = function.__name__
    known = functools.cache(lambda: arguments_of(function))

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if named and (names := known()) is not None:
            _check_names(function.__name__, named, names)
        return function(*given, **named)

    return call  # type: ignore[return-value]


def _check_names(call: str, given: Collection[str], known: Collection[str]) -> None:
    """Raises TypeError for an argument that the call does not have. The message names the call as users write it."""
    for name in given:
        if name not in known:
            if "settings" in known and name in Settings.__annotations__:
                raise TypeError(f"{call}() has no argument {name!r}, it is a setting: settings=Settings({name}=…)")
            raise TypeError(f"{call}() has an {unknown_option(name, known, 'argument')}")


def users_calls(kind: Kind) -> Kind:
    """Makes the methods of a class `user_call`s: its own public ones, or those in `_words`, inherited ones too."""
    for name in getattr(kind, "_words", ()) or [name for name in vars(kind) if not name.startswith("_")]:
        member = inspect.getattr_static(kind, name)
        if inspect.isfunction(member):
            setattr(kind, name, user_call(member))
        elif isinstance(member, classmethod):
            setattr(kind, name, classmethod(user_call(member.__func__)))
    return kind
