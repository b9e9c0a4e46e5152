"""Which engines can read a branch of an Iceberg table as it is. Pure: compares the branch with facts about engines.

3 equality-delete files, snowflake     3 equality-delete files: compact --mode convert replaces them
column 'at' of type timestamp_ns       spark does not read it: copy the rows into a table without it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deltacompact.base import expect
from deltacompact.base.engines import Engine, engine_named, reads_marks
from deltacompact.base.wording import counted
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import TableState

_CONVERT = "compact --mode convert replaces them"
_REWRITE = "compact --option delete-file-threshold=1 applies them"
_COPY = "copy the rows into a table without it"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A thing that an engine does not read, and the remedy. `files`: how many have it; 0: the table itself has it."""

    kind: str
    files: int
    remedy: str

    @property
    def words(self) -> str:
        return f"{counted(self.files, self.kind) if self.files else self.kind}: {self.remedy}"


def obstacles_of(engines: str | Sequence[str], state: Callable[[], TableState]) -> dict[str, tuple[Obstacle, ...]]:
    """What keeps each engine from reading a branch. Raises InputError for an unknown engine, before calling `state`."""
    named = {name: engine_named(name) for name in expect.names("readable_by", engines)}
    found = state()
    return {name: obstacles(found, engine) for name, engine in named.items()}


def obstacles(state: TableState, engine: Engine) -> tuple[Obstacle, ...]:
    """What keeps an engine from reading a branch; empty: the engine can read it."""
    return (*_of_table(state, engine), *_of_files(state, engine))


def _of_table(state: TableState, engine: Engine) -> Iterator[Obstacle]:
    version = state.metadata.format_version
    if version > engine.format_version:
        yield Obstacle(f"format version {version}", 0, f"copy its rows into a table of version {engine.format_version}")
    for column in state.metadata.columns.values():
        if column.is_dropped:
            continue
        if column.type in engine.unread_types:
            yield Obstacle(f"column {column.field.name!r} of type {column.type}", 0, _COPY)
        if column.has_default and not engine.defaults:
            yield Obstacle(f"column {column.field.name!r} with an initial default", 0, _COPY)


def _of_files(state: TableState, engine: Engine) -> Iterator[Obstacle]:
    found = {kind: {entry.file.key for entry in state.deletes if _kind(entry) == kind} for kind in _KINDS}
    applied = (engine.equality_deletes, engine.position_deletes, engine.deletion_vectors)
    for kind, applies in zip(_KINDS, applied, strict=True):
        if found[kind] and not applies:
            converts = kind == _KINDS[0] and reads_marks(engine, state.metadata.format_version)
            yield Obstacle(kind, len(found[kind]), _CONVERT if converts else _REWRITE)


_KINDS = ("equality-delete file", "position-delete file", "deletion vector")


def _kind(entry: ManifestEntry) -> str:
    if entry.file.is_equality_delete:
        return _KINDS[0]
    return _KINDS[2] if entry.file.is_deletion_vector else _KINDS[1]
