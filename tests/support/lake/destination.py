"""Checks what the destination "d" of table "t" holds after a compaction into it.

After an undisturbed compaction "d" holds what the source held. After a failure it may still hold what it held before.
A resumed session folds the events that the source had when the session began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from columns import bag

from deltacompact import SessionResult

from .model import Event, folded
from .world import World


class Destination:
    def __init__(self, world: World) -> None:
        self.world = world
        self._interrupted = False

    def compacted(
        self, before: Mapping[str | None, list[Event]], sessions: Sequence[SessionResult], certain: bool
    ) -> None:
        """Find out which events "d" holds. `before`: the source's events. `certain`: nothing disturbed the
        compaction."""
        world, shape = self.world, self.world.shape
        done = {world.day_of(session.partition) for session in sessions if session.error is None}
        self._interrupted |= not certain
        for day, events in before.items():
            stream = world.streams[day]
            if day not in done and certain:
                continue
            if not world.catalog.log("d", world.partition(day)).exists():
                assert day not in done or not events  # there was nothing to do
                continue
            held = bag(world.read(day, "d"))
            if held == bag(folded(shape, events).rows()):
                stream.destination = events
            elif stream.destination is None or held != bag(folded(shape, stream.destination).rows()):
                assert self._interrupted
                possible = [said[:stop] for said in (events, *stream.said) for stop in range(len(said) + 1)]
                stream.destination = next(said for said in possible if held == bag(folded(shape, said).rows()))
            else:
                assert not certain or self._interrupted, "the destination was left behind"
        self._interrupted &= not certain
