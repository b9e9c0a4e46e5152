"""What notebooks show: small tables, and public names where a user presses Tab.

html_table("orders", ["partition"], [["day=<b>"]])     <table>…<td>day=&lt;b&gt;</td>…: values are escaped
class Heat(UsersWords): _inside = ("known",)           dir(Heat), dir(heat): no "known", no _underscore
missing(table, "vacuum", {"vacuum": "maintain"})       AttributeError: … has no 'vacuum': maintain does it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a caption above it. The last column is text, the others are numbers."""
    import html  # with its entities, for notebooks alone

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(f"<{tag}>{html.escape(value)}</{tag}>" for value in values)

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{cells('th', head)}</tr></thead><tbody>{lines}</tbody></table>"
    )


def _users_words(names: Iterable[str], kind: type[UsersWords]) -> list[str]:
    words = kind._words

    def is_shown(name: str) -> bool:
        return name[:2] == "__" or (name[:1] != "_" and name not in kind._inside and (not words or name in words))

    return sorted(filter(is_shown, names))


class _OfUsers(type):
    """What Tab shows after the class itself, such as `Appended.`."""

    def __dir__(cls) -> list[str]:
        return _users_words(type.__dir__(cls), cls)  # type: ignore[arg-type]  # each such class is a UsersWords


class UsersWords(metaclass=_OfUsers):
    """Of this class, and of what it makes, Tab shows a user's words only: never a name with an underscore.

    `_inside`: names without an underscore that Tab leaves out, because only this program needs them. `_words`: a class
    with many such names says instead which names Tab shows.
    """

    __slots__ = ()
    _inside: ClassVar[Collection[str]] = ()
    _words: ClassVar[Collection[str]] = ()

    def __dir__(self) -> list[str]:
        return _users_words(object.__dir__(self), type(self))


def missing(thing: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """For `__getattr__`: says what does it instead, or which name may be meant."""
    import difflib

    what = f"{type(thing).__name__} has no {name!r}"
    if name in instead:
        return AttributeError(f"{what}: {instead[name]}", name=name)
    words = [word for word in dir(type(thing)) if not word.startswith("_")]  # an instance would ask for its __dict__
    nearest = [] if name.startswith("_") else difflib.get_close_matches(name, words, 1)
    return AttributeError(f"{what}: did you mean {nearest[0]!r}?" if nearest else what, name=name)
