"""Where everything of a table lies.

    ORDERS/table.json                                            created once
    ORDERS/keys.json                                             by the first compaction, where keys were not declared
    ORDERS/partitions/order_day=1995-04-03                       says that the partition exists
    ORDERS/order_day=1995-04-03/stream/0/00000000000000000000.json      the log
    ORDERS/order_day=1995-04-03/data|index|manifest|sessions/…          all else, under names used once

Values are percent-encoded; null is written `!null`, which no encoded text can be.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from urllib.parse import quote, unquote

from deltacompact.errors import InputError
from deltacompact.model import Partition

GENESIS = "0"
_NULL = "!null"


def table_root(table_id: str) -> str:
    """The table's folder below the catalog's root."""
    if not isinstance(table_id, str):
        raise InputError(f"the table is {table_id!r} ({type(table_id).__name__}), it must be a name")
    if not table_id or table_id in (".", "..") or table_id.startswith(".unfinished"):
        raise InputError(f"{table_id!r} is not a table name")
    return quote(table_id, safe="")


def table_name(folder: str) -> str:
    return unquote(folder)


@dataclass(frozen=True, slots=True)
class TablePaths:
    """The objects of a table as a whole."""

    root: str

    @classmethod
    def of(cls, table_id: str) -> TablePaths:
        return cls(table_root(table_id))

    @property
    def table(self) -> str:
        return f"{self.root}/table.json"

    @property
    def keys(self) -> str:
        return f"{self.root}/keys.json"

    @property
    def source(self) -> str:
        return f"{self.root}/source.json"

    @property
    def partitions(self) -> str:
        return f"{self.root}/partitions/"

    def partition_mark(self, partition: Partition) -> str:
        return self.partitions + (partition_folder(partition) or "all")

    def stream(self, partition: Partition) -> StreamPaths:
        folder = partition_folder(partition)
        return StreamPaths(f"{self.root}/{folder}" if folder else self.root)

    def partition_of(self, mark: str, partition_keys: tuple[str, ...]) -> Partition:
        """The partition whose mark this is."""
        if not partition_keys:
            return Partition()
        parts = mark.removeprefix(self.partitions).split("/")
        values = (part.partition("=")[2] for part in parts)
        return Partition(
            tuple(
                (name, None if value == _NULL else unquote(value))
                for name, value in zip(partition_keys, values, strict=True)
            )
        )


@dataclass(frozen=True, slots=True)
class StreamPaths:
    """The objects of one partition stream."""

    root: str

    @property
    def hint(self) -> str:
        return f"{self.root}/stream/hint.json"

    def version(self, version: str) -> str:
        return f"{self.root}/stream/{version}/"

    def entry(self, version: str, sequence: int) -> str:
        return f"{self.version(version)}{sequence:020d}.json"

    def checkpoint(self, version: str, sequence: int) -> str:
        return f"{self.root}/checkpoints/{version}/{sequence:020d}.json"

    def checkpoints(self, version: str) -> str:
        return f"{self.root}/checkpoints/{version}/"

    def session(self, session_id: str) -> str:
        return f"{self.root}/sessions/{session_id}/"

    @property
    def rooms(self) -> tuple[str, ...]:
        """The folders whose objects vacuum may delete."""
        return tuple(f"{self.root}/{room}/" for room in ("data", "index", "manifest", "sessions"))

    def fresh(self, room: str, suffix: str, owner: str = "") -> str:
        """A path that nobody has used and nobody else will; a session's objects lie in a folder of its own."""
        folder = f"{room}/{owner}" if owner else room
        return f"{self.root}/{folder}/{uuid.uuid4().hex}{suffix}"


def partition_folder(partition: Partition) -> str:
    return "/".join(
        f"{quote(name, safe='')}={_NULL if value is None else quote(value, safe='')}"
        for name, value in partition.values
    )
