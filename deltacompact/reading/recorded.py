"""Records our reads, as a basis for laying rows out. Only if the environment names a file.

    DELTACOMPACT_READS=/var/log/reads.jsonl          orders.read(filter=[("day", ">", 9)])
    {"at": 1795400000.0, "read": {"table": "orders", "columns": ["day"], "opened": 24, "skipped": 216, "rows": 812}}

When a read ends, one line is added. It has the columns of the filter, but none of its values. If the line cannot be
written, the log says so, and the read goes on.
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
    """A read under way. `path`: where its record goes; None: it is not recorded.

    `rows` has the number of rows of each part; `opened` and `skipped` have numbers of files: all are summed at the end.
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
        """The parts of some files, whose rows are counted as they are read."""
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
        """The rows of the read. The record is written at their end, or when the reader stops."""
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
