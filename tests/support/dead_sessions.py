"""Kills a rewrite at a chosen change of its store or catalog, and lists the journals that it leaves."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from deltacompact.index.live_bitmaps import read_masks, write_masks
from deltacompact.storage.local import LocalStore

T = "ns.t"
DAY_ID = pa.schema([("id", pa.int64()), ("day", pa.int32())])
LIVING = [0, 1, 2, 4, 5, 6, 7]


def table_of(lake):
    """Two days, two files each; id 3 is deleted by key. A rewrite has a group for each day."""
    lake.create(T, DAY_ID)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    for numbers in (range(4), range(4, 8)):
        lake.append(T, [{"id": number, "day": number % 2} for number in numbers])
    lake.delete_by_key(T, {"id": [3]}, partition=(1,))


def rewrite(lake, **options):
    return lake.rewrite(T, **{"rewrite_all": True} | options)


def journals(lake):
    return sorted(path for path in Path(lake.folder, "warehouse").rglob("deltacompact/*/*") if path.is_file())


def live_rows_of_another_table(path, rows):
    """Exchange the live bitmaps of files with so many rows for those of a table of which other rows died."""
    store, masks = LocalStore(path.parent), {}
    for ordinal, bits in read_masks(store, path.name).items():
        turned = np.unpackbits(bits, count=rows, bitorder="little")[::-1]
        masks[ordinal] = np.packbits(turned, bitorder="little")
    write_masks(store, path.name, masks)


class Died(BaseException):
    """The process has died. No code catches this error, and later changes have no effect."""


class Death:
    """Kills the process before change number `at` of the store or the catalog. Reads are not counted."""

    def __init__(self, at):
        self.at = at
        self.seen = 0
        self.where = None

    def change(self, name):
        if self.where is None and self.seen == self.at:
            self.where = name
        if self.where is not None:
            raise Died(name)
        self.seen += 1


class Unheard(Death):
    """Kills the process after its commit, before it gets the answer. While `others` is true, commits kill nobody."""

    others = False

    def change(self, name):
        if name == "commit answered" and not self.others:
            self.where = name
        super().change(name)


@contextlib.contextmanager
def dying(lake, death):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("put_if_absent", "delete", "discard"):
            patch.setattr(LocalStore, name, _changing(death, name, getattr(LocalStore, name)))
        place = LocalStore._place

        def placed(self, name, path, put):
            death.change(path)  # a write takes effect when its file is put in place
            place(self, name, path, put)

        patch.setattr(LocalStore, "_place", placed)
        commit = SqlCatalog.commit_table

        def committed(*arguments):
            death.change("commit")
            done = commit(*arguments)
            death.change("commit answered")
            return done

        patch.setattr(SqlCatalog, "commit_table", committed)
        yield


def _changing(death, name, act):
    def changed(self, *arguments):
        death.change(f"{name} {arguments[0]}")
        return act(self, *arguments)

    return changed
