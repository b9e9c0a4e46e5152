"""Flips each bit of a Parquet footer in turn, and appends and reads the file. python flipped_footers.py FOLDER

Prints how many of the files were refused, and how many were read. A process of its own, because pyarrow may end it.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.storage.local import LocalStore
from deltacompact.tabular import files


def main() -> None:
    store = LocalStore(Path(sys.argv[1]))
    sink = io.BytesIO()
    table = pa.table({"id": range(9), "s": ["x", None, "y"] * 3, "l": [[1, None], None, []] * 3, "d": [0.5] * 9})
    pq.write_table(table, sink, row_group_size=5, write_page_index=True)
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    refused = read = 0
    for at in range(len(data) - 8 - length, len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            store.put("a.parquet", bytes(flipped))
            try:
                given = files.inspect(store, "a.parquet", ContentType.PARQUET, keys=("id", "s"), decoded=True)
                for _ in files.read(store, given):
                    pass
                read += 1
            except InputError as error:
                assert "a.parquet" in str(error) and "\n" not in str(error), str(error)
                refused += 1
    print(refused, read)


if __name__ == "__main__":
    main()
