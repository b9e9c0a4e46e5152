"""The options of a mode, each declared once: its name, its field, its kind, its default and what it means.

    max_files: int | None = option("max-files-to-convert", WHOLE, None, "most delete files of a run", says="all")

    chosen({"max-files-to-convert": "7"})      {"max_files": 7}
    chosen({"max-files-to-convert": "0"})      option max-files-to-convert: '0' is not a whole number of at least 1
    chosen({"max-files": "7"})                 unknown option 'max-files': did you mean 'max-files-to-convert'?
    --help, docs/iceberg-options.md            max-files-to-convert    all    most delete files of a run

Values are texts, as on the command line, or the Python and JSON values of the same meaning.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import INT64_MAX
from deltacompact.base.moments import zoned
from deltacompact.base.options import Kind, declared, option
from deltacompact.base.spans import span_s
from deltacompact.base.table_keys import Direction, SortKey
from deltacompact.base.wording import unknown_option
from deltacompact.layout.cluster_by import ClusterColumn, cluster_columns
from deltacompact.layout.sort_order import sort_items

Options = TypeVar("Options")


def chosen_values(options: Any, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those options that were chosen, by the fields of the dataclass. Raises InputError naming one."""
    known = {name: field for field, option in declared(options).items() for name in option.names}
    values = {}
    for name, value in chosen.items():
        if name not in known:
            raise InputError(unknown_option(name, known))
        option = declared(options)[known[name]]
        if len(given := [other for other in reversed(option.names) if other in chosen]) > 1:
            raise InputError(f"options {given[0]} and {given[1]} are the same: give one of them")
        values[known[name]] = option.kind.read(name, value)
    return values


def stored_options(kind: type[Options], stored: Mapping[str, Any]) -> Options:
    """The options of a stored plan, by their fields. Options that the plan's version did not know have their defaults.

    Raises InputError for a chosen option of a newer version.
    """
    known = declared(kind)
    if newer := sorted(name for name, value in stored.items() if name not in known and value is not None):
        raise InputError(f"the plan has the option {newer[0]!r}, which is newer than this version: update deltacompact")
    ours = {name: value for name, value in stored.items() if name in known}
    return kind(**{name: value if value is None else known[name].kind.stored(value) for name, value in ours.items()})


# Kinds


class Reading(Kind, ABC):
    """A kind of values that are given as texts."""

    @abstractmethod
    def read(self, name: str, value: Any) -> Any:
        """The value of a text. Raises InputError naming the option."""

    def stored(self, value: Any) -> Any:
        """The value that a plan has as JSON: `asdict` of the options has made it plain."""
        return value


@dataclass(frozen=True, slots=True)
class Whole(Reading):
    """A whole number."""

    least: int = 1
    may_be_property: bool = False

    def read(self, name: str, value: Any) -> int:
        text = _text(value)
        if re.fullmatch("[0-9]{1,19}", text) and self.least <= int(text) <= INT64_MAX:
            return int(text)
        wanted = f"a whole number of at least {self.least}"
        if len(text) >= 19:
            wanted += f", and at most {INT64_MAX}"
        if self.may_be_property:
            raise InputError(f"{name} is {value!r}: it must be {wanted}")
        raise InputError(f"option {name}: {value!r} is not {wanted}")


@dataclass(frozen=True, slots=True)
class Flag(Reading):
    """true or false."""

    def read(self, name: str, value: Any) -> bool:
        if _text(value) not in ("true", "false"):
            raise InputError(f"option {name}: {value!r} is neither true nor false")
        return _text(value) == "true"


@dataclass(frozen=True, slots=True)
class Share(Reading):
    """A share of a whole."""

    def read(self, name: str, value: Any) -> float:
        try:
            share = float(_text(value))
        except ValueError:
            share = -1.0
        if not 0.0 < share <= 1.0:
            raise InputError(f"option {name}: {value!r} is not a share above 0, up to 1")
        return share


@dataclass(frozen=True, slots=True)
class Factor(Reading):
    """A factor, such as 1.5."""

    def read(self, name: str, value: Any) -> float:
        try:
            factor = float(_text(value))
        except ValueError:
            factor = 0.0
        if not 1.0 <= factor < math.inf:
            raise InputError(f"option {name}: {value!r} is not a number of at least 1")
        return factor


@dataclass(frozen=True, slots=True)
class OneOf(Reading):
    """One of some words."""

    words: type[enum.StrEnum]

    def read(self, name: str, value: Any) -> Any:
        try:
            return self.words(_text(value))
        except ValueError:
            raise InputError(f"option {name}: {value!r} is none of {', '.join(self.words)}") from None

    def stored(self, value: Any) -> Any:
        try:
            return self.words(value)
        except ValueError:
            raise InputError(
                f"the plan says {value!r}, which is newer than this version: update deltacompact"
            ) from None


