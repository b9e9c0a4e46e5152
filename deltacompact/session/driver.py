"""A compaction session: one partition stream, from its plan to the switch.

    plan       sessions/<id>/plan.json              base version, exact deltas, sizes: whoever comes later adopts it
    round 1    sessions/<id>/round-00001.json       position 80, index in terms of session ordinals
    round 2    sessions/<id>/round-00002.json       the last: pointers assigned, index as it will be published, masks
    outputs    sessions/<id>/output-0000000014.json one record for each compacted file
    switch     a sealed entry in the base version's log
    published  sessions/<id>/published.json         the completion with size and version filled in

Every record is put if absent and a loser adopts the winner's, so a session that was killed anywhere is resumed, and two
live ones cannot publish a mix. Tasks write under names used once and delete nothing: running one twice is harmless.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.errors import ConflictError, CorruptionError, NotFoundError
from deltacompact.base.events import Event, EventSink, RoundCompleted, SessionStarted
from deltacompact.base.model import FORMAT_VERSION, INT64_MAX, CompactedDelta, DataFile, DeletionVector, ObjectRef
from deltacompact.executors.executor import Executor, Submitted
from deltacompact.index.primary_key_index import IndexManifest, empty_manifest, read_manifest, write_manifest
from deltacompact.index.remap import RelocatedFile, Relocation
from deltacompact.planning.outputs import Output, OutputDecision, OutputPlan, follow, plan_outputs
from deltacompact.planning.plan import CompactionPlan, Round, Source
from deltacompact.planning.sizing import adds_round_run, fits_exchange, fits_held
from deltacompact.session.records import (
    PUBLISHED,
    SessionRecords,
    UnresumableError,
    output_name,
    round_name,
    session_id,
)
from deltacompact.session.rehash import rehash
from deltacompact.session.stages import Measured, Stages
from deltacompact.steps import hash_bucket as step1
from deltacompact.steps.assign_pointers import FoldedBuckets, IndexResult, IndexTask, assign, survivors, write_index
from deltacompact.steps.dedupe import (
    BaseIndex,
    DedupeResult,
    DedupeTask,
    FoldCounts,
    dedupe,
    dedupe_changes,
    dedupe_held,
    dedupe_run,
)
from deltacompact.steps.materialize import LiveRange, Materialized, MaterializeTask, materialize
from deltacompact.steps.shuffle import Layout
from deltacompact.storage.throttle import paced
from deltacompact.table.documents import SchemaTable, file_from_json, file_to_json
from deltacompact.table.ports import Compaction, Ports
from deltacompact.tabular.files import suffix_of


class Session:
    """Runs one CompactionPlan. `run` reads like the design."""

    def __init__(
        self,
        ports: Ports,
        plan: CompactionPlan,
        executor: Executor,
        emit: EventSink,
        number: int = 0,
    ) -> None:
        self.id = session_id(plan, number)
        self.plan = plan
        self.rounds_resumed = 0
        self.records = SessionRecords(ports.store, ports.workspace, self.id)
        self._target = ports.target
        self._workspace = ports.workspace
        self._store = ports.store
        self._paced = paced(ports.store, executor.pace)
        self._executor = executor
        self._emit = emit
        self._stages = Stages(executor, self._tell)
        self._under_way: dict[int, Submitted] = {}

    @property
    def measured(self) -> Measured:
        return self._stages.measured

    # The driver

    def run(self) -> Published:
        """Fold every round, materialize once, publish. Raises ConflictError where somebody else sealed the base."""
        plan = self.plan
        self._tell(SessionStarted, self.id, len(plan.rounds), plan.input.delta_rows, plan.input.why)
        folding = Folding(self._base_index(), FoldCounts())
        for each in plan.rounds[:-1]:
            self._still_ours()
            folding = self._resumed_round(each) or self._round(each, folding)
            self._tell(RoundCompleted, each.number, len(plan.rounds), folding.counts.live)
        self._still_ours()
        last = self._resumed_last() or self._last_round(folding)
        self._tell(RoundCompleted, len(plan.rounds), len(plan.rounds), last.counts.live)
        files = self._materialize(last)
        return self._publish(last, files)

    # Rounds

    def _round(self, each: Round, before: Folding) -> Folding:
        """Fold one share of the deltas; persist the index in the session's own terms."""
        hashed, layout = self._hash_bucket(each)
        path_of = functools.partial(self._workspace.fresh, "index", ".arrow", self.id)
        step = dedupe_run if self._adds_run(each, before) else dedupe
        deduped = []
        for group, buckets in enumerate(layout.tasks):
            task, node = self._dedupe_task(buckets, before), layout.parcel_of(group)
            parts = [done.values[node] for done in hashed]
            deduped.append(self._executor.submit(step, self._paced, task, path_of, *parts, node=node))
            del parts
        del hashed
        self._stages.wait("dedupe", deduped, self.plan.rows_of(each))
        results: list[DedupeResult] = [self._executor.get(done.values[0]) for done in deduped]
        counts, live = self._conserved(each, before, results)
        manifest = self._session_index(each, before, results, counts)
        ref = write_manifest(self._store, self._workspace.fresh("index", ".manifest.json", self.id), manifest)
        completion = {**self._completion(each, ref), "counts": asdict(counts), "live": live.tolist()}
        self.records.put(round_name(each.number), completion)
        adopted = self._adopted_round(each)
        if adopted is None:
            raise self._record_gone()
        return adopted

    def _last_round(self, before: Folding) -> LastRound:
        """Fold the rest, assign pointers, and persist the index as it will be published: it is known already."""
        plan, each = self.plan, self.plan.rounds[-1]
        hashed, layout = self._hash_bucket(each)
        rows = self.plan.rows_of(each)
        object_store_bytes = self._executor.capacity.object_store_bytes
        held = not plan.changes_only and fits_held(
            before.index.manifest.entries, rows, plan.encoding.entry_bytes, object_store_bytes, plan.options.limits
        )
        path_of = functools.partial(self._workspace.fresh, "index", ".arrow", self.id)
        deduped = []
        for group, buckets in enumerate(layout.tasks):
            task, node = self._dedupe_task(buckets, before), layout.parcel_of(group)
            parts = [done.values[node] for done in hashed]
            if plan.changes_only:
                done = self._executor.submit(dedupe_changes, self._paced, task, *parts, returns=3, node=node)
            elif held:
                done = self._executor.submit(dedupe_held, self._paced, task, *parts, returns=2, node=node)
            else:
                step = dedupe_run if self._adds_run(each, before) else dedupe
                done = self._executor.submit(step, self._paced, task, path_of, *parts, node=node)
            deduped.append(done)
            del parts
        del hashed
        self._stages.wait("dedupe", deduped, rows)
        results: list[DedupeResult] = [self._executor.get(task.values[0]) for task in deduped]
        counts, live = self._conserved(each, before, results, not held)
        index = None if held or plan.changes_only else self._session_index(each, before, results, counts)
        chunk_entries = plan.options.limits.chunk_entries
        folded = [
            FoldedBuckets(plan.encoding, group, each, index, chunk_entries) for group, each in enumerate(layout.tasks)
        ]
        entries = [task.values[1] if held or plan.changes_only else None for task in deduped]
        died = [task.values[2] if plan.changes_only else None for task in deduped]
        del deduped, results
        outputs = plan_outputs(plan, live)
        masks, ranks = self._assign_pointers(outputs, layout, folded, entries, died)
        del died
        writing = self._submit_index(outputs, layout, folded, entries, ranks)
        # Where rows go is known: outputs are under way while the index is written, and are recorded after it.
        masks_of = {ordinal: path for path, ordinals in masks for ordinal in ordinals}
        self._under_way = {each.number: self._submit_output(each, outputs, masks_of) for each in outputs.outputs}
        ref = self._index_written(writing, outputs, counts, masks_of)
        self.records.put(
            round_name(each.number),
            {
                **self._completion(each, ref),
                "counts": asdict(counts),
                "live": live.tolist(),
                "masks": masks,
                "outputs": outputs.decision.to_json(),
            },
        )
        adopted = self._adopted_last()
        if adopted is None:
            raise self._record_gone()
        return adopted

    def _hash_bucket(self, each: Round) -> tuple[list[Submitted], Layout]:
        """Step 1 for a round's files; and how buckets are divided into tasks and parcels."""
        plan = self.plan
        chosen = plan.sources[each.first : each.stop]
        whole = [step1.SourceSlice(s.file, s.ordinal, s.operation, (0, s.file.rows)) for s in chosen]
        work = step1.slices(whole, plan.task_rows)
        layout = Layout.of(plan.hash_bucket_count, plan.bucket_groups(each), self._executor.capacity.node_slots)
        hashed = [
            self._executor.submit(
                step1.hash_bucket,
                self._paced,
                plan.encoding,
                plan.input.partition,
                piece,
                plan.hash_bucket_count,
                layout.parcel_starts,
                plan.options.limits.reading,
                returns=layout.parcel_count,
                spread=True,
            )
            for piece in work
        ]
        self._stages.wait("hash_bucket", hashed, self.plan.rows_of(each))
        return hashed, layout

    def _dedupe_task(self, group: range, before: Folding) -> DedupeTask:
        plan, options = self.plan, self.plan.options
        return DedupeTask(
            plan.encoding,
            group,
            before.index,
            plan.positions,
            plan.tombstone_retention,
            options.rows_per_primary_key_index_file,
            options.limits.chunk_entries,
        )

    def _adds_run(self, each: Round, before: Folding) -> bool:
        """Whether the round's index gets a run of what the round changes. The first one translates the base."""
        if before.live is None:
            return False
        manifest = before.index.manifest
        first, *above = (manifest.run_entries(run) for run in range(len(manifest.runs)))
        return adds_round_run(first, above, self.plan.rows_of(each), self.plan.options.limits)

    def _session_index(
        self, each: Round, before: Folding, results: Sequence[DedupeResult], counts: FoldCounts
    ) -> IndexManifest:
        """The index after a round, in the session's own terms."""
        run = tuple(files for result in results for files in result.files)
        runs = (*before.index.manifest.runs, run) if self._adds_run(each, before) else (run,)
        return IndexManifest(self.plan.encoding, runs, counts.live, counts.tombstones, publishable=False)

    def _conserved(
        self, each: Round, before: Folding, results: Sequence[DedupeResult], may_be_run: bool = True
    ) -> tuple[FoldCounts, npt.NDArray[np.int64]]:
        """The counts of the session so far, and the live rows by ordinal; asserts that they agree."""
        of_round = sum((result.counts for result in results), FoldCounts())
        live: npt.NDArray[np.int64] = np.sum([result.live for result in results], axis=0)
        base = self.plan.base_manifest
        rows = base.rows if base else 0
        if base and self.plan.changes_only:  # the results are differences to the base
            of_round += FoldCounts(live=base.rows, tombstones=base.tombstones)
            live += np.array([s.file.live_rows if s.in_base else 0 for s in self.plan.sources], np.int64)
        elif before.live is not None and may_be_run and self._adds_run(each, before):  # to the round before
            of_round += FoldCounts(live=before.counts.live, tombstones=before.counts.tombstones)
            live += before.live
        counts = replace(before.counts + of_round, live=of_round.live, tombstones=of_round.tombstones)
        if int(live.sum()) != counts.live or rows + counts.upserts != counts.live + counts.superseded + counts.deleted:
            raise CorruptionError(f"round {each.number}: {rows} rows before, {counts}, {int(live.sum())} live by file")
        return counts, live

    def _completion(self, each: Round, index: ObjectRef) -> dict[str, Any]:
        """The round completion file (paper, compaction rounds, rule 4); size and version are null until publication."""
        given = self.plan.input
        return {
            "format": FORMAT_VERSION,
            "source_table_id": given.source_table_id,
            "partition": dict(given.partition.values),
            "source_stream_version": given.moment.source_version,
            "source_stream_position_processed": each.position,
            "source_file_number_processed": each.file_number,
            "hash_bucket_count": self.plan.hash_bucket_count,
            "compacted_table_id": given.destination_table_id,
            "compacted_stream_version": None,
            "compacted_bytes": None,
            "index_version": asdict(index),
        }

    def _resumed_round(self, each: Round) -> Folding | None:
        """What an earlier attempt at this session completed, once its objects were seen to be there."""
        folding = self._adopted_round(each)
        if folding is not None:
            self.records.check_there(dict.fromkeys(folding.index.manifest.paths))
            self.rounds_resumed += 1
        return folding

    def _resumed_last(self) -> LastRound | None:
        last = self._adopted_last()
        if last is not None:
            self.records.check_there(dict.fromkeys([last.index.path, *last.masks.values()]))
            self.records.check_there(dict.fromkeys(read_manifest(self._store, last.index).paths))
            self.rounds_resumed += 1
        return last

    def _adopted_round(self, each: Round) -> Folding | None:
        """What is recorded of a round, by us or by whoever came first."""
        completion = self.records.get(round_name(each.number))
        if completion is None:
            return None
        with _understood(each.number):
            ref = ObjectRef(**completion["index_version"])
            counts, live = FoldCounts(**completion["counts"]), np.array(completion["live"], np.int64)
        return Folding(BaseIndex(self._own_manifest(ref)), counts, live)

    def _adopted_last(self) -> LastRound | None:
        """The same of the last round. Its outputs are those that it decided on, whatever we would decide today."""
        number = len(self.plan.rounds)
        completion = self.records.get(round_name(number))
        if completion is None:
            return None
        with _understood(number):
            counts, live = FoldCounts(**completion["counts"]), np.array(completion["live"], np.int64)
            masks = {ordinal: path for path, ordinals in completion["masks"] for ordinal in ordinals}
            outputs = follow(OutputDecision.from_json(completion["outputs"]), self.plan, live)
            return LastRound(ObjectRef(**completion["index_version"]), counts, outputs, masks)

    def _own_manifest(self, ref: ObjectRef) -> IndexManifest:
        """The manifest of a round's index, which this session wrote."""
        try:
            return read_manifest(self._store, ref)
        except (NotFoundError, CorruptionError) as error:
            raise self.conflict() or UnresumableError(str(error)) from error

    # Pointer assignment

    def _assign_pointers(
        self,
        outputs: OutputPlan,
        layout: Layout,
        folded: Sequence[FoldedBuckets],
        entries: Sequence[Any],
        died: Sequence[Any],
    ) -> tuple[list[tuple[str, list[int]]], list[Submitted]]:
        """Where the masks of each source group are, with its ordinals; and of each its ranks, in parcels."""
        groups, capacity = len(outputs.groups), self._executor.capacity
        if not groups:
            return [], []
        sources = Layout.of(groups, groups, capacity.node_slots)
        in_store = fits_exchange(outputs.rows_rewritten, capacity.object_store_bytes, self.plan.options.limits)
        exchange_path_of = (
            None if in_store else functools.partial(self._workspace.fresh, "index", ".exchange.arrow", self.id)
        )
        sent = [
            self._executor.submit(
                survivors,
                self._paced,
                each,
                held,
                dead,
                outputs.pointers.group_of,
                sources.parcel_starts,
                exchange_path_of,
                returns=sources.parcel_count,
                node=layout.parcel_of(each.group),
            )
            for each, held, dead in zip(folded, entries, died, strict=True)
        ]
        paths = [self._workspace.fresh("index", ".masks.arrow", self.id) for _ in outputs.groups]
        assigned = []
        for number, (group, path) in enumerate(zip(outputs.groups, paths, strict=True)):
            node = sources.parcel_of(number)
            told = [task.values[node] for task in sent]
            assigned.append(
                self._executor.submit(
                    assign,
                    self._paced,
                    number,
                    group,
                    path,
                    layout.parcels,
                    exchange_path_of,
                    *told,
                    returns=layout.parcel_count,
                    node=node,
                )
            )
            del told
        self._stages.wait("assign_pointers", [*sent, *assigned], outputs.rows_rewritten)
        masks = [(path, group.ordinals.tolist()) for group, path in zip(outputs.groups, paths, strict=True)]
        return masks, assigned

    def _submit_index(
        self,
        outputs: OutputPlan,
        layout: Layout,
        folded: Sequence[FoldedBuckets],
        entries: Sequence[Any],
        assigned: Sequence[Submitted],
    ) -> list[Submitted]:
        """Have the index written that will be published."""
        plan = self.plan
        expired: int | None = None
        if plan.tombstone_retention is not None:
            expired = plan.input.watermark - plan.tombstone_retention
            expired = expired if expired >= -INT64_MAX - 1 else None  # no position is as old
        path_of = functools.partial(self._workspace.fresh, "index", ".arrow", self.id)
        rows_per_file = plan.options.rows_per_primary_key_index_file
        writing = []
        for each, held in zip(folded, entries, strict=True):
            node = layout.parcel_of(each.group)
            ranks = [task.values[node] for task in assigned]
            task = IndexTask(each, outputs.pointers, rows_per_file, expired)
            writing.append(self._executor.submit(write_index, self._paced, task, path_of, held, *ranks, node=node))
        return writing

    def _index_written(
        self, tasks: Sequence[Submitted], outputs: OutputPlan, counts: FoldCounts, masks_of: Mapping[int, str]
    ) -> ObjectRef:
        """Wait for the index and write its manifest: one run, or those of the base and one more."""
        plan, base = self.plan, self.plan.base_manifest
        self._stages.wait("write_index", tasks, int(outputs.live.sum()), overlapping=True)
        results: list[IndexResult] = [self._executor.get(task.values[0]) for task in tasks]
        run = tuple(bucket for result in results for bucket in result.files)
        if base is not None and plan.changes_only:
            runs = (*base.runs, run) if any(run) else base.runs
            relocations = (*base.relocations, *_relocation(outputs, masks_of))
            manifest = IndexManifest(plan.encoding, runs, counts.live, counts.tombstones, relocations=relocations)
        else:
            rows, tombstones = sum(result.rows for result in results), sum(result.tombstones for result in results)
            if rows != counts.live:
                raise CorruptionError(f"the index has {rows} live rows, the files have {counts.live}")
            manifest = IndexManifest(plan.encoding, (run,), rows, tombstones)
        return write_manifest(self._store, self._workspace.fresh("index", ".manifest.json", self.id), manifest)

    # Materialize

    def _materialize(self, last: LastRound) -> tuple[DataFile, ...]:
        """Write the compacted files that no attempt has written yet; each is recorded as soon as it is there."""
        plan, outputs = self.plan, last.outputs
        missing = [each for each in outputs.outputs if self._resumed_output(each) is None]
        under_way, self._under_way = self._under_way, {}
        tasks = [under_way.get(each.number) or self._submit_output(each, outputs, last.masks) for each in missing]

        def record(place: int) -> None:
            schemas = SchemaTable()
            made: Materialized = self._executor.get(tasks[place].values[0])
            file = file_to_json(made.file, schemas)
            document = {"file": file, "schemas": schemas.encoded, "rows_copied": made.rows_copied}
            self.records.put(output_name(missing[place].number), document)

        self._stages.wait("materialize", tasks, sum(each.stop - each.first for each in missing), record)
        files = [replace(source.file, number=plan.number_of(source)) for source in outputs.kept]
        files += [replace(source.file, deletions=_deletions(source, last)) for source in outputs.marked]
        for each in outputs.outputs:
            recorded = self._recorded_output(each)
            if recorded is None:
                raise self._record_gone()
            files.append(recorded.file)
            self._stages.measured.rows_copied += recorded.rows_copied
        rows = sum(file.live_rows for file in files)
        if rows != last.counts.live:
            raise CorruptionError(f"{rows} rows were written or kept, {last.counts.live} live")
        return tuple(sorted(files, key=lambda file: file.number))

    def _resumed_output(self, output: Output) -> Materialized | None:
        """A compacted file that an earlier attempt wrote, once it was seen to be there."""
        recorded = self._recorded_output(output)
        if recorded is not None:
            self.records.check_there({recorded.file.path: recorded.file.bytes})
        return recorded

    def _recorded_output(self, output: Output) -> Materialized | None:
        document = self.records.get(output_name(output.number))
        if document is None:
            return None
        with _understood(len(self.plan.rounds)):
            file = file_from_json(document["file"], SchemaTable(document["schemas"]))
            return Materialized(file, document["rows_copied"])

    def _submit_output(self, output: Output, outputs: OutputPlan, masks_of: Mapping[int, str]) -> Submitted:
        plan = self.plan
        sources = []
        for source, rank in outputs.rewritten:
            low, high = max(output.first, rank), min(output.stop, rank + int(outputs.live[source.ordinal]))
            if low < high:
                sources.append(LiveRange(source.file, source.ordinal, low - rank, high - rank))
        masks = dict.fromkeys(masks_of[source.ordinal] for source in sources)
        options = plan.write_options
        task = MaterializeTask(
            output.number,
            output.stop - output.first,
            tuple(sources),
            tuple(masks),
            plan.schema,
            plan.input.partition,
            options,
            plan.options.limits,
        )
        path = self._workspace.fresh("data", suffix_of(options.content_type), self.id)
        return self._executor.submit(materialize, self._paced, task, path, spread=True)

    # The switch

    def _publish(self, last: LastRound, files: tuple[DataFile, ...]) -> Published:
        """Hand the result over to the table."""
        plan = self.plan
        number = max([plan.next_file_number, *(output.number + 1 for output in last.outputs.outputs)])
        result = Compaction(plan.keys, files, last.index, number, plan.schema)
        done = self._target.publish(plan.input, self.id, result)
        completion = self._completion(plan.rounds[-1], last.index)
        published = {"compacted_stream_version": done.version, "compacted_bytes": done.compacted.bytes}
        with contextlib.suppress(Exception):  # the version is in force: nothing depends on this record
            self.records.put(PUBLISHED, {**completion, **published})
        return Published(done.version, done.compacted, last.counts, last.outputs)

    def conflict(self) -> ConflictError | None:
        """Why this session cannot publish any more, if so."""
        try:
            self._still_ours()
        except ConflictError as conflict:
            return conflict
        return None

    def _still_ours(self) -> None:
        self._target.check(self.plan.input, self.id)

    # Inside

    def _base_index(self) -> BaseIndex:
        plan = self.plan
        manifest = plan.base_manifest
        if manifest is None:
            return BaseIndex(empty_manifest(plan.encoding, plan.hash_bucket_count))
        if plan.rehash and self.records.get(round_name(plan.rounds[0].number)) is None:
            began = time.perf_counter()
            path_of = functools.partial(self._workspace.fresh, "index", ".arrow", self.id)
            manifest = rehash(self._executor, self._paced, manifest, plan.hash_bucket_count, plan.options, path_of)
            self._stages.took("rehash", time.perf_counter() - began)
        return BaseIndex(manifest, plan.base_ordinals)

    def _record_gone(self) -> Exception:
        """What it means that a record which was just put is gone: a vacuum took it, after fencing the session off."""
        if conflict := self.conflict():
            return conflict
        return CorruptionError(f"session {self.id}: a record that was written has vanished")

    def _tell(self, kind: type[Event], *values: Any) -> None:
        self._emit(kind(self.plan.input.source_table_id, self.plan.input.partition, *values))


