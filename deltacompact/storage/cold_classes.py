"""Files that S3 keeps for infrequent access, or archived: a layout leaves them where they are.

    chosen      day=3/a, day=3/b, day=4/c       two folders are listed: a is STANDARD_IA, and stays

Reading them costs a fee for each gigabyte, or cannot be done before they are restored, and what is written anew is paid
for twice until their least age. Only the folders of chosen files are listed, from the first chosen name to the last;
no file is asked by itself. A store that is not S3 is asked nothing.
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
AT_ONCE = 16
_LOG = logging.getLogger("deltacompact")


def cold_among(store: ObjectStore, paths: Collection[str]) -> frozenset[str]:
    """Those of some files, by path or URI, that lie in a cold class."""
    of_folders: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        of_folders[path.rpartition("/")[0]].append(path)
    found = side_by_side(list(of_folders.values()), lambda files: _cold_of_folder(store, files), AT_ONCE)
    return frozenset().union(*found)


def _cold_of_folder(store: ObjectStore, paths: Collection[str]) -> frozenset[str]:
    """The same, of one folder."""
    opened = [(*open_object(store, path), path) for path in paths]
    bucket = opened[0][0]
    if not bucket.uri.startswith("s3:"):
        return frozenset()
    named: dict[str, set[str]] = defaultdict(set)
    for _, name, path in opened:
        named[name].add(path)
    first, last = min(named), max(named)
    found: set[str] = set()
    try:
        for stat in bucket.list(f"{first.rpartition('/')[0]}/" if first != last else first, first[:-1]):
            if stat.path in named and stat.storage_class in COLD:
                found |= named[stat.path]
            if stat.path >= last:
                break
    except InputError as error:  # whoever may read files need not be allowed to list them
        _LOG.warning("storage classes cannot be listed, so all files are taken as frequently read: %s", error)
    return frozenset(found)
