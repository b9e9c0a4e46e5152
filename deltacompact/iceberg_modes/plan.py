"""What the plans of all modes have in common: their branch, and the files that are written together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from deltacompact.base.notebooks import UsersWords, html_table
from deltacompact.base.printable import named
from deltacompact.base.wording import counted, size
from deltacompact.iceberg.deletes.matching import FileScanTask
from deltacompact.iceberg.table.content_files import Spec
from deltacompact.iceberg.table.partition_values import named_values
from deltacompact.iceberg.table.table_state import Scope

Task = TypeVar("Task", bound=FileScanTask)

GROUPS_SHOWN = 10
"""How many groups, the largest ones, a plan shows in words."""


@dataclass(frozen=True, slots=True)
class ScanTaskGroup(Generic[Task]):
    """File scan tasks that are carried out together, and committed or given up together."""

    number: int
    inputs: tuple[Task, ...]

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(source.entry.file.path for source in self.inputs)

    @property
    def rows(self) -> int:
        """Rows of the files, deleted ones included."""
        return sum(source.entry.file.rows for source in self.inputs)

    @property
    def bytes(self) -> int:
        """About the stored bytes that are read."""
        return sum(source.entry.file.file_bytes for source in self.inputs)


@dataclass(frozen=True, slots=True, repr=False)
class ModePlan(UsersWords):
    """A plan for a branch, as of the snapshot with this sequence number. `mode` is the name of the mode."""

    _inside = ("left", "named", "of", "specs")

    mode: ClassVar[str]

    table_id: str
    uuid: str
    specs: Mapping[int, Spec] = field(hash=False)
    branch: str
    snapshot_id: int | None
    sequence_number: int
    options: Any

    if TYPE_CHECKING:  # a field of some plans, computed in others

        @property
        def groups(self) -> tuple[Any, ...]:
            """Of ScanTaskGroup."""

        @property
        def nothing_to_do(self) -> str | None:
            """Why there are no groups; None: there are some."""

    def named(self, scope: Scope) -> str:
        """A partition by its values, as a path names it: partition day=2026-11-22/region=eu."""
        spec_id, partition = scope
        return f"partition {named(named_values(partition, self.specs[spec_id]))}"

    def lines(self, groups_max: int | None = GROUPS_SHOWN) -> list[str]:
        """The plan in words, as `plan` prints it: at most so many groups, or (None) all."""
        return [repr(self)]

    def __str__(self) -> str:
        return f"nothing to do: {self.nothing_to_do}" if self.nothing_to_do else "\n".join(self.lines())

    def __repr__(self) -> str:
        if why := self.nothing_to_do:
            return f"plan to {self.mode} {self.table_id!r}: nothing to do: {why}"
        what = f"{counted(self.rows, 'row')}, {size(self.bytes)}, {counted(len(self.groups), 'group')}"
        return f"plan to {self.mode} {self.table_id!r}: {what}"

    def _repr_html_(self) -> str:
        """The first groups: for notebooks."""
        shown = [
            (f"{len(group.inputs):,}", f"{group.rows:,}", size(group.bytes), str(group.number)) for group in self.groups
        ]
        return html_table(repr(self), ("data files", "rows", "bytes", "group"), shown[:GROUPS_SHOWN])

    @property
    def rows(self) -> int:
        """Rows of the data files, deleted ones included."""
        return sum(group.rows for group in self.groups)

    @property
    def bytes(self) -> int:
        """About the stored bytes that are read of them."""
        return sum(group.bytes for group in self.groups)
