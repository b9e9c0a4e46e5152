"""The head of a stream on its store: read when a process first opens the stream, written after each put.

    GET hint.json            version 4-a1…, to which entry 9 of 3-77… led, and its entries 100 and 101
    GET 3-77… entry 9        a seal that names 4-a1…: the head counts     (anything else: it does not, see below)
    replay                   checkpoint 100 of 4-a1…, then entries 100 and 101, without reading them again

heads.py has the document of a head. A head whose seal is missing does not count. If its version was active once,
somebody removed the seal from outside, and CorruptionError is raised.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from deltacompact.base.errors import DeltaCompactError, NotFoundError
from deltacompact.base.partitions import READ_AT_ONCE, both, side_by_side
from deltacompact.delta_streams.log import checkpoints, heads
from deltacompact.delta_streams.log.entries import dump
from deltacompact.delta_streams.log.heads import StreamHead
from deltacompact.delta_streams.log.objects import ENTRIES_AT_ONCE, LogObjects
from deltacompact.delta_streams.log.state import StreamState, replay
from deltacompact.delta_streams.paths import GENESIS
from deltacompact.storage.objects import ObjectStat


class StoredHead:
    """Reads the head, checks it against the log, and overwrites it."""

    def __init__(self, objects: LogObjects) -> None:
        self._objects = objects
        self._led_by: dict[str, tuple[str, int]] = {}
        """The seals that led to versions: version and number of each seal."""

    def read(self) -> StreamHead | None:
        """The head, unchecked. None: there is none."""
        try:
            return heads.parsed(self._objects.paths.root, self._objects.store.get(self._objects.paths.hint))
        except NotFoundError:
            return None

    def checked(self, head: StreamHead, with_listing: bool) -> tuple[bool, list[ObjectStat] | None]:
        """Whether the head counts, because a seal leads to its version.

        `with_listing`: at the same time, list the log from the head's first entry on.
        """
        objects = self._objects
        return both(
            lambda: head.version == GENESIS or self._is_released(head),
            lambda: objects.listed(head.version, head.first) if with_listing and head.entries else None,
            READ_AT_ONCE if objects.keeps_heads else 1,
        )

    def replayed(self, head: StreamHead) -> StreamState:
        """The state that the head repeats. Raises a DeltaCompactError if its checkpoint or a body is missing."""
        objects = self._objects
        known = checkpoints.read(objects, head.version, head.first) if head.first else None
        if known is None and head.first:
            raise NotFoundError("a vacuum deleted the checkpoint, because there is a newer one")
        numbered = list(enumerate(head.entries, head.first))
        for sequence, document in numbered:
            objects.recent.add(head.version, sequence, dump(document))
        bodies = sum("body" in document for document in head.entries)
        entries = side_by_side(
            numbered,
            lambda entry: objects.decoded(entry[1], objects.paths.entry(head.version, entry[0])),
            max(1, min(ENTRIES_AT_ONCE, bodies)),
        )
        objects.recent.written[head.version] = head.tail
        return replay(head.version, entries, known)

    def state_at(self, head: StreamHead, version: str, tail: int) -> StreamState | None:
        """The state of a version that was active with `tail` entries. None: the head does not repeat them."""
        if head.version != version or not head.first < tail <= head.tail:
            return None
        try:
            return self.replayed(replace(head, entries=head.entries[: tail - head.first]))
        except DeltaCompactError:  # the log itself is read, and says what is wrong
            return None

    def led(self, version: str, sequence: int, successor: str) -> None:
        """Remember that the seal at this entry of `version` leads to `successor`."""
        self._led_by[successor] = (version, sequence)

    def keep(self, versions: Container[str]) -> None:
        """Forget how the log led to other versions, and their entries."""
        self._led_by = heads.only(self._led_by, versions)
        self._objects.recent.keep(versions)

    def put(self, version: str, tail: int) -> None:
        """Overwrite the head, if the log has grown by a hundredth: a head is written whole."""
        objects, recent = self._objects, self._objects.recent
        parent, seal = self._led_by.get(version, (None, None))
        log = recent.since_checkpoint(version, tail) if objects.keeps_heads else []
        if tail - recent.written.get(version, 0) > len(log) // 100:
            root = objects.paths.root
            objects.store.put(objects.paths.hint, heads.encoded(root, version, parent, seal, tail - len(log), log))
            recent.written[version] = tail

    def _is_released(self, head: StreamHead) -> bool:
        """Whether a seal leads to the head's version."""
        if head.parent is None or head.seal is None:
            return self._follows_a_seal(head.version)
        if self._objects.sealed_successor(head.parent, head.seal) != head.version:
            return self._follows_a_seal(head.version)
        self.led(head.parent, head.seal, head.version)
        return True

    def _follows_a_seal(self, version: str) -> bool:
        """Whether the last entry of a version's parent is a seal that names it. (Old hints do not name that entry.)

        Raises CorruptionError if the version was active once, but its parent's seal is missing.
        """
        objects = self._objects
        opened = objects.opened(version)
        if opened is None or opened.parent is None:
            return False
        tail = objects.listed_tail(opened.parent)
        successor = objects.sealed_successor(opened.parent, tail - 1) if tail else None
        if successor is None and (witness := objects.sign_of_life(version)):
            raise objects.hole(opened.parent, tail, witness)
        return successor == version
