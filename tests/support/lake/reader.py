"""The reader: compares the table, an old version and the destination with the model. `check` must find no problem."""

from __future__ import annotations

from clustered import assert_ranges_hold
from columns import bag
from tables import problems

from deltacompact.base.data_file import DataFile
from deltacompact.delta_streams.versions import versions
from deltacompact.index.primary_key_index import read_manifest

from .model import folded
from .world import Agent


class Reader(Agent):
    def verify(self, choice: int = 0) -> None:
        """Compare every partition and one retained version with the model."""
        world = self.world
        keys = world.catalog.table("t").keys is not None
        for day, stream in world.streams.items():
            if not stream.begun:
                continue
            world.note(day)
            assert bag(world.read(day)) == bag(world.expected(day, keys))
            if keys:
                self._old_version(day, choice)
            if stream.destination is not None:
                assert bag(world.read(day, "d")) == bag(folded(world.shape, stream.destination).rows())
            self._count(day)
        for table in ("t", "d") if world.has_destination else ("t",):
            assert problems(world.catalog, table) == []

    def _old_version(self, day: str | None, choice: int) -> None:
        world, stream = self.world, self.world.streams[day]
        infos = versions(world.catalog, "t", world.partition(day))
        names = [info.state.version for info in infos if info.state.version not in stream.lost]
        if names:
            name = names[choice % len(names)]
            events, _ = stream.history[name]
            assert bag(world.read(day, version=name)) == bag(folded(world.shape, events).rows()), f"version {name}"
            world.seen["old versions read"] += name != names[-1]

    def _count(self, day: str | None) -> None:
        """Count in `seen` which features the partition uses: runs, relocations, vectors and so on."""
        world, seen = self.world, self.world.seen
        state = world.catalog.state("t", world.partition(day))
        seen["stubs"] += len(state.manifests)
        seen["checkpoints"] += any("/checkpoints/" in path for path in world.inner._objects)
        seen["exchanged"] += any(path.endswith(".exchange.arrow") for path in world.inner._objects)
        if state.index is not None:
            manifest = read_manifest(world.inner, state.index)
            seen["runs"] += len(manifest.runs) - 1
            seen["relocations"] += len(manifest.relocations)
            seen["tombstones"] += manifest.tombstones
            seen["moves"] += sum(bool(relocation.moves) for relocation in manifest.relocations)
        for file in state.compacted.files if state.compacted else ():
            seen["delta files kept"] += _is_delta_file(file)
            seen["deletion vectors"] += file.deletions is not None
            seen["files laid out"] += file.clustered is not None
            assert_ranges_hold(world.inner, file)


def _is_delta_file(file: DataFile) -> bool:
    """Whether no session wrote the file: sessions have folders of their own."""
    return "/" not in file.path.partition("/data/")[2]
