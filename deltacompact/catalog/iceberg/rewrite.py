"""The driver of `rewrite`: files of a branch are read with all their deletes, and written anew without them.

read        the branch of now                                   data files, delete files, sequence numbers
plan        groups of files, and why                            pure
delete keys equality deletes -> digests by hash bucket          one task for some delete files
dead rows   data files -> live bitmaps                          one task for some data files
materialize live rows -> outputs                                the engine's own step, one task for each output
commit      one `replace` snapshot for some groups              groups that others touched are planned again
"""

from __future__ import annotations

import functools
import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from deltacompact.base.errors import ConflictError, CorruptionError, Interrupted, OutcomeUnknownError
from deltacompact.base.limits import Limits
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.base.settings import Settings
from deltacompact.base.wording import text_of
from deltacompact.catalog.iceberg import locations
from deltacompact.catalog.iceberg.content_files import Content, ContentFile, Entry
from deltacompact.catalog.iceberg.dead_rows import (
    ROWS_AT_ONCE,
    DeadRowsTask,
    Found,
    KeySet,
    Source,
    Vector,
    find_dead_rows,
    in_pieces,
)
from deltacompact.catalog.iceberg.delete_keys import DeleteKeysTask, write_delete_keys
from deltacompact.catalog.iceberg.locations import readable
from deltacompact.catalog.iceberg.parquet_files import StoredFile, by_field_id
from deltacompact.catalog.iceberg.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.rewrite_options import RewriteOptions
from deltacompact.catalog.iceberg.rewrite_plan import (
    FileGroup,
    Input,
    RewritePlan,
    expected_output_files,
    plan_rewrite,
)
from deltacompact.catalog.iceberg.sampling import SampleTask, written_share
from deltacompact.catalog.iceberg.snapshots import Committed, Committer, Rewritten
from deltacompact.catalog.iceberg.table_state import Scope, StateReader, TableState, scope_of
from deltacompact.executors.choose import executor_for
from deltacompact.executors.executor import Executor
from deltacompact.steps.materialize import LiveRange, Materialized, MaterializeTask, materialize
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, parquet_read
from deltacompact.tabular.allocator import session_memory
from deltacompact.tabular.row_groups import WriteOptions

