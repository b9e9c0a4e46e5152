"""Files that S3 keeps for infrequent access, or archived: a layout leaves them where they are.

    chosen      day=3/a, day=3/b, day=4/c       two folders are listed: a is STANDARD_IA, and stays
    chosen      day=3/b, day=4/c, day=4/d       of the rest: d is new among them, and asked

Reading them costs a fee for each gigabyte, or cannot be done before they are restored, and what is written anew is paid
for twice until their least age. Only the folders of chosen files are listed, from the first chosen name to the last;
no file is asked by itself. A table on a disk is asked nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from deltacompact.base.errors import InputError
from deltacompact.base.partitions import side_by_side
from deltacompact.iceberg.table.locations import readable
from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object

COLD = frozenset({"STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"})
AT_ONCE = 16
_LOG = logging.getLogger("deltacompact")


def without_cold(
    store: ObjectStore, planned: Callable[[frozenset[str]], RewritePlan]
) -> tuple[RewritePlan, frozenset[str]]:
    """The plan that chooses no cold files, and those that were found.

    Files are asked once they are chosen: by another plan, others may be.
    """
    asked: set[str] = set()
    cold: frozenset[str] = frozenset()
    while True:
        plan = planned(cold)
        chosen = {source.entry.file.path for source in plan.inputs} - asked
        found = cold_among(store, chosen)
        if not found:
            return plan, cold
        asked |= chosen
        cold |= found


def cold_among(store: ObjectStore, locations: Collection[str]) -> frozenset[str]:
    """Those of some files that lie in a cold class."""
    chosen: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for location in locations:
        if location.lower().startswith("s3"):
            uri = readable(location)
            chosen[uri.rpartition("/")[0]].append((uri, location))
    found = side_by_side(list(chosen.values()), lambda files: _cold_of_folder(store, files), AT_ONCE)
    return frozenset().union(*found)


def _cold_of_folder(store: ObjectStore, files: Sequence[tuple[str, str]]) -> frozenset[str]:
    """The same, of one folder."""
    opened = [(*open_object(store, uri), location) for uri, location in files]
    bucket = opened[0][0]
    named: dict[str, set[str]] = defaultdict(set)
    for _, name, location in opened:
        named[name].add(location)
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
