"""The interface between the driver and a mode.

Call     a branch of a table, the options, and how the work is run
Steps    functions: plan, resume a dead session, make a result       they write no file
Work     what is done for one plan                                    write, propose, count
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from deltacompact.base.events import EventSink, no_sink
from deltacompact.base.expected import Expected
from deltacompact.base.settings import Settings
from deltacompact.executors.executor import Executor
from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg.commit.proposal import Propose
from deltacompact.iceberg.deletes.matching import DeleteIndex, FileScanTask
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg.marks.reserved import ReservedPaths
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.expected import expected
from deltacompact.iceberg_modes.journal.journal import WrittenGroup
from deltacompact.iceberg_modes.journal.left_behind import LeftSession, SessionsLeft
from deltacompact.iceberg_modes.journal.resume import Resumption
from deltacompact.iceberg_modes.journal.signs_of_life import Signs
from deltacompact.iceberg_modes.plan import ModePlan, ScanTaskGroup
from deltacompact.iceberg_modes.result import ModeResult
from deltacompact.iceberg_modes.totals import BranchTotals, totals_of
from deltacompact.planning.plan import Capacity


class OutcomeOfGroups(Protocol):
    """What is in a snapshot: the files that it added, the number of their groups, and the data files that they mark."""

    @property
    def paths(self) -> frozenset[str]: ...
    @property
    def group_count(self) -> int: ...
    @property
    def marked(self) -> frozenset[str]: ...


Plan = TypeVar("Plan", bound=ModePlan)
Result = TypeVar("Result", bound=ModeResult)
Group = TypeVar("Group", bound=ScanTaskGroup[Any])
GroupOutput = TypeVar("GroupOutput")
Outcome = TypeVar("Outcome", bound=OutcomeOfGroups)


@dataclass(frozen=True, slots=True)
class Call(Generic[Plan, Result]):
    """A branch of a table, the options, and how the work is run."""

    table: IcebergTable
    branch: str
    options: Any
    settings: Settings = field(default_factory=Settings)
    sizes: Sizes = field(default_factory=Sizes)
    before_commit: Callable[[], None] = lambda: None
    """Called before each commit. Tests let other writers commit there."""
    emit: EventSink = no_sink
    signs: Signs = field(default_factory=Signs)

    def state(self) -> TableState:
        """The branch as it was when the table was loaded."""
        return StateReader(self.table.store).read(self.table.metadata, self.branch)


@dataclass(slots=True)
class Work(ABC, Generic[Plan, Group, GroupOutput, Outcome, Result]):
    """What is done for one plan.

    state      the branch as it was planned
    former     the work that others touched, so that this one does a part of it again; None: this is the first one
    touched    what others touched of this one: groups or files
    reserved   paths of marks that attempts at its commits may add
    """

    call: Call[Plan, Result]
    table: IcebergTable
    state: TableState
    plan: Plan
    executor: Executor
    result: Result
    former: InitVar[Any] = None
    touched: list[Any] = field(default_factory=list)
    reserved: ReservedPaths = field(default_factory=ReservedPaths)

    def __post_init__(self, former: Any) -> None:
        """Take over what the former work knows."""

    @property
    def commits(self) -> Sequence[Sequence[Group]]:
        """The groups of each commit."""
        return [self.plan.groups]

    @property
    def failed_commits_max(self) -> int:
        """How many commits may fail because others came first in every attempt."""
        return 0

    @abstractmethod
    def written(self, groups: Sequence[Group], session: str, folder: str) -> Iterator[Sequence[GroupOutput]]:
        """Write some groups, and yield them as they are complete, maybe several at a time. The names of files of the
        table begin with the session's; files that tasks hand to each other go to `folder`."""

    @abstractmethod
    def record(self, written: GroupOutput) -> WrittenGroup:
        """A group for the journal."""

    @abstractmethod
    def propose(self, groups: Sequence[Group], written: Sequence[GroupOutput]) -> Propose[Outcome]:
        """What a snapshot with these groups changes on a head."""

    def count(self, done: Committed[Outcome], groups: Sequence[Group]) -> None:
        """Count what a commit did, and remember what others touched."""
        self.result.count(done)

    def again(self, state: TableState) -> Plan:
        """The plan for what others touched. Called only if something was `touched`."""
        raise NotImplementedError

    @property
    def given_up(self) -> list[str]:
        """A line for each thing that others touched too often."""
        return []


@dataclass(frozen=True, slots=True)
class Resuming:
    """A dead session whose work a call, maybe of another mode, commits. `notes` are for the result.

    compares    the call compares afterwards which of two rows came later
    """

    call: Call[Any, Any]
    reader: StateReader
    dead: LeftSession
    notes: list[str]
    compares: bool


@dataclass(frozen=True, slots=True)
class Reads:
    """What a mode will read of a branch, for whoever decides when it runs and on what."""

    inputs: Sequence[FileScanTask]
    small: int = 0
    """How many data files are read because they are too small."""
    writes_inputs: bool = False
    """Whether data files are written anew."""


def with_deletes(state: TableState) -> list[FileScanTask]:
    """All data files of a branch, each with the deletes that may apply to it."""
    index = DeleteIndex(state)
    return [index.task(entry) for entry in state.data]


def all_files(plan: Callable[[], Any], state: Callable[[], TableState]) -> Reads:
    """Keys of all data files are read."""
    return Reads(with_deletes(state()))


def unchanged_totals(plan: Any, state: TableState) -> BranchTotals:
    return totals_of(state)


def nothing_afterwards(*call_and_result: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Steps(Generic[Plan, Result]):
    """What a mode does.

    plan             the plan for a branch on which these sessions are at work
    approved         the plan of a document without the data files that dead sessions have dealt with
    document         a plan as JSON values
    result           a result that counts nothing yet
    work             what is done for a plan
    resume           how to commit what a dead session of the mode had written. None: it must not be committed. Gets the
                     plan of the call, or None for a call of another mode
    expected         how long a plan is expected to take; by default, the time to look up deleted keys
    reads            what is read of a branch. Takes functions for plan and state, and calls only what it needs
    totals_after     about the branch's totals, once a plan is carried out
    nothing_found    why nothing was committed, although the plan had something to do
    afterwards       what is done after all groups
    """

    plan: Callable[[Call[Plan, Result], TableState, SessionsLeft], Plan]
    approved: Callable[[str | bytes, TableState, SessionsLeft, frozenset[str]], Plan]
    document: Callable[[Plan], dict[str, Any]]
    result: Callable[[Call[Plan, Result], Plan], Result]
    work: Callable[..., Work[Plan, Any, Any, Any, Result]]
    resume: Callable[[Resuming, Plan | None], Resumption | None]
    expected: Callable[[Plan, Capacity], Expected] = expected
    reads: Callable[[Callable[[], Plan], Callable[[], TableState]], Reads] = all_files
    totals_after: Callable[[Plan, TableState], BranchTotals] = unchanged_totals
    nothing_found: str | None = None
    afterwards: Callable[[Call[Plan, Result], IcebergTable, StateReader, Plan, Result], None] = nothing_afterwards
