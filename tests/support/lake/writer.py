"""The writer: appends files of any format, with or without a token, while the store fails or other actors act."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from oracle import Row
from stores import Crash, FailsAt

from deltacompact import InputError
from deltacompact.base.deltas import Delta
from deltacompact.base.errors import StoreError
from deltacompact.base.model import ContentType
from deltacompact.tabular.formats import EXTENSIONS

from .model import Content, Event
from .world import World, passes


class Writer:
    """Remembers its tokens, to send deltas again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tokens: list[tuple[str | None, str, int, str]] = []

    def append(
        self,
        day: str | None,
        operation: str,
        files: Sequence[Content],
        gap: int | None = None,
        token: str | None = None,
        extension: str | None = None,
        fails: FailsAt | None = None,
        meanwhile: tuple[int, Callable[[], None]] | None = None,
    ) -> None:
        """Commit one delta. If the store fails, commit again with the same token.

        `gap` is the distance to the last position. `meanwhile` is (n, what to do before operation number n).
        """
        world = self.world
        position = None if gap is None else self._position(day, gap)
        contents, tables = [], []
        for rows, types in files:
            rows = [dict(row) for row in rows]
            if operation == "upsert":
                for row in rows:
                    row["origin"] = f"row {world.count()}"
            contents.append(tuple(rows))
            tables.append(world.table(rows, types, operation, day))
        paths = [self._written(table, extension) for table in tables] if extension else []

        def append() -> Delta:
            values = world.values(day)
            if extension:
                return world.catalog.append_files("t", paths, values, operation, position, token)
            return world.catalog.append("t", tables, values, operation, position, token)

        assert fails is None or token is not None
        hook = fails or passes
        if meanwhile is not None:
            at, act = meanwhile

            def others() -> None:
                self._note_committed(day, operation, contents)
                act()

            hook = world.interrupting(at, others)
        try:
            with world.store.behaving(hook):
                delta = append()
        except (StoreError, Crash):
            world.catalog = world.fresh()
            world.seen["appends failed"] += 1
            delta = append()
        except InputError as error:
            assert extension == ".csv" and "in earlier rows or files" in str(error)  # wider than the stream's type
            return
        if delta.files:  # a token that was committed and compacted names no files any more
            assert [file.rows for file in delta.files] == [len(rows) for rows in contents]
        world.appended(day, Event(delta.position, operation, tuple(contents)))
        if token is not None:
            self.tokens.append((day, token, delta.position, operation))
        world.seen["appended"] += 1
        world.note(day)

    def repeat(self, choice: int) -> None:
        """Commit a token again: nothing changes. Commit it with the other operation: it is refused."""
        day, token, position, operation = self.tokens[choice % len(self.tokens)]
        catalog, values = self.world.catalog, self.world.values(day)
        table = pa.table({name: pa.array([None], kind.types[0]) for name, kind in self.world.shape.keys.items()})
        try:
            delta = catalog.append("t", table, values, operation, token=token)
        except InputError as error:
            assert "is a destination" in str(error)
            return
        assert delta.position == position and not delta.committed
        other = "delete" if operation == "upsert" else "upsert"
        with pytest.raises(InputError, match=f"{token}.* stands for the {operation} at position {position}"):
            catalog.append("t", table, values, other, token=token)
        self.world.seen["token repeated"] += 1

    def _position(self, day: str | None, gap: int) -> int:
        """The position `gap` after the last event of the model, and after all positions of the log."""
        events = self.world.streams[day].events
        position = (events[-1].position if events else 0) + gap
        log = self.world.catalog.log("t", self.world.partition(day))
        last = log.active().last_position if log.exists() else None
        return position if last is None else max(position, last + 1)

    def _note_committed(self, day: str | None, operation: str, contents: Sequence[tuple[Row, ...]]) -> None:
        """Add a running append to the model before another actor acts, if the log has it already."""
        log = self.world.catalog.log("t", self.world.partition(day))
        if log.exists() and (deltas := log.active().deltas):
            self.world.appended(day, Event(deltas[-1].position, operation, tuple(contents)))
            self.world.note(day)

    def _written(self, table: pa.Table, extension: str) -> str:
        """The table as a file that another program wrote."""
        path = self.world.folder / f"{self.world.count()}{extension}"
        match EXTENSIONS[extension]:
            case ContentType.PARQUET:
                pq.write_table(table, path, row_group_size=2)
            case ContentType.FEATHER:
                pyarrow.feather.write_feather(table, path, chunksize=2)
            case ContentType.ORC:
                pyarrow.orc.write_table(table, path)
            case ContentType.CSV:
                pyarrow.csv.write_csv(table, path)
            case ContentType.JSON:
                path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        return str(path)
