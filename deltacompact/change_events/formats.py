"""Formats of change events: what Debezium, Maxwell and AWS DMS call things, by their documentation.

debezium   {"op": "u", "before": {…} or null, "after": {…}, "source": {"lsn": 24023128, …}, "ts_ms": 1714000000142}
maxwell    {"type": "update", "data": {…}, "old": {what changed}, "ts": 1477053234, "xid": 23396, …}
dms        Op,id,name                                  a column of files, no envelope; LOAD00000001.csv comes first
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deltacompact.base.errors import InputError
from deltacompact.change_events.operations import Operations
from deltacompact.tabular.inferred_keys import LOG_POSITIONS


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields of a message. `deleted` has the row that a delete names, `before` what an update replaced, or a part.

    `ignored` operations do nothing to rows; `refused` ones come with what to do about them.
    """

    operations: Operations
    after: str
    before: str
    deleted: str
    ignored: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    source: str | None = None
    """A field with details, such as the log's position."""
    positions: tuple[str, ...] = ()
    """Fields of the message that no row has."""
    descriptive: tuple[str, ...] = ()
    """Fields of the message that are the same in all: a sort key of that name is one of the rows."""
    table: tuple[str, ...] = ("table",)
    """What names the source's table: fields of `source`, or else of the message."""
    reads: tuple[str, ...] = ()
    """Operations that are no changes: a snapshot has read the row."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.operations.column, self.before, self.after)))


_RESTATE = "it empties the table: restate the partitions (catalog.restate), and append the events behind it"
_DDL = "it changes the table's schema: leave such messages out, new columns come with the rows"
_SOURCE_TIMES = ("source_ts_ms", "source_ts_us", "source_ts_ns")

FORMATS: dict[str, Envelope | Operations] = {
    "debezium": Envelope(
        Operations("op", ("c", "r", "u"), ("d",), ""),
        after="after",
        before="before",
        deleted="before",
        ignored=("m",),
        refused={"t": _RESTATE},
        source="source",
        positions=(*LOG_POSITIONS, *_SOURCE_TIMES),
        descriptive=("version", "connector", "name", "db", "schema", "table", "snapshot"),
        table=("db", "schema", "table"),
        reads=("r",),
    ),
    "maxwell": Envelope(
        Operations("type", ("insert", "update", "bootstrap-insert"), ("delete",), ""),
        after="data",
        before="old",
        deleted="data",
        table=("database", "table"),
        ignored=("bootstrap-start", "bootstrap-complete"),
        reads=("bootstrap-insert",),
        refused=dict.fromkeys(
            ("table-create", "table-alter", "table-drop", "database-create", "database-alter", "database-drop"), _DDL
        ),
    ),
    "dms": Operations("Op", ("I", "U"), ("D",), "", full_load="LOAD"),
}


def format_of(name: str) -> Envelope | Operations:
    """The format. Raises InputError for another name."""
    if name not in FORMATS:
        raise InputError(f"format {name!r} is none of {', '.join(FORMATS)}")
    return FORMATS[name]
