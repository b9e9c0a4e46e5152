"""Objects on a disk: what cannot be listed is not taken for absent."""

from __future__ import annotations

import errno
import os

import pytest

from deltacompact.base.errors import InputError
from deltacompact.storage.local import LocalStore


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.EMFILE, "Too many open files"), OSError),
        (OSError(errno.EIO, "Input/output error"), OSError),
        (PermissionError(errno.EACCES, "Permission denied"), InputError),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), None),
    ],
)
@pytest.mark.parametrize("folder", ["log", "log/below"])
def test_a_folder_that_cannot_be_opened_is_not_empty(tmp_path, monkeypatch, error, raised, folder):
    """Whoever takes live files for absent may delete them, or begin a log anew."""
    store, scandir = LocalStore(tmp_path), os.scandir
    store.put("log/1.json", b"1")
    store.put("log/below/2.json", b"2")

    def scanned(path):
        if os.fspath(path) == str(tmp_path / folder):
            error.filename = os.fspath(path)
            raise error
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scanned)
    if raised is None:
        assert [stat.path for stat in store.list("log/")] == ([] if folder == "log" else ["log/1.json"])
        return
    with pytest.raises(raised, match=error.strerror if raised is OSError else "permission to read is denied"):
        list(store.list("log/"))