@dataclass(frozen=True, slots=True)
class NamedEngine(Reading):
    """The name of an engine that we know facts about. They are imported only if one is named."""

    def read(self, name: str, value: Any) -> str:
        from deltacompact.base.engines import EngineName

        return str(OneOf(EngineName).read(name, value))


@dataclass(frozen=True, slots=True)
class Text(Reading):
    """A text that is not empty."""

    def read(self, name: str, value: Any) -> str:
        return expect.text(f"option {name}", value)


@dataclass(frozen=True, slots=True)
class ColumnName(Reading):
    """The name of a column."""

    def read(self, name: str, value: Any) -> str:
        if not (column := str(value).strip()):
            raise InputError(f"option {name} is empty: name a column")
        return column


@dataclass(frozen=True, slots=True)
class Listed(Reading):
    """A list, or its items in a text with commas. No item comes twice."""

    def read(self, name: str, value: Any) -> tuple[str, ...]:
        return _without_repeats(name, _listed(name, value))

    def stored(self, value: Any) -> tuple[str, ...]:
        return tuple(value)


@dataclass(frozen=True, slots=True)
class SortKeys(Reading):
    """A list of columns, each maybe followed by `asc` or `desc`."""

    def read(self, name: str, value: Any) -> tuple[SortKey, ...]:
        keys = tuple(_sort_key(name, text) for text in _listed(name, value))
        _without_repeats(name, tuple(key.name for key in keys))
        return keys

    def stored(self, value: Any) -> tuple[SortKey, ...]:
        return tuple(SortKey.of((key["name"], key["direction"])) for key in value)


@dataclass(frozen=True, slots=True)
class Age(Reading):
    """A span ("36h") or a moment ("2026-11-01T00:00:00Z"). The value is a span in seconds, or the moment."""

    def read(self, name: str, value: Any) -> float | datetime:
        text = str(value).strip()
        if (span := span_s(text)) is not None:
            return span
        try:
            return zoned(datetime.fromisoformat(text))
        except ValueError:
            raise InputError(
                f"option {name}: {value!r} is neither a span (36h, 7d) nor a moment (2026-11-01T00:00:00Z)"
            ) from None


@dataclass(frozen=True, slots=True)
class ClusterColumns(Reading):
    """Columns to cluster by, each with its weight; an empty text: none."""

    def read(self, name: str, value: Any) -> tuple[ClusterColumn, ...]:
        return cluster_columns(f"option {name}", value)

    def stored(self, value: Any) -> tuple[ClusterColumn, ...]:
        return tuple(ClusterColumn(**column) for column in value)


@dataclass(frozen=True, slots=True)
class SortOrder(Reading):
    """A sort order as Spark's procedure has it."""

    def read(self, name: str, value: Any) -> str:
        text = expect.text(f"option {name}", value)
        sort_items(f"option {name}", text)
        return text


WHOLE, WHOLE_OR_ZERO, FLAG, SHARE, TEXT = Whole(), Whole(0), Flag(), Share(), Text()
CLUSTER_COLUMNS, FACTOR, SORT_ORDER = ClusterColumns(), Factor(), SortOrder()
ENGINE = NamedEngine()
_DIRECTIONS = {"asc": Direction.ASCENDING, "desc": Direction.DESCENDING}

# What several modes have

MAX_COMMITS = 10
partial_progress_option = functools.partial(
    option,
    "partial-progress.enabled",
    FLAG,
    False,
    "commit after some groups, not once at the end; skip unreadable ones",
)
max_commits_option = functools.partial(
    option, "partial-progress.max-commits", WHOLE, MAX_COMMITS, "about this many commits"
)
max_failed_commits_option = functools.partial(
    option,
    "partial-progress.max-failed-commits",
    WHOLE_OR_ZERO,
    MAX_COMMITS,
    "so many may fail; the next run commits them",
    says="as many as there may be",
)
key_index_option = functools.partial(
    option, "key-index", FLAG, None, "keep keys in an index beside the table", says="the table's property"
)
marks_readable_by_option = functools.partial(
    option, "readable-by", ENGINE, None, "refuse marks that this engine does not read", says="any"
)


def _text(value: Any) -> str:
    return str(value).strip().lower()


def _listed(name: str, value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    found = tuple(str(item).strip() for item in items)
    if not found or "" in found:
        raise InputError(f"option {name}: {value!r} has an empty item: write a,b")
    return found


def _without_repeats(name: str, found: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := next((item for number, item in enumerate(found) if item in found[:number]), None):
        raise InputError(f"option {name} has {repeated!r} twice")
    return found


def _sort_key(name: str, text: str) -> SortKey:
    column, _, direction = text.rpartition(" ")
    if not column:
        return SortKey(text)
    if direction.lower() not in _DIRECTIONS:
        raise InputError(f"option {name}: {text!r} ends neither in asc nor in desc")
    return SortKey(column.strip(), _DIRECTIONS[direction.lower()])
