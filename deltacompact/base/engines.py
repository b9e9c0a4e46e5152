"""Which parts of Iceberg tables each engine reads, as known on one date (`AS_OF`).

                versions   equality   position   vectors   defaults   types that it refuses
    athena      1, 2       yes        yes        no
    databricks  1 to 3     no         no         yes       no         nanoseconds
    duckdb      1 to 3     yes        yes        yes       yes
    polars      1 to 3     no         yes        yes       yes
    pyiceberg   1 to 3     no         yes        yes       yes
    snowflake   1 to 3     no         yes        yes       yes
    spark       1 to 3     yes        yes        yes       yes        nanoseconds
    trino       1 to 3     yes        yes        yes       yes

An engine may lack more than its documents say. Engines change: look again before you rewrite a table for one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from deltacompact.base.errors import InputError

AS_OF = "November 2026"
NANOSECONDS = ("timestamp_ns", "timestamptz_ns")


class EngineName(enum.StrEnum):
    """The engines that this module knows."""

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
    """Which deletes an engine applies. It refuses tables with other deletes, or returns their dead rows.

    format_version    the highest format version that it reads
    defaults          it fills a column that a file lacks with the column's initial default
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


# Sources for deletes: the vendors' tables and OLake's (August 2026); for DuckDB, duckdb-iceberg#158 and #728, and #691,
# mended for 1.5: in 1.4.4 a query with IS NULL or IS NOT NULL ignores deletes; for Polars 2.1 and PyIceberg 0.12, our
# own tests, which check defaults too.
ENGINES = {
    # AWS's user guide: "only creates and operates on Iceberg v2 tables".
    EngineName.ATHENA: Engine(True, True, False, format_version=2),
    # Databricks' page on version 3 (Runtime 18) lists neither nanoseconds nor reading of defaults.
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
    """Raises InputError for an engine that this module does not know."""
    try:
        return ENGINES[EngineName(name.lower())]
    except ValueError:
        raise InputError(f"{name!r} is none of the engines that are known here: {', '.join(ENGINES)}") from None


def reads_marks(engine: Engine, format_version: int) -> bool:
    """Whether the engine applies the deletes by position that tables of this format version have."""
    return engine.deletion_vectors if format_version >= 3 else engine.position_deletes


def marks_of(format_version: int) -> str:
    """The form of deletes by position in tables of this format version."""
    return "deletion vectors" if format_version >= 3 else "position-delete files"
