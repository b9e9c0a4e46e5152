"""Entries of manifests that have every field."""

from __future__ import annotations

import math
from dataclasses import replace

from deltacompact.iceberg.table.content_files import (
    Content,
    ContentFile,
    Manifest,
    ManifestContent,
    Spec,
    SpecField,
)
from deltacompact.iceberg.table.manifests import ManifestTerms

TERMS = {version: ManifestTerms(version, 77, '{"type": "struct", "schema-id": 0, "fields": []}') for version in (2, 3)}


def part(number, name, type_):
    return SpecField(number, number, name, "identity", {"name": name, "type": ["null", type_], "field-id": number})


SPEC = Spec(
    4,
    (
        part(1000, "day", {"type": "int", "logicalType": "date"}),
        part(1001, "price", {"type": "fixed", "size": 4, "name": "d", "logicalType": "decimal", "precision": 9}),
        part(1002, "ratio", "double"),
        part(1003, "name", "string"),
    ),
    "[]",
)
PARTITION = (5_000_000, 256, math.nan, "ä/b")
"""The day lies in the year 15659: Python's own dates end before."""
DATA = ContentFile(
    content=Content.DATA,
    path="file:/t/data/a.parquet",
    file_format="PARQUET",
    spec_id=4,
    partition=PARTITION,
    rows=10,
    file_bytes=1000,
    column_sizes={1: 400, 2: 600},
    value_counts={1: 10, 2: 10},
    null_value_counts={1: 0, 2: 3},
    nan_value_counts={2: 1},
    lower_bounds={1: b"\0", 2: b""},
    upper_bounds={1: b"\xff", 2: b"z"},
    split_offsets=(4, 500),
    sort_order_id=1,
)
POSITIONS = replace(
    DATA, content=Content.POSITION_DELETES, path="p.parquet", referenced_data_file="file:/t/data/a.parquet"
)
VECTOR = replace(POSITIONS, path="v.puffin", file_format="PUFFIN", content_offset=4, content_size=44)


def listed(path="m.avro", **others):
    """A line of a manifest list as a reader has it: with sequence numbers."""
    line = Manifest(path, 0, 4, ManifestContent.DATA, 9, 9, 77, 0, 0, 0, 0, 0, 0)
    return replace(line, **others)