@contextlib.contextmanager
def _understood(number: int) -> Iterator[None]:
    """Turn what a record lacks or has too much into UnresumableError."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UnresumableError(f"what it recorded of round {number} cannot be read: {error!r}") from error


def _deletions(source: Source, last: LastRound) -> DeletionVector:
    """The mask that the session made of a file that stays."""
    dead_rows = source.file.rows - int(last.outputs.live[source.ordinal])
    return DeletionVector(dead_rows, last.masks[source.ordinal], source.ordinal)


def _relocation(outputs: OutputPlan, masks_of: Mapping[int, str]) -> tuple[Relocation, ...]:
    """Where the rows of rewritten base files go; they are the first that are ranked."""
    files = tuple(
        RelocatedFile(source.file.number, source.file.rows, masks_of[source.ordinal], source.ordinal)
        for source, _ in outputs.rewritten
        if source.in_base
    )
    pointers = outputs.pointers
    return (Relocation(files, pointers.first_output_number, pointers.rows_per_output),) if files else ()


@dataclass(frozen=True, slots=True)
class Folding:
    """Where a session stands after a round: its index, what became of the rows so far, live rows by ordinal.

    Before the first round the index is the base's, and `live` is None.
    """

    index: BaseIndex
    counts: FoldCounts
    live: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class LastRound:
    """All that is left to do is to materialize: the index is written. `masks`: by ordinal, where its mask is."""

    index: ObjectRef
    counts: FoldCounts
    outputs: OutputPlan
    masks: dict[int, str]


@dataclass(frozen=True, slots=True)
class Published:
    """What a session put into force."""

    version: str
    compacted: CompactedDelta
    counts: FoldCounts
    outputs: OutputPlan
