"""The publisher: lists files and exports rows for other programs, and reads both as another program does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
from oracle import Row

from deltacompact import InputError
from deltacompact.base.model import ContentType
from deltacompact.delta_streams.file_lists import publish
from deltacompact.tabular.formats import EXTENSIONS

from .model import folded
from .world import Agent


class Publisher(Agent):
    def publish(self, day: str | None) -> None:
        """List the compacted files and compare their rows. Files with dead rows are refused."""
        world, stream = self.world, self.world.streams[day]
        compacted = world.catalog.state("t", world.partition(day)).compacted
        try:
            (published,) = publish(world.catalog, "t", world.partition(day))
        except InputError as error:
            assert compacted is None or any(file.deletions for file in compacted.files), error
            return
        listed = self._stored(published.manifest).decode().splitlines()
        assert self._stored(published.files).decode().splitlines() == listed
        rows = [row for uri in listed for row in _rows(self._stored(uri), uri)]
        expected = folded(world.shape, stream.events[: stream.compacted]).rows()
        assert published.rows == len(expected) == len(rows)
        assert {row["origin"] for row in rows} == {row["origin"] for row in expected}
        world.seen["published"] += 1

    def export(self, day: str | None, extension: str) -> None:
        """Export the table as one file, and compare its rows with the model."""
        world = self.world
        target = world.folder / f"out{extension}"
        world.catalog.table("t").export(str(target), world.values(day))
        rows = _rows(target.read_bytes(), target.name)
        expected = world.expected(day, world.catalog.table("t").keys is not None)
        assert len(rows) == len(expected)
        assert {row.get("origin") for row in rows} == {row.get("origin") for row in expected}
        world.seen["exported"] += 1

    def _stored(self, uri: str) -> bytes:
        return self.world.inner.get(uri.removeprefix(self.world.inner.uri))


def _rows(data: bytes, name: str) -> list[Row]:
    """The rows of a file as any other program reads them."""
    source = pa.BufferReader(data)
    match EXTENSIONS[Path(name).suffix]:
        case ContentType.PARQUET:
            return list(pq.read_table(source).to_pylist())
        case ContentType.FEATHER:
            return list(pa.ipc.open_file(source).read_all().to_pylist())
        case ContentType.ORC:
            return list(pyarrow.orc.ORCFile(source).read().to_pylist())
        case _:
            return list(pyarrow.csv.read_csv(source).to_pylist()) if data.strip() else []
