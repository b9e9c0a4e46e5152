"""Records attempts at a commit, so that a later process knows all files that may be in the table.

attempt 1    adds y, mark m1    surely refused            m1 may be deleted
attempt 2    adds y, mark m2    no answer                 y and m2 stay until the table shows what happened
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """What the journal says. An attempt that may add the same files needs no other record."""

    @property
    def files(self) -> frozenset[str]:
        return frozenset[str]().union(*self.added)

    def proposing(self, propose: Propose[Outcome]) -> Propose[Outcome]:
        def proposed(state: TableState) -> Proposal[Outcome]:
            proposal = propose(state)
            self.proposed = frozenset(entry.file.path for entry in proposal.added)
            return proposal

        return proposed

    def before_attempt(self, snapshot_id: int) -> None:
        """Record the attempt. Raises TakenOverError if another process holds the journal: then we must not commit."""
        self.added.append(self.proposed)
        if self.recorded != (snapshot_id, self.files):
            self.journal.attempted(snapshot_id, self.groups, sorted(self.files))
            self.recorded = snapshot_id, self.files
        self.journal.refuse_replaced()

    def after_refusal(self) -> None:
        """Forget the last attempt, which had no effect: files that it alone would have added may be deleted."""
        self.added.pop()
