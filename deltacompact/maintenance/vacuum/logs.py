"""Garbage among the logs: logs of attempts that lost, and checkpoints that newer ones replace.

stream/4-a1/…          the seal of 3-77… leads to it                          stays for ever
stream/4-b2/…          the seal of 3-77… leads elsewhere, 4 days old          deleted, one entry after the other
checkpoints/0/…0100    there is …0200                                         deleted
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import zip_longest

from deltacompact.delta_streams.log.objects import LogObjects
from deltacompact.maintenance.vacuum.chain import Chain
from deltacompact.maintenance.vacuum.contradictions import Evidence
from deltacompact.maintenance.vacuum.listing import StreamListing
from deltacompact.storage.objects import ObjectStat


def attempts(listing: StreamListing, evidence: Evidence, chain: Chain) -> dict[str, list[ObjectStat]]:
    """The logs of versions that no seal leads to."""
    found: dict[str, list[ObjectStat]] = {}
    for stat in evidence.entries:
        version, _ = listing.paths.entry_of(stat.path) or ("", 0)
        found.setdefault(version, []).append(stat)
    return {version: log for version, log in found.items() if version not in chain.tails}


def unreached_logs(
    objects: LogObjects, listing: StreamListing, evidence: Evidence, chain: Chain
) -> list[tuple[ObjectStat, ...]]:
    """Old logs of attempts that lost: the seal of their parent names another successor.

    Each tuple has the last entries that are left, to be deleted in a request of its own: a store may delete some
    objects of a request, and not the others. So a vacuum that dies halfway leaves no hole in a log. The first entry
    goes last, because it names the parent: the next vacuum still finds the log.
    """
    logs = [
        sorted(log, key=lambda stat: stat.path, reverse=True)
        for version, log in attempts(listing, evidence, chain).items()
        if all(map(listing.is_old, log)) and (opened := objects.opened(version)) and opened.parent in chain.sealed
    ]
    return [tuple(filter(None, entries)) for entries in zip_longest(*logs)]


def superseded_checkpoints(listing: StreamListing, evidence: Evidence, chain: Collection[str]) -> list[ObjectStat]:
    """All checkpoints except the newest of each version in the chain. Readers can always read the log instead."""
    tails: dict[str, int] = {}
    found = [(listing.paths.checkpoint_of(stat.path) or ("", 0), stat) for stat in evidence.checkpoints]
    for (version, tail), _ in found:
        tails[version] = max(tail, tails.get(version, 0))
    return [stat for (version, tail), stat in found if version not in chain or tail < tails[version]]
