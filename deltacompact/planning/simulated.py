"""What layout policies would have cost and saved on a table, by its files and a log of reads. Pure.

    never           0 B written            12 TB opened
    tiers           31 GB, 240 core-s      9.1 TB not opened, 18,000 core-s

layout/simulation.py replays; here costs and savings become core-seconds, the unit of `advise`. Files that a compaction
has replaced are unknown: the compaction's own files stand for them, and count as arriving with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.layout.boxes import Boxes
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.reads import Read
from deltacompact.layout.simulation import Arrival, Replayed, policies, replayed
from deltacompact.planning.expected import arranged_s
from deltacompact.planning.worth import read_s

REPLAYED = "replayed are the files that are there: what compactions have replaced came, for all we know, with them"
FILES_MAX = 5_000
"""At most so many files are replayed. For a larger table, the user simulates a part."""


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """What a policy would have written, and what readers would not have opened, compared with no layout at all."""

    policy: str
    runs: int
    bytes_written: int
    cost_s: float
    files_not_opened: float
    bytes_not_opened: int
    saved_s: float

    @property
    def net_s(self) -> float:
        return self.saved_s - self.cost_s


def check_count(table_id: str, files: int) -> None:
    """Raise InputError for a table without files, or with too many."""
    if not 0 < files <= FILES_MAX:
        raise InputError(f"table {table_id!r} has {counted(files, 'data file')}: 1 to {FILES_MAX:,} are replayed")


def simulated(
    files: Boxes,
    arrivals: Sequence[Arrival],
    reads: Iterable[Read],
    by: Sequence[ClusterColumn],
    file_bytes: int,
    depths: Sequence[float],
) -> tuple[PolicyOutcome, ...]:
    """The outcome of each policy. `file_bytes`: of a rewritten file. `depths`: the limits of the policies by depth."""
    asked = [(read.at_s, read.columns) for read in reads]
    found = [replayed(policy, files, arrivals, asked, by, file_bytes) for policy in policies(by, depths)]
    return tuple(_outcome(replay, found[0]) for replay in found)


def _outcome(replay: Replayed, never: Replayed) -> PolicyOutcome:
    files, size = never.files_opened - replay.files_opened, never.bytes_opened - replay.bytes_opened
    cost_s = arranged_s(round(replay.rows_written), round(replay.bytes_written))
    return PolicyOutcome(
        replay.policy, replay.runs, round(replay.bytes_written), cost_s, files, round(size), read_s(files, size)
    )
