"""How a round folds its deltas into the index: decided once for each round, from the plan and the index before it.

    index before the round     the round                      method
    the table's, 40 M entries  the only one, 1,000 rows       CHANGES   look up its keys, add a run to the table's index
    the table's, 40 M entries  the first of three             MERGE     write the index anew, in the session's terms
    the session's, 44 M        the second of three, 4 M rows  ADD_RUN   put a run beside the session's others
    the session's, two runs    the last, the store has room   HOLD      merge, keep the entries in the object store

Only the index is state: what is known of it, the session hands in.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from deltacompact.index.primary_key_index import IndexManifest
from deltacompact.planning import sizing
from deltacompact.planning.plan import CompactionPlan, Round


class FoldMethod(enum.StrEnum):
    """What dedupe reads of the index, and what it makes of it."""

    MERGE = "merge"
    """Read the whole index, write the folded one as its only run."""
    ADD_RUN = "add_run"
    """Read the entries of the round's keys, write those that change as one more run of the session's index."""
    CHANGES = "changes"
    """Read the entries of the round's keys, hand over those that change: they become a run of the table's index."""
    HOLD = "hold"
    """Read the whole index, hand over the folded one in the object store until its pointers are known."""

    @property
    def tells_changes(self) -> bool:
        """Whether counts and live rows of the results are differences to what was before the round."""
        return self in (FoldMethod.ADD_RUN, FoldMethod.CHANGES)

    @property
    def hands_over(self) -> bool:
        """Whether entries go to the next stage in the object store, instead of into files of the session's index."""
        return self in (FoldMethod.HOLD, FoldMethod.CHANGES)


@dataclass(frozen=True, slots=True)
class KnownIndex:
    """What is known of an index before a round folds into it: its entries, and those of each run, the oldest first."""

    entries: int
    runs: tuple[int, ...]

    @classmethod
    def of(cls, manifest: IndexManifest) -> KnownIndex:
        return cls(manifest.entries, tuple(manifest.run_entries(run) for run in range(len(manifest.runs))))


def fold_method(plan: CompactionPlan, round_: Round, before: KnownIndex) -> FoldMethod:
    """The first round translates the table's index, so that it never adds a run to it."""
    rows = plan.rows_of(round_)
    is_last = round_.number == len(plan.rounds)
    if plan.changes_only:
        return FoldMethod.CHANGES
    entry_bytes, store_bytes, limits = plan.encoding.entry_bytes, plan.capacity.object_store_bytes, plan.options.limits
    if is_last and sizing.fits_held(before.entries, rows, entry_bytes, store_bytes, limits):
        return FoldMethod.HOLD
    first, *above = before.runs
    if round_.number > 1 and sizing.adds_round_run(first, above, rows, limits):
        return FoldMethod.ADD_RUN
    return FoldMethod.MERGE
