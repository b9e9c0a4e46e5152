"""Compactions and upkeep as OpenLineage events, for whoever draws where data come from: Marquez, DataHub, OpenMetadata.

    SessionStarted, ModeStarted,      START       one run for each partition, or for each call on an Iceberg table;
    UpkeepStarted                                 the version or snapshot that it began with is the input's version
    GroupsCommitted                   RUNNING     the snapshot so far, and Iceberg's report of its commit
    SessionFinished, ModeFinished,    COMPLETE    the table with its new version, and its live rows
    UpkeepFinished                    FAIL        the error's class and the files and columns that it names, no values

    s3://lake/tables, orders          dataset     namespace s3://lake, name tables/orders
    iceberg://prod, db.orders                     namespace iceberg://prod, name db.orders

The environment says where events go, as for every integration of OpenLineage: OPENLINEAGE_URL, OPENLINEAGE_CONFIG,
OPENLINEAGE__TRANSPORT__TYPE.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltacompact.base.events import (
    Event,
    EventSink,
    GroupsCommitted,
    ModeFinished,
    ModeStarted,
    SessionFinished,
    SessionStarted,
    UpkeepFinished,
    UpkeepStarted,
    logger,
)
from deltacompact.base.missing import importing
from deltacompact.base.model import Partition
from deltacompact.base.wording import one_line
from deltacompact.sinks import iceberg_commit_report
from deltacompact.storage.opening import uri_parts

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.facet_v2 import OutputDatasetFacet

JOBS = "deltacompact"
"""The namespace of jobs, unless OPENLINEAGE_NAMESPACE says another one."""
_JOB_TYPES = {"compact": "COMPACTION", "vacuum": "VACUUM", "maintain": "MAINTENANCE"}
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
"""What the names of such variables begin with."""


def lineage_sinks(catalog_uri: str) -> list[EventSink]:
    """The sink of work in this catalog; none where the environment does not ask for events."""
    if not any(value and name.startswith(_VARIABLES) for name, value in os.environ.items()):
        return []
    try:
        return [Lineage(catalog_uri, _client())]
    except Exception as error:
        logger.warning("no OpenLineage events: %s", one_line(error))
        return []


@dataclass(frozen=True, slots=True)
class _LineageRun:
    run_id: str
    work: str
    version: str | None


class Lineage:
    """An event sink. `emit` takes OpenLineage's events; once it failed, it is asked no more: a try takes seconds."""

    def __init__(self, catalog_uri: str, emit: Callable[[RunEvent], Any]) -> None:
        self._catalog_uri = catalog_uri
        self._emit = emit
        self._gone = False
        self._runs: dict[tuple[str, Partition], _LineageRun] = {}
        self._snapshots: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        if self._gone:
            return
        try:
            self._tell(event)
        except Exception as error:
            self._gone = True
            logger.warning("no more OpenLineage events of this work: %s", one_line(error))

    def _tell(self, event: Event) -> None:
        match event:
            case SessionStarted():
                self._begin(event, "compact", event.base_version)
            case ModeStarted():
                self._begin(event, "compact", None if event.snapshot_id is None else str(event.snapshot_id))
            case UpkeepStarted():
                self._begin(event, event.work, event.version)
            case GroupsCommitted():
                if (event.table_id, event.partition) not in self._runs:  # a dead session's groups come before a plan
                    self._begin(event, "compact", None)
                self._snapshots[event.table_id] = event.snapshot_id
                report = {iceberg_commit_report.NAME: _commit_report(event)}
                self._say("RUNNING", event, version=str(event.snapshot_id), reports=report)
            case ModeFinished():
                snapshot = self._snapshots.pop(event.table_id, None)
                self._end(event, event.error and "the mode failed", str(snapshot) if snapshot else None, None)
            case SessionFinished():
                self._end(event, event.error and (event.error_named or "the session failed"), event.version, event.live)
            case UpkeepFinished():
                self._end(event, event.error, event.version, None)

    def _begin(self, event: Event, work: str, version: str | None) -> None:
        """The first event of a run. A mode that plans anew goes on with its own."""
        with importing("openlineage"):
            from openlineage.client.uuid import generate_new_uuid
        key = event.table_id, event.partition
        self._runs[key] = self._runs.get(key) or _LineageRun(str(generate_new_uuid()), work, version)
        self._say("START", event)

    def _end(self, event: Event, error: str | None, version: str | None, rows: int | None) -> None:
        """The last event of a run. A call that had nothing to do has begun none."""
        if (event.table_id, event.partition) in self._runs:
            self._say("FAIL" if error else "COMPLETE", event, error, version, rows)
            del self._runs[event.table_id, event.partition]

    def _say(
        self,
        state: str,
        event: Event,
        error: str | None = None,
        version: str | None = None,
        rows: int | None = None,
        reports: Mapping[str, OutputDatasetFacet] = MappingProxyType({}),
    ) -> None:
        from deltacompact import __version__  # loads the kernels

        with importing("openlineage"):
            from openlineage.client import event_v2 as lineage
            from openlineage.client import facet_v2 as facets
        run = self._runs[event.table_id, event.partition]
        failure: dict[str, Any] = {}
        counts: dict[str, Any] = dict(reports)
        versioned = facets.dataset_version_dataset.DatasetVersionDatasetFacet
        before: dict[str, Any] = {"version": versioned(run.version)} if run.version else {}
        after: dict[str, Any] = {"version": versioned(version)} if version else {}
        if error:
            failure["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(error, "Python")
        if rows is not None and not error:
            statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
            counts["outputStatistics"] = statistics(rows)
        name = dataset_name(self._catalog_uri, event.table_id)
        kind = facets.job_type_job.JobTypeJobFacet("BATCH", "DELTACOMPACT", _JOB_TYPES[run.work])
        partition = f".{event.partition}" if event.partition.values else ""
        self._emit(
            lineage.RunEvent(
                eventType=lineage.RunState[state],
                eventTime=datetime.now(UTC).isoformat(),
                run=lineage.Run(run.run_id, failure),
                job=lineage.Job(
                    os.environ.get("OPENLINEAGE_NAMESPACE") or JOBS,
                    f"{run.work}.{event.table_id}{partition}",
                    {"jobType": kind},
                ),
                producer=f"https://pypi.org/project/deltacompact/{__version__}",
                inputs=[lineage.InputDataset(*name, facets=before)],
                outputs=[lineage.OutputDataset(*name, counts, facets=after)],
            )
        )


def dataset_name(catalog_uri: str, table_id: str) -> tuple[str, str]:
    """Namespace and name of a table, as OpenLineage names datasets: the store, and the path in it."""
    parts = uri_parts(catalog_uri)
    if parts.scheme == "iceberg":
        return catalog_uri.rstrip("/"), table_id
    path = f"{unquote(parts.path).rstrip('/')}/{table_id}"
    return ("file", path) if parts.scheme in ("", "file") else (f"{parts.scheme}://{parts.netloc}", path.lstrip("/"))


def _commit_report(event: GroupsCommitted) -> OutputDatasetFacet:
    """The facet of a commit. openlineage-python has the class of it only inside its Spark listener."""
    with importing("openlineage"):
        import attr
        from openlineage.client.facet_v2 import OutputDatasetFacet

    @attr.define
    class IcebergCommitReportOutputDatasetFacet(OutputDatasetFacet):
        snapshotId: int = 0
        sequenceNumber: int = 0
        operation: str = ""
        commitMetrics: dict[str, int] = attr.field(factory=dict)

        @staticmethod
        def _get_schema() -> str:
            return iceberg_commit_report.SCHEMA_URL

    metrics = iceberg_commit_report.commit_metrics(event.summary, event.attempts)
    operation = event.summary.get("operation", "")
    return IcebergCommitReportOutputDatasetFacet(event.snapshot_id, event.sequence_number, operation, metrics)


def _client() -> Callable[[RunEvent], Any]:
    with importing("openlineage"):
        from openlineage.client import OpenLineageClient
    client: Callable[[RunEvent], Any] = OpenLineageClient().emit
    return client
