"""Records attempts at a commit, so that a later process knows all files that may be in the table.

attempt 1    adds y, mark m1    surely refused            m1 may be deleted
attempt 2    adds y, mark m2    no answer                 y and m2 stay until the table shows what happened
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deltacompact.iceberg.commit.proposal import Outcome, Proposal, Propose
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.journal.journal import Journal


@dataclass(slots=True)
class Tries:
    """The files of each attempt that may have taken effect, or still may."""

    journal: Journal
    groups: Sequence[int]
    added: list[frozenset[str]] = field(default_factory=list)
    proposed: frozenset[str] = frozenset()
    recorded: tuple[int, frozenset[str]] | None = None
    """What the journal says before the next swap. An attempt that may add only such files needs no other record."""
    reserve: Callable[[], frozenset[str]] = frozenset
    """Paths that a later attempt may add, for a record that is put anyway."""

    @property
    def files(self) -> frozenset[str]:
        return frozenset[str]().union(*self.added)

    def proposing(self, propose: Propose[Outcome]) -> Propose[Outcome]:
        def proposed(state: TableState) -> Proposal[Outcome]:
            proposal = propose(state)
            self.proposed = frozenset(entry.file.path for entry in proposal.added)
            return proposal

        return proposed

    def on_head(self, snapshot_id: int) -> Callable[[], None] | None:
        """Asks who holds the journal, where it says already what an attempt may add.

        Raises TakenOverError if another process holds it: then we must not commit.
        """
        is_recorded = self.recorded is not None and self.recorded[0] == snapshot_id
        return self.journal.refuse_replaced if is_recorded else None

    def before_attempt(self, snapshot_id: int) -> Callable[[], None] | None:
        """Records the attempt. None: an earlier record names all that it may add."""
        self.added.append(self.proposed)
        if self.recorded is not None and self.recorded[0] == snapshot_id and self.files <= self.recorded[1]:
            return None
        files = self.files | self.reserve()
        self.recorded = snapshot_id, files
        return lambda: self.journal.attempted(snapshot_id, self.groups, sorted(files))

    def after_refusal(self) -> None:
        """Forget the last attempt, which had no effect: files that it alone would have added may be deleted."""
        self.added.pop()
