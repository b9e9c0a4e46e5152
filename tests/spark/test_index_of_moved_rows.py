"""Spark's workers follow pointers into files whose rows were laid out by columns, as the index does. No session."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.base.limits import LIMITS
from deltacompact.base.model import Partition
from deltacompact.index.entries import GONE, fields
from deltacompact.index.primary_key_index import read_manifest, read_run
from deltacompact.index.remap import Relocator
from deltacompact.spark.index_frame import _Relocating
from deltacompact.storage.memory import MemoryStore


def test_the_workers_relocate_as_the_index_does():
    catalog = DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table("t", primary_keys=["id"], cluster_by="x")
    few = replace(LIMITS, masks_share_of_index=1.0, runs_share_max=10.0)
    for step in range(3):
        ids = np.arange(300 * step, 300 * step + 300)
        table.append(pa.table({"id": ids, "x": np.random.default_rng(step).random(300)}))
        table.compact(settings=Settings(executor="local", limits=few), rows_per_compacted_file=40)
    manifest = read_manifest(catalog.store, catalog.state("t", Partition()).index)
    assert any(relocation.moves for relocation in manifest.relocations)
    stored = np.concatenate(
        [
            entries
            for bucket in range(manifest.hash_bucket_count)
            for entries in read_run(catalog.store, manifest, 0, bucket)
        ]
    )
    pointers = fields(stored)
    stored = np.ascontiguousarray(stored[pointers["file"] < GONE])
    pointers = fields(stored)
    batch = pa.record_batch(
        {"file": pointers["file"].astype(np.int64), "row": pointers["row"].astype(np.int64)},
    )
    (found,) = _Relocating(catalog.store, manifest.relocations).relocate([batch])
    expected = fields(Relocator(catalog.store, manifest.relocations).relocated(stored.copy()))
    assert found["file"].to_pylist() == expected["file"].tolist()
    assert found["row"].to_pylist() == expected["row"].tolist()
    assert found["row"].to_pylist() != batch["row"].to_pylist()
