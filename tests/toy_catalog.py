"""A catalog in a hundred lines, to show that the engine needs no other: a JSON file a version, and a folder of data.

toy/0000.json   {"schemas": […], "base": null, "index": null, "next": 0, "watermark": 0, "deltas": [{"position": 1, …}]}
toy/0001.json   what a compaction published, by put if absent: whoever comes second is in conflict
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import ConflictError, NotFoundError
from deltacompact.base.model import CompactedDelta, Delta, ObjectRef, OperationType, Partition, TableKeys
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.documents import SchemaTable, file_from_json, file_to_json
from deltacompact.table.ports import Compaction, Moment, NothingToDo, Ports, PublishedVersion, Snapshot, Workspace
from deltacompact.tabular import files


class ToyCatalog:
    """One table of one partition. Implements SnapshotSource and CommitTarget."""

    workspace = Workspace("toy")

    def __init__(self, store: ObjectStore, keys: TableKeys) -> None:
        self.store = store
        self.keys = keys

    @property
    def ports(self) -> Ports:
        return Ports(self, self, self.workspace, self.store)

    # Writing and reading

    def append(self, position: int, table: pa.Table, operation: str = "upsert") -> None:
        """Add a delta to the newest version. Nobody else may be writing: it is a toy."""
        number, document = self._newest()
        file = files.write_table(self.store, self.workspace.fresh("data", ".parquet"), table, files.WriteOptions())
        schemas = SchemaTable(document["schemas"])
        delta = {"position": position, "operation": operation, "files": [file_to_json(file, schemas)]}
        document |= {"deltas": [*document["deltas"], delta], "schemas": schemas.encoded}
        self.store.put(self._path(number), json.dumps(document).encode())

    # SnapshotSource

    def fetch(self, moment: Moment | None = None) -> Snapshot | NothingToDo:
        number, document = self._newest() if moment is None else self._version(int(moment.destination_version))
        schemas = SchemaTable(document["schemas"])
        counted = document["deltas"][: moment.destination_tail if moment else None]
        if not counted:
            return NothingToDo("no deltas")
        deltas = tuple(
            Delta(
                delta["position"],
                OperationType(delta["operation"]),
                tuple(file_from_json(file, schemas) for file in delta["files"]),
            )
            for delta in counted
        )
        index = ObjectRef(**document["index"]) if document["index"] else None
        base = None
        if index:
            compacted = tuple(file_from_json(file, schemas) for file in document["base"])
            schema = schemas[document["schema"]]
            base = CompactedDelta(compacted, index, document["watermark"], document["next"], "toy", "", "", schema)
        when = Moment(str(number), len(deltas), str(number), len(deltas))
        watermark, why = deltas[-1].position, "there are deltas"
        return Snapshot(
            "toy", "toy", Partition(), base, True, deltas, index, watermark, document["next"], when, {}, why
        )

    # CommitTarget

    def check(self, snapshot: Snapshot, session: str) -> None:
        if self._newest()[0] != int(snapshot.moment.destination_version):
            raise ConflictError("toy: another compaction came first")

    def publish(self, snapshot: Snapshot, session: str, result: Compaction) -> PublishedVersion:
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

    def _newest(self) -> tuple[int, dict[str, Any]]:
        newest: tuple[int, dict[str, Any]] | None = None
        for number in itertools.count():
            try:
                newest = self._version(number)
            except NotFoundError:
                return newest or (0, {"base": None, "index": None, "next": 0, "deltas": [], "schemas": []})
        raise AssertionError("unreachable")
