"""Checkpoints of a log: entries 0‥tail of a version as one object, which saves reading them one by one.

    version 3-77…    entries 0 … 199, 200 … 214
                     checkpoints/3-77…/…0100.json, …0200.json      the first 100 entries, the first 200
    read             checkpoint 200, then entries 200‥214

A checkpoint only saves time: if it is missing or damaged, the log itself is read. It also shows tampering: if it was
made of more entries than the log has, somebody removed entries from outside.
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.model import FORMAT_VERSION
from deltacompact.delta_streams.log.entries import (
    Carried,
    Compacted,
    Entry,
    Fence,
    IndexReplaced,
    Retracted,
    check_format,
    dump,
    from_document,
    to_document,
)
from deltacompact.delta_streams.log.objects import LogObjects, json_object
from deltacompact.delta_streams.log.state import StreamState, replay


def is_due(tail: int, every: int) -> bool:
    """Whether a log of `tail` entries gets a checkpoint: at 100, 200, … 800, then 1,000, 1,200, … 1,600, 2,000, …

    Each checkpoint holds the whole log. With equal distances their total size would grow with the square of the log,
    so the distance grows up to a quarter of the log.
    """
    number, rest = divmod(tail, every)
    step = 1 << max(0, number.bit_length() - 3)
    return rest == 0 and number % step == 0


def write(objects: LogObjects, state: StreamState) -> None:
    """Put the opened and compacted entries of a version, and all its commits in one entry, as one object."""
    entries = [state.opened, *_summary(state)]
    document = {
        "format": FORMAT_VERSION,
        "tail": state.tail,
        "entries": [to_document(entry) for entry in entries],
        "manifests": state.manifests,
    }
    objects.store.put_if_absent(objects.paths.checkpoint(state.version, state.tail), dump(document))
    objects.recent.begin_at(state.version, state.tail)


def newest(objects: LogObjects, version: str, tail: int) -> StreamState | None:
    """The newest checkpoint of a log with `tail` entries. None: read the log itself, which is slower.

    Raises CorruptionError if a checkpoint was made of entries that are missing.
    """
    paths = objects.paths
    stats = objects.store.list(paths.checkpoints(version))
    tails = [found[1] for stat in stats if (found := paths.checkpoint_of(stat.path))]
    if not tails:
        return None
    longest = max(tails)
    if longest > tail and not objects.is_there(version, longest - 1):  # if it is there, the log has grown
        raise objects.hole(version, longest - 1, "a checkpoint of it, " + paths.checkpoint(version, longest))
    usable = [checkpoint_tail for checkpoint_tail in tails if checkpoint_tail <= tail]
    return read(objects, version, max(usable)) if usable else None


def read(objects: LogObjects, version: str, tail: int) -> StreamState | None:
    """The state in the checkpoint of `tail` entries. None: it is missing, or not ours."""
    path = objects.paths.checkpoint(version, tail)
    try:
        document = json_object(objects.store.get(path), path)
        check_format(document, path)
        state = replay(version, [(from_document(entry, path), None) for entry in document["entries"]])
        manifests = tuple(map(str, document["manifests"]))
    except (DeltaCompactError, LookupError, TypeError, ValueError, AttributeError):
        return None  # a vacuum deleted it, or it is not ours
    if document.get("tail") != tail:
        return None
    objects.recent.begin_at(version, tail)
    return replace(state, tail=tail, manifests=manifests)


def _summary(state: StreamState) -> list[Entry]:
    entries: list[Entry] = []
    if state.compacted:
        entries.append(Compacted(state.compacted))
        entries += [IndexReplaced(index) for index in state.indices[1:]]
    entries += [Fence(session_id) for session_id in sorted(state.fences)]
    if state.commits:
        entries.append(Carried(state.commits))
    entries += [Retracted(position) for position in sorted(state.retracted)]
    if state.sealed:
        entries.append(state.sealed)
    return entries
