"""Texts of partitions that mean one value of their column: a key must not live in two partitions.

column day       partitions                  new
int64            day=1                       day=01            spells the value of day=1
timestamp[us]    day=2026-01-01 00:00:00     day=2026-01-01    spells the value of the other
string           day=1                       day=01            another value
unknown          day=1                       day=01            may spell the value of day=1
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.model import Partition
from deltacompact.tabular import column_types, partition_texts

Values = tuple[pa.Scalar | float | datetime | str | None, ...]
Types = Mapping[str, pa.DataType]
"""The types of partition columns by name. The others are unknown: their texts are compared by what they may mean."""

_LISTED_AGAIN_AFTER_S = 60.0
"""After this time the partitions are listed again for a new one. A process may begin thousands."""


class Spellings:
    """The partitions of a table by their values: as of the last listing, and those that this process has begun since.

    The threads of a process share it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._listed_s = -math.inf
        self._partitions: dict[Partition, None] = {}
        self._types: Types | None = None
        self._of_values: dict[Values, list[Partition]] = {}
        self.supposed: dict[str, pa.DataType] = {}
        """By which types texts are compared while partitions have been asked in vain for those of their columns."""

    def remember(self, listed: Iterable[Partition], now_s: float) -> None:
        """These are all partitions, as of now."""
        with self._lock:
            self._partitions = dict.fromkeys(listed)
            self._listed_s = now_s
            self._types = None

    def others(
        self, partition: Partition, types: Types, supposed: Types, now_s: float, list_again: Callable[[], object]
    ) -> list[Partition]:
        """The partitions that have the same values in other texts, and may exist. This one is known from now on.

        `list_again` remembers a listing. It is asked once a minute. A partition that another process has begun since is
        found by the usual texts of its values. Only `types` have such texts. By `supposed` ones only what is listed is
        compared: maybe no rows have them, and each look for a partition that does not exist costs requests.
        """
        with self._lock:
            if now_s > self._listed_s + _LISTED_AGAIN_AFTER_S:
                list_again()
            compared = {**supposed, **types}
            values, alike = _values(partition, compared), self._by_values(compared)
            found = alike.setdefault(values, [])
            if partition not in self._partitions:
                self._partitions[partition] = None
                found.append(partition)
            candidates = dict.fromkeys([*found, _usual(partition, values, types)])
        return [other for other in candidates if other != partition]

    def alike(self, types: Types) -> list[list[Partition]]:
        """The partitions that have the same values as others, and may exist: all that share their values."""
        with self._lock:
            return [list(partitions) for partitions in self._by_values(types).values() if len(partitions) > 1]

    def _by_values(self, types: Types) -> dict[Values, list[Partition]]:
        if types != self._types:
            self._of_values, self._types = {}, types
            for partition in self._partitions:
                self._of_values.setdefault(_values(partition, types), []).append(partition)
        return self._of_values


def _usual(partition: Partition, values: Values, types: Types) -> Partition:
    """The partition of the same values in the texts that they have as rows are routed."""
    return Partition(
        tuple(
            (name, _usual_text(text, value, types.get(name), name))
            for (name, text), value in zip(partition.values, values, strict=True)
        )
    )


def _usual_text(text: str | None, value: object, type_: pa.DataType | None, name: str) -> str | None:
    """The text itself, if rows with such a value are not routed."""
    if type_ is None or not isinstance(value, pa.Scalar):
        return text
    try:
        return partition_texts.usual_text(value, pa.field(name, type_))
    except InputError:
        return text


def _values(partition: Partition, types: Types) -> Values:
    return tuple(_value(text, types.get(name), name) for name, text in partition.values)


def _value(text: str | None, type_: pa.DataType | None, name: str) -> pa.Scalar | float | datetime | str | None:
    """The value of a text. The text itself, if it is no value of the type."""
    if type_ is None:
        return partition_texts.likely_value(text)
    if text is None or column_types.is_string(type_):
        return text
    value = partition_texts.value_of(text, pa.field(name, type_))
    return text if value is None else value
