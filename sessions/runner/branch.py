"""Compacts one branch of an Iceberg table, under the name of an attempt.

    run-1/1/1    rewrites three groups, commits snapshot 8, is killed before it can record that
    run-1/1/2    plans the branch as it is now: nothing is left to do; snapshot 8 is the outcome of run-1
    run-1/1/1    was not killed but suspended, and wakes up: if run-1/1/2 has committed, it commits nothing; if
                 run-1/1/2 is still at work, it commits, and run-1/1/2 finds its files gone

A snapshot of one attempt stays when the next one commits: the rows of the branch are the same after each. The engine
reports little while it works, so a thread watches the lease.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from deltacompact import compact
from sessions.base.model import Outcome
from sessions.documents.instruction import Instruction
from sessions.planning.plan import settings_of
from sessions.runner.reporting import LeaseWatch, SessionReport, Superseded

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.iceberg.table.metadata import Snapshot

_LOG = logging.getLogger("sessions")
_LOOK_EVERY_S = 1.0


def compact_branch(
    catalog: IcebergCatalog, asked: Instruction, report: SessionReport, watch: LeaseWatch
) -> tuple[Outcome, str | None]:
    """(outcome of all attempts at this session, why there was nothing to do; None: there was something)."""
    session = report.session
    arguments: dict[str, Any] = {
        "delta_catalog_client": catalog,
        "mode": asked.chosen_mode,
        "options": asked.options,
        "branch": asked.branch,
        "settings": asked.engine_settings(**(settings_of(session.plan) if session.plan else {})),
        "attempt": session.attempt,
        "event_sinks": [report],
    }
    with terminated_if_superseded(watch):
        result = compact(asked.source_table_id, **arguments)
    for line in getattr(result, "refused", ()):
        _LOG.warning("left as it was: %s", line)
    committed = catalog.committed_by(asked.source_table_id, session.job_run_id)
    nothing_to_do = getattr(result, "nothing_to_do", None)
    return outcome_of(committed), None if committed else nothing_to_do


def outcome_of(snapshots: Sequence[Snapshot]) -> Outcome:
    """The outcome of snapshots, from their summaries, for every mode."""

    def counted(*keys: str) -> int:
        return sum(int(snapshot.summary.get(key, 0)) for snapshot in snapshots for key in keys)

    rows_in, live = counted("deleted-records"), counted("added-records")
    marked = counted("added-position-deletes") - counted("removed-position-deletes")
    return Outcome(
        seconds=0.0,
        rows_in=rows_in,
        live=live,
        deleted=max(0, rows_in - live) + max(0, marked),
        bytes_in=counted("removed-files-size"),
        bytes_out=counted("added-files-size"),
        snapshots=tuple(str(snapshot.snapshot_id) for snapshot in snapshots),
        files_in=counted("deleted-data-files"),
        files_out=counted("added-data-files"),
        delete_files_added=counted("added-delete-files"),
        delete_files_removed=counted("removed-delete-files"),
    )


@contextlib.contextmanager
def terminated_if_superseded(watch: Callable[[], None]) -> Iterator[None]:
    """Watch the lease in another thread. If it is lost, end this process with SIGTERM."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_EVERY_S):
            try:
                watch()
            except Superseded as why:
                _LOG.warning("superseded: %s", why)
                os.kill(os.getpid(), signal.SIGTERM)
                return

    thread = threading.Thread(target=look, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
