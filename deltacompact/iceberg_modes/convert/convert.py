"""The mode `convert`: rows that equality deletes delete become deleted by position. No data file is rewritten.

plan          which equality deletes, which data files           pure
delete keys   equality deletes -> digests by hash bucket         one task for some delete files
dead rows     data files -> live bitmaps                         one task for some data files; only key columns are read
marks         newly dead rows -> position deletes or vectors     one task for some data files
commit        one `overwrite` snapshot for some data files       data files that others touched are marked once more;
                                                                 if deletes by key are gone, their keys are read again
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.expected import Expected
from deltacompact.base.wording import counted, text_of
from deltacompact.executors.choose import executor_for
from deltacompact.iceberg.commit.committer import Committed
from deltacompact.iceberg.commit.proposal import Propose
from deltacompact.iceberg.deletes.matching import Deletes, FileScanTask
from deltacompact.iceberg.key_index.indexes import KeyIndexes, is_enabled
from deltacompact.iceberg.marks.finding import Finder
from deltacompact.iceberg.marks.marking import FileToMark, Mark
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.parquet_files import by_field_id
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.certified import (
    Certified,
    adding_up,
    certified_before,
    has_same_rows,
    resumed_adding_up,
    telling,
)
from deltacompact.iceberg_modes.convert.options import NAME, ConvertOptions
from deltacompact.iceberg_modes.convert.plan import ConvertGroup, ConvertPlan, plan_conversion
from deltacompact.iceberg_modes.convert.plan_document import equality_paths, plan_document, plan_from_json
from deltacompact.iceberg_modes.convert.proposals import Converted, ConvertOutcome, ProposeConversion
from deltacompact.iceberg_modes.convert.result import ConvertResult
from deltacompact.iceberg_modes.convert.resumption import dead_document, resume_conversion
from deltacompact.iceberg_modes.expected import expected
from deltacompact.iceberg_modes.journal.journal import WrittenGroup
from deltacompact.iceberg_modes.journal.left_behind import SessionsLeft
from deltacompact.iceberg_modes.journal.recorded_marks import record_of
from deltacompact.iceberg_modes.journal.resume import Resumption
from deltacompact.iceberg_modes.marking import MarkerOf, marker_of
from deltacompact.iceberg_modes.steps import Call, Reads, Resuming, Steps, Work, with_deletes
from deltacompact.iceberg_modes.totals import totals_marked
from deltacompact.planning.expected import written_s
from deltacompact.planning.plan import Capacity


def _planned(call: Call[ConvertPlan, ConvertResult], state: TableState, left: SessionsLeft) -> ConvertPlan:
    options: ConvertOptions = call.options
    if options.where is None:
        return plan_conversion(state, options)
    return plan_conversion(state, options, wanted=call.table.may_match(options.where))


def _approved(document: str | bytes, state: TableState, left: SessionsLeft, done: frozenset[str]) -> ConvertPlan:
    converted = (equality_paths(dead.plan.body) for dead in left.dead if dead.plan.mode == NAME)
    return plan_from_json(document, state, frozenset[str]().union(*converted))


@dataclass(frozen=True, slots=True)
class MarkedGroup:
    """Data files whose keys were read, those in which deletes by key hit rows, and the marks of these rows."""

    group: ConvertGroup
    dead: tuple[FileToMark, ...]
    marks: tuple[Mark, ...]


@dataclass(slots=True)
class Converting(Work[ConvertPlan, ConvertGroup, MarkedGroup, ConvertOutcome, ConvertResult]):
    """The work of a plan.

    deletes     the equality deletes of the first plan of the call
    settled     data files whose dead rows are deleted by position now
    touched     data files that others touched
    """

    deletes: frozenset[str] = field(init=False)
    settled: tuple[FileScanTask, ...] = field(init=False)
    session: str = field(init=False)
    certified: Certified | None = field(init=False, default=None)

    def __post_init__(self, former: Converting | None) -> None:
        self.deletes = former.deletes if former else self.plan.delete_paths
        self.settled = former.settled if former else ()

    @property
    def commits(self) -> Sequence[Sequence[ConvertGroup]]:
        return [(group,) for group in self.plan.groups]

    @property
    def failed_commits_max(self) -> int:
        return self.plan.options.max_failed_commits if self.plan.options.partial_progress else 0

    def written(self, groups: Sequence[ConvertGroup], session: str, folder: str) -> Iterator[Sequence[MarkedGroup]]:
        self.session = session
        settings, metadata = self.call.settings, self.table.metadata
        tasks = Tasks(self.call.table.store, self.executor)
        indexes = None
        if is_enabled(self.plan.options.key_index, metadata.properties):
            block_entries, notes = self.call.sizes.block_entries, self.result.notes
            indexes = KeyIndexes.of(tasks, self.state.data, settings.limits, folder, notes, block_entries)
        finder = Finder(tasks, _of_keys(metadata, self.plan), settings.limits, self.call.sizes, folder, indexes)
        marker = marker_of(self.call, session, lambda: self.executor)(metadata)
        for group in groups:
            dead = tuple(_dead(finder, group.inputs))
            yield [MarkedGroup(group, dead, tuple(marker.marks(dead)))]

    def record(self, written: MarkedGroup) -> WrittenGroup:
        return record_of(written.group.number, written.marks, dead_document(written.dead))

    def propose(self, groups: Sequence[ConvertGroup], written: Sequence[MarkedGroup]) -> Propose[ConvertOutcome]:
        asked = tuple(task for group in groups for task in group.inputs)
        marks = tuple(mark for share in written for mark in share.marks)
        dead = {file.task.entry.file.path: file.dead for share in written for file in share.dead}
        certified = self.certified = self.certified or certified_before(self.call, self.table, self.state)
        converted = Converted(asked, marks, self.settled, dead=dead)
        marker = marker_of(self.call, self.session, lambda: self.executor, self.reserved)
        follow = functools.partial(_marked_again, marker, self.result.notes)
        propose = ProposeConversion(self.plan.delete_paths, converted, certified.head, follow)
        return telling(self.call, adding_up(self.call, propose, has_same_rows), certified.files)

    def count(self, done: Committed[ConvertOutcome], groups: Sequence[ConvertGroup]) -> None:
        self.settled = done.outcome.settled
        self.touched += done.outcome.touched
        self.result.count(done)
        self.result.data_files_asked += sum(len(group.inputs) for group in groups)
        self.result.rows_asked += sum(group.rows for group in groups)

    def again(self, state: TableState) -> ConvertPlan:
        touched = frozenset(task.entry.file.path for task in self.touched)
        return plan_conversion(state, self.plan.options, self.deletes, touched)

    @property
    def given_up(self) -> list[str]:
        files = counted(len(self.touched), "data file")
        return [f"{files}: other commits removed deletes by key that hit rows of them, again and again"]


def _dead(finder: Finder, asked: Sequence[FileScanTask]) -> Iterator[FileToMark]:
    """The data files in which equality deletes hit rows."""
    by_key = [FileScanTask(task.entry, Deletes(task.deletes.equality)) for task in asked]
    found = finder.find(by_key, closed=frozenset(task.entry.file.path for task in asked))
    for task, of_file in zip(asked, found.files, strict=True):
        if of_file.dead_by_key:
            bitmap = LiveBitmap(found.masks_of[of_file.ordinal], of_file.ordinal, of_file.mask_crc32)
            yield FileToMark(task, bitmap)


def _marked_again(
    marker: MarkerOf, notes: list[str], metadata: TableMetadata, dead: Sequence[FileToMark]
) -> Sequence[Mark] | None:
    """Marks of the rows found before, for the head of another writer: no key is searched again.

        asked      a: e kills rows 1, 4               marked      vector of a: 1 4
        head       a: another vector has row 2        followed    vector of a: 1 2 4, in place of theirs

    Which rows the deletes by key kill in a data file depends on these deletes and that file alone, and both never
    change: while the deletes are there, these rows are dead. The head's deletes by position name the file's other dead
    rows. So a vector of both has all of them, whatever came or went in between. None, with a note, if a file is bad:
    its keys are read again.
    """
    try:
        return marker(metadata).marks(dead) if dead else ()
    except (InputError, CorruptionError, NotFoundError) as error:
        notes.append(f"deletes of others could not be followed, so files are asked again: {text_of(error)}")
        return None


def _of_keys(metadata: TableMetadata, plan: ConvertPlan) -> TableMetadata:
    """The metadata with only the columns that deletes use, because no other column needs to be readable."""
    ids = sorted(plan.key_ids)
    return replace(metadata, schema=by_field_id(metadata.columns[number].field for number in ids))


def _resume(resuming: Resuming, plan: ConvertPlan | None) -> Resumption:
    here = functools.partial(executor_for, resuming.call.settings, 0, 0)
    marker = marker_of(resuming.call, resuming.dead.session, here)
    follow = functools.partial(_marked_again, marker, resuming.notes)
    return resumed_adding_up(resuming, functools.partial(resume_conversion, follow), has_same_rows)


def _reads(plan: Callable[[], ConvertPlan], state: Callable[[], TableState]) -> Reads:
    """What a run reads: the keys of data files that an equality delete may hit."""
    return Reads([source for source in with_deletes(state()) if source.deletes.equality])


def _expected(plan: ConvertPlan, capacity: Capacity) -> Expected:
    """How long the plan will take. It writes at most one mark for each deleted key."""
    keys = sum(conversion.entry.file.rows for conversion in plan.conversions if conversion.data_files)
    return expected(plan, capacity, shared_s=written_s(keys))


STEPS = Steps(
    plan=_planned,
    approved=_approved,
    document=plan_document,
    result=lambda call, plan: ConvertResult(plan.table_id, call.branch),
    work=Converting,
    resume=_resume,
    expected=_expected,
    reads=_reads,
    totals_after=lambda plan, state: totals_marked(state, plan.inputs, len(plan.conversions)),
)
