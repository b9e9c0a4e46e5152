"""Task: writes an output, and counts the NaN in its columns.

    inputs      a.parquet: no NaN in column 4, as its manifest says      c.parquet: nobody counted
    output      y.parquet is written, and its column 4 is read once      nan_value_counts {4: 17}

Row groups are copied without decoding, and Parquet counts no NaN. If the manifest entries of all inputs count none in a
column, the output has none, and nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.table.content_files import ContentFile
from deltacompact.iceberg.table.nan_counts import nan_counts
from deltacompact.iceberg_modes.rewrite.arranging import ArrangeTask, arrange
from deltacompact.iceberg_modes.rewrite.certifying import of_output
from deltacompact.steps.cell_blocks import HeldParts
from deltacompact.steps.materialize import Materialized, MaterializeTask, materialize
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class WriteTask:
    """An output, and the columns in which NaN are counted: their field ids by path.

    `certified` are the columns that are added up once they are written; None: they are not.
    """

    output: MaterializeTask | ArrangeTask
    counted: Mapping[str, int]
    certified: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class WrittenOutput:
    """The output.

    nan_counts       by field id, of the columns that were counted
    numbers_crc32    the checksum of the numbers of its rows; None: the rows kept their order
    """

    output: Materialized
    nan_counts: Mapping[int, int]
    numbers_crc32: int | None
    fingerprint: Fingerprint | None = None


def write(store: ObjectStore, task: WriteTask, paths: Callable[[], str], *held: HeldParts) -> WrittenOutput:
    """Write the output, then read what must be counted."""
    if isinstance(task.output, ArrangeTask):
        output, crc32 = arrange(store, task.output, paths, *held)
    else:
        output, crc32 = materialize(store, task.output, paths), None
    reading = task.output.limits.reading
    counts = nan_counts(store, output.file, task.counted, reading)
    if task.certified is None:
        return WrittenOutput(output, counts, crc32)
    return WrittenOutput(output, counts, crc32, of_output(store, output.file, task.certified, reading))


def without_nan(inputs: Iterable[ContentFile], columns: Iterable[int]) -> dict[int, int]:
    """The columns in which no input has NaN, each with the count 0."""
    known = [file.nan_value_counts for file in inputs]
    return {number: 0 for number in columns if all(counts.get(number) == 0 for counts in known)}
