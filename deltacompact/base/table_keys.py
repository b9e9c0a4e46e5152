"""The keys of a table: which rows are the same row, and which of them is kept.

TableKeys.of(["k", "j"], ["updated_at"])         primary ("j", "k"): the row with the greatest updated_at is kept
TableKeys.of("k", [("price", "descending")])     the row with the smallest price is kept
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from deltacompact.base import expect
from deltacompact.base.errors import InputError

PARTITION_STREAM_POS_VIRTUAL_COL_NAME = "__partition_stream_position__"
"""The name of the stream position among sort keys. It is the default sort key."""


class Direction(enum.StrEnum):
    """ASCENDING keeps the row with the greatest value, DESCENDING the row with the smallest."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


_WITH_DIRECTION = re.compile(r"(.*\S)\s+(?:asc|desc)(?:ending)?", re.I | re.S)
"""A sort key as SQL writes it. No row has a column of such a name, so as a name it would decide nothing."""


@dataclass(frozen=True, slots=True)
class SortKey:
    """One custom sort column. It decides which of two rows with the same key is kept."""

    name: str
    direction: Direction = Direction.ASCENDING

    @classmethod
    def of(cls, value: SortKey | str | Sequence[str]) -> SortKey:
        """Accept "name", ("name", "descending") or a SortKey."""
        if isinstance(value, SortKey):
            return value
        if isinstance(value, str) and (meant := _WITH_DIRECTION.fullmatch(value)):
            raise InputError(
                f"sort key {value!r}: write {meant[1]!r} to keep the row with the greatest value, and "
                f"({meant[1]!r}, 'descending') (--sort-key {meant[1]}:descending) to keep that with the smallest"
            )
        parts = (value, "ascending") if isinstance(value, str) else value
        if (
            not isinstance(parts, (list, tuple))
            or len(parts) != 2
            or not all(isinstance(part, str) and part for part in parts)
        ):
            raise InputError(f"sort key {value!r} is neither a name nor a pair (name, 'ascending' or 'descending')")
        name, direction = parts
        try:
            return cls(name, Direction(str(direction).lower()))
        except ValueError:
            raise InputError(
                f"sort key {name!r}: direction {direction!r} is neither 'ascending' nor 'descending'"
            ) from None


@dataclass(frozen=True, slots=True)
class TableKeys:
    """Primary key columns, ordered by their UTF-8 bytes, and custom sort keys in order of significance.

    Without custom sort keys, the stream position decides: the later row wins.
    """

    primary: tuple[str, ...]
    sort: tuple[SortKey, ...] = ()

    @classmethod
    def of(cls, primary: Iterable[str], sort: Iterable[SortKey | str | Sequence[str]] | None = ()) -> TableKeys:
        """Validate and normalise the caller's keys.

        A trailing ascending stream position is dropped, because it breaks ties anyway.
        """
        names = tuple(sorted(expect.names("primary_keys", primary), key=str.encode))
        if not names:
            raise InputError("no primary key: name at least one column")
        if repeated := _first_repeated(names):
            raise InputError(f"primary key {repeated!r} is named twice")
        if isinstance(sort, str):
            sort = (sort,)
        sort_keys = [SortKey.of(key) for key in expect.several("sort_keys", () if sort is None else sort)]
        if sort_keys and sort_keys[-1] == SortKey(PARTITION_STREAM_POS_VIRTUAL_COL_NAME):
            sort_keys.pop()
        for key in sort_keys:
            if key.name == PARTITION_STREAM_POS_VIRTUAL_COL_NAME:
                raise InputError("the stream position can only be the last sort key, ascending")
        if repeated := _first_repeated([key.name for key in sort_keys]):
            raise InputError(f"sort key {repeated!r} is named twice")
        return cls(names, tuple(sort_keys))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that the steps before materialize read: primary keys, then sort keys."""
        return (*self.primary, *(key.name for key in self.sort if key.name not in self.primary))

    def of_rows(self, in_partition: Collection[str]) -> TableKeys:
        """Those whose values are in the rows: the partition decides the values of the columns `in_partition`."""
        primary = tuple(name for name in self.primary if name not in in_partition)
        return TableKeys(primary, tuple(key for key in self.sort if key.name not in in_partition))


def _first_repeated(names: Sequence[str]) -> str | None:
    return next((name for number, name in enumerate(names) if name in names[:number]), None)
