"""Who compacts. Each opens the same catalog on sqlite, warms up on a tiny table, and compacts the other.

contender.start(catalog)            imports, sessions, connections
contender.planned_bytes(table_id)   the memory of a process, as planned
contender.compact(table_id)         timed
contender.stop()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import psutil

import deltacompact
from benchmarks.competitors import CORES
from benchmarks.iceberg.writing import CATALOG
from benchmarks.spark import spark_on_all_cores
from deltacompact import Settings
from sessions.documents.instruction import of_values
from sessions.planning.branches import branch_statistics
from sessions.planning.candidates import resources_of
from sessions.planning.prices import offers_here
from sessions.planning.sizes import sizes_of


class Contender(Protocol):
    """What can be measured; the module tells the order of the calls."""

    def start(self, catalog: Any) -> None: ...

    def planned_bytes(self, table_id: str, rewrite_options: Mapping[str, Any]) -> Sequence[int]:
        """One figure; none where nothing is planned."""
        return ()

    def compact(self, table_id: str, rewrite_options: Mapping[str, Any]) -> None: ...

    def stop(self) -> None: ...


class Ours(Contender):
    """deltacompact in process, with all cores as threads."""

    def __init__(self, mode: str, executor: str) -> None:
        self._mode = mode
        self._settings = Settings(executor=executor)

    def start(self, catalog: Any) -> None:
        self._store = catalog
        self._catalog = deltacompact.open_catalog(catalog)

    def planned_bytes(self, table_id: str, rewrite_options: Mapping[str, Any]) -> Sequence[int]:
        """As a dispatcher plans it for this machine, with a catalog of its own: nothing is warm for what is timed."""
        document = {"version": 1, "catalog": f"iceberg://{CATALOG}", "source_table_id": table_id, "mode": self._mode}
        found = branch_statistics(
            deltacompact.open_catalog(self._store), of_values({**document, "options": self._options(rewrite_options)})
        )
        (offer, _) = offers_here(CORES, psutil.virtual_memory().total)
        return [sizes_of(found, next(resources_of(offer, 1))).peak_bytes]

    def compact(self, table_id: str, rewrite_options: Mapping[str, Any]) -> None:
        options = self._options(rewrite_options)
        deltacompact.compact(
            table_id, delta_catalog_client=self._catalog, mode=self._mode, options=options, settings=self._settings
        )

    def _options(self, rewrite_options: Mapping[str, Any]) -> dict[str, Any]:
        return dict(rewrite_options) if self._mode == "rewrite" else {}

    def stop(self) -> None:
        """Nothing."""


class Spark(Contender):
    """Iceberg's own procedure on one JVM with all cores."""

    def start(self, catalog: Any) -> None:
        from deltacompact.spark.iceberg import spark_settings
        from deltacompact.spark.jars import ICEBERG_EXTENSIONS, ICEBERG_RUNTIME, SQLITE_JDBC

        prefix = f"spark.sql.catalog.{CATALOG}"
        settings = spark_settings(CATALOG, catalog.properties)
        self._spark = spark_on_all_cores(
            {
                "spark.jars.packages": f"{ICEBERG_RUNTIME},{SQLITE_JDBC}",
                "spark.sql.extensions": ICEBERG_EXTENSIONS,
                prefix: "org.apache.iceberg.spark.SparkCatalog",
                **{f"{prefix}.{name}": value for name, value in settings.items()},
            }
        )

    def compact(self, table_id: str, rewrite_options: Mapping[str, Any]) -> None:
        chosen = {**rewrite_options, "remove-dangling-deletes": True}
        named = {"table": table_id} | {
            name.replace("-", "_"): chosen.pop(name) for name in ("strategy", "sort-order") if name in chosen
        }
        options = ", ".join(f"'{name}', '{str(value).lower()}'" for name, value in chosen.items())
        arguments = ", ".join(f"{name} => '{value}'" for name, value in named.items())
        self.sql(f"call {CATALOG}.system.rewrite_data_files({arguments}, options => map({options}))")

    def sql(self, statement: str) -> list[Any]:
        """The rows of a statement."""
        return list(self._spark.sql(statement).collect())

    def stop(self) -> None:
        self._spark.stop()


class Zamboni(Contender):
    """iceberg-zamboni: PyIceberg and DuckDB. It refuses tables with equality deletes."""

    def start(self, catalog: Any) -> None:
        from zamboni.session import CatalogSession

        self._session = CatalogSession.from_catalog(catalog, threads=CORES)

    def compact(self, table_id: str, rewrite_options: Mapping[str, Any]) -> None:
        from zamboni.compactor import TableCompactor
        from zamboni.config import CompactionConfig

        TableCompactor(self._session, table_id, CompactionConfig(rewrite_all=True)).execute()

    def stop(self) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender by name, and whether it takes part on tables with equality deletes, and on those without."""

    name: str
    label: str
    make: Callable[[], Contender]
    equality_deletes: bool = True
    clean: bool = True
    needs: str = "pyiceberg"

    @property
    def missing(self) -> str | None:
        """Why it cannot take part on this machine."""
        return None if find_spec(self.needs) else f"{self.needs} is not installed"


def entrants(executor: str = "local") -> tuple[Entrant, ...]:
    return (
        Entrant("rewrite", "deltacompact rewrite", lambda: Ours("rewrite", executor)),
        Entrant("convert", "deltacompact convert", lambda: Ours("convert", executor), clean=False),
        Entrant("spark", "spark rewrite_data_files", Spark, needs="pyspark"),
        Entrant("zamboni", "iceberg-zamboni", Zamboni, equality_deletes=False, needs="zamboni"),
    )
