"""Which engines read a branch of an Iceberg table as it is. Pure: facts of a date, held against what the branch has.

                equality deletes   position deletes   deletion vectors
    athena      yes                yes                no
    databricks  no                 no                 yes
    duckdb      yes                yes                yes
    polars      no                 yes                yes
    pyiceberg   no                 yes                yes
    snowflake   no                 yes                yes
    spark       yes                yes                yes
    trino       yes                yes                no

    3 equality-delete files, snowflake     3 equality-delete files: compact --mode convert replaces them

Of November 2026, by tables of the vendors and of OLake; of DuckDB by its extension's issues (#158, #728); of Polars,
PyIceberg and Spark by our own tests. Engines learn: look anew before a table is rewritten for one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.iceberg.table.content_files import Content, ManifestEntry
from deltacompact.iceberg.table.table_state import TableState

AS_OF = "November 2026"


@dataclass(frozen=True, slots=True)
class Engine:
    """Which kinds of deletes an engine applies. If a table has another kind, the engine refuses the table, or reads
    dead rows."""

    equality_deletes: bool
    position_deletes: bool
    deletion_vectors: bool


ENGINES = {
    "athena": Engine(True, True, False),
    "databricks": Engine(False, False, True),
    "duckdb": Engine(True, True, True),
    "polars": Engine(False, True, True),
    "pyiceberg": Engine(False, True, True),
    "snowflake": Engine(False, True, True),
    "spark": Engine(True, True, True),
    "trino": Engine(True, True, False),
}
_CONVERT = "compact --mode convert replaces them"
_REWRITE = "compact --option delete-file-threshold=1 applies them"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Delete files of a kind that an engine does not apply, and what makes the table readable."""

    kind: str
    files: int
    remedy: str

    @property
    def words(self) -> str:
        return f"{counted(self.files, self.kind)}: {self.remedy}"


def engine_named(name: str) -> Engine:
    """Raises InputError for an engine of which nothing is known here."""
    if (engine := ENGINES.get(name.lower())) is None:
        raise InputError(f"{name!r} is none of the engines that are known here: {', '.join(ENGINES)}")
    return engine


def obstacles(state: TableState, engine: Engine) -> tuple[Obstacle, ...]:
    """What keeps an engine from reading a branch; nothing: it reads it."""
    found = {kind: {entry.file.key for entry in state.deletes if _kind(entry) == kind} for kind in _KINDS}
    applied = (engine.equality_deletes, engine.position_deletes, engine.deletion_vectors)
    return tuple(
        Obstacle(kind, len(found[kind]), _CONVERT if kind == _KINDS[0] and _after_convert(state, engine) else _REWRITE)
        for kind, applies in zip(_KINDS, applied, strict=True)
        if found[kind] and not applies
    )


_KINDS = ("equality-delete file", "position-delete file", "deletion vector")


def _kind(entry: ManifestEntry) -> str:
    if entry.file.content is Content.EQUALITY_DELETES:
        return _KINDS[0]
    return _KINDS[2] if entry.file.is_deletion_vector else _KINDS[1]


def _after_convert(state: TableState, engine: Engine) -> bool:
    """Whether the engine reads what `convert` makes of equality deletes in a table of this version."""
    return engine.deletion_vectors if state.metadata.format_version >= 3 else engine.position_deletes
