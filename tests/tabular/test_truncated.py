"""A local file that somebody cuts short while it is read is one clear line, and not the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from deltacompact.storage.local import LocalStore

TABLE = pa.table({"k": np.arange(300_000), "v": np.random.default_rng(1).integers(0, 2**62, 300_000)})
DRIVER = """
import os, sys
from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.errors import DeltaCompactError
from deltacompact.steps import materialize
from deltacompact.storage.local import LocalStore

lake, victim = sys.argv[1:]
catalog = DeltaStreamCatalog(LocalStore(lake))
planned = materialize._planned

def cut_then(*arguments):
    done = planned(*arguments)
    os.truncate(victim or lake + "/" + catalog.state("t", catalog.partition("t", None)).deltas[0].files[0].path, 5000)
    return done

materialize._planned = cut_then
settings = Settings(executor="local", local_threads=1)
try:
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings).sessions
    print(session.error)
except DeltaCompactError as error:
    print(error)
"""


def write(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=50_000)
        case ".arrow":
            feather.write_feather(table, path, compression="uncompressed")


@pytest.mark.processes
@pytest.mark.parametrize(("suffix", "reference"), [(".parquet", True), (".arrow", True), (".parquet", False)])
def test_a_file_that_is_cut_short_during_a_compaction_is_named(tmp_path: Path, suffix: str, reference: bool) -> None:
    from deltacompact import DeltaStreamCatalog

    catalog, path = DeltaStreamCatalog(LocalStore(tmp_path / "lake")), tmp_path / f"victim{suffix}"
    catalog.create_table("t", (), ["k"])
    write(TABLE, path)
    catalog.append_files("t", [path], reference=reference)
    victim = str(path) if reference else ""
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "lake"), victim]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, (run.returncode, run.stderr)  # it was -7, SIGBUS
    (line,) = run.stdout.strip().splitlines()
    assert ("victim" if reference else "t/data/") in line
    assert "cannot be read" in line or "was changed" in line


def test_an_open_file_of_ours_is_not_mapped(tmp_path: Path) -> None:
    store: Any = LocalStore(tmp_path)
    store.put("a", bytes(1 << 20))
    with store.open("a") as source:
        os.truncate(tmp_path / "a", 10)
        assert len(source.read_at(100, 5000)) == 0
