"""Texts of partitions that mean one value of their column: a key must not live in two partitions.

column day       partitions                  new
int64            day=1                       day=01            spells the value of day=1
timestamp[us]    day=2026-01-01 00:00:00     day=2026-01-01    spells the value of the other
string, none     day=1                       day=01            another value
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.model import Partition
from deltacompact.tabular.partition_texts import partition_scalar

Values = tuple[pa.Scalar | str | None, ...]
Types = Mapping[str, pa.DataType]
"""The types of partition columns by name. The others are compared as texts."""


class Spellings:
    """The partitions of a table, as of a listing at `listed_s`, by their values. New ones are added."""

    def __init__(self, partitions: Iterable[Partition], listed_s: float) -> None:
        self.listed_s = listed_s
        self._partitions = dict.fromkeys(partitions)
        self._types: Types | None = None
        self._of_values: dict[Values, Partition] = {}

    def other(self, partition: Partition, types: Types) -> Partition | None:
        """The partition that has the same values in other texts. None: there is none, and this one is added."""
        if types != self._types:
            self._of_values = {_values(known, types): known for known in self._partitions}
            self._types = types
        if partition in self._partitions:
            return None
        known = self._of_values.setdefault(_values(partition, types), partition)
        if known != partition:
            return known
        self._partitions[partition] = None
        return None


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
