"""An option is declared once, at its field of a dataclass: its name, kind, default, unit, and what it means.

    most: int | None = option("max-files", WHOLE, None, "most files of a run", says="all")

Parsers, `--help`, the JSON Schema of documents, docstrings and the tables of the docs are made from this declaration.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

C = TypeVar("C", bound=type[Any])


class Kind:
    """What values an option takes. Who declares options says what its kinds do: settings check, modes read texts."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option as people see it. `default` is in words, `unit` is empty for what has none; `also` are other names.

    `kind` is one of those that the declaring module has.
    """

    name: str
    kind: Any
    default: str
    unit: str
    text: str
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def meaning(self) -> str:
        return f"{self.text} ({self.unit})" if self.unit else self.text

    @property
    def sentence(self) -> str:
        """What the option means, and its default."""
        return f"{self.meaning[0].upper()}{self.meaning[1:]}. Default: {self.default}."


def option(
    name: str,
    kind: Kind,
    default: Any,
    text: str,
    *,
    unit: str = "",
    says: str = "",
    also: tuple[str, ...] = (),
) -> Any:
    """A field of a dataclass of options. `says`: the default in words, where the value does not explain itself."""
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    declared = Option(name, kind, says or shown, unit, text, also)
    return dataclasses.field(default=default, metadata={"option": declared})


def declared(options: Any) -> dict[str, Option]:
    """The options that a dataclass declares, by its fields."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(options)}


def documented(options: C) -> C:
    """The dataclass; its docstring now ends with the meaning of each of its own options."""
    names = declared(options)
    own = [name for name in options.__annotations__ if name in names]
    width = max(map(len, own))
    lines = (f"    {name:<{width}}    {names[name].meaning} (default: {names[name].default})" for name in own)
    story = (options.__doc__ or "").rstrip()
    options.__doc__ = "\n".join([story, "", *lines, "    "])
    return options
