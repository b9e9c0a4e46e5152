"""Reads that we carry out, as records for those who decide how rows lie. None, unless the environment names a file.

    DELTACOMPACT_READS=/var/log/reads.jsonl          orders.read(filter=[("day", ">", 9)])
    {"at": 1795400000.0, "read": {"table": "orders", "columns": ["day"], "opened": 24, "skipped": 216, "rows": 812}}

One line is added when a read ends, whoever ends it. It says by which columns was asked, and keeps no literal. A record
that cannot be written is missed, and said in the log: no read fails for it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from deltacompact.base.wording import text_of
from deltacompact.layout.reads import Read, read_document
from deltacompact.reading.parts import ReadParts, TablePart
from deltacompact.reading.selection import Selected
from deltacompact.reading.skipping import columns_asked

VARIABLE = "DELTACOMPACT_READS"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A read that goes on. `path`: where its record goes; None: nobody wants one.

    `rows` has those of each part that was read; `opened` and `skipped` have numbers of files, to be added up.
    """

    table: str
    columns: tuple[str, ...]
    path: str | None
    rows: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)

    @classmethod
    def begun(cls, table: str, selected: Selected) -> ReadRecord:
        """The record of a read of this selection, as the environment wants it."""
        return cls(table, columns_asked(selected), os.environ.get(VARIABLE) or None)

    def parts(self, found: ReadParts) -> list[TablePart]:
        """The parts of some files, which are counted as they are opened."""
        self.opened.append(found.opened)
        self.skipped.append(found.skipped)
        return (
            [replace(part, tables=partial(self._counted, part)) for part in found.parts] if self.path else found.parts
        )

    def _counted(self, part: TablePart) -> Iterator[pa.Table]:
        rows = 0
        try:
            for table in part.tables():
                rows += table.num_rows
                yield table
        finally:
            self.rows.append(rows)
            self.opened.append(not part.is_open)

    def until_the_end(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The rows of the read. At their end, or where the reader stops, the record is written."""
        try:
            yield from tables
        finally:
            self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        read = Read(self.table, self.columns, sum(self.opened), sum(self.skipped), time.time(), sum(self.rows))
        try:
            with open(self.path, "ab", buffering=0) as out:  # a line in one piece: several may write
                out.write(json.dumps(read_document(read)).encode() + b"\n")
        except OSError as error:
            logger.warning("a read of %s was not recorded: %s", self.table, text_of(error))
