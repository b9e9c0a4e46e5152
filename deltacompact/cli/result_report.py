"""The reports of `compact`, `publish` and `vacuum`, as JSON values and as text.

day=1995-04-03: 1,000 rows in, 990 live, 8 superseded, 2 deleted by 2 delete rows
  …
Done: 12 partitions of 3,000 compacted, 2,988 with nothing to do; 300,000 rows in, 290,000 live, 10,000 dead; …
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deltacompact.base.printable import named
from deltacompact.base.wording import counted, error_document, one_line, size
from deltacompact.reports.decisions import decided_documents
from deltacompact.reports.scale import WORST, Detail, worst_lines
from deltacompact.reports.words import NOTHING_HELD
from deltacompact.results import CompactionResult, SessionResult, badness

if TYPE_CHECKING:
    from rich.console import Console

    from deltacompact.maintenance.vacuum.vacuum import VacuumResult
    from deltacompact.publication.publication import PublicationResult


def result_document(result: CompactionResult) -> dict[str, Any]:
    """The result as JSON values: each session's error as text, and the first error as the error of the document."""
    sessions = []
    for session in result.sessions:
        document = {f.name: getattr(session, f.name) for f in dataclasses.fields(session)}
        document["decisions"] = decided_documents(session.decisions)
        document["error"] = None if session.error is None else one_line(session.error)
        sessions.append(document)
    return {
        "source_table_id": result.source_table_id,
        "destination_table_id": result.destination_table_id,
        "sessions": sessions,
        **({"publication": publication_document(result.publication)} if result.publication else {}),
        **({"error": error_document(result.errors[0])} if result.errors else {}),
    }


def print_result(out: Console, result: CompactionResult, seconds: float, detail: Detail) -> None:
    """Print what was done with each partition, or with the worst of many. The last line sums it up."""
    sessions = result.sessions
    if not sessions:
        out.print(NOTHING_HELD)
        return
    worked = [session for session in sessions if session.nothing_to_do is None]
    if len(sessions) > 1:
        for line in result._total_lines():
            out.print(line)
    if detail.is_screenful(len(sessions)):
        _print_worst(out, worked, detail)
    else:
        shown = sessions if detail.verbose or len(sessions) <= WORST else worked
        for session in detail.chosen(shown, badness):
            _print_session(out, session, detail.files)
        for line in detail.rest(len(shown), "partition"):
            out.print(line)
    if result.publication is not None:
        out.print(str(result.publication))
    if worked:
        out.print(done_line(sessions, seconds))


def done_line(sessions: Sequence[SessionResult], seconds: float) -> str:
    """The last line of a run, which sums up all sessions. For one partition it has only the time."""
    if len(sessions) == 1:
        return f"{'Failed' if sessions[0].error else 'Done'}: {seconds:,.1f} s"
    failed = sum(session.error is not None for session in sessions)
    idle = sum(session.nothing_to_do is not None for session in sessions)
    done = [session for session in sessions if session.version is not None]
    parts = counted(len(done), "partition") + (f" of {len(sessions):,}" if len(done) < len(sessions) else "")
    others = (f", {idle:,} with nothing to do" if idle else "") + (f", {failed:,} failed" if failed else "")
    rows, live = sum(session.rows_in for session in done), sum(session.live for session in done)
    before, after = sum(session.files_before for session in done), sum(session.files_after for session in done)
    return (
        f"{'Done, with errors' if failed else 'Done'}: {parts} compacted{others}; {counted(rows, 'row')} in, "
        f"{live:,} live, {rows - live:,} dead; files {before:,} -> {after:,}; {seconds:,.1f} s"
    )


def _print_worst(out: Console, sessions: Sequence[SessionResult], detail: Detail) -> None:
    worst = detail.chosen(sessions, badness)
    for session in worst:
        if session.version is None:
            _print_session(out, session, False)
    head = ("seconds", "rows in", "live", "files", "bytes", "partition")
    rows = [
        (
            f"{sum(session.seconds.values()):,.1f}",
            f"{session.rows_in:,}",
            f"{session.live:,}",
            f"{session.files_before:,} -> {session.files_after:,}",
            size(session.bytes_out),
            named(session.partition),
        )
        for session in worst
        if session.version is not None
    ]
    for line in worst_lines(head, rows) if rows else ():
        out.print(line)
    for line in detail.rest(len(sessions), "partition"):
        out.print(line)


def _print_session(out: Console, session: SessionResult, files: bool) -> None:
    out.print(f"{named(session.partition)}: {session.outcome}", style="red" if session.error else "")
    for line in session._lines():
        out.print(line)
    for file in session.decisions if files else ():
        out.print(f"  {file.path}: {file.action.value} ({file.reason.words})")


def publication_document(result: PublicationResult) -> dict[str, Any]:
    """The changes of a run in the published table, as JSON values."""
    document = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    return document | {"error": None if result.error is None else one_line(result.error)}


def vacuumed_words(results: Sequence[VacuumResult]) -> str:
    """What a vacuum deleted in all partitions."""
    objects, kept = sum(len(result.deleted) for result in results), sum(result.kept for result in results)
    deleted = f"{results[0].verb} {counted(objects, 'object')} ({size(sum(result.bytes for result in results))})"
    return f"{deleted}, kept {kept:,}"


def print_vacuumed(out: Console, result: VacuumResult) -> None:
    """Print the deleted data files, and how many dead rows are left."""
    out.print(str(result))
    verb = result.verb
    for stat in result.deleted:
        if "/data/" in stat.path:
            out.print(f"  {verb} data {stat.path}  {size(stat.bytes)}", markup=False)
    for stats, of, why in (
        (result.waiting, "older versions", "too young"),
        (result.held, "older versions", "a bookmark or the published table needs them"),
        (result.retracted, "retracted deltas", "until the next compaction"),
    ):
        if stats:
            kept, total = counted(len(stats), "data file"), sum(stat.bytes for stat in stats)
            out.print(f"  {kept} of {of} kept ({size(total)}): {why}")
    if result.doubtful:
        doubtful, total = counted(len(result.doubtful), "object"), sum(stat.bytes for stat in result.doubtful)
        newer = "newer than the last log entry; vacuum after a commit"
        out.print(f"  {doubtful} that nothing names kept ({size(total)}): {newer}")
    if result.unfinished:
        out.print(f"  {verb} {counted(len(result.unfinished), 'write')} that was never finished")
    if result.dead_rows:
        dead = counted(result.dead_rows, "dead row")
        out.print(
            f"  {dead} still in files of the active version, under deletion vectors: compact --purge takes them out"
        )
