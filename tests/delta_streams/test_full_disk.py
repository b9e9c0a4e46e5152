"""A disk that gets full in the midst of a compaction: the error names disk and folder, and the same call goes on.

write 1, 2, 3 …  ENOSPC at the n-th     StoreError: writing below /lake failed: No space left on device
the disk has room again                 the rows are those that were appended
"""

from __future__ import annotations

import errno
import os

import pyarrow as pa
import pytest

from deltacompact import DeltaStreamCatalog, Settings, StoreError
from deltacompact.storage.direct_file import SECTOR_BYTES
from deltacompact.storage.local import LocalStore

SETTINGS = Settings(executor="local", local_threads=1)
ROWS = 2000


def test_a_disk_that_gets_full_anywhere_in_a_compaction_is_named(tmp_path, monkeypatch):
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake", SECTOR_BYTES))
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": range(ROWS)}))
    real, said = os.write, []
    for number in range(100):
        left = [number]

        def write(handle, data, left=left):
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            return real(handle, data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            try:
                table.compact(settings=SETTINGS)
                break
            except StoreError as error:
                said.append(str(error))
    else:
        pytest.fail("it never ended")
    assert len(said) > 10
    assert set(said) == {f"writing below {tmp_path / 'lake'} failed: No space left on device"}
    assert sorted(table.read()["id"].to_pylist()) == list(range(ROWS))
    assert list((tmp_path / "lake" / LocalStore.UNFINISHED).iterdir()) == []
