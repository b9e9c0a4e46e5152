"""The versions that seals lead to, as a vacuum reads them: back to those that the last vacuum's mark knows.

0 · 1-50a3… · 2-77b1… · 3-9c…      seals lead from the genesis to the active version
the mark knows 0, 1-50a3…          their logs are listed as the mark says: they stay unread
read: 2-77b1…, 3-9c…               2-77b1… was sealed an hour ago: a reader may still read it, so it is retained
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import is_fresh_name
from deltacompact.maintenance.vacuum.listing import StreamListing
from deltacompact.maintenance.vacuum.mark import SealedVersion
from deltacompact.storage.identity import file_name, identity_of_uri


@dataclass(frozen=True, slots=True)
class Chain:
    """All versions. Only the retained ones have their files: a year of hourly versions would fill the memory.

    retained    the active version, and before it those sealed within the minimum age, which readers may still read
    sealed      what is remembered of each other version than the active one
    sessions    the sessions that published the versions that this vacuum has read
    is_whole    whether it has read all versions
    """

    retained: tuple[StreamState, ...]
    sealed: Mapping[str, SealedVersion]
    sessions: frozenset[str]
    is_whole: bool

    @classmethod
    def of(cls, read: Iterable[StreamState], past: Mapping[str, SealedVersion], listing: StreamListing) -> Chain:
        """The versions of `past`, and the later ones up to the active one."""
        retained, sealed, sessions = list[StreamState](), dict(past), set[str]()
        for state in read:
            retained.append(state)
            if state.compacted:
                sessions.add(state.compacted.session_id)
            if state.sealed:
                names = tuple(sorted(referenced_names(state)))
                sealed[state.version] = SealedVersion(state.tail, state.manifests, names)
                if listing.is_old_since(sealed_s(listing, state)):
                    retained.clear()
        return cls(tuple(retained), sealed, frozenset(sessions), not past)

    @property
    def active(self) -> StreamState:
        return self.retained[-1]

    @property
    def referenced(self) -> frozenset[str]:
        """The names of all files that were ever appended by reference and look like names of ours."""
        return referenced_names(self.active).union(*(known.referenced for known in self.sealed.values()))

    @property
    def tails(self) -> dict[str, int]:
        """The number of log entries of each version."""
        sealed = {version: known.tail for version, known in self.sealed.items()}
        return {**sealed, self.active.version: self.active.tail}


def read_chain(log: StreamLog, listing: StreamListing, past: Mapping[str, SealedVersion]) -> Chain:
    """Read every version from the first to the active one, or only those that `past` does not know.

    Retained versions are read in any case. If the log of a version in `past` has changed, the whole chain is read:
    reading it raises an error that says what is wrong.
    """
    if not past or not listing.have_logs(past):
        return Chain.of(log.chain(), {}, listing)
    state = log.active(strictly=True)
    read = [state]
    while (parent := state.opened.parent) is not None:
        if parent in past and listing.is_old_since(listing.modified_s(log.paths.entry(parent, past[parent].tail - 1))):
            break
        state = log.state(parent)
        if state.sealed is None or state.sealed.successor != read[0].version:
            return Chain.of(log.chain(), {}, listing)
        read.insert(0, state)
    return Chain.of(read, {version: past[version] for version in past if version != read[-1].version}, listing)


def referenced_names(state: StreamState) -> frozenset[str]:
    """The names of the files that were appended by reference to a version's log and look like names of ours.

    The log says whether the stream owns a file. A link may give the file a second name: both are returned.
    """
    paths = [file.path for delta in state.committed for file in delta.files if not file.managed]
    names = {file_name(name) for path in paths for name in (path, identity_of_uri(path))}
    return frozenset(filter(is_fresh_name, names))


def sealed_s(listing: StreamListing, state: StreamState) -> float:
    """When a version was sealed, by the store's clock."""
    return listing.modified_s(listing.paths.entry(state.version, state.tail - 1))


def newest_s(log: StreamLog, listing: StreamListing, chain: Chain) -> float:
    """When the last entry that is no fence was put: one of the active version, or the seal that leads to it."""
    last_s = listing.modified_s(log.last_written(chain.active))
    parent = chain.active.opened.parent
    if parent is None:
        return last_s
    return max(last_s, listing.modified_s(log.paths.entry(parent, chain.tails[parent] - 1)))
