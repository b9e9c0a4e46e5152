"""A layout leaves files alone that lie in S3's classes for infrequent access or archives (cold_classes.py).

chosen      day=3/a, day=3/b, day=4/c       two folders are listed: a is STANDARD_IA, and stays
chosen      day=3/b, day=4/c, day=4/d       planned again without a: d is new, so its class is looked up
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

from deltacompact.iceberg.table.locations import readable
from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
from deltacompact.storage import cold_classes
from deltacompact.storage.objects import ObjectStore


def without_cold(
    store: ObjectStore, planned: Callable[[frozenset[str]], RewritePlan]
) -> tuple[RewritePlan, frozenset[str]]:
    """A plan without cold files, and the cold files that were found.

    Only chosen files are looked up. Without the cold ones, a plan may choose others, so this repeats.
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
    """The files at these locations that lie in a cold class."""
    spelled: dict[str, set[str]] = defaultdict(set)
    for location in locations:
        if location.lower().startswith("s3"):
            spelled[readable(location)].add(location)
    return frozenset().union(*(spelled[uri] for uri in cold_classes.cold_among(store, spelled)))
