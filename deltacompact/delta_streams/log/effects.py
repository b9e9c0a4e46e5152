"""Says in words what a log entry does, for a user whose command was interrupted, or whose put has an unknown outcome.

committed at position 7      the delta at position 7 of orders · committed · repeat it with the same token
sealed                       version 4-a1… of orders · published · the same command goes on from there
fence                        nothing, because no user waits for it
"""

from __future__ import annotations

from deltacompact.delta_streams.log.entries import CommittedEntry, Entry, IndexReplaced, Retracted, Sealed
from deltacompact.storage.certain_put import Effect


def effect_of(entry: Entry, stream: str) -> Effect | None:
    """What an entry of the active version does, in words. None: no user waits for it, as for a fence."""
    match entry:
        case CommittedEntry(commit):
            advice = "repeat it with the same token, which is committed once"
            if commit.token is None:
                advice = "it has no token, so see with `show` whether it is there before you repeat it"
            return Effect(f"the delta at position {commit.last_position} of {stream}", "committed", advice)
        case Sealed(successor):
            advice = "`show --versions` says which version is active; the same command goes on from there"
            return Effect(f"version {successor} of {stream}", "published", advice)
        case IndexReplaced():
            return Effect(f"the new index of {stream}", "in force", "repeat the command")
        case Retracted(position):
            return Effect(f"the delta at position {position} of {stream}", "retracted", "repeat the command")
        case _:
            return None
