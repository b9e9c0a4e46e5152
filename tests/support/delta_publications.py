"""A delta table that is published as a Delta table, and what delta-rs reads there.

published = DeltaPublications(folder)         configured as delta://<folder>/out
published.compact()
published.shown() == published.compacted()    rows as delta-rs reads them, rows as catalog.read has them

delta-rs reads files outside of the table's folder, and deletion vectors, by its SQL; so does Polars from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from publications import Publications, plain


class DeltaPublications(Publications):
    """The table `orders` of a delta catalog, and a Delta table in the folder `out` beside it."""

    def __init__(self, folder: Path, partition_keys: Iterable[str] = (), name: str = "lake") -> None:
        self.out = folder / "out"
        super().__init__(None, folder / name, partition_keys)  # type: ignore[arg-type]

    @property
    def uri(self) -> str:
        return f"delta://{self.out}"

    def by_delta(self, sql: str = "select * from t", version: int | None = None) -> pa.Table:
        table = deltalake.DeltaTable(str(self.out), version=version)
        return pa.table(deltalake.QueryBuilder().register("t", table).execute(sql))

    def shown(self) -> list[dict[str, Any]]:
        return plain(self.by_delta().to_pylist())

    def commits(self) -> list[list[dict[str, Any]]]:
        """The actions of all commits that are still there."""
        paths = sorted((self.out / "_delta_log").glob("*.json"))
        return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]

    def actions(self, kind: str, commit: int = -1) -> list[dict[str, Any]]:
        return [action[kind] for action in self.commits()[commit] if kind in action]

    def statistics(self) -> dict[str, Any]:
        """Of the only file of the newest commit."""
        (added,) = self.actions("add")
        return json.loads(added["stats"])

    def put(self, *actions: dict[str, Any]) -> None:
        """A commit of somebody else."""
        path = self.out / "_delta_log" / f"{len(self.commits()):020d}.json"
        path.write_text("\n".join(map(json.dumps, actions)))
