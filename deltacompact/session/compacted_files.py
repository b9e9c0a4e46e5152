"""The compacted files of a session: some stay, the others are written, and each is recorded once it is written.

file 14     keep      by reference
file 15     mark      by reference, with a deletion vector
output 17   recorded by an earlier attempt: sessions/<id>/output-0000000017.json
output 18   written now
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.base.errors import CorruptionError
from deltacompact.base.model import DataFile, DeletionVector
from deltacompact.planning.outputs import Output
from deltacompact.planning.plan import Source
from deltacompact.session.last_round import LastRound
from deltacompact.session.output_tasks import submit_output
from deltacompact.session.records import output_name, understood
from deltacompact.session.workbench import Workbench
from deltacompact.steps.materialize import Materialized
from deltacompact.table.documents import SchemaTable, file_from_json, file_to_json


def compacted_files(bench: Workbench, last: LastRound) -> tuple[DataFile, ...]:
    """Write the outputs that no attempt has written yet. Returns all files of the new version, by number."""
    _write_missing(bench, last)
    files = [*_staying(bench, last), *(made.file for made in _written(bench, last))]
    rows = sum(file.live_rows for file in files)
    if rows != last.counts.live:
        raise CorruptionError(f"the compacted files have {rows} rows, but {last.counts.live} rows live")
    return tuple(sorted(files, key=lambda file: file.number))


def _write_missing(bench: Workbench, last: LastRound) -> None:
    missing = [output for output in last.outputs.outputs if not _is_written(bench, output)]
    tasks = [
        last.under_way.get(output.number) or submit_output(bench, output, last.outputs, last.masks_of)
        for output in missing
    ]

    def record(number: int) -> None:
        made: Materialized = bench.executor.get(tasks[number].values[0])
        schemas = SchemaTable()
        file = file_to_json(made.file, schemas)
        document = {"file": file, "schemas": schemas.encoded, "rows_copied": made.rows_copied}
        bench.records.put(output_name(missing[number].number), document)

    bench.stages.wait("materialize", tasks, sum(output.rows for output in missing), record)


def _is_written(bench: Workbench, output: Output) -> bool:
    """Whether an earlier attempt wrote the file. Raises UnresumableError where that file is gone or cut short."""
    made = _recorded_output(bench, output)
    if made is not None:
        bench.records.check_there({made.file.path: made.file.bytes})
    return made is not None


def _written(bench: Workbench, last: LastRound) -> list[Materialized]:
    """The record of each output, ours or an earlier attempt's."""
    written = []
    for output in last.outputs.outputs:
        made = _recorded_output(bench, output)
        if made is None:
            raise bench.record_gone()
        bench.stages.measured.rows_copied += made.rows_copied
        written.append(made)
    return written


def _recorded_output(bench: Workbench, output: Output) -> Materialized | None:
    document = bench.records.get(output_name(output.number))
    if document is None:
        return None
    with understood(len(bench.plan.rounds)):
        file = file_from_json(document["file"], SchemaTable(document["schemas"]))
        return Materialized(file, document["rows_copied"])


def _staying(bench: Workbench, last: LastRound) -> list[DataFile]:
    """The files that are kept or marked."""
    kept = [replace(source.file, number=bench.plan.number_of(source)) for source in last.outputs.kept]
    return kept + [replace(source.file, deletions=_deletions(source, last)) for source in last.outputs.marked]


def _deletions(source: Source, last: LastRound) -> DeletionVector:
    """The deletion vector of a file that stays: the mask that this session wrote."""
    dead_rows = source.file.rows - int(last.outputs.live[source.ordinal])
    return DeletionVector(dead_rows, last.masks_of[source.ordinal], source.ordinal)
