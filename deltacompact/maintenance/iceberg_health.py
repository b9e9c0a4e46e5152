"""The health of an Iceberg branch, by partition of its data files: see health.py.

day=3    12 data files, 10 small    at most 4 delete files may apply to one    1,000 rows, 20 rows of delete files
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

from deltacompact.iceberg.deletes.matching import DeleteIndex
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import Scope, TableState, scope_of
from deltacompact.maintenance.health import Health


def health_of_branch(state: TableState) -> list[Health]:
    """A Health for each partition of each spec that has data files."""
    scopes: dict[Scope, list[ManifestEntry]] = defaultdict(list)
    for entry in state.data:
        scopes[scope_of(entry)].append(entry)
    index = DeleteIndex(state)
    return [_health(state, scope, entries, index) for scope, entries in scopes.items()]


def _health(state: TableState, scope: Scope, entries: list[ManifestEntry], index: DeleteIndex) -> Health:
    applying = [index.applying_to(entry) for entry in entries]
    # Files with the same deletes share a tuple.
    together = {id(applied.equality): applied.equality for applied in applying}
    deletes = [
        *chain.from_iterable(together.values()),
        *chain.from_iterable(applied.by_position for applied in applying),
    ]
    dead = {delete.file.key: delete.file.rows for delete in deletes}
    rows = sum(entry.file.rows for entry in entries)
    return Health(
        partition=_named(state, scope),
        file_bytes=tuple(entry.file.file_bytes for entry in entries),
        rows=rows,
        dead_rows=min(rows, sum(dead.values())),
        overlap=max(len(applied.all) for applied in applying),
    )


def _named(state: TableState, scope: Scope) -> dict[str, str | None]:
    spec_id, values = scope
    names = [field.name for field in state.metadata.specs[spec_id].fields]
    return {name: None if value is None else str(value) for name, value in zip(names, values, strict=True)}
