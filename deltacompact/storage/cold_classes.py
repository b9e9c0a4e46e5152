"""Finds files that S3 keeps for infrequent access or archived: a layout does not rewrite them.

    chosen      day=3/a, day=3/b, day=4/c       two folders are listed: a is STANDARD_IA, and stays

Reading a cold file costs a fee for each gigabyte; an archived one must be restored first. After a rewrite, its old
bytes are billed until their minimum age, beside the new ones. One listing of each chosen file's folder, from the first
chosen name to the last, tells the classes: no request for each file. Other stores than S3 get no request.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection

from deltacompact.base.errors import InputError
from deltacompact.base.partitions import side_by_side
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object

COLD = frozenset({"STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"})
LISTINGS_AT_ONCE = 16
_LOG = logging.getLogger("deltacompact")


def cold_among(store: ObjectStore, paths: Collection[str]) -> frozenset[str]:
    """The files among `paths` (paths or URIs) that are in a cold class."""
    of_folders: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        of_folders[path.rpartition("/")[0]].append(path)
    found = side_by_side(list(of_folders.values()), lambda files: _cold_of_folder(store, files), LISTINGS_AT_ONCE)
    return frozenset().union(*found)


def _cold_of_folder(store: ObjectStore, paths: Collection[str]) -> frozenset[str]:
    """The cold files among `paths`, which lie in one folder."""
    opened = [(*open_object(store, path), path) for path in paths]
    bucket = opened[0][0]
    if not bucket.uri.startswith("s3:"):
        return frozenset()
    named: dict[str, set[str]] = defaultdict(set)
    for _, name, path in opened:
        named[name].add(path)
    first, last = min(named), max(named)
    folder = first[: first.rfind("/") + 1]  # "" for files at the root of a bucket
    found: set[str] = set()
    try:
        for stat in bucket.list(folder if first != last else first, first[:-1]):
            if stat.path in named and stat.storage_class in COLD:
                found |= named[stat.path]
            if stat.path >= last:
                break
    except InputError as error:  # a user who may read files may lack the permission to list them
        _LOG.warning("storage classes cannot be listed, so all files are taken as frequently read: %s", error)
    return frozenset(found)
