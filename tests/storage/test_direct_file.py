"""Files that are written past the page cache: what was written is in them, whatever the file system makes of it."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.errors import StoreError
from deltacompact.storage.direct_file import SECTOR_BYTES, DirectFile
from deltacompact.storage.local import LocalStore

BLOCK_BYTES = 4 * SECTOR_BYTES
NO_DIRECT = "refused at once", "refused by the first write", "taken"


def behave(patch, how):
    """A file system that does without O_DIRECT says so in one of two ways."""
    if how == "refused at once":

        def setting(handle, command, *flags):
            if command == fcntl.F_SETFL and flags[0] & os.O_DIRECT:
                raise OSError(errno.EINVAL, "invalid argument")
            return real(handle, command, *flags)

        real = fcntl.fcntl
        patch.setattr(fcntl, "fcntl", setting)
    if how == "refused by the first write":

        def write(handle, data):
            if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(errno.EINVAL, "invalid argument")
            return real_write(handle, data)

        real_write = os.write
        patch.setattr(os, "write", write)


@given(sizes=st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=8), how=st.sampled_from(NO_DIRECT))
def test_a_file_holds_what_was_written(tmp_path_factory, sizes, how):
    path = tmp_path_factory.getbasetemp() / uuid.uuid4().hex
    written = b""
    with pytest.MonkeyPatch.context() as patch:
        behave(patch, how)
        with DirectFile(path, BLOCK_BYTES) as sink:
            for place, size in enumerate(sizes):
                piece = bytes([place + 1]) * size
                assert sink.write(memoryview(piece)) == size
                written += piece
                assert sink.tell() == len(written)
            sink.finish()
    assert path.read_bytes() == written
    path.unlink()


def test_short_writes_are_carried_on(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[: max(1, len(data) // 3)]))
    data = os.urandom(5 * BLOCK_BYTES + 17)
    with DirectFile(tmp_path / "file", BLOCK_BYTES) as sink:
        sink.write(data)
        sink.finish()
    assert (tmp_path / "file").read_bytes() == data


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, monkeypatch, blocks):
    """Whether the disk is found full in the background, by the next write, or at the end."""
    real, left = os.write, [blocks]

    def write(handle, data):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        return real(handle, data)

    store = LocalStore(tmp_path, BLOCK_BYTES)
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StoreError, match="No space left on device"), store.writer("t/file") as sink:
        for _ in range(4 * BLOCK_BYTES // 100):
            sink.write(b"x" * 100)
    monkeypatch.undo()
    assert list(store.list("")) == []
    assert [path for path in (tmp_path / LocalStore.UNFINISHED).iterdir()] == []


def test_it_is_written_past_the_cache_where_that_is_possible(tmp_path):
    with DirectFile(tmp_path / "file", BLOCK_BYTES) as sink:
        sink.write(b"x" * BLOCK_BYTES)
        sink.finish()
        flags = fcntl.fcntl(sink._handle, fcntl.F_GETFL)
    try:
        os.close(os.open(tmp_path / "file", os.O_WRONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system does without O_DIRECT")
    assert flags & os.O_DIRECT
