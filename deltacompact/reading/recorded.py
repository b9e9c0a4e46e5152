"""Reads that we carry out, as records for those who decide how rows lie. None, unless the environment names a file.

    DELTACOMPACT_READS=/var/log/reads.jsonl          orders.read(filter=[("day", ">", 9)])
    {"at": 1795400000.0, "read": {"table": "orders", "columns": ["day"], "opened": 240, "skipped": 0, "rows": 812}}

One line is added when a read ends, whoever ends it. It says by which columns was asked, and keeps no literal. A record
that cannot be written is missed, and said in the log: no read fails for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from deltacompact.base.wording import text_of
from deltacompact.layout.reads import Read, read_document
from deltacompact.reading.parts import TablePart

VARIABLE = "DELTACOMPACT_READS"
logger = logging.getLogger(__name__)
_asked: ContextVar[tuple[str, ...]] = ContextVar("columns with a predicate that another library applies", default=())


@contextlib.contextmanager
def asked_by(columns: Sequence[str]) -> Iterator[None]:
    """Scans that begin here are asked by these columns too: the caller leaves out rows itself."""
    before = _asked.set(tuple(columns))
    try:
        yield
    finally:
        _asked.reset(before)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A read that goes on. `path`: where its record goes; None: nobody wants one. `opened`: the rows of each file."""

    table: str
    columns: tuple[str, ...]
    path: str | None
    opened: list[int] = field(default_factory=list)

    @classmethod
    def begun(cls, table: str, columns: Sequence[str]) -> ReadRecord:
        """The record of a read by these columns, as the environment wants it."""
        return cls(table, tuple(dict.fromkeys([*columns, *_asked.get()])), os.environ.get(VARIABLE) or None)

    def part(self, part: TablePart) -> TablePart:
        """A file of the read: it is counted when it is opened."""
        return part if self.path is None else replace(part, tables=partial(self._counted, part))

    def _counted(self, part: TablePart) -> Iterator[pa.Table]:
        rows = 0
        try:
            for table in part.tables():
                rows += table.num_rows
                yield table
        finally:
            self.opened.append(rows)

    def until_the_end(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The rows of the read. At their end, or where the reader stops, the record is written."""
        try:
            yield from tables
        finally:
            self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        read = Read(self.table, self.columns, len(self.opened), 0, time.time(), sum(self.opened))
        try:
            with open(self.path, "ab", buffering=0) as out:  # a line in one piece: several may write
                out.write(json.dumps(read_document(read)).encode() + b"\n")
        except OSError as error:
            logger.warning("a read of %s was not recorded: %s", self.table, text_of(error))
