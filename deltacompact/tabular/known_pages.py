"""Which row groups of Parquet files are known to decode, so that they can be copied unread.

    written by                      physical type, encodings, pages, codec        known
    parquet-cpp-arrow 26.0.1        INT32, PLAIN + RLE, v1, SNAPPY                yes
    DuckDB v2.0.0                   INT32, DELTA_BINARY_PACKED, v2, SNAPPY        no: pyarrow 26 fails on random numbers
    carbon-writer 3.1               any                                           no: nobody has tried

A row group that was copied unread and cannot be decoded would block its table for ever. So only kinds of pages are
copied that tests/tabular/test_known_pages.py has decoded, written by the real writers with values of every size. Other
row groups are decoded: when a local file is appended, or else by the compaction, which then encodes their rows anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from deltacompact.tabular.parquet_read import Footer

ChunkKind = tuple[str, list[str], list[str], str]
"""Physical type, encodings, types of pages (empty: the footer does not say), codec."""
Version = tuple[int, int]

_PLAIN: Final = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"})
"""Plain values, or indices into a dictionary; levels as runs."""
_NEWER: Final = {
    "INT32": {"DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"},
    "INT64": {"DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"},
    "FLOAT": {"BYTE_STREAM_SPLIT"},
    "DOUBLE": {"BYTE_STREAM_SPLIT"},
    "BYTE_ARRAY": {"DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"},
    "FIXED_LEN_BYTE_ARRAY": {"DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"},
}
"""More encodings, by physical type."""
_PAGES: Final = frozenset({"DATA_PAGE", "DATA_PAGE_V2", "DICTIONARY_PAGE"})
_CODECS: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4_RAW"})


@dataclass(frozen=True, slots=True)
class Writer:
    """A family of writers in the versions since ‥ until, which kinds of its pages are known to decode, and why."""

    family: str
    since: Version
    until: Version
    newer_encodings: bool
    pages_told: bool
    """Whether the footers say the types of pages."""
    reason: str

    def knows(self, kind: ChunkKind) -> bool:
        physical, encodings, pages, codec = kind
        known = _PLAIN | _NEWER.get(physical, set()) if self.newer_encodings else _PLAIN
        told = bool(pages) or not self.pages_told
        return told and known.issuperset(encodings) and _PAGES.issuperset(pages) and codec in _CODECS


WRITERS: Final = (
    Writer("deltacompact", (0, 0), (0, 99), False, True, "pyarrow encodes what is not copied"),
    Writer("parquet-cpp-arrow", (26, 0), (26, 99), True, True, "the encoders of the decoder that we use"),
    Writer("parquet-mr", (1, 16), (1, 17), True, True, "Spark 4.1, both versions of pages"),
    Writer("DuckDB", (2, 0), (2, 99), False, True, "not DELTA_BINARY_PACKED: pyarrow 26 ends in 'InitBlock EOF'"),
    Writer("Polars", (2, 1), (2, 99), False, False, "writes data pages v1, and does not tell"),
)


def known_groups(footer: Footer | None, groups: int) -> list[bool]:
    """Whether the pages of each row group are known to decode. `footer` None: the kernel cannot read the footer."""
    writer = None if footer is None else _writer(footer.created_by)
    if footer is None or writer is None:
        return [False] * groups
    return [all(writer.knows(kind) for kind in kinds) for kinds in footer.kinds()]


_CREATED_BY = re.compile(r"(?P<family>[A-Za-z-]+)(?: \(\w+\))?(?: version)?(?: v?(?P<major>\d+)\.(?P<minor>\d+))?")


def _writer(created_by: str) -> Writer | None:
    found = _CREATED_BY.match(created_by)
    if found is None:
        return None
    version = (int(found["major"] or 0), int(found["minor"] or 0))
    fitting = (
        writer for writer in WRITERS if writer.family == found["family"] and writer.since <= version <= writer.until
    )
    return next(fitting, None)
