"""What the results of all modes have in common."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from deltacompact.base.notebooks import UsersWords, html_table
from deltacompact.iceberg.commit.committer import Committed


@dataclass(slots=True, repr=False)
class ModeResult(UsersWords):
    """What one call of a mode did.

    snapshots        the snapshots that it committed
    redone           groups that were planned and written again, because others touched their files
    resumed          groups that a dead session had written and this call committed
    refused          why groups or files were given up, a line each
    notes            about other sessions, and the key index
    nothing_to_do    why there was nothing to do
    executor         where the tasks ran
    """

    _inside = ("count",)

    table_id: str
    branch: str
    snapshots: list[int] = field(default_factory=list)
    redone: int = 0
    resumed: int = 0
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nothing_to_do: str | None = None
    executor: str = ""

    def __repr__(self) -> str:
        done = f"snapshot {', '.join(map(str, self.snapshots)) or 'none'}"
        given_up = f", {len(self.refused):,} given up" if self.refused else ""
        what = f"nothing to do: {self.nothing_to_do}" if self.nothing_to_do else done + given_up
        return f"{type(self).__name__} of {self.table_id!r}: {what}"

    def _repr_html_(self) -> str:
        """What was counted: for notebooks."""
        counts = [(field.name, getattr(self, field.name)) for field in fields(self)]
        rows = [(f"{count:,}", name.replace("_", " ")) for name, count in counts if isinstance(count, int) and count]
        return html_table(repr(self), ("count", "of"), rows)

    @property
    def rows_read(self) -> int:
        """Rows of the data files that were worked on, deleted ones included. 0: the mode does not count them."""
        return 0

    def count(self, done: Committed[Any]) -> None:
        """Add the counts of a commit."""
        if done.snapshot is not None:
            self.snapshots.append(done.snapshot.snapshot_id)
