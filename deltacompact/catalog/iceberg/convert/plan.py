"""Plans a conversion: pure. Which equality-delete files, and which data files must be asked for their keys.

    equality e    sequence 6    id 15‥15      applies to a
    equality f    sequence 7    id 90‥99      applies to nothing: no data file has such keys
    data a        sequence 5    id 10‥19      asked: e
    data b        sequence 5    id 20‥29      not opened: no bounds overlap
    data c        sequence 8    id 10‥19      not opened: newer than all deletes

An equality-delete file can be removed once the rows that it deletes are deleted by position in every data file to which
it may apply. So all of these are asked; others cannot have a row that it deletes.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from deltacompact.base.errors import InputError
from deltacompact.catalog.iceberg.convert.options import ConvertOptions
from deltacompact.catalog.iceberg.deletes.finding import Asked
from deltacompact.catalog.iceberg.deletes.matching import DeleteIndex
from deltacompact.catalog.iceberg.deletes.readable import check_readable
from deltacompact.catalog.iceberg.table.content_files import Content, Entry
from deltacompact.catalog.iceberg.table.metadata import TableMetadata
from deltacompact.catalog.iceberg.table.table_state import Scope, TableState, scope_of

VERSIONS = (2, 3)
"""Format versions that have delete files, as far as we know them."""


class Reason(enum.StrEnum):
    """Why an equality-delete file is converted, or stays. Plans contain it, so a value must keep its meaning."""

    APPLIES = "applies"
    APPLIES_TO_NOTHING = "applies_to_nothing"
    BEYOND_MAX_FILES = "beyond_max_files"


@dataclass(frozen=True, slots=True)
class Conversion:
    """An equality-delete file to convert, and to how many data files it may apply."""

    entry: Entry
    data_files: int

    @property
    def reason(self) -> Reason:
        return Reason.APPLIES if self.data_files else Reason.APPLIES_TO_NOTHING


@dataclass(frozen=True, slots=True)
class ConvertPlan:
    """The equality-delete files to convert, the data files to ask, and what stays.

    Each data file comes with those of the equality deletes that may apply to it, and with its deletes by position.
    `not_opened` counts the data files to which none of them applies.
    """

    table_id: str
    uuid: str
    branch: str
    snapshot_id: int | None
    sequence_number: int
    options: ConvertOptions
    conversions: tuple[Conversion, ...]
    asked: tuple[Asked, ...]
    not_opened: int
    stays: tuple[tuple[Reason, int], ...]

    @property
    def key_ids(self) -> frozenset[int]:
        """The field ids of all columns by which the planned files delete."""
        return frozenset(number for one in self.conversions for number in one.entry.file.equality_ids)

    @property
    def nothing_to_do(self) -> str | None:
        """Why there is nothing to convert; None: there is something."""
        return None if self.conversions else "the branch has no equality deletes"


def plan_conversion(
    state: TableState,
    options: ConvertOptions,
    deletes: frozenset[str] | None = None,
    data: frozenset[str] | None = None,
) -> ConvertPlan:
    """The plan for a branch. `deletes` and `data`: just these files, by path (a part that is done again).

    Raises InputError where a file is of a kind that cannot be read.
    """
    others = tuple(entry for entry in state.deletes if entry.file.content is not Content.EQUALITY_DELETES)
    equality = [entry for entry in state.deletes if entry.file.content is Content.EQUALITY_DELETES]
    if deletes is not None:
        equality = [entry for entry in equality if entry.file.path in deletes]
    chosen = sorted(equality, key=lambda entry: (entry.sequence, entry.file.path))[: options.max_files]
    if chosen:
        _check_version(state.metadata)
    check_readable(state.metadata, chosen)
    index = DeleteIndex(replace(state, deletes=(*chosen, *others)))
    by_scope: dict[Scope, list[Asked]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for entry in state.data:
        found = index.applying_to(entry)
        if found.equality and (data is None or entry.file.path in data):
            by_scope[scope_of(entry)].append(Asked(entry, found))
            counts.update(delete.file.path for delete in found.equality)
    asked = tuple(one for of_scope in by_scope.values() for one in of_scope)
    check_readable(state.metadata, [entry for one in asked for entry in (one.entry, *one.deletes.by_position)])
    stays = len(equality) - len(chosen)
    return ConvertPlan(
        state.metadata.table_id,
        state.metadata.uuid,
        state.branch,
        state.snapshot_id,
        state.sequence_number,
        options,
        tuple(Conversion(entry, counts[entry.file.path]) for entry in chosen),
        asked,
        len(state.data) - len(asked),
        ((Reason.BEYOND_MAX_FILES, stays),) if stays else (),
    )


def _check_version(metadata: TableMetadata) -> None:
    name, version = metadata.table_id, metadata.format_version
    if version not in VERSIONS:
        raise InputError(f"table {name!r} has format version {version}, which cannot be converted")
