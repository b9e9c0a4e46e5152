"""Marks to records of a session's journal, and back.

    outputs    the delete files, with all that a manifest says of them
    details    "marks": [{"of": ["…/a.parquet"], "new_rows": 2}]          one for each, in their order

The marked data files, with the deletes that they had when their dead rows were found, come from the journal's plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltacompact.iceberg.deletes.matching import FileScanTask
from deltacompact.iceberg.marks.marking import Mark
from deltacompact.iceberg_modes.journal.journal import WrittenGroup


def record_of(number: int, marks: Sequence[Mark], details: Mapping[str, Any] | None = None) -> WrittenGroup:
    """The journal's record of a group's marks. `details`: what else the mode keeps."""
    of_marks = [{"of": [task.entry.file.path for task in mark.of], "new_rows": mark.new_rows} for mark in marks]
    return WrittenGroup(number, tuple(mark.file for mark in marks), {"marks": of_marks, **(details or {})})


def marks_of(record: WrittenGroup, asked: Mapping[str, FileScanTask]) -> tuple[Mark, ...]:
    """The marks of a record. `asked`: the data files of its group, by path."""
    return tuple(
        Mark(file, tuple(asked[path] for path in mark["of"]), mark["new_rows"])
        for file, mark in zip(record.outputs, record.details["marks"], strict=True)
    )
