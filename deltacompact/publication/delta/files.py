"""Compacted files, and their dead rows, as the log of a Delta table lists them. Each file is read once in a run."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from deltacompact.base.errors import SchemaError
from deltacompact.base.partitions import side_by_side
from deltacompact.iceberg.table.deletion_vectors import blob_of
from deltacompact.index.live_bitmaps import LiveBits, live_mask
from deltacompact.publication.delta.vectors import DeltaVector, file_of, vector_file
from deltacompact.publication.port import ShownFile
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files
from deltacompact.tabular.published_types import DELTA_TYPES

_READS_AT_ONCE = 8


class DeltaFiles:
    """`store`: where the compacted files are. `delta_store`: the Delta table's folder."""

    def __init__(self, store: ObjectStore, delta_store: ObjectStore) -> None:
        self._store = store
        self._delta_store = delta_store
        self._live = LiveBits(store)
        self._footers: dict[str, pq.FileMetaData] = {}
        self._descriptors: dict[str, Mapping[str, Any]] = {}
        self._written: set[str] = set()

    def footers(self, shown: Sequence[ShownFile]) -> list[pq.FileMetaData]:
        """Raises SchemaError for a file whose columns have other names than the table's, or types that Delta lacks."""
        new = [file for file in shown if file.location not in self._footers]
        for file, footer in zip(new, side_by_side(new, self._footer, _READS_AT_ONCE), strict=True):
            self._footers[file.location] = footer
        return [self._footers[file.location] for file in shown]

    def vectors(self, shown: Iterable[ShownFile]) -> dict[str, Mapping[str, Any]]:
        """The descriptors of the files' deletion vectors, by dead rows. New vectors are written, in one file."""
        dead = {file.dead_rows: file for file in shown if file.dead_rows is not None}
        new = {dead_rows: file for dead_rows, file in dead.items() if dead_rows not in self._descriptors}
        if new:
            self._live.read((file.file for file in new.values()), _READS_AT_ONCE)
            name, data, descriptors = vector_file([self._vector(file) for file in new.values()], uuid.uuid4())
            self._written.add(name)
            self._delta_store.put(name, data)
            self._descriptors |= dict(zip(new, descriptors, strict=True))
        return {dead_rows: self._descriptors[dead_rows] for dead_rows in dead}

    def discard(self, kept: Iterable[Mapping[str, Any]] = ()) -> None:
        """Delete the vector files that this run wrote and no kept descriptor names."""
        unwanted = self._written - {file_of(descriptor) for descriptor in kept}
        with contextlib.suppress(Exception):  # a vacuum deletes them as well
            self._delta_store.delete(sorted(unwanted))
        self._written -= unwanted

    def _footer(self, shown: ShownFile) -> pq.FileMetaData:
        DELTA_TYPES.columns(shown.file.schema, shown.file.path)
        with files.opened(self._store, shown.file) as source:
            footer = files.described_parquet(source, shown.file).metadata
        stored = set(footer.schema.to_arrow_schema().names)
        if other := [name for name in shown.file.schema.names if name not in stored]:
            raise SchemaError(
                f"{shown.file.path}: no column is stored as {other[0]!r}: restate the partition with its rows"
            )
        return footer

    def _vector(self, shown: ShownFile) -> DeltaVector:
        bits = self._live.of(shown.file)
        assert bits is not None, "a file with dead rows has a bitmap"
        positions = np.flatnonzero(~live_mask(bits, shown.file.rows)).astype(np.uint64)
        return DeltaVector(blob_of(positions), len(positions))