REDONE_MAX = 3
"""How often groups that others touched are planned and rewritten again."""
KEYS_PER_BUCKET = 2_000_000
"""Deleted keys of a hash bucket: a task that asks holds one bucket at a time, some 100 bytes a key."""
DELETE_FILES_PER_TASK = 200
DELETE_ROWS_PER_TASK = 5_000_000

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How the work is divided. Tests make it small, so that ten rows take the path of ten million."""

    keys_per_bucket: int = KEYS_PER_BUCKET
    delete_files_per_task: int = DELETE_FILES_PER_TASK
    delete_rows_per_task: int = DELETE_ROWS_PER_TASK
    rows_at_once: int = ROWS_AT_ONCE


@dataclass(slots=True)
class RewriteResult:
    """What a rewrite did. Rows of the inputs = rows that live in the outputs + rows dead by position + by key.

    `refused` has a line for each group that others touched and that is still as it was. `nothing_to_do` says why there
    was nothing to rewrite.
    """

    table_id: str
    branch: str
    snapshots: list[int] = field(default_factory=list)
    groups: int = 0
    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead_by_position: int = 0
    dead_by_key: int = 0
    delete_files_removed: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    redone: int = 0
    refused: list[str] = field(default_factory=list)
    nothing_to_do: str | None = None
    executor: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One call of rewrite: a branch of a table, the options, and how the work is run."""

    table: IcebergTable
    branch: str
    options: RewriteOptions
    settings: Settings = field(default_factory=Settings)
    sizes: Sizes = field(default_factory=Sizes)
    before_commit: Callable[[], None] = lambda: None
    """Called before each commit. Tests let other writers commit there."""

    def state(self) -> TableState:
        """The branch as it was when the table was loaded."""
        return StateReader(self._store()).read(self.table.metadata, self.branch)

    def plan(self) -> RewritePlan:
        """The plan for the branch. Writes nothing."""
        return plan_rewrite(self.state(), self.options)

    def run(self, plan: RewritePlan | None = None) -> RewriteResult:
        """Rewrite and commit what the plan says; without one, plan first.

        Groups that other writers touched are planned again. Raises ConflictError if they touched every group, again
        and again.
        """
        store = self._store()
        committer = Committer(store, StateReader(store), self.branch, uuid.uuid4().hex)
        result = RewriteResult(self.table.metadata.table_id, self.branch)
        table = self.table
        state = committer.reader.read(table.metadata, self.branch)
        plan = plan or plan_rewrite(state, self.options)
        result.nothing_to_do = plan.nothing_to_do
        redone = 0
        while plan.groups:
            touched = self._carried_out(_Job(store, committer, table, state, plan), result)
            if not touched:
                break
            if redone == REDONE_MAX:
                result.refused += [f"{_name(group)}: {why}" for group, why in touched]
                break
            redone += 1
            result.redone += len(touched)
            table = table.reloaded()
            state = committer.reader.read(table.metadata, self.branch)
            committer.reader.forget(state.manifests)
            paths = frozenset(source.entry.file.path for group, _ in touched for source in group.inputs)
            plan = plan_rewrite(state, self.options, only=paths)
        if result.refused and not result.groups:
            raise ConflictError(f"{result.table_id}: {result.refused[0]}")
        return result

    def _store(self) -> ObjectStore:
        return locations.store_of(self.table.metadata.location, self.table.io_properties)

    def _carried_out(self, job: _Job, result: RewriteResult) -> list[tuple[FileGroup, str]]:
        """Rewrite the groups of a plan, commit by commit. Returns those that others touched, and what they did."""
        touched: list[tuple[FileGroup, str]] = []
        failed = 0
        executor = executor_for(self.settings, *_size(job.plan))
        result.executor = executor.name
        for groups in _commits(job.plan):
            try:
                with session_memory():
                    done = self._rewrite(job, groups, executor, result)
            except ConflictError as error:  # other commits were faster in every attempt
                failed += 1
                if not self.options.partial_progress or failed > self.options.max_failed_commits:
                    raise
                result.refused += [f"{_name(group)}: {text_of(error)}" for group in groups]
            else:
                touched += [(rewritten.group, problem.words) for rewritten, problem in done.refused]
        return touched

    def _rewrite(self, job: _Job, groups: Sequence[FileGroup], executor: Executor, result: RewriteResult) -> Committed:
        """Write the outputs of some groups and commit them. What is not committed is deleted, unless it may be."""
        work = _Work(job, executor, self.settings, self.sizes)
        try:
            written = work.written(groups)
            self.before_commit()
            done = job.committer.commit(job.table, job.plan, [Rewritten(group, outputs) for group, outputs in written])
        except (OutcomeUnknownError, Interrupted):
            raise
        except BaseException:
            work.discard(work.outputs)
            raise
        finally:
            work.clear()
        work.discard([file.path for rewritten, _ in done.refused for file in rewritten.outputs])
        _count(result, done, work)
        return done


@dataclass(frozen=True, slots=True)
class _Job:
    """A plan, and the table and the branch as they were planned."""

    store: ObjectStore
    committer: Committer
    table: IcebergTable
    state: TableState
    plan: RewritePlan


