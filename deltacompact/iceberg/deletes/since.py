"""What other commits did to the deletes of planned data files: pure.

    planned     a: e, p         b: e            thousands of files share thousands of deletes
    head        e, p, f, q                      new: f and q, which are matched with each file
                p, f                            gone: e, so every file that had it has changed

Most commits change little. So deletes are compared with the plan's once, by name, and not again for each file: 20,000
data files x 5,000 deletes would be 100 million pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from deltacompact.iceberg.deletes.matching import DeleteIndex, Deletes, OncePerTuple, each_delete
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import TableState

_Key = tuple[str, int | None]


class DeletesSince:
    """The deletes of a head, compared with the planned ones. New deletes count only if `concern` is true of them."""

    def __init__(
        self,
        state: TableState,
        planned: Iterable[Deletes],
        concern: Callable[[ManifestEntry], bool] = lambda entry: True,
    ) -> None:
        known = _planned(planned)
        live = {entry.file.key for entry in state.deletes}
        self._gone = known.keys() - live
        self._gone_of_many = OncePerTuple(self._gone_of)
        new = (entry for entry in state.deletes if not _is_known(entry, known) and concern(entry))
        self._new = DeleteIndex(replace(state, deletes=tuple(new)))

    def new_to(self, data: ManifestEntry, planned: Deletes) -> Deletes:
        """The deletes that apply to a data file now, and did not when it was planned."""
        found = self._new.applying_to(data)
        if planned.vector is not None and planned.vector.file.key not in self._gone:
            return Deletes(found.equality, vector=found.vector)  # the planned vector still supersedes them (rule 18)
        return found

    def lost(self, planned: Deletes) -> Deletes:
        """The planned deletes of a data file that are gone."""
        if not self._gone:
            return Deletes()
        vector = planned.vector if planned.vector is None or planned.vector.file.key in self._gone else None
        equality, shared = self._gone_of_many(planned.equality), self._gone_of_many(planned.shared)
        return Deletes(equality, shared, vector, self._gone_of(planned.own))

    def has_lost(self, planned: Deletes) -> bool:
        """Whether a planned delete of the data file is gone."""
        return len(self.lost(planned)) > 0

    def _gone_of(self, deletes: tuple[ManifestEntry, ...]) -> tuple[ManifestEntry, ...]:
        return tuple(entry for entry in deletes if entry.file.key in self._gone)


def _planned(planned: Iterable[Deletes]) -> dict[_Key, int | None]:
    """The sequence numbers of all planned deletes, by their keys."""
    return {entry.file.key: entry.sequence_number for entry in each_delete(planned)}


def _is_known(entry: ManifestEntry, known: dict[_Key, int | None]) -> bool:
    """Whether the delete is the same as when it was planned: then it applies to the same data files."""
    return entry.file.key in known and known[entry.file.key] == entry.sequence_number
