"""What notebooks show: small tables, and public names where a user presses Tab.

html_table("orders", ["partition"], [["day=<b>"]])     <table>…<td>day=&lt;b&gt;</td>…: values are escaped
users_words(result)                                    without names that begin with an underscore
missing(table, "vacuum", {"vacuum": "maintain"})       AttributeError: … has no 'vacuum': maintain does it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence


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


def users_words(thing: object, inside: Collection[str] = ()) -> list[str]:
    """For `__dir__`: Tab shows no other. `inside`: names without an underscore that only this program needs."""
    return sorted(
        name for name in object.__dir__(thing) if (name[:1] != "_" or name[:2] == "__") and name not in inside
    )


def missing(thing: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """For `__getattr__`: says what does it instead, or which name may be meant."""
    import difflib

    what = f"{type(thing).__name__} has no {name!r}"
    if name in instead:
        return AttributeError(f"{what}: {instead[name]}", name=name)
    words = [word for word in dir(type(thing)) if not word.startswith("_")]  # an instance would ask for its __dict__
    nearest = [] if name.startswith("_") else difflib.get_close_matches(name, words, 1)
    return AttributeError(f"{what}: did you mean {nearest[0]!r}?" if nearest else what, name=name)