class _Work:
    """The tasks of some groups, and the files that they leave behind."""

    def __init__(self, job: _Job, executor: Executor, settings: Settings, sizes: Sizes) -> None:
        self._store = job.store
        self._table = job.table
        self._metadata = job.state.metadata
        self._plan = job.plan
        self._executor = executor
        self._settings = settings
        self._sizes = sizes
        self._folder = f"deltacompact-{job.committer.session}-{uuid.uuid4().hex[:8]}/"
        self.outputs: list[str] = []
        self.found: dict[int, list[Found]] = {}

    @property
    def _limits(self) -> Limits:
        return self._settings.limits

    def written(self, groups: Sequence[FileGroup]) -> list[tuple[FileGroup, tuple[ContentFile, ...]]]:
        """The outputs of each group."""
        key_sets, set_of = self._key_sets(groups)
        sources = [(group, source) for group in groups for source in group.inputs]
        asked = [self._source(Ordinal(number), one, set_of) for number, (_, one) in enumerate(sources)]
        found, masks_of = self._dead_rows(asked, key_sets)
        ordinal = 0
        by_group: list[list[Found]] = []
        for group in groups:
            by_group.append([found[ordinal + place] for place in range(len(group.inputs))])
            ordinal += len(group.inputs)
        tasks: list[tuple[MaterializeTask, str]] = []
        numbers: list[range] = []
        for group, members, size in zip(groups, by_group, self._written_bytes(by_group), strict=True):
            self.found[group.number] = members
            made = self._outputs(members, masks_of, size)
            numbers.append(range(len(tasks), len(tasks) + len(made)))
            tasks += made
        done = self._materialized(tasks)
        return [
            (group, tuple(self._described(group, *done[number]) for number in of_group))
            for group, of_group in zip(groups, numbers, strict=True)
        ]

    def discard(self, paths: Sequence[str]) -> None:
        for path in paths:
            locations.discard(self._store, path)

    def clear(self) -> None:
        """Delete what tasks handed to each other."""
        self._store.delete([stat.path for stat in self._store.list(self._folder)])

    # Delete keys

    def _key_sets(self, groups: Sequence[FileGroup]) -> tuple[dict[int, KeySet], dict[str, int]]:
        """The key sets that the groups need by number, and the key set of each equality-delete file by path."""
        members: dict[tuple[Scope | None, tuple[int, ...]], dict[str, Entry]] = defaultdict(dict)
        for group in groups:
            for source in group.inputs:
                for entry in source.deletes.equality:
                    everywhere = self._metadata.specs[entry.file.spec_id].is_unpartitioned
                    scope = None if everywhere else scope_of(entry)
                    members[scope, tuple(sorted(entry.file.equality_ids))][entry.file.path] = entry
        set_of: dict[str, int] = {}
        tasks: list[DeleteKeysTask] = []
        for number, ((_, ids), entries) in enumerate(members.items()):
            set_of |= dict.fromkeys(entries, number)
            columns = by_field_id(self._metadata.columns[field_id].field for field_id in ids)
            rows = sum(entry.file.rows for entry in entries.values())
            bucket_count = max(1, math.ceil(rows / self._sizes.keys_per_bucket))
            for piece in self._delete_pieces([_stored(entry) for entry in entries.values()]):
                path = f"{self._folder}keys-{len(tasks)}"
                tasks.append(DeleteKeysTask(number, columns, piece, bucket_count, path, self._limits.reading))
        counts = self._run(write_delete_keys, tasks)
        key_sets: dict[int, KeySet] = {}
        for task, of_task in zip(tasks, counts, strict=True):
            before = key_sets.get(task.key_set, KeySet(task.columns, ((),) * task.bucket_count))
            grown = tuple(
                (*paths, task.bucket_path(bucket)) if of_task[bucket] else paths
                for bucket, paths in enumerate(before.buckets)
            )
            key_sets[task.key_set] = KeySet(task.columns, grown)
        return key_sets, set_of

    def _delete_pieces(self, stored: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, ...]]:
        piece: list[StoredFile] = []
        rows = 0
        for file in stored:
            is_full = len(piece) >= self._sizes.delete_files_per_task
            if piece and (is_full or rows + file.rows > self._sizes.delete_rows_per_task):
                yield tuple(piece)
                piece, rows = [], 0
            piece.append(file)
            rows += file.rows
        if piece:
            yield tuple(piece)

    # Dead rows

    def _source(self, ordinal: Ordinal, source: Input, set_of: dict[str, int]) -> Source:
        deletes = source.deletes
        vector = None
        if deletes.vector is not None:
            file = deletes.vector.file
            if file.content_offset is None or file.content_size is None:
                raise CorruptionError(f"{file.path}: its manifest does not say where the deletion vector lies")
            vector = Vector(file.path, file.content_offset, file.content_size)
        return Source(
            ordinal,
            _stored(source.entry),
            tuple(sorted({set_of[entry.file.path] for entry in deletes.equality})),
            tuple(_stored(entry) for entry in deletes.positions),
            vector,
            self._unfillable(source.entry.file),
        )

    def _unfillable(self, file: ContentFile) -> tuple[tuple[int, str], ...]:
        """Columns that are not null where the file lacks them, so that we cannot fill them in."""
        today = {int(column.metadata[b"PARQUET:field_id"]) for column in self._metadata.schema}
        defaults = [number for number in today if self._metadata.columns[number].has_default]
        parts = self._metadata.specs[file.spec_id].fields
        constant = [part.source_id for part in parts if part.transform == "identity" and part.source_id in today]
        return (
            *((number, "which has a default value") for number in sorted(defaults)),
            *((number, "whose value only its partition has") for number in sorted(constant)),
        )

    def _dead_rows(
        self, asked: Sequence[Source], key_sets: dict[int, KeySet]
    ) -> tuple[dict[int, Found], dict[int, str]]:
        """Each file's rows, and the path of its live bitmap, by ordinal."""
        rows = sum(source.stored.rows for source in asked)
        share = max(self._limits.task_rows_min, math.ceil(rows / max(1, self._executor.capacity.slots * 2)))
        tasks: list[DeadRowsTask] = []
        for number, piece in enumerate(in_pieces(asked, min(share, 2 * self._sizes.rows_at_once))):
            needed = sorted({key_set for source in piece for key_set in source.key_sets})
            tasks.append(
                DeadRowsTask(
                    piece,
                    tuple((key_set, key_sets[key_set]) for key_set in needed),
                    self._metadata.schema,
                    f"{self._folder}live-{number}.arrow",
                    self._sizes.rows_at_once,
                    self._limits.reading,
                )
            )
        found: dict[int, Found] = {}
        masks_of: dict[int, str] = {}
        for task, of_task in zip(tasks, self._run(find_dead_rows, tasks), strict=True):
            for file in of_task:
                found[file.ordinal] = file
                masks_of[file.ordinal] = task.masks_path
        return found, masks_of

    # Outputs

    def _written_bytes(self, by_group: Sequence[Sequence[Found]]) -> list[int]:
        """About the bytes that the live rows of each group will have. Groups that may need two files are sampled."""
        sizes = [sum(_live_bytes(member) for member in members) for members in by_group]
        large = [number for number, size in enumerate(sizes) if size > self._plan.options.target_file_bytes // 2]
        options, reading = self._write_options(), self._limits.reading
        tasks = [
            SampleTask(max(by_group[number], key=_live_bytes).file, self._metadata.schema, options, reading)
            for number in large
        ]
        for number, share in zip(large, self._run(written_share, tasks), strict=True):
            sizes[number] = int(sizes[number] * share)
        return sizes

    def _outputs(
        self, members: Sequence[Found], masks_of: dict[int, str], size: int
    ) -> list[tuple[MaterializeTask, str]]:
        """The outputs of a group: its live rows in the order of its files, divided evenly."""
        rows = sum(member.live_rows for member in members)
        if not rows:
            return []
        per_output = math.ceil(rows / expected_output_files(size, self._plan.options))
        tasks: list[tuple[MaterializeTask, str]] = []
        for first in range(0, rows, per_output):
            stop = min(rows, first + per_output)
            ranges = tuple(_ranges(members, first, stop))
            path = f"{self._metadata.data_folder}/{uuid.uuid4().hex}-deltacompact.parquet"
            task = MaterializeTask(
                ChainFileNumber(len(tasks)),
                stop - first,
                ranges,
                tuple(dict.fromkeys(masks_of[one.ordinal] for one in ranges)),
                self._metadata.schema,
                Partition(),
                self._write_options(),
                self._limits,
            )
            tasks.append((task, path))
        return tasks

    def _write_options(self) -> WriteOptions:
        codec = self._metadata.properties.get("write.parquet.compression-codec", "zstd").lower()
        codec = self._settings.compression or ("none" if codec == "uncompressed" else codec)
        return WriteOptions(ContentType.PARQUET, codec, self._settings.row_group_rows)

    def _materialized(self, tasks: Sequence[tuple[MaterializeTask, str]]) -> list[tuple[str, Materialized]]:
        self.outputs += [path for _, path in tasks]
        done = self._run_each(materialize, [(task, functools.partial(str, readable(path))) for task, path in tasks])
        return [(path, output) for (_, path), output in zip(tasks, done, strict=True)]

    def _described(self, group: FileGroup, path: str, output: Materialized) -> ContentFile:
        """The output as a manifest lists it, with the counts and bounds that its footer gives."""
        file = output.file
        with files.opened(self._store, file) as source:
            footer = parquet_read.described(source).metadata
        plain = ContentFile(Content.DATA, path, "PARQUET", group.spec_id, group.partition, file.rows, file.bytes)
        return self._table.with_metrics(plain, footer)

    # Running

    def _run(self, step: Callable[[ObjectStore, T], R], tasks: Sequence[T]) -> list[R]:
        return self._run_each(step, [(task,) for task in tasks])

    def _run_each(self, step: Callable[..., R], inputs: Sequence[tuple[Any, ...]]) -> list[R]:
        submitted = [self._executor.submit(step, self._store, *of_task, spread=True) for of_task in inputs]
        for _ in self._executor.finish(submitted):
            pass
        return [self._executor.get(task.values[0]) for task in submitted]


def _stored(entry: Entry) -> StoredFile:
    return StoredFile(entry.file.path, entry.file.rows, entry.file.file_bytes, entry.sequence)


def _live_bytes(member: Found) -> int:
    """The stored bytes of the live rows, if all rows are alike."""
    return member.file.bytes * member.live_rows // max(1, member.file.rows)


def _ranges(members: Sequence[Found], first: int, stop: int) -> Iterator[LiveRange]:
    """The live rows with these ranks, by file."""
    rank = 0
    for member in members:
        low, high = max(first, rank), min(stop, rank + member.live_rows)
        if low < high:
            yield LiveRange(member.file, member.ordinal, low - rank, high - rank)
        rank += member.live_rows


def _commits(plan: RewritePlan) -> list[tuple[FileGroup, ...]]:
    """The groups of each commit: all in one, or some in each with partial progress."""
    if not plan.options.partial_progress:
        return [plan.groups]
    share = math.ceil(len(plan.groups) / plan.options.max_commits)
    return [plan.groups[start : start + share] for start in range(0, len(plan.groups), share)]


def _size(plan: RewritePlan) -> tuple[int, int]:
    return sum(group.rows for group in plan.groups), sum(group.bytes for group in plan.groups)


def _name(group: FileGroup) -> str:
    return f"{len(group.inputs)} files of partition {group.partition}" if group.partition else "a group of files"


def _count(result: RewriteResult, done: Committed, work: _Work) -> None:
    if done.snapshot is None:
        return
    result.snapshots.append(done.snapshot.snapshot_id)
    result.delete_files_removed += done.removed_deletes
    for rewritten in done.groups:
        found = work.found[rewritten.group.number]
        result.groups += 1
        result.files_in += len(rewritten.group.inputs)
        result.files_out += len(rewritten.outputs)
        result.bytes_in += rewritten.group.bytes
        result.bytes_out += sum(file.file_bytes for file in rewritten.outputs)
        rows_out = sum(file.rows for file in rewritten.outputs)
        result.rows_in += rewritten.group.rows
        result.rows_out += rows_out
        result.dead_by_position += sum(file.dead_by_position for file in found)
        result.dead_by_key += sum(file.dead_by_key for file in found)
        for source in rewritten.group.inputs:
            reason = source.reason.value
            result.reasons[reason] = result.reasons.get(reason, 0) + 1
    if result.rows_in != result.rows_out + result.dead_by_position + result.dead_by_key:
        raise CorruptionError(
            f"{result.table_id}: {result.rows_in} rows went in, {result.rows_out} came out, "
            f"{result.dead_by_position} were dead by position and {result.dead_by_key} by key"
        )
