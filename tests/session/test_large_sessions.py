"""What the driver does once for each file, output or task of a session gives the same in a session of a million."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType, OperationType
from deltacompact.base.numbers import ChainFileNumber, DeltaFileNumber, Ordinal, Rank
from deltacompact.planning.outputs import Output, OutputDecision, OutputPlan
from deltacompact.planning.plan import SourceFile
from deltacompact.planning.pointer_map import PointerMap
from deltacompact.session.output_tasks import live_ranges

SCHEMA = pa.schema([("id", pa.int64())])


def planned(live: list[int]) -> OutputPlan:
    """The outputs of files that are rewritten and have so many live rows."""
    files = [DataFile(DeltaFileNumber(n), f"{n}", ContentType.PARQUET, 9, 9, SCHEMA) for n in range(len(live))]
    sources = [SourceFile(Ordinal(n), file, OperationType.UPSERT, 0, False) for n, file in enumerate(files)]
    ranks = np.cumsum([0, *live])
    rewritten = tuple((source, Rank(int(rank))) for source, rank in zip(sources, ranks[:-1], strict=True))
    nothing = np.zeros(0, np.uint32)
    pointers = PointerMap(nothing, nothing, (), ChainFileNumber(0), 1, 0)
    decision = OutputDecision((), ChainFileNumber(0), 1)
    return OutputPlan(decision, (), (), rewritten, (), (), pointers, np.array(live, np.int64))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 9))
def test_outputs_share_the_live_rows_of_all_files_in_order(live: list[int], per_output: int) -> None:
    outputs, rows = planned(live), sum(live)
    shared = []
    for first in range(0, rows, per_output):
        output = Output(ChainFileNumber(first), Rank(first), Rank(min(rows, first + per_output)))
        ranges = live_ranges(output, outputs)
        assert sum(part.stop - part.start for part in ranges) == output.rows
        assert all(part.start < part.stop for part in ranges)
        shared += [(part.ordinal, row) for part in ranges for row in range(part.start, part.stop)]
    assert shared == [(ordinal, row) for ordinal, count in enumerate(live) for row in range(count)]
