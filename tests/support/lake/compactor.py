"""The compactor: compacts with any arguments while the store fails or other actors act. It also rehashes the index."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from stores import Crash, FailsAt

from deltacompact import ConflictError, SessionResult, Settings, compact
from deltacompact.base.errors import InputError, StoreError
from deltacompact.base.settings import Options
from deltacompact.executors.local import LocalExecutor
from deltacompact.maintenance.check import rehash_table

from .destination import Destination
from .model import Event, folded
from .world import LOCAL, World, passes

Before = dict[str | None, tuple[list[Event], int]]
"""For each partition its events, and how many of them were compacted."""


class Compactor:
    def __init__(self, world: World, destination: Destination) -> None:
        self.world = world
        self.destination = destination

    def compact(
        self,
        day: str | None = None,
        destination: bool = False,
        fails: FailsAt | None = None,
        meanwhile: tuple[int, Callable[[], None]] | None = None,
        **arguments: Any,
    ) -> list[SessionResult]:
        """Fold everything, or one partition. `meanwhile` is (n, what to do before operation number n).

        A failure raises one of our errors, and leaves the table either as it was or compacted.
        """
        world, shape = self.world, self.world.shape
        rolled_back = world.seen["rolled back"]
        before: Before = {name: (list(stream.events), stream.compacted) for name, stream in world.streams.items()}
        disturbed = fails is not None or meanwhile is not None
        hook = fails or passes
        if meanwhile is not None:
            at, act = meanwhile

            def others() -> None:
                for name in world.streams:  # the session may have compacted other partitions before it failed
                    world.note(name)
                act()

            hook = world.interrupting(at, others)
        settings = dataclasses.replace(arguments.pop("settings", Settings()), limits=world.limits.of_compactions)
        chosen: dict[str, Any] = {"partitions": [world.values(day)]} if day is not None and shape.partitioned else {}
        keys = {} if shape.declared else {"primary_keys": list(shape.keys), "sort_keys": shape.sort_keys}
        target = {"destination_compacted_table_id": "d"} if destination else {}
        sessions: list[SessionResult] = []
        try:
            with world.store.behaving(hook):
                chosen |= {"delta_catalog_client": world.catalog, "settings": settings}
                sessions = list(compact("t", **keys, **chosen, **target, **arguments).sessions)
        except InputError as error:
            assert str(error).startswith("cluster_by: table 't' has no column"), error  # in none of the files so far
        except (StoreError, ConflictError, Crash) as error:
            assert disturbed, error
            world.seen["interrupted"] += 1
        if fails is not None and fails.failed:
            world.catalog = world.fresh()
        for session in sessions:
            if session.error is None:
                self._compare(session, before, destination or world.seen["rolled back"] != rolled_back)
            else:
                assert disturbed, session.error
                assert isinstance(session.error, (StoreError, ConflictError)), session.error
        if destination:
            self.destination.compacted({name: events for name, (events, _) in before.items()}, sessions, not disturbed)
        for name in world.streams:
            world.note(name)
        return sessions

    def rehash(self, buckets: int) -> None:
        options = Options.of(dataclasses.replace(LOCAL, limits=self.world.limits.of_compactions))
        rehash_table(self.world.catalog, "t", buckets, LocalExecutor(options), options=options)
        self.world.seen["rehashed"] += 1

    def _compare(self, session: SessionResult, before: Before, other_base: bool) -> None:
        """Compare the counts of a session with the oracle's, if nobody else changed the table meanwhile.

        `other_base`: the session did not fold onto the rows that were compacted before.
        """
        assert session.rows_in == session.live + session.superseded + session.deleted
        seen = self.world.seen
        seen["sessions"] += 1
        seen["nothing to do"] += session.nothing_to_do is not None
        seen["rounds"] += max(0, session.rounds - 1)
        seen["rounds resumed"] += session.rounds_resumed
        seen["files kept"] += session.files_kept
        seen["files marked"] += session.files_marked
        seen["files rewritten"] += session.files_rewritten
        seen["rows copied"] += session.rows_copied
        if session.nothing_to_do is not None or other_base:
            return
        day = self.world.day_of(session.partition)
        events, compacted = before[day]
        if self.world.streams[day].events == events and not self._waiting(day):
            first, whole = folded(self.world.shape, events[:compacted]), folded(self.world.shape, events)
            assert session.live == len(whole.rows())
            assert session.superseded == whole.superseded - first.superseded
            assert session.deleted == whole.deleted - first.deleted
            assert session.delete_rows == whole.delete_rows - first.delete_rows

    def _waiting(self, day: str | None) -> bool:
        return bool(self.world.catalog.state("t", self.world.partition(day)).deltas)
