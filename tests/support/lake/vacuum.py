"""The vacuum: deletes old objects of the table and of its destination. The model marks versions that may be gone."""

from __future__ import annotations

from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S
from deltacompact.delta_streams.versions import versions
from deltacompact.maintenance.vacuum.vacuum import vacuum

from .world import HOUR_S, Agent


class Vacuum(Agent):
    def run(self, force: bool = False) -> None:
        world, age_min_s = self.world, 0 if force else VACUUM_AGE_MIN_S
        results = vacuum(world.catalog, "t", age_min_s=age_min_s, force=force)
        left = vacuum(world.fresh(), "t", age_min_s=age_min_s, force=force, full=True, dry_run=not world.lied)
        # The vacuum's own fence may have caused a newer checkpoint.
        garbage = [stat.path for result in left for stat in result.deleted if "/checkpoints/" not in stat.path]
        assert world.lied or garbage == []
        world.seen["partitions without garbage"] += sum(not result.deleted for result in results)
        world.lied = False
        world.seen["vacuumed objects"] += sum(len(result.deleted) for result in results)
        world.seen["fenced"] += sum(len(result.fenced) for result in results)
        if world.has_destination:
            vacuum(world.catalog, "d", age_min_s=age_min_s, force=force)
        for day, stream in world.streams.items():
            if stream.begun:
                stream.lost |= {
                    info.state.version
                    for info in versions(world.catalog, "t", world.partition(day))
                    if info.sealed_s is not None and (force or world.now_s - info.sealed_s >= VACUUM_AGE_MIN_S)
                }

    def run_days_later(self) -> None:
        self.world.now_s += 80 * HOUR_S
        self.run()
