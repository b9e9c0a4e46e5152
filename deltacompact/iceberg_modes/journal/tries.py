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
        self.added.append(self.proposed)
        self.journal.before_attempt(snapshot_id, self.groups, sorted(self.files))

    def after_refusal(self) -> None:
        """Forget the last attempt, which had no effect: files that it alone would have added may be deleted."""
        self.added.pop()
