"""Sessions that may still publish: a vacuum spares their files, or fences a session before it deletes its files.

    s1    its plan names the active version, its last object is 4 days old    fence(s1) into the log: its files may go
    s2    its plan names the active version, it wrote an hour ago             protected
    s3    its plan names a sealed version                                     cannot publish: its files may go
    s4    no plan (a rehash, a writer)                                        refuses to commit old files itself

A fence is an entry in the base's log. A compactor reads every entry before it puts its seal, so a fenced session cannot
publish.
"""

from __future__ import annotations

from deltacompact.delta_streams.log.entries import Entry, Fence
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.maintenance.vacuum.chain import Chain
from deltacompact.maintenance.vacuum.listing import StreamListing
from deltacompact.session.records import PLAN, base_of
from deltacompact.storage.objects import ObjectStat


def fenced_off(log: StreamLog, listing: StreamListing, chain: Chain, dry_run: bool) -> tuple[set[str], tuple[str, ...]]:
    """The sessions that may still publish, and those that this vacuum has fenced (or, in a dry run, would fence)."""
    sessions = _sessions(listing)
    protected = {name for name in sessions if _may_publish(name, listing, chain)}
    stale = sorted(name for name in protected if all(map(listing.is_old, sessions[name])))
    fenced = stale if dry_run else [name for name in stale if _fence(log, name, chain.active.version)]
    return protected - set(fenced), tuple(fenced)


def _sessions(listing: StreamListing) -> dict[str, list[ObjectStat]]:
    """The objects of each session."""
    sessions: dict[str, list[ObjectStat]] = {}
    for stat in listing.ours:
        if name := listing.paths.session_of(stat.path):
            sessions.setdefault(name, []).append(stat)
    return sessions


def _may_publish(name: str, listing: StreamListing, chain: Chain) -> bool:
    """Whether the session could still seal its base: the base has no seal and no fence for the session."""
    if listing.paths.session(name) + PLAN not in listing.all:  # a session puts its plan before anything else
        return False
    if name in chain.sessions:
        return False  # it has published: its base has a seal
    base = base_of(listing.store, listing.paths, name)  # None: a rehash or a writer, which refuse to commit old files
    return base == chain.active.version and name not in chain.active.fences


def _fence(log: StreamLog, name: str, base: str) -> bool:
    """Put a fence into the base's log. False: the base was sealed first."""
    decided = [False]

    def decide(state: StreamState) -> Entry | None:
        decided[0] = state.version == base
        if not decided[0] or name in state.fences:
            return None
        return Fence(name)

    log.extend(decide)
    return decided[0]
