"""Numbers of rows in a file: what went in comes out in blocks, and damage is named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from deltacompact import CorruptionError, _kernels
from deltacompact.index import number_blocks
from deltacompact.index.number_blocks import BLOCK_ROWS, numbers_sink, read_numbers
from deltacompact.storage.memory import MemoryStore


def stored(*parts):
    store = MemoryStore()
    with numbers_sink(store, "x") as sink:
        for part in parts:
            sink(np.asarray(part))
    return store.get("x")


def read(data, rows):
    return list(read_numbers(pa.BufferReader(data), "x", rows))


def test_what_went_in_comes_out_a_block_at_a_time():
    many = np.random.default_rng(3).permutation(2 * BLOCK_ROWS + 5)
    blocks = read(stored([3, 1], [], many, [(1 << 32) - 1]), len(many) + 3)
    assert [len(block) for block in blocks] == [BLOCK_ROWS, BLOCK_ROWS, 7, 1]
    assert np.concatenate(blocks).tolist() == [3, 1, *many, (1 << 32) - 1]
    assert read(stored(), 0) == []


def test_other_numbers_than_were_written_are_refused(monkeypatch):
    data = stored([3, 1, 2])
    with pytest.raises(CorruptionError, match="x has the numbers of 3 rows, not of 4"):
        read(data, 4)
    with pytest.raises(CorruptionError, match="x is damaged: "):
        read(data[:-60], 3)
    with pytest.raises(CorruptionError, match="x is damaged: "):
        read(b"", 3)
    monkeypatch.setattr(number_blocks._kernels, "crc32", lambda block: 0)
    with pytest.raises(CorruptionError, match="x is damaged: a CRC-32 differs"):
        read(data, 3)


@pytest.mark.parametrize("crc32", [None, 7])
def test_moves_of_former_indexes_are_read(crc32):
    moves = np.array([4, 0, 9], np.uint32)
    crc32 = _kernels.crc32(moves) if crc32 is None else crc32
    schema = pa.schema([("destination", pa.uint32())], {b"crc32": str(crc32).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as out:
        out.write_batch(pa.record_batch([pa.array(moves)], schema=schema))
    if crc32 == 7:
        with pytest.raises(CorruptionError, match="x is damaged: a CRC-32 differs"):
            read(sink.getvalue(), 3)
    else:
        assert [block.tolist() for block in read(sink.getvalue(), 3)] == [[4, 0, 9]]
