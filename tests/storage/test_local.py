"""Objects on a disk: what cannot be listed is not taken for absent."""

from __future__ import annotations

import errno
import itertools
import os
import resource
from pathlib import Path

import pytest

import deltacompact
from deltacompact.base.errors import InputError, StoreError
from deltacompact.storage import local
from deltacompact.storage.local import LocalStore
from deltacompact.storage.opening import as_uri, open_store


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.EMFILE, "Too many open files"), StoreError),
        (OSError(errno.EIO, "Input/output error"), StoreError),
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
    with pytest.raises(raised, match=error.strerror if raised is StoreError else "permission to read is denied"):
        list(store.list("log/"))


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_refused_by_name(tmp_path, monkeypatch, number):
    """It was said that the folder cannot be written, or that the outcome is unknown: repeat the command."""

    def link(source, target):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(InputError, match="this file system has no hard links"):
        deltacompact.open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("write", [LocalStore.put, LocalStore.put_if_absent])
def test_new_folders_outlive_a_crash_and_old_ones_cost_no_sync(tmp_path, monkeypatch, write):
    """Only the folder of the file was synced: after a power failure the folders above it could be gone, and all files
    in them."""
    store, fsync, synced = LocalStore(tmp_path / "new" / "lake"), os.fsync, []

    def recorded(handle):
        fsync(handle)
        if os.path.isdir(place := os.readlink(f"/proc/self/fd/{handle}")):
            synced.append(os.path.relpath(place, tmp_path))

    monkeypatch.setattr(os, "fsync", recorded)
    write(store, "t/day=1/a", b"1")
    assert sorted(synced) == [".", "new", "new/lake", "new/lake/t", "new/lake/t/day=1"]
    synced.clear()
    write(store, "t/day=1/b", b"1")
    assert synced == ["new/lake/t/day=1"]


def test_a_disk_that_is_read_only_is_named_and_nothing_was_written(tmp_path, monkeypatch):
    """Else a commit "may or may not" be there."""
    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("t")

    def refused(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(local, "DirectFile", refused)
    for doing in (
        lambda: catalog.drop_table("t"),
        lambda: catalog.create_table("u"),
        lambda: catalog.store.put("a", b""),
    ):
        with pytest.raises(InputError, match=f"^{tmp_path} cannot be written: Read-only file system$"):
            doing()


def test_no_descriptor_left_is_the_stores_fault_and_passes(tmp_path):
    """Whoever retries what the store does wrong retries this, too."""
    store = LocalStore(tmp_path)
    store.put("log/1.json", b"1")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        for read in (store.get, store.open):
            with pytest.raises(StoreError, match=r"log/1.json could not be read: .*Too many open files"):
                read("log/1.json")
        with pytest.raises(StoreError, match="could not be read"):
            list(store.folders())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert store.get("log/1.json") == b"1"


@pytest.mark.parametrize("put", ["put", "put_if_absent", "writer"])
def test_what_is_put_is_on_the_disk_before_it_has_its_name_and_its_folder_after(tmp_path, monkeypatch, put):
    """A reader of the name never meets half a file, whatever the power does."""
    store, target = LocalStore(tmp_path), tmp_path / "orders" / "a"
    (tmp_path / "orders").mkdir()
    synced = []

    def fsync(handle):
        synced.append(
            (Path(os.readlink(f"/proc/self/fd/{handle}")).is_dir(), os.fstat(handle).st_size, target.exists())
        )

    monkeypatch.setattr(os, "fsync", fsync)
    if put == "writer":
        with store.writer("orders/a") as sink:
            sink.write(b"123")
    else:
        getattr(store, put)("orders/a", b"123")
    (of_file, size, named), *folders = synced
    assert (of_file, size, named) == (False, 3, False)
    assert folders and all(is_folder and named for is_folder, _, named in folders)


def test_what_was_replaced_while_its_folder_was_listed_is_still_there(tmp_path, monkeypatch):
    """All names that were seen are gone, twice over; a folder that was emptied meanwhile is empty."""
    store, stat = LocalStore(tmp_path), LocalStore.stat
    store.put("n/0", b"")
    replacements = iter([("n/0", "n/1"), ("n/1", "n/2")])

    def slow_stat(store, path):
        for old, new in itertools.islice(replacements, 1):
            store.put(new, b"")
            store.delete([old])
        return stat(store, path)

    monkeypatch.setattr(LocalStore, "stat", slow_stat)
    assert [found.path for found in store.list("n/")] == ["n/2"]
    monkeypatch.setattr(LocalStore, "stat", lambda store, path: store.delete([path]) or stat(store, path))
    assert not list(store.list("n/"))


def test_a_link_that_leads_nowhere_is_no_object(tmp_path):
    """As editors leave them for locks: they stay, so nobody waits for what replaces them."""
    store = LocalStore(tmp_path)
    for name in ("n/.#0", "n/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to("me@machine.4711")
    assert not list(store.list("n/"))
    store.put("n/2", b"")
    assert [found.path for found in store.list("n/")] == ["n/2"]


def test_a_tilde_is_the_home_of_the_user_as_in_a_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/lake").uri == f"{tmp_path.as_uri()}/lake/"
    assert open_store("./~").uri.endswith("/~/")


def test_no_part_of_a_place_is_left_out():
    """A question mark, a number sign or a tab ended the path: two catalogs were one, and a drop was in both."""
    for place in ("s3://b/p/a#1", "s3://b/p/a?1", "s3://b/p/a\tb", "s3://b/p/a%23"):
        assert open_store(place).uri == f"{place}/"
    with pytest.raises(InputError, match="names no bucket"):
        open_store("s3://b?x/p")
    for sign in "?#\t\n":
        with pytest.raises(InputError, match=r"write \? as %3F in a file URI, # as %23"):
            open_store(f"file:///p/a{sign}1")
    assert open_store("file:///p/a%231").uri == "file:///p/a%231/"


def test_one_folder_has_one_name(tmp_path, monkeypatch):
    """Published by ../lake, a table named its files so, and was refused by whoever opened /srv/lake."""
    (tmp_path / "work").mkdir()
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "below")
    (tmp_path / "alias").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "work")
    for name, place in {
        "../lake": tmp_path / "lake",
        f"file://{tmp_path}/work/../lake": tmp_path / "lake",
        tmp_path / "alias" / "work" / ".." / "lake": tmp_path / "alias" / "lake",  # a link in the name stays
        tmp_path / "link" / ".." / "lake": tmp_path / "far" / "lake",  # and ".." after a link leads elsewhere
    }.items():
        assert open_store(name).uri == f"{place.as_uri()}/"
        assert as_uri(name) == place.as_uri() or str(name).startswith("file:")
