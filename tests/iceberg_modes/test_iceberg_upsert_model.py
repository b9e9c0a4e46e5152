"""The rules of `upsert/validation.py` against a model: thousands of small tables, changed between plan and commit.

A model table is files with rows, and deletes with what they hit. The model folds it as an upsert would, changes it as
other writers may, asks the head about the marks, and looks whether they change the view. Nothing is read or written.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field, replace

import hand_made_tables as hand
import pyarrow as pa
import pytest

from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg_modes.upsert.comparing import ComparedFile
from deltacompact.iceberg_modes.upsert.options import UpsertOptions
from deltacompact.iceberg_modes.upsert.plan import plan_upsert
from deltacompact.iceberg_modes.upsert.validation import UpsertHead, compared_spaces

TABLES = 6_000
COLUMNS = pa.schema(
    [
        pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
        for number, name in enumerate(["id", "name", "day"], 1)
    ]
)


@dataclass(frozen=True)
class File:
    """A data file: its rows are (id, name, whether it is a delete)."""

    sequence: int
    day: int | None
    rows: tuple[tuple[int, str, bool], ...]


@dataclass(frozen=True)
class Keys:
    """An equality delete by id (column 1) or name (column 2). Without a day it is global."""

    sequence: int
    day: int | None
    column: int
    value: int | str


@dataclass(frozen=True)
class Positions:
    """Deleted rows of one file: position deletes, or its vector in version 3."""

    sequence: int
    path: str
    rows: frozenset[int]


@dataclass
class Table:
    version: int
    sequence: int = 0
    files: dict[str, File] = field(default_factory=dict)
    deletes: dict[str, Keys | Positions] = field(default_factory=dict)
    gone: dict[str, File] = field(default_factory=dict)
    names: itertools.count = field(default_factory=itertools.count)

    def copy(self):
        return replace(self, files=dict(self.files), deletes=dict(self.deletes), gone=dict(self.gone))

    def state(self):
        entries = [hand.data(path, file.sequence, file.day, rows=9) for path, file in self.files.items()]
        for name, delete in self.deletes.items():
            if isinstance(delete, Keys):
                spec_id = hand.UNPARTITIONED if delete.day is None else hand.BY_DAY
                entry = hand.equality(name, delete.sequence, delete.day, by=(delete.column,))
                entries.append(replace(entry, file=replace(entry.file, spec_id=spec_id)))
            elif self.version == 3:
                day = self.files[delete.path].day if delete.path in self.files else None
                entries.append(hand.vector(name, delete.sequence, delete.path, day))
            elif delete.path in self.files:
                entries.append(hand.positions(name, delete.sequence, self.files[delete.path].day, of=[delete.path]))
        made = hand.state(*entries, sequence=self.sequence, version=self.version)
        schema = '{"identifier-field-ids": [1]}'
        return replace(made, metadata=replace(made.metadata, schema=COLUMNS, schema_json=schema))

    def visible(self):
        """(sequence, path, position) of each row that readers see, and the row."""
        for path, file in sorted(self.files.items()):
            for position, row in enumerate(file.rows):
                if not any(self.hits(delete, path, position) for delete in self.deletes.values()):
                    yield (file.sequence, path, position), row

    def hits(self, delete, path, position):
        file = self.files[path]
        if isinstance(delete, Positions):
            return delete.path == path and position in delete.rows and file.sequence <= delete.sequence
        reaches = delete.day is None or delete.day == file.day
        return reaches and file.sequence < delete.sequence and file.rows[position][delete.column - 1] == delete.value

    def view(self):
        best = {row[0]: row for _, row in sorted(self.visible())}
        return {row for row in best.values() if not row[2]}

    def mark(self, path, rows, former=frozenset()):
        """Delete rows by position. In version 3 a vector takes the place of the former one, whatever that has."""
        if self.version == 3:
            self.deletes = {
                name: delete
                for name, delete in self.deletes.items()
                if not (isinstance(delete, Positions) and delete.path == path)
            }
        self.deletes[f"p{next(self.names)}"] = Positions(self.sequence, path, frozenset(rows) | former)

    def vector(self, path):
        found = [d.rows for d in self.deletes.values() if isinstance(d, Positions) and d.path == path]
        return frozenset().union(*found)


KINDS = ["append", "keys", "positions", "winner", "rewrite", "drop", "convert", "undelete", "bring back", "add again"]


def events(chance):
    """Rows of a new file: few keys, so that they meet."""
    return tuple((chance.randrange(2), chance.choice("xy"), chance.random() < 0.3) for _ in range(chance.randint(1, 3)))


def change(chance, table):
    """One commit of another writer, of all kinds that are allowed, and of some that are not."""
    table.sequence += 1
    new = f"{chance.choice('amz')}{next(table.names)}"
    days = sorted({file.day for file in table.files.values()} or {None}, key=repr)
    former = table.vector if table.version == 3 else lambda path: frozenset()
    seen = sorted(table.visible())
    kind = chance.choice(KINDS)
    if kind == "append":
        table.files[new] = File(table.sequence, chance.choice(days), events(chance))
    elif kind == "keys":
        column, value = chance.choice([(1, 0), (1, 1), (2, "x"), (2, "y")])
        table.deletes[new] = Keys(table.sequence, chance.choice([None, *days]), column, value)
    elif kind in ("positions", "winner") and seen:
        rows = seen if kind == "positions" else list({row[0]: (place, row) for place, row in seen}.values())
        (_, path, position), _ = chance.choice(rows)
        table.mark(path, {position}, former(path))
    elif kind in ("rewrite", "drop") and table.files:
        path = chance.choice(sorted(table.files))
        file = table.gone[path] = table.files.pop(path)
        if kind == "rewrite":
            sequence = chance.choice([file.sequence, table.sequence - 1, table.sequence])
            table.files[new] = File(sequence, file.day, tuple(row for (_, of, _), row in seen if of == path))
    elif kind == "convert":
        for name in [name for name, delete in table.deletes.items() if isinstance(delete, Keys)][:1]:
            for path, file in table.files.items():
                if rows := {row for row in range(len(file.rows)) if table.hits(table.deletes[name], path, row)}:
                    table.mark(path, rows, former(path))
            del table.deletes[name]
    elif kind == "undelete" and table.deletes:
        del table.deletes[chance.choice(sorted(table.deletes))]
    elif kind == "bring back" and table.gone:
        path = chance.choice(sorted(table.gone))
        table.files[path] = table.gone.pop(path)
    elif kind == "add again" and table.files:
        path = chance.choice(sorted(table.files))
        table.files[path] = replace(table.files[path], sequence=table.sequence)


def allowed_marks(seed):
    """A table, changes, a plan, changes. The view of the head before marks and after, if the head allows them."""
    chance = random.Random(seed)
    table = Table(chance.choice([2, 3]))
    days = chance.choice([[None], [1, 2]])
    for _ in range(chance.randint(2, 3)):
        table.sequence += 1
        table.files[f"{chance.choice('amz')}{next(table.names)}"] = File(
            table.sequence, chance.choice(days), events(chance)
        )
    for _ in range(chance.randint(0, 2)):
        change(chance, table)
    planned = table.copy()
    dead, guards = folded(planned)
    if not dead:
        return None
    plan = plan_upsert(planned.state(), UpsertOptions())
    spaces = compared_spaces(
        plan, [compared(number, source, planned, dead, guards) for number, source in enumerate(plan.inputs)]
    )
    for _ in range(chance.randint(1, 2)):
        change(chance, table)
    head = UpsertHead(table.state(), plan)
    if any(head.problem_of(space) for space in spaces):
        return None
    before = table.view()
    table.sequence += 1
    for path, positions in dead.items():
        table.mark(path, positions, planned.vector(path) if table.version == 3 else frozenset())
    return before, table.view()


def compared(number, source, planned, dead, guards):
    path = source.entry.file.path
    deletes = [planned.files[path].rows[position][2] for position in dead.get(path, ())]
    return ComparedFile(Ordinal(number), 0, deletes.count(False), deletes.count(True), path in guards, None)


@pytest.mark.slow
def test_marks_that_the_head_allows_do_not_change_its_view():
    allowed = 0
    for seed in range(TABLES):
        if (views := allowed_marks(seed)) is not None:
            before, after = views
            assert after == before, f"seed {seed}"
            allowed += 1
    assert allowed > TABLES // 10  # it does not just refuse everything


def folded(table):
    """The rows that an upsert marks, and the files with rows that keep them dead: see `upsert/folding.py`."""
    dead: dict[str, set[int]] = {}
    guards = set()
    by_key: dict[int, list] = {}
    for place, row in sorted(table.visible()):
        by_key.setdefault(row[0], []).append((place, row))
    for rows in by_key.values():
        (_, winner, _), newest = rows[-1]
        losers = rows if newest[2] else rows[:-1]
        if losers:
            guards.add(winner)
        for (_, path, position), row in losers:
            dead.setdefault(path, set()).add(position)
            if row[2]:
                guards.add(path)
    return dead, guards
