"""A catalog in a hundred lines shows how little the engine needs: a JSON file per version, and a folder of data.

toy/0000.json   {"schemas": […], "base": null, "index": null, "next": 0, "watermark": 0, "deltas": [{"position": 1, …}]}
toy/0001.json   a compaction published it, by put if absent: a second compaction gets a ConflictError

A delta's file may have dead rows from the start.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from dead_rows import write_deletions

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import CompactedDelta, Delta, ObjectRef
from deltacompact.base.errors import ConflictError, NotFoundError
from deltacompact.base.model import OperationType, Partition
from deltacompact.base.table_keys import TableKeys
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.documents import SchemaTable, file_from_json, file_to_json
from deltacompact.table.ports import (
    CompactionOutput,
    Moment,
    NothingToDo,
    PartitionSnapshot,
    Ports,
    PublishedVersion,
    Workspace,
)
from deltacompact.tabular import writing
from deltacompact.tabular.row_groups import WriteOptions

EMPTY = {"base": None, "index": None, "next": 0, "deltas": [], "schemas": []}


class ToyCatalog:
    """One table of one partition. Implements SnapshotSource and CommitTarget."""

    def __init__(self, store: ObjectStore, keys: TableKeys) -> None:
        self.store = store
        self.keys = keys
        self.workspace = Workspace("toy")

    @property
    def ports(self) -> Ports:
        return Ports(self, self, self.workspace, self.store)

    # Writing

    def append(self, position: int, table: pa.Table, operation: str = "upsert", dead: Sequence[int] = ()) -> None:
        """Add a delta, in which the rows at the positions `dead` are dead. Only one process may append at a time."""
        number, document = self.newest()
        file = writing.write_table(self.store, self.workspace.fresh("data", ".parquet"), table, WriteOptions())
        file = dataclasses.replace(file, schema=table.schema)
        if len(dead):
            deletions = write_deletions(self.store, f"{file.path}.dead", file.rows, dead)
            file = dataclasses.replace(file, deletions=deletions)
        schemas = SchemaTable(document["schemas"])
        delta = {"position": position, "operation": operation, "files": [file_to_json(file, schemas)]}
        document |= {"deltas": [*document["deltas"], delta], "schemas": schemas.encoded}
        self.store.put(self._path(number), json.dumps(document).encode())

    # SnapshotSource

    def fetch(self, moment: Moment | None = None) -> PartitionSnapshot | NothingToDo:
        if moment is not None:
            return self.snapshot(*self._version(int(moment.destination_version)), moment.destination_tail)
        number, document = self.newest()
        return self.snapshot(number, document) if document["deltas"] else NothingToDo("no deltas")

    def snapshot(self, number: int, document: dict[str, Any], tail: int | None = None) -> PartitionSnapshot:
        schemas = SchemaTable(document["schemas"])
        deltas = tuple(
            Delta(delta["position"], OperationType(delta["operation"]), _read(delta["files"], schemas))
            for delta in document["deltas"][:tail]
        )
        index, base = None, None
        if document["index"]:
            index = ObjectRef(**document["index"])
            compacted = _read(document["base"], schemas)
            schema = schemas[document["schema"]]
            base = CompactedDelta(compacted, index, document["watermark"], document["next"], "toy", "", "", schema)
        return PartitionSnapshot(
            source_table_id="toy",
            destination_table_id="toy",
            partition=Partition(),
            base=base,
            owned=True,
            deltas=deltas,
            index=index,
            watermark=deltas[-1].position if deltas else 0,
            next_file_number=document["next"],
            moment=Moment(str(number), len(deltas), str(number), len(deltas)),
            identity={},
            why="there are deltas",
        )

    # CommitTarget

    def check(self, snapshot: PartitionSnapshot, session: str) -> None:
        if self.newest()[0] != int(snapshot.moment.destination_version):
            raise ConflictError("toy: another compaction came first")

    def publish(self, snapshot: PartitionSnapshot, session: str, result: CompactionOutput) -> PublishedVersion:
        number, before = self._version(int(snapshot.moment.destination_version))
        schemas = SchemaTable(before["schemas"])
        document = {
            "base": [file_to_json(file, schemas) for file in result.files],
            "schema": schemas.add(result.schema),
            "index": dataclasses.asdict(result.index),
            "next": result.next_file_number,
            "watermark": snapshot.watermark,
            "deltas": before["deltas"][len(snapshot.deltas) :],
            "schemas": schemas.encoded,
        }
        if not self.store.put_if_absent(self._path(number + 1), json.dumps(document).encode()):
            raise ConflictError("toy: another compaction came first")
        compacted = CompactedDelta(
            result.files, result.index, snapshot.watermark, result.next_file_number, "toy", "", session, result.schema
        )
        return PublishedVersion(str(number + 1), compacted)

    # Inside

    def _path(self, number: int) -> str:
        return f"toy/{number:04d}.json"

    def _version(self, number: int) -> tuple[int, dict[str, Any]]:
        return number, json.loads(self.store.get(self._path(number)))

    def newest(self) -> tuple[int, dict[str, Any]]:
        newest: tuple[int, dict[str, Any]] | None = None
        for number in itertools.count():
            try:
                newest = self._version(number)
            except NotFoundError:
                return newest or (0, dict(EMPTY))
        raise AssertionError("unreachable")


def _read(documents: Sequence[dict[str, Any]], schemas: SchemaTable) -> tuple[DataFile, ...]:
    return tuple(file_from_json(document, schemas) for document in documents)
