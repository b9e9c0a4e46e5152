"""Texts of partitions that mean one value of their column: a key must not live in two partitions.

column day       partitions                  new
int64            day=1                       day=01            spells the value of day=1
timestamp[us]    day=2026-01-01 00:00:00     day=2026-01-01    spells the value of the other
string, none     day=1                       day=01            another value
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import Partition, partition_text
from deltacompact.tabular.partition_texts import partition_scalar

Values = tuple[pa.Scalar | str | None, ...]
Types = Mapping[str, pa.DataType]
"""The types of partition columns by name. The others are compared as texts."""

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
        self._of_values: dict[Values, Partition] = {}

    def remember(self, listed: Iterable[Partition], now_s: float) -> None:
        """These are all partitions, as of now."""
        with self._lock:
            self._partitions = dict.fromkeys(listed)
            self._listed_s = now_s
            self._types = None

    def other(
        self,
        partition: Partition,
        types: Types,
        now_s: float,
        list_again: Callable[[], object],
        exists: Callable[[Partition], bool],
    ) -> Partition | None:
        """The partition that has the same values in other texts. None: there is none; this one is known from now on.

        `list_again` remembers a listing. It is asked once a minute. A partition that another process has begun since is
        found by the usual texts of its values.
        """
        values = _values(partition, types)
        with self._lock:
            if now_s > self._listed_s + _LISTED_AGAIN_AFTER_S:
                list_again()
            if types != self._types:
                self._of_values = {_values(known, types): known for known in self._partitions}
                self._types = types
            if partition in self._partitions:
                return None
            known = self._of_values.setdefault(values, partition)
        for other in {known: None, _usual(partition, values): None}:
            if other != partition and exists(other):
                return other
        with self._lock:
            self._of_values[values] = partition
            self._partitions[partition] = None
        return None


def _usual(partition: Partition, values: Values) -> Partition:
    """The partition of the same values in the texts that they have as rows are routed."""
    return Partition(
        tuple((name, _usual_text(text, value)) for (name, text), value in zip(partition.values, values, strict=True))
    )


def _usual_text(text: str | None, value: pa.Scalar | str | None) -> str | None:
    """The text itself, if rows with such a value are not routed."""
    try:
        return partition_text(value)
    except (InputError, OverflowError, ValueError):  # bytes; dates before the year 1
        return text


def _values(partition: Partition, types: Types) -> Values:
    return tuple(_value(text, types.get(name), name) for name, text in partition.values)


def _value(text: str | None, type_: pa.DataType | None, name: str) -> pa.Scalar | str | None:
    """The value of a text. The text itself, if it is no value of the type."""
    if text is None or type_ is None:
        return text
    try:
        return partition_scalar(text, pa.field(name, type_))
    except SchemaError:
        return text
