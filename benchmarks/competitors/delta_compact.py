"""deltacompact, as its users call it, with one of its executors.

The input files are appended by reference: prior rows, then one delta after another. With "ray" the cluster is started
before, and a tiny table was compacted on it; with "auto" a cluster that is wanted is started inside the time.

In duckrun's suite the deltas are appended in the time, and their files copied.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltacompact
from benchmarks.competitors import Run, linked_copy
from benchmarks.competitors.departed import departed
from benchmarks.configurations import DUCKRUN
from benchmarks.data import Inputs
from deltacompact.base.model import Readers
from deltacompact.delta_streams.streams import stream_files
from deltacompact.results import SessionResult

TABLE = "bench"


class DeltaCompact:
    """`readers` honour deletion vectors, or read plain files. `limits` are further Settings.

    `clustered`: rows are laid out by the first two columns that are no keys.
    """

    def __init__(self, executor: str, readers: str = "files", clustered: bool = False, **limits: Any) -> None:
        self._readers = Readers.of(readers)
        self._clustered = clustered
        self._settings = deltacompact.Settings(executor=executor, **limits)

    def start(self) -> None:
        if self._settings.executor == "ray":
            from deltacompact.executors.ray import RayExecutor

            RayExecutor(self._settings)

    def stop(self) -> None:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()

    def build_base(self, inputs: Inputs, folder: Path) -> None:
        catalog = _created(inputs, folder)
        deltacompact.compact(TABLE, delta_catalog_client=catalog, settings=replace(self._settings, executor="local"))

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        if inputs.case.incremental:
            linked_copy(base, folder)
            catalog = deltacompact.open_catalog(folder)
        else:
            catalog = _created(inputs, folder)
        marked, timed = self._readers is Readers.VECTORS, inputs.case in DUCKRUN
        if marked:
            catalog.declare_readers(TABLE, self._readers)
        if not timed:
            _append(catalog, inputs, reference=True)
        sessions: list[SessionResult] = []
        others = [name for name in inputs.columns if name not in inputs.keys]
        cluster_by = others[:2] if self._clustered else None

        def work() -> None:
            if timed:
                _append(catalog, inputs, reference=False)
            result = catalog.table(TABLE).compact(settings=self._settings, cluster_by=cluster_by)
            sessions.extend(result.sessions)

        def files() -> list[Path]:
            state = catalog.state(TABLE, catalog.partition(TABLE, None))
            return [folder / file.path.removeprefix("file://") for file in stream_files(state)]

        def scan() -> pa.RecordBatchReader:
            return catalog.table(TABLE).scan(columns=inputs.columns)

        return Run(work, files, lambda: self._details(sessions[0]), scan if marked else None)

    def _details(self, session: SessionResult) -> dict[str, Any]:
        details = asdict(replace(session, error=None))
        del details["error"], details["partition"], details["version"]
        return details


def _append(catalog: deltacompact.DeltaStreamCatalog, inputs: Inputs, reference: bool) -> None:
    if inputs.whole:
        known = catalog.table(TABLE).scan(columns=inputs.keys)
        catalog.append(TABLE, departed(known, inputs), operation="delete")
    for delta in inputs.deltas:
        operation = "delete" if delta.deletes else "upsert"
        catalog.append_files(TABLE, delta.files, operation=operation, reference=reference)


def _created(inputs: Inputs, folder: Path) -> deltacompact.DeltaStreamCatalog:
    """A table with the prior rows."""
    catalog = deltacompact.open_catalog(folder)
    catalog.create_table(TABLE, primary_keys=inputs.keys)
    catalog.append_files(TABLE, inputs.prior, reference=True)
    return catalog
