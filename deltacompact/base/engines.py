"""What engines read of Iceberg tables: facts of a date.

                versions   equality   position   vectors   defaults   types that it refuses
    athena      1, 2       yes        yes        no
    databricks  1 to 3     no         no         yes       no         nanoseconds
    duckdb      1 to 3     yes        yes        yes       yes
    polars      1 to 3     no         yes        yes       yes
    pyiceberg   1 to 3     no         yes        yes       yes
    snowflake   1 to 3     no         yes        yes       yes
    spark       1 to 3     yes        yes        yes       yes        nanoseconds
    trino       1 to 3     yes        yes        yes       yes

What no document says is not told: an engine may lack more. Engines learn: look anew before you rewrite a table for one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from deltacompact.base.errors import InputError

AS_OF = "November 2026"
NANOSECONDS = ("timestamp_ns", "timestamptz_ns")


class EngineName(enum.StrEnum):
    """The engines of which something is known here."""

    ATHENA = "athena"
    DATABRICKS = "databricks"
    DUCKDB = "duckdb"
    POLARS = "polars"
    PYICEBERG = "pyiceberg"
    SNOWFLAKE = "snowflake"
    SPARK = "spark"
    TRINO = "trino"


@dataclass(frozen=True, slots=True)
class Engine:
    """Which deletes an engine applies. One that it does not apply it refuses, or reads rows that are dead.

    format_version    the highest that it reads
    defaults          whether files without a column have the column's initial default in it
    unread_types      types that it refuses
    """

    equality_deletes: bool
    position_deletes: bool
    deletion_vectors: bool
    format_version: int = 3
    defaults: bool = True
    unread_types: tuple[str, ...] = ()

    @property
    def reads_all_deletes(self) -> bool:
        return self.equality_deletes and self.position_deletes and self.deletion_vectors


# Deletes: the vendors' tables and that of OLake (August 2026); DuckDB's by duckdb-iceberg#158 and #728; those of Polars
# 2.1 and PyIceberg 0.12 by our own tests, which also see their defaults.
ENGINES = {
    # AWS's user guide: "only creates and operates on Iceberg v2 tables".
    EngineName.ATHENA: Engine(True, True, False, format_version=2),
    # Its page on version 3 (Runtime 18) has neither nanoseconds nor defaults that are read.
    EngineName.DATABRICKS: Engine(False, False, True, defaults=False, unread_types=NANOSECONDS),
    EngineName.DUCKDB: Engine(True, True, True),
    EngineName.POLARS: Engine(False, True, True),
    EngineName.PYICEBERG: Engine(False, True, True),
    # Release note of 2026-05-07: version 3 with nanoseconds, defaults and deletion vectors.
    EngineName.SNOWFLAKE: Engine(False, True, True),
    # apache/iceberg#13681, and the type table of its documents.
    EngineName.SPARK: Engine(True, True, True, unread_types=NANOSECONDS),
    # trinodb/trino#31195 (September 2026): deletion vectors and defaults are read.
    EngineName.TRINO: Engine(True, True, True),
}


def engine_named(name: str) -> Engine:
    """Raises InputError for an engine of which nothing is known here."""
    try:
        return ENGINES[EngineName(name.lower())]
    except ValueError:
        raise InputError(f"{name!r} is none of the engines that are known here: {', '.join(ENGINES)}") from None


def reads_marks(engine: Engine, format_version: int) -> bool:
    """Whether the engine applies deletes by position as tables of this version have them."""
    return engine.deletion_vectors if format_version >= 3 else engine.position_deletes


def marks_of(format_version: int) -> str:
    """What deletes by position are in a table of this version."""
    return "deletion vectors" if format_version >= 3 else "position-delete files"
