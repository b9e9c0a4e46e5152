"""Flips each bit of a file's end in turn, and appends and reads the file. python flipped_footers.py FOLDER parquet|orc

Prints how many of the files were refused, and how many were read. A process of its own, because pyarrow may end it.
"""

from __future__ import annotations

import io
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.storage.local import LocalStore
from deltacompact.tabular import files, inspecting


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    store = LocalStore(folder)
    data, end = {"parquet": _parquet, "orc": _orc}[kind]()
    refused = read = 0
    for at in range(len(data) - end, len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            (folder / "a").write_bytes(flipped)
            try:
                given = inspecting.inspect(
                    store, "a", ContentType[kind.upper()], inspecting.Asked(keys=("id", "s")), decoded=True
                )
                for _ in files.read(store, given):
                    pass
                read += 1
            except InputError as error:
                assert "a" in str(error) and "\n" not in str(error), str(error)
                refused += 1
    print(refused, read)


def _parquet() -> tuple[bytes, int]:
    sink = io.BytesIO()
    table = pa.table({"id": range(9), "s": ["x", None, "y"] * 3, "l": [[1, None], None, []] * 3, "d": [0.5] * 9})
    pq.write_table(table, sink, row_group_size=5, write_page_index=True)
    data = sink.getvalue()
    return data, int.from_bytes(data[-8:-4], "little") + 8


def _orc() -> tuple[bytes, int]:
    """The bytes of the file, and how many of them are footer and postscript."""
    sink = io.BytesIO()
    amounts = pa.array([Decimal("1.25"), None, Decimal("-3.50")] * 3, pa.decimal128(12, 2))
    orc.write_table(
        pa.table({"id": range(9), "s": ["x", None, "y"] * 3, "l": [[1, None], None, []] * 3, "d": amounts}), sink
    )
    data = sink.getvalue()
    told = orc.ORCFile(pa.BufferReader(data))
    return data, told.file_footer_length + told.file_postscript_length + 1


if __name__ == "__main__":
    main()
