"""The compacted files of a session: some stay, the others are written and recorded in batches.

    file 14            keep      by reference
    file 15            mark      by reference, with a deletion vector
    outputs 17, 19     recorded by an earlier attempt: sessions/<id>/outputs-00001.json
    outputs 18, 20     written now, recorded together: sessions/<id>/outputs-00002.json

A batch is recorded as soon as its files stand for some seconds of work, so large files are recorded one by one and
small ones together. A crash loses at most one batch and the tasks under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltacompact.base.data_file import DataFile, DeletionVector
from deltacompact.base.errors import CorruptionError
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.planning.plan import SourceFile
from deltacompact.session.arranged_outputs import check_certified, missing_outputs
from deltacompact.session.last_round import LastRound
from deltacompact.session.records import UnresumableError, outputs_name, understood
from deltacompact.session.workbench import Workbench
from deltacompact.session.written_ranges import ranges_of_sources
from deltacompact.steps.materialize import Materialized
from deltacompact.table.documents import SchemaTable, file_from_json, file_to_json

BATCH_TASK_S, BATCH_SLOTS = 5.0, 10
"""A batch has BATCH_TASK_S seconds of tasks' work for each BATCH_SLOTS slots, half a second of the cluster's time: with
a fixed number of seconds, ten thousand slots would record 2,000 batches a second, one after another."""


def compacted_files(bench: Workbench, last: LastRound) -> tuple[DataFile, ...]:
    """Write the outputs that no attempt has written yet. Returns all files of the new version, by number."""
    made = _written(bench, last)
    bench.stages.measured.rows_copied += sum(output.rows_copied for output in made)
    files = [*_staying(bench, last), *(output.file for output in made)]
    rows = sum(file.live_rows for file in files)
    if rows != last.counts.live:
        raise CorruptionError(f"the compacted files have {rows} rows, but {last.counts.live} rows live")
    return tuple(sorted(files, key=lambda file: file.number))


def _written(bench: Workbench, last: LastRound) -> list[Materialized]:
    """Each output of the session, recorded by an earlier attempt or written now.

    Raises CorruptionError where clustered rows do not add up, UnresumableError where an earlier attempt wrote some of
    them: whoever resumed the session would fail each time.
    """
    outputs, records = last.outputs.outputs, OutputRecords(bench)
    records.adopt()
    adopted = len(records.recorded)
    bench.records.check_there({output.file.path: output.file.bytes for output in records.recorded.values()})
    missing = [output for output in outputs if output.number not in records.recorded]
    tasks = last.under_way or missing_outputs(bench, missing, last.outputs, last.masks_of)

    def record(number: int, seconds: float) -> None:
        records.add(bench.executor.get(tasks[number].values[0]), seconds)

    bench.stages.wait("materialize", tasks, sum(output.rows for output in missing), record)
    records.put()
    made = [records.recorded[output.number] for output in outputs]
    try:
        check_certified(last.outputs.decision.arranged, [output.file.fingerprint for output in made])
    except CorruptionError as error:
        if adopted:
            raise UnresumableError(str(error)) from error
        raise
    return made


class OutputRecords:
    """The batches of a session's outputs. Attempts share them: the loser of a slot adopts the stored batch.

    For each output, the first record counts. Files for which another attempt's record counts are left to vacuum.
    """

    def __init__(self, bench: Workbench) -> None:
        self.recorded: dict[ChainFileNumber, Materialized] = {}
        self._bench = bench
        self._batches = 0
        self._waiting: dict[ChainFileNumber, Materialized] = {}
        self._waiting_s = 0.0
        self._batch_s = BATCH_TASK_S * max(1.0, bench.executor.capacity.slots / BATCH_SLOTS)

    def adopt(self) -> None:
        """Read the batches that earlier attempts recorded. Raises UnresumableError if one cannot be read."""
        while (document := self._bench.records.earlier(outputs_name(self._batches + 1))) is not None:
            self._adopt(document)

    def add(self, made: Sequence[Materialized], seconds: float) -> None:
        """Take the outputs that a task wrote in `seconds`; put the batch if it has enough work."""
        numbered = {ChainFileNumber(output.file.number): output for output in made}
        self._waiting |= {number: output for number, output in numbered.items() if number not in self.recorded}
        self._waiting_s += seconds
        if self._waiting_s >= self._batch_s:
            self.put()

    def put(self) -> None:
        """Record the waiting outputs, in the first free slot."""
        while self._waiting:
            batch = _batch(list(self._waiting.values()))
            stored = self._bench.records.put(outputs_name(self._batches + 1), batch)
            if stored is batch:
                self.recorded.update(self._waiting)
                self._batches += 1
            else:
                self._adopt(stored)
            self._waiting = {number: output for number, output in self._waiting.items() if number not in self.recorded}
        self._waiting_s = 0.0

    def _adopt(self, document: dict[str, Any]) -> None:
        with understood(len(self._bench.plan.rounds)):
            schemas = SchemaTable(document["schemas"])
            for output in document["outputs"]:
                made = Materialized(file_from_json(output["file"], schemas), output["rows_copied"])
                self.recorded.setdefault(ChainFileNumber(made.file.number), made)
        self._batches += 1


def _batch(outputs: list[Materialized]) -> dict[str, Any]:
    schemas = SchemaTable()
    rows = [{"file": file_to_json(output.file, schemas), "rows_copied": output.rows_copied} for output in outputs]
    return {"outputs": rows, "schemas": schemas.encoded}


def _staying(bench: Workbench, last: LastRound) -> list[DataFile]:
    """The files that are kept or marked."""
    new = [source for source in last.outputs.kept if not source.in_base]
    ranges = ranges_of_sources(bench, new) if bench.plan.clusters else {}
    kept = [bench.plan.as_compacted(source, ranges.get(source.ordinal, {})) for source in last.outputs.kept]
    return kept + [
        replace(source.file, deletions=_deletions(source, last), fingerprint=None) for source in last.outputs.marked
    ]


def _deletions(source: SourceFile, last: LastRound) -> DeletionVector:
    """The deletion vector of a file that stays: the mask that this session wrote."""
    dead_rows = source.file.rows - int(last.outputs.live[source.ordinal])
    return DeletionVector(dead_rows, last.masks_of[source.ordinal], source.ordinal)
