"""The fingerprint of each data file, kept in a statistics file of a certified snapshot.

snapshot 9     ours, certified     metadata/9-5c…-deltacompact.stats     a.parquet 3:0c51…    y.parquet 4:de64…
snapshot 11    of others           still has a.parquet: its fingerprint is known from snapshot 9

A fingerprint counts all rows that a file stores, dead ones too: neither deletes nor time change it. So each file is
read once for its fingerprint. The statistics file is Puffin with one blob: engines keep it as long as its snapshot.
Some engines look only into the nearest statistics file, whatever blobs it has: a branch with statistics of others gets
none of ours, and its files are read again. Fingerprints hold while the schema is the same. If the statistics file is
damaged or gone, data files are read again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.metadata import Snapshot, StatisticsFile, TableMetadata
from deltacompact.iceberg.table.puffin import statistics_blob, statistics_file
from deltacompact.storage.objects import ObjectStore

BLOB = "deltacompact-file-fingerprints-v1"
_NAME = "-deltacompact.stats"
_SCHEMA = pa.schema([("file", pa.string()), ("rows", pa.int64()), ("sum", pa.binary(16))])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True)
class FileFingerprints:
    """Fingerprints of data files, by path, under a schema of the table. Reading a whole file adds its own."""

    of: dict[str, Fingerprint] = field(default_factory=dict)
    schema_id: int | None = None


def read_fingerprints(store: ObjectStore, metadata: TableMetadata, head: Snapshot | None) -> FileFingerprints:
    """The fingerprints that the head's nearest ancestor has under today's schema, if any."""
    ours = {file.snapshot_id: file.path for file in metadata.statistics if file.path.endswith(_NAME)}
    for snapshot in metadata.ancestors(head):
        if snapshot.snapshot_id in ours and snapshot.schema_id == metadata.schema_id:
            try:
                blob = statistics_blob(locations.fetched(store, ours[snapshot.snapshot_id]), BLOB)
            except DeltaCompactError:
                continue
            if blob is not None:
                return FileFingerprints(_decoded(blob), metadata.schema_id)
    return FileFingerprints(schema_id=metadata.schema_id)


def would_hide_others(metadata: TableMetadata, head: Snapshot | None) -> bool:
    """Whether a file of ours in the next snapshot would hide statistics of others. Trino takes the nearest one."""
    theirs = {
        file.snapshot_id for file in metadata.statistics if not file.of_partitions and not file.path.endswith(_NAME)
    }
    return any(snapshot.snapshot_id in theirs for snapshot in metadata.ancestors(head))


def write_fingerprints(
    put: Callable[[str, bytes], None],
    metadata: TableMetadata,
    snapshot: Snapshot,
    known: Mapping[str, Fingerprint],
) -> StatisticsFile:
    """Put the known fingerprints of a snapshot's data files as its statistics file."""
    data, footer_bytes = statistics_file(BLOB, _encoded(known), snapshot.snapshot_id, snapshot.sequence_number)
    path = f"{metadata.metadata_folder}/{snapshot.snapshot_id}-{uuid.uuid4()}{_NAME}"
    put(path, data)
    return StatisticsFile(snapshot.snapshot_id, path, len(data), False, footer_bytes)


def _encoded(known: Mapping[str, Fingerprint]) -> bytes:
    rows, sums = (
        [fingerprint.rows for fingerprint in known.values()],
        [fingerprint.total.to_bytes(16, "big") for fingerprint in known.values()],
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=_OPTIONS) as out:
        out.write_table(pa.table([list(known), rows, sums], schema=_SCHEMA))
    return bytes(sink.getvalue())


def _decoded(blob: bytes) -> dict[str, Fingerprint]:
    columns = pa.ipc.open_stream(blob).read_all().select(_SCHEMA.names).to_pydict()
    parts = zip(columns["rows"], columns["sum"], strict=True)
    return dict(
        zip(columns["file"], (Fingerprint(rows, int.from_bytes(total, "big")) for rows, total in parts), strict=True)
    )
