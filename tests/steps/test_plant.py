"""Where a sample of a file comes from: whole row groups, far from each other, and never heads alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.model import ContentType, DataFile
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.steps.materialize import LivePiece
from deltacompact.steps.plant import _ranges
from deltacompact.storage.fetched_file import ReadAhead
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.files import FileReader, Part

SCHEMA = pa.schema([("x", pa.int64())])


@pytest.mark.parametrize(
    ("rows", "wanted", "looked_at"),
    [
        ((0, 4_000), 80, [(800, 1_200), (2_800, 3_200)]),  # two looks at the middles of two halves
        ((900, 1_300), 80, [(900, 1_200), (1_200, 1_300)]),  # no row that is not asked for
        ((0, 4_000), 39, [(2_000, 2_400)]),
        ((380, 420), 40, [(380, 420)]),  # few rows: all of them
    ],
)
def test_looks_lie_in_row_groups_far_from_each_other(rows, wanted, looked_at):
    store, sink = MemoryStore(), pa.BufferOutputStream()
    pq.write_table(pa.table({"x": np.arange(4_000)}, schema=SCHEMA), sink, row_group_size=400)
    data = sink.getvalue().to_pybytes()
    store.put("x.parquet", data)
    file = DataFile(UNNUMBERED, "x.parquet", ContentType.PARQUET, 4_000, len(data), SCHEMA)
    piece = LivePiece(file, np.ones(4_000, bool), rows)
    with FileReader(store, Part(file, SCHEMA.names, rows), ReadAhead(READ_LIMITS)) as reader:
        assert _ranges(reader, piece, wanted) == looked_at
