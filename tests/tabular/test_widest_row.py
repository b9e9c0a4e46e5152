"""How wide a row of a file can be is told by its page headers: never too little, and not the whole row group."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.tabular import parquet_read, row_bytes

MIB = 1 << 20


def told(table: pa.Table, **written: Any) -> int | None:
    """What the file tells that is written so."""
    out = io.BytesIO()
    pq.write_table(table, out, **written)
    source = pa.BufferReader(out.getvalue())
    return parquet_read.widest_row_bytes(source, parquet_read.described(source))


ENCODINGS = [
    {},
    {"use_dictionary": False},
    {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "other": "DELTA_LENGTH_BYTE_ARRAY"}},
    {"data_page_version": "2.0", "write_page_checksum": True},
    {"compression": "none", "data_page_size": 1000},
    {"compression": "zstd", "row_group_size": 7},
]


@given(
    texts=st.lists(st.integers(0, 120_000) | st.just(0), min_size=1, max_size=12),
    shared=st.booleans(),
    written=st.sampled_from(ENCODINGS),
)
def test_no_row_is_wider_than_the_page_headers_tell(texts: list[int], shared: bool, written: dict[str, Any]) -> None:
    text = ["a" * length if shared else chr(65 + number) * length for number, length in enumerate(texts)]
    columns = {"id": range(len(text)), "text": text, "other": text[::-1]}
    if "column_encoding" not in written:
        columns["lists"] = [[None if number % 3 else value, value] for number, value in enumerate(text)]
    table = pa.table(columns)
    widest = told(table, **written)
    most = max(row_bytes.of_table(table.slice(number, 1)) for number in range(table.num_rows))
    assert widest is None or widest >= most - 9 * len(columns)


def test_the_rows_of_a_large_row_group_are_not_taken_to_be_as_wide_as_it() -> None:
    texts = pa.array([f"{number:01000d}" for number in range(20_000)])
    widest = told(pa.table({"id": range(20_000), "text": texts}), use_dictionary=False)
    assert widest is not None and 1000 < widest < 2 * MIB, "pyarrow looks at the size of a page after 1,024 rows"
    assert told(pa.table({"id": range(20_000)})) == 16


@pytest.mark.parametrize("columns", [1, 2])
def test_little_is_told_by_large_pages_and_nothing_of_them_is_kept(columns: int) -> None:
    texts = [f"{number:01000d}" for number in range(20_000)]
    table = pa.table({f"text{number}": texts for number in range(columns)})
    assert told(table, use_dictionary=False, data_page_size=8 * MIB) is None


def test_headers_that_do_not_lead_to_the_end_of_a_chunk_tell_nothing() -> None:
    """Then the whole chunk bounds the row."""
    out = io.BytesIO()
    table = pa.table({"text": [f"{number:0100d}" for number in range(10_000)]})
    pq.write_table(table, out, use_dictionary=False, data_page_size=100_000, compression="none")
    data = bytearray(out.getvalue())
    metadata = pq.read_metadata(io.BytesIO(bytes(data))).row_group(0).column(0)
    for at in range(metadata.data_page_offset, metadata.data_page_offset + 12):
        data[at] ^= 0xFF
    source = pa.BufferReader(bytes(data))
    bound = parquet_read.widest_row_bytes(source, parquet_read.described(source))
    assert bound is not None and bound >= metadata.total_uncompressed_size
