"""The historian: undoes writes. It retracts a delta, restates a partition, or rolls back to an old version."""

from __future__ import annotations

from collections.abc import Sequence

from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S
from deltacompact.delta_streams.versions import retract, rollback, versions

from .model import Content, Event
from .world import Agent


class Historian(Agent):
    def retract(self, day: str | None, choice: int) -> None:
        """Retract a delta that is not compacted yet, if there is one."""
        stream = self.world.streams[day]
        waiting = stream.events[stream.compacted :]
        if not waiting:
            return
        event = waiting[choice % len(waiting)]
        retract(self.world.catalog, "t", event.position, self.world.values(day))
        stream.events.remove(event)
        self.world.seen["retracted"] += 1
        self.world.note(day)

    def restate(self, day: str | None, files: Sequence[Content]) -> None:
        """Replace all rows of the partition by these rows."""
        contents, tables = [], []
        for rows, types in files:
            rows = [{**row, "origin": f"restated {self.world.count()}"} for row in rows]
            contents.append(tuple(rows))
            tables.append(self.world.table(rows, types, "upsert", day))
        state = self.world.catalog.restate("t", tables, self.world.values(day))
        self.world.restated(day, Event(state.deltas[0].position, "upsert", tuple(contents)))
        self.world.seen["restated"] += 1
        self.world.note(day)

    def rollback(self, day: str | None, choice: int) -> None:
        """Go back to a version that was sealed at most 36 hours ago, if there is one."""
        world, stream = self.world, self.world.streams[day]
        young = [
            info.state.version
            for info in versions(world.catalog, "t", world.partition(day))
            if info.sealed_s is not None
            and world.now_s - info.sealed_s <= VACUUM_AGE_MIN_S / 2
            and info.state.version not in stream.lost
        ]
        if not young:
            return
        version = young[choice % len(young)]
        rollback(world.catalog, "t", version, world.values(day))
        events, stream.compacted = stream.history[version]
        stream.events = list(events)
        world.seen["rolled back"] += 1
        world.note(day)
