"""A compaction session: one partition stream, from its plan to the switch.

    plan       sessions/<id>/plan.json              base version, exact deltas, sizes: whoever comes later adopts it
    round 1    sessions/<id>/round-00001.json       position 80, index of ordinals …
    round 2    sessions/<id>/round-00002.json
    outputs    sessions/<id>/output-00014.json      one record for each compacted file
    index      sessions/<id>/index.json
    switch     a sealed entry in the base version's log
    published  sessions/<id>/published.json         the completion with size and version filled in

Every record is put if absent and a loser adopts the winner's, so a session that was killed anywhere is resumed, and two
live ones cannot publish a mix. Tasks write under names used once and delete nothing: running one twice is harmless.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact import hash_bucket as step1
from deltacompact.catalog.delta_stream import DeltaStreamCatalog
from deltacompact.catalog.entries import Compacted, Opened, SchemaTable, file_from_json, file_to_json
from deltacompact.catalog.paths import TablePaths
from deltacompact.catalog.state import StreamState
from deltacompact.dedupe import BaseIndex, DedupeResult, DedupeTask, FoldCounts, dedupe
from deltacompact.errors import ConflictError, CorruptionError, NotFoundError
from deltacompact.events import (
    Event,
    EventSink,
    RoundCompleted,
    SessionStarted,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from deltacompact.executors import Executor, Submitted
from deltacompact.files import suffix_of
from deltacompact.materialize import LiveRange, MaterializeTask, materialize
from deltacompact.model import FORMAT_VERSION, CompactedDelta, DataFile, ObjectRef
from deltacompact.plan import AdoptedSizes, CompactionPlan, OutputPlan, Round, fingerprint, plan_outputs
from deltacompact.pointers import IndexTask, assign, survivors, write_index
from deltacompact.primary_key_index import IndexManifest, empty_manifest, read_manifest, write_manifest
from deltacompact.rehash import rehash, spread
from deltacompact.sizing import bucket_groups


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """plan.json: what a session folds, and the sizes that depend on the machine that planned it."""

    source_version: str
    source_tail: int
    destination_version: str
    destination_tail: int
    hash_bucket_count: int
    round_ends: tuple[int, ...]
    what: dict[str, Any]

    @classmethod
    def of(cls, plan: CompactionPlan) -> SessionRecord:
        given, first = plan.input, len(plan.base_ordinals)
        return cls(
            given.source.version,
            given.source.tail,
            given.destination.version,
            given.destination.tail,
            plan.hash_bucket_count,
            tuple(each.stop - first for each in plan.rounds),
            json.loads(json.dumps(fingerprint(given, plan.keys, plan.arguments))),
        )

    @property
    def sizes(self) -> AdoptedSizes:
        return AdoptedSizes(self.hash_bucket_count, tuple(self.round_ends))


def session_id(plan: CompactionPlan) -> str:
    """The same for every attempt at the same work, so that attempts meet."""
    text = json.dumps(fingerprint(plan.input, plan.keys, plan.arguments), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(slots=True)
class Measured:
    """What a session took, collected as tasks end. Seconds by stage; memory in bytes."""

    seconds: dict[str, float] = field(default_factory=dict)
    task_seconds: float = 0.0
    scheduling_seconds: float = 0.0
    peak_task_bytes: int = 0


class Session:
    """Runs one CompactionPlan. `run` reads like the design."""

    def __init__(self, catalog: DeltaStreamCatalog, plan: CompactionPlan, executor: Executor, emit: EventSink) -> None:
        given = plan.input
        self.id = session_id(plan)
        self.plan = plan
        self.measured = Measured()
        self.rounds_resumed = 0
        self._catalog = catalog
        self._store = catalog.store
        self._executor = executor
        self._emit = emit
        self._paths = TablePaths.of(given.destination_table_id).stream(given.partition)
        self._log = catalog.log(given.destination_table_id, given.partition)

    # The driver

    def run(self) -> Published:
        """Fold every round, materialize once, publish. Raises ConflictError where somebody else sealed the base."""
        plan = self.plan
        self._emit(self._event(SessionStarted, self.id, len(plan.rounds), plan.input.delta_rows, plan.input.why))
        folded = Folding(self._base_index(), FoldCounts(), self._base_live())
        for each in plan.rounds:
            self._still_ours()
            folded = self._adopted_round(each) or self._round(each, folded)
            self._emit(self._event(RoundCompleted, each.number, len(plan.rounds), folded.counts.live))
        outputs = plan_outputs(plan, folded.live)
        index, files = self._materialize(outputs, folded.index.manifest)
        return self._publish(folded.counts, outputs, index, files)

    # One round

    def _round(self, each: Round, before: Folding) -> Folding:
        plan, slots = self.plan, self._executor.capacity.slots
        work = step1.slices(
            [
                step1.SourceSlice(s.file, s.ordinal, s.operation, (0, s.file.rows))
                for s in plan.sources[each.first : each.stop]
            ],
            plan.task_rows,
        )
        rows = sum(source.file.rows for source in plan.sources[each.first : each.stop])
        count = bucket_groups(plan.hash_bucket_count, rows, plan.encoding.entry_bytes, len(work), slots)
        starts = spread(plan.hash_bucket_count, count)
        hashed = [
            self._executor.submit(
                step1.hash_bucket,
                self._store,
                plan.encoding,
                plan.input.partition,
                piece,
                plan.hash_bucket_count,
                starts,
                returns=count,
                spread=True,
            )
            for piece in work
        ]
        self._wait("hash_bucket", hashed, rows)
        path_of = functools.partial(self._paths.fresh, "index", ".arrow", self.id)
        deduped = [
            self._executor.submit(
                dedupe,
                self._store,
                DedupeTask(
                    plan.encoding,
                    range(starts[group], starts[group + 1]),
                    before.index,
                    plan.positions,
                    plan.tombstone_retention,
                    plan.arguments.rows_per_primary_key_index_file,
                ),
                path_of,
                *(task.values[group] for task in hashed),
            )
            for group in range(count)
        ]
        del hashed
        self._wait("dedupe", deduped, rows)
        results: list[DedupeResult] = [self._executor.get(task.values[0]) for task in deduped]
        return self._complete_round(each, before, results)

    def _complete_round(self, each: Round, before: Folding, results: Sequence[DedupeResult]) -> Folding:
        """Write the round's index manifest and completion file; adopt what another attempt wrote first."""
        of_round = sum((result.counts for result in results), FoldCounts())
        counts = FoldCounts(
            before.counts.upserts + of_round.upserts,
            before.counts.deletes + of_round.deletes,
            before.counts.superseded + of_round.superseded,
            before.counts.deleted + of_round.deleted,
            of_round.live,
            of_round.tombstones,
        )
        live = np.sum([result.live for result in results], axis=0)
        if int(live.sum()) != counts.live:
            raise CorruptionError(f"round {each.number}: {int(live.sum())} rows live by file, {counts.live} by key")
        buckets = tuple(files for result in results for files in result.files)
        manifest = IndexManifest(self.plan.encoding, buckets, counts.live, counts.tombstones, publishable=False)
        ref = write_manifest(self._store, self._paths.fresh("index", ".manifest.json", self.id), manifest)
        completion = {
            "format": FORMAT_VERSION,
            "source_table_id": self.plan.input.source_table_id,
            "partition": dict(self.plan.input.partition.values),
            "source_stream_version": self.plan.input.source.version,
            "source_stream_position_processed": each.position,
            "source_file_number_processed": each.file_number,
            "hash_bucket_count": self.plan.hash_bucket_count,
            "compacted_table_id": self.plan.input.destination_table_id,
            "compacted_stream_version": None,
            "compacted_bytes": None,
            "index_version": asdict(ref),
            "counts": asdict(counts),
            "live": live.tolist(),
        }
        self._record(self._round_name(each), completion)
        adopted = self._adopted_round(each)
        assert adopted is not None
        self.rounds_resumed -= 1
        return adopted

    def _adopted_round(self, each: Round) -> Folding | None:
        """What an earlier attempt at this session completed."""
        completion = self._recorded(self._round_name(each))
        if completion is None:
            return None
        self.rounds_resumed += 1
        manifest = read_manifest(self._store, ObjectRef(**completion["index_version"]))
        return Folding(BaseIndex(manifest), FoldCounts(**completion["counts"]), np.array(completion["live"], np.int64))

    @staticmethod
    def _round_name(each: Round) -> str:
        return f"round-{each.number:05d}.json"

    # Materialize

    def _materialize(self, outputs: OutputPlan, manifest: IndexManifest) -> tuple[ObjectRef, tuple[DataFile, ...]]:
        """Assign pointers; then data files and the index are written side by side."""
        count = min(manifest.hash_bucket_count, max(2 * self._executor.capacity.slots, len(outputs.groups)))
        starts = spread(manifest.hash_bucket_count, count)
        buckets = [range(starts[place], starts[place + 1]) for place in range(count)]
        masks, ranks = self._assign_pointers(outputs, manifest, buckets)

        done = {output.number: self._recorded(f"output-{output.number:010d}.json") for output in outputs.outputs}
        missing = [output for output in outputs.outputs if done[output.number] is None]
        writing = [self._submit_output(output, outputs, masks) for output in missing]
        index_known = self._recorded("index.json")
        places = [] if index_known else range(count)
        indexing = [self._submit_index(place, buckets, outputs, manifest, ranks) for place in places]
        del masks, ranks
        self._wait("materialize", [*writing, *indexing], outputs.rows_rewritten)

        for output, task in zip(missing, writing, strict=True):
            schemas = SchemaTable()
            file = file_to_json(self._executor.get(task.values[0]), schemas)
            self._record(f"output-{output.number:010d}.json", {"file": file, "schemas": schemas.encoded})
        files = [source.file for source in outputs.kept]
        for output in outputs.outputs:
            document = self._recorded(f"output-{output.number:010d}.json")
            assert document is not None
            files.append(file_from_json(document["file"], SchemaTable(document["schemas"])))
        if index_known is None:
            index_known = self._record_index(manifest, [self._executor.get(task.values[0]) for task in indexing], files)
        return ObjectRef(**index_known), tuple(files)

    def _assign_pointers(
        self, outputs: OutputPlan, manifest: IndexManifest, buckets: Sequence[range]
    ) -> tuple[list[Any], list[list[Any]]]:
        """Handles of the masks of each source group, and of the ranks of each bucket group by source group."""
        groups = len(outputs.groups)
        if not groups:
            return [], [[] for _ in buckets]
        sent = [
            self._executor.submit(
                survivors, self._store, manifest, each, outputs.pointers.group_of, groups, returns=groups
            )
            for each in buckets
        ]
        assigned = [
            self._executor.submit(assign, group, *(task.values[place] for task in sent), returns=1 + len(buckets))
            for place, group in enumerate(outputs.groups)
        ]
        self._wait("assign_pointers", [*sent, *assigned], outputs.rows_rewritten)
        masks = [task.values[0] for task in assigned]
        ranks = [[task.values[1 + place] for task in assigned] for place in range(len(buckets))]
        return masks, ranks

    def _submit_output(self, output: Any, outputs: OutputPlan, masks: Sequence[Any]) -> Submitted:
        plan = self.plan
        sources, needed = [], set()
        for source, rank in outputs.rewritten:
            low, high = max(output.first, rank), min(output.stop, rank + int(outputs.live[source.ordinal]))
            if low < high:
                sources.append(LiveRange(source.file, source.ordinal, low - rank, high - rank))
                needed.add(int(outputs.pointers.group_of[source.ordinal]))
        rows = output.stop - output.first
        options = plan.arguments.write_options
        task = MaterializeTask(output.number, rows, tuple(sources), plan.schema, plan.input.partition, options)
        path = self._paths.fresh("data", suffix_of(options.content_type), self.id)
        chosen = [masks[group] for group in sorted(needed)]
        return self._executor.submit(materialize, self._store, task, path, *chosen, spread=True)

    def _submit_index(
        self,
        place: int,
        buckets: Sequence[range],
        outputs: OutputPlan,
        manifest: IndexManifest,
        ranks: Sequence[Sequence[Any]],
    ) -> Submitted:
        plan = self.plan
        retention = plan.tombstone_retention
        task = IndexTask(
            manifest,
            buckets[place],
            outputs.pointers,
            plan.arguments.rows_per_primary_key_index_file,
            None if retention is None else plan.input.watermark - retention,
        )
        path_of = functools.partial(self._paths.fresh, "index", ".arrow", self.id)
        return self._executor.submit(write_index, self._store, task, path_of, *ranks[place])

    def _record_index(
        self, manifest: IndexManifest, results: Sequence[Any], files: Sequence[DataFile]
    ) -> dict[str, Any]:
        rows = sum(result.rows for result in results)
        if rows != sum(file.rows for file in files):
            raise CorruptionError(f"the index has {rows} live rows, the compacted files {sum(f.rows for f in files)}")
        buckets = tuple(bucket for result in results for bucket in result.files)
        tombstones = sum(result.tombstones for result in results)
        published = IndexManifest(manifest.encoding, buckets, rows, tombstones)
        ref = write_manifest(self._store, self._paths.fresh("index", ".manifest.json", self.id), published)
        return self._record("index.json", asdict(ref))

    # The switch

    def _publish(
        self, counts: FoldCounts, outputs: OutputPlan, index: ObjectRef, files: tuple[DataFile, ...]
    ) -> Published:
        """Write the successor in full, then seal the base in its favour."""
        plan, given = self.plan, self.plan.input
        base = given.destination
        number = max([plan.next_file_number, *(output.number + 1 for output in outputs.outputs)])
        compacted = CompactedDelta(
            files, index, given.watermark, number, given.source_table_id, given.source.lineage, self.id, plan.schema
        )
        now_ms = int(self._catalog.clock() * 1000)
        last_position = given.watermark if base.last_position is None else max(base.last_position, given.watermark)
        opened = Opened(
            base.opened.number + 1, base.version, base.lineage, base.tokens.unexpired(now_ms), last_position, now_ms
        )
        self._still_ours()
        successor = self._log.write_version(opened.number, [opened, Compacted(compacted)], self.id)
        state = self._log.release(base, successor, self._check_base, now_ms, self.id)
        completion = {
            "format": FORMAT_VERSION,
            "source_stream_position_processed": given.watermark,
            "hash_bucket_count": plan.hash_bucket_count,
            "compacted_table_id": given.destination_table_id,
            "compacted_stream_version": state.version,
            "compacted_bytes": compacted.bytes,
            "index_version": asdict(index),
        }
        self._record("published.json", completion)
        return Published(state.version, compacted, counts, outputs)

    def _still_ours(self) -> None:
        self._check_base(self._log.state(self.plan.input.destination.version))

    def _check_base(self, state: StreamState) -> None:
        given = self.plan.input
        where = f"table {given.destination_table_id!r}, partition {given.partition}"
        if state.sealed:
            raise ConflictError(f"{where}: another compaction or restatement came first ({state.sealed.successor})")
        if self.id in state.fences:
            raise ConflictError(f"{where}: a vacuum fenced off session {self.id}; start it again")
        if given.source_table_id != given.destination_table_id and len(state.commits) > len(given.destination.commits):
            raise ConflictError(f"{where}: deltas were appended to a destination table")

    # Inside

    def adopt_record(self) -> SessionRecord:
        """Put this plan's record, or get that of the attempt which came first."""
        document = self._record("plan.json", asdict(SessionRecord.of(self.plan)))
        return SessionRecord(**{**document, "round_ends": tuple(document["round_ends"])})

    def _base_index(self) -> BaseIndex:
        plan = self.plan
        manifest = plan.base_manifest
        if manifest is None:
            return BaseIndex(empty_manifest(plan.encoding, plan.hash_bucket_count))
        if plan.rehash and self._recorded("round-00001.json") is None:
            began = time.perf_counter()
            path_of = functools.partial(self._paths.fresh, "index", ".arrow", self.id)
            rows_per_file = plan.arguments.rows_per_primary_key_index_file
            manifest = rehash(self._executor, self._store, manifest, plan.hash_bucket_count, rows_per_file, path_of)
            self.measured.seconds["rehash"] = time.perf_counter() - began
        return BaseIndex(manifest, plan.base_ordinals)

    def _base_live(self) -> npt.NDArray[np.int64]:
        return np.array([s.file.rows if s.in_base else 0 for s in self.plan.sources], np.int64)

    def _wait(self, stage: str, tasks: Sequence[Submitted], rows: int) -> None:
        """Wait for a stage, tell how it goes, and measure it."""
        began = time.perf_counter()
        self._emit(self._event(StageStarted, stage, len(tasks), rows))
        done, longest, total = 0, 0.0, 0.0
        for count, (_, stats) in enumerate(self._executor.finish(tasks), 1):
            upto = rows * count // max(1, len(tasks))
            self._emit(self._event(TaskFinished, stage, upto - done))
            done = upto
            longest, total = max(longest, stats.seconds), total + stats.seconds
            self.measured.peak_task_bytes = max(self.measured.peak_task_bytes, stats.peak_bytes)
        seconds = time.perf_counter() - began
        self.measured.seconds[stage] = self.measured.seconds.get(stage, 0.0) + seconds
        self.measured.task_seconds += total
        self.measured.scheduling_seconds += max(0.0, seconds - max(longest, total / self._executor.capacity.slots))
        self._emit(self._event(StageFinished, stage, seconds))

    def _record(self, name: str, document: dict[str, Any]) -> dict[str, Any]:
        """Put a record if absent; whichever is there afterwards is the one that counts."""
        data = json.dumps(document, separators=(",", ":")).encode()
        path = self._paths.session(self.id) + name
        winner = data if self._store.put_if_absent(path, data) else self._store.get(path)
        return dict(json.loads(winner))

    def _recorded(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self._store.get(self._paths.session(self.id) + name)))
        except NotFoundError:
            return None

    def _event(self, kind: type[Event], *values: Any) -> Event:
        return kind(self.plan.input.source_table_id, self.plan.input.partition, *values)


@dataclass(frozen=True, slots=True)
class Folding:
    """Where a session stands after a round: its index, what became of the rows, and the live rows by ordinal."""

    index: BaseIndex
    counts: FoldCounts
    live: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Published:
    """What a session put into force."""

    version: str
    compacted: CompactedDelta
    counts: FoldCounts
    outputs: OutputPlan
