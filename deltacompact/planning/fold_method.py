"""Decides how each round folds its deltas into the index, from the plan and the index before the round.

    index before the round     the round                      method
    the table's, 40 M entries  the only one, 1,000 rows       CHANGES   look up its keys, add a run to the table's index
    the table's, 40 M entries  the first of three             MERGE     rewrite the index, with session ordinals
    the session's, 44 M        the second of three, 4 M rows  ADD_RUN   add a run to the session's index
    the session's, two runs    the last, the store has room   HOLD      merge, keep the entries in the object store

The index is the only state here, and the session hands in what it knows of it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from deltacompact.index.primary_key_index import IndexManifest
from deltacompact.planning.plan import CompactionPlan, Round
from deltacompact.planning.sizing import index_sizes


class FoldMethod(enum.StrEnum):
    """What dedupe reads from the index, and what it writes."""

    MERGE = "merge"
    """Read the whole index, write the folded index as a single run."""
    ADD_RUN = "add_run"
    """Read the entries of the round's keys, write the changed entries as one more run of the session's index."""
    CHANGES = "changes"
    """Read the entries of the round's keys, hand over the changed entries: they become a run of the table's index."""
    HOLD = "hold"
    """Read the whole index, hand over the folded index in the object store until its pointers are known."""

    @property
    def tells_changes(self) -> bool:
        """Whether the results count differences: live rows and counts after the round minus those before it."""
        return self in (FoldMethod.ADD_RUN, FoldMethod.CHANGES)

    @property
    def hands_over(self) -> bool:
        """Whether entries go to the next stage through the object store, not into files of the session's index."""
        return self in (FoldMethod.HOLD, FoldMethod.CHANGES)


@dataclass(frozen=True, slots=True)
class KnownIndex:
    """The number of entries of an index before a round, in all and in each run, the oldest first."""

    entries: int
    runs: tuple[int, ...]

    @classmethod
    def of(cls, manifest: IndexManifest) -> KnownIndex:
        return cls(manifest.entries, tuple(manifest.run_entries(run) for run in range(len(manifest.runs))))


def fold_method(plan: CompactionPlan, round_: Round, before: KnownIndex) -> FoldMethod:
    """The method of one round.

    The first of several rounds translates the table's index to session ordinals, so it never adds a run.
    """
    rows = plan.rows_of(round_)
    is_last = round_.number == len(plan.rounds)
    if plan.changes_only:
        return FoldMethod.CHANGES
    entry_bytes, store_bytes, limits = plan.encoding.entry_bytes, plan.capacity.object_store_bytes, plan.options.limits
    if is_last and index_sizes.fits_held(before.entries, rows, entry_bytes, store_bytes, limits):
        return FoldMethod.HOLD
    first, *above = before.runs
    if round_.number > 1 and index_sizes.adds_round_run(first, above, rows, limits):
        return FoldMethod.ADD_RUN
    return FoldMethod.MERGE
