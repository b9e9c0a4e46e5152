"""The health of an Iceberg branch, by partition of its data files: see health.py.

day=3    12 data files, 10 small    at most 4 delete files may apply to one    1,000 rows, 20 rows of delete files

An equality delete of 30 rows that may apply to 1,000 rows here and to 2,000 in other partitions counts as 10 dead rows
here: only keys would tell which rows it deletes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from deltacompact.iceberg.deletes.matching import DeleteIndex, Deletes
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.partition_values import named_values
from deltacompact.iceberg.table.table_state import Scope, TableState, scope_of
from deltacompact.maintenance.health import Health

_Key = tuple[str, int | None]
"""Identifies a delete file."""
_Applied = Sequence[tuple[ManifestEntry, Deletes]]
"""Data files, each with the deletes that may apply to it."""


def health_of_branch(state: TableState) -> list[Health]:
    """A Health for each partition of each spec that has data files."""
    scopes: dict[Scope, list[tuple[ManifestEntry, Deletes]]] = defaultdict(list)
    index = DeleteIndex(state)
    for entry in state.data:
        scopes[scope_of(entry)].append((entry, index.applying_to(entry)))
    reached = {scope: _rows_reached(applied) for scope, applied in scopes.items()}
    dead = _dead_rows(list(reached.values()), {delete.file.key: delete.file.rows for delete in state.deletes})
    return [_health(state, scope, scopes[scope], dead_rows) for scope, dead_rows in zip(scopes, dead, strict=True)]


def _rows_reached(applied: _Applied) -> Counter[_Key]:
    """The rows of these data files to which each delete file may apply."""
    together: dict[int, tuple[ManifestEntry, ...]] = {}
    rows, reached = Counter[int](), Counter[_Key]()
    for data, deletes in applied:
        for shared in (deletes.equality, deletes.shared):
            together[id(shared)] = shared  # files with the same deletes share a tuple
            rows[id(shared)] += data.file.rows
        for delete in deletes.alone:
            reached[delete.file.key] += data.file.rows
    for place, shared in together.items():
        reached.update({delete.file.key: rows[place] for delete in shared})
    return reached


def _dead_rows(reached: Sequence[Counter[_Key]], deleted: Mapping[_Key, int]) -> list[int]:
    """The rows of delete files, divided among partitions by the rows that each reaches there. The sum stays whole."""
    of_all = Counter[_Key]()
    for of_partition in reached:
        of_all.update(of_partition)
    shares = (
        sum(deleted[key] * rows / of_all[key] for key, rows in of_partition.items() if rows) for of_partition in reached
    )
    return [round(after) - round(before) for before, after in pairwise(accumulate(shares, initial=0.0))]


def _health(state: TableState, scope: Scope, applied: _Applied, dead_rows: int) -> Health:
    (spec_id, partition), rows = scope, sum(entry.file.rows for entry, _ in applied)
    return Health(
        partition=named_values(partition, state.metadata.specs[spec_id]),
        file_bytes=tuple(entry.file.file_bytes for entry, _ in applied),
        rows=rows,
        dead_rows=min(rows, dead_rows),
        overlap=max(len(deletes) for _, deletes in applied),
    )
