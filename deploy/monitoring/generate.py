"""Writes what watches a deployment: python deploy/monitoring/generate.py

    alerts.yaml             rules for Prometheus                        promtool check rules alerts.yaml
    prometheus-rule.yaml    the same for Prometheus's operator          part of deploy/kubernetes/monitored
    dashboard.json          for Grafana 11 and newer                    import it, or let the sidecar find it

All dispatchers of a state tell the same numbers, and so do all watchers, so each expression takes the highest of them,
never their sum. A restarted dispatcher counts only the latest 1,000 ended job runs, and `increase` takes all of these
for new ones where it counted more before: alerts go by times, by `delta`, or by how one counter grows beside another. A
test holds every name in an expression against what their `/metrics` serve.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
BY_HAND = "made by deploy/monitoring/generate.py: change it there"
WIDTH, HEIGHT = 8, 7
"""Of a panel, in Grafana's grid of 24 columns."""


@dataclass(frozen=True, slots=True)
class Alert:
    """`lasts`: for so long the expression has to hold."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    expressions: tuple[tuple[str, str], ...]
    """Each with the legend of its series."""
    unit: str = "short"


_OF_TABLES = "max by (catalog, table, branch) (deltacompact_table"
"""Every watcher of a state tells the same of a table."""

ALERTS = (
    Alert(
        "DeltacompactNoDispatcher",
        "max(deltacompact_dispatchers) < 1 or absent(deltacompact_dispatchers)",
        "5m",
        "critical",
        "No dispatcher is at work: job runs wait",
        "Start one; what was accepted goes on by itself",
    ),
    Alert(
        "DeltacompactDispatcherLost",
        "max(deltacompact_dispatchers_lost) > 0",
        "5m",
        "warning",
        "A dispatcher of the last day fell silent without ending",
        "Others have taken over: look why its node or process died",
    ),
    Alert(
        "DeltacompactQueueWaits",
        "max(deltacompact_queue_oldest_message_age_seconds) > 900",
        "5m",
        "warning",
        "A document has waited for 15 minutes, and no dispatcher has accepted it",
        "Look at the dispatchers' logs: the queue, the state's store or credentials do not answer",
    ),
    Alert(
        "DeltacompactNoSuccess",
        "time() - max(deltacompact_last_success_timestamp_seconds) > 86400 "
        "and time() - max(deltacompact_last_failure_timestamp_seconds) < 86400",
        "15m",
        "critical",
        "Job runs have failed for a day, and none ended well",
        "deltacompact-sessions status names the errors; mend the cause, then job-runs retry",
    ),
    Alert(
        "DeltacompactDeadLetters",
        "max(deltacompact_dead_letters) > 0",
        "0m",
        "warning",
        "Documents can never be served",
        "deltacompact-sessions dlq list says why; correct them and send them back with dlq redrive",
    ),
    Alert(
        "DeltacompactJobRunsFail",
        "time() - max(deltacompact_last_failure_timestamp_seconds) < 3600",
        "0m",
        "warning",
        "A job run has failed within the last hour",
        "deltacompact-sessions status says why; job-runs retry runs it again",
    ),
    Alert(
        "DeltacompactSlaAtRisk",
        "max by (job_run) (deltacompact_sla_slack_seconds) < 0",
        "2m",
        "warning",
        "Job run {{ $labels.job_run }} is expected to miss its desired SLA, or has missed it",
        "More CPUs (--max-sessions, --max-workers) or more hours; status --job-run says what it waits for",
    ),
    Alert(
        "DeltacompactTakeovers",
        "max(delta(deltacompact_takeovers_total[1h])) > 3",
        "0m",
        "warning",
        "Dispatchers take job runs over from each other again and again",
        "They are suspended or starved: give them CPU, or a longer --lease",
    ),
    Alert(
        "DeltacompactSessionsTriedAgain",
        "max(increase(deltacompact_session_attempts_total[6h])) "
        "> 5 + 2 * max(sum without (failed) (increase(deltacompact_session_ends_total[6h])))",
        "30m",
        "warning",
        "Sessions need more than two tries each",
        "deltacompact-sessions status names the error of the last try",
    ),
    Alert(
        "DeltacompactUnreadableObjects",
        "max(deltacompact_unreadable_objects) > 0",
        "15m",
        "warning",
        "Damaged or foreign objects lie in the queue or the state",
        "deltacompact-sessions status names them; they cost no other job run anything",
    ),
    Alert(
        "DeltacompactBacklogWaits",
        "max by (catalog, table) (deltacompact_table_backlog_age_seconds) > 86400",
        "30m",
        "warning",
        "Deltas of {{ $labels.table }} have waited for a day",
        "deltacompact-sessions watch --once says why no policy submits it, or job-runs why none succeeds",
    ),
    Alert(
        "DeltacompactDeadRows",
        "max by (catalog, table, branch) (deltacompact_table_dead_rows) "
        "> 0.5 * max by (catalog, table, branch) (deltacompact_table_rows)",
        "360m",
        "warning",
        "More rows of {{ $labels.table }} are deleted than live",
        "Compact it with purge; an Iceberg table with rewrite, or a policy with dead_row_share",
    ),
    Alert(
        "DeltacompactDeleteFiles",
        "max by (catalog, table, branch) (deltacompact_table_delete_files) "
        "> 5 * max by (catalog, table, branch) (deltacompact_table_data_files)",
        "60m",
        "warning",
        "Readers of {{ $labels.table }} open five delete files for each data file",
        "Compact the branch with convert or rewrite, by a policy with delete_files",
    ),
    Alert(
        "DeltacompactSnapshots",
        "max by (catalog, table) (deltacompact_table_snapshots) > 10000",
        "60m",
        "warning",
        "{{ $labels.table }} has 10,000 snapshots, and its metadata is read and written at every commit",
        "deltacompact maintain expires snapshots",
    ),
    Alert(
        "DeltacompactTablesUnreadable",
        "min(deltacompact_tables_unreadable) > 0",
        "30m",
        "warning",
        "A watcher cannot look at some of its tables: nobody submits them",
        "deltacompact-sessions watch --once names them with the error",
    ),
    Alert(
        "DeltacompactWatcherStands",
        "min(deltacompact_watch_look_age_seconds) > 3600 or (absent_over_time(deltacompact_watch_look_age_seconds[1h]) "
        "and count(present_over_time(deltacompact_watch_look_age_seconds[1w])))",
        "0m",
        "warning",
        "No watcher has looked at its tables for an hour",
        "Look at its log: it cannot start, a store or catalog does not answer, or it looks more rarely (every)",
    ),
)

PANELS = (
    Panel("Job runs by state", (("max by (state) (deltacompact_job_runs)", "{{state}}"),)),
    Panel("Sessions by state", (("max by (state) (deltacompact_sessions)", "{{state}}"),)),
    Panel("Least slack of open job runs", (("min(deltacompact_sla_slack_seconds)", "slack"),), "s"),
    Panel(
        "Queue",
        (
            ("max by (state) (deltacompact_queue_messages)", "{{state}}"),
            ("max(deltacompact_dead_letters)", "dead letters"),
        ),
    ),
    Panel("Oldest message", (("max(deltacompact_queue_oldest_message_age_seconds)", "age"),), "s"),
    Panel(
        "Dispatchers",
        (("max(deltacompact_dispatchers)", "at work"), ("max(deltacompact_dispatchers_lost)", "lost in a day")),
    ),
    Panel(
        "Desired SLAs that were kept",
        (("max by (sla) (deltacompact_job_run_sla_kept_ratio)", "{{sla}}"),),
        "percentunit",
    ),
    Panel(
        "Job runs that ended, an hour",
        (("max by (failed) (increase(deltacompact_job_run_ends_total[1h]))", "failed: {{failed}}"),),
    ),
    Panel("Takeovers, an hour", (("max(increase(deltacompact_takeovers_total[1h]))", "takeovers"),)),
    Panel("Rows a second", (("max by (kind) (rate(deltacompact_session_rows_total[15m]))", "{{kind}}"),), "rowsps"),
    Panel(
        "Bytes a second",
        (("max by (direction) (rate(deltacompact_session_bytes_total[15m]))", "{{direction}}"),),
        "Bps",
    ),
    Panel("Seconds by stage", (("max by (stage) (rate(deltacompact_stage_seconds_total[15m]))", "{{stage}}"),), "s"),
    Panel("Oldest delta that waits", ((f"topk(10, {_OF_TABLES}_backlog_age_seconds))", "{{table}}"),), "s"),
    Panel("Deltas that wait", ((f"topk(10, {_OF_TABLES}_deltas))", "{{table}}"),)),
    Panel("Bytes since the last compaction", ((f"topk(10, {_OF_TABLES}_backlog_bytes))", "{{table}}"),), "bytes"),
    Panel(
        "Dead rows",
        ((f"topk(10, {_OF_TABLES}_dead_rows) / ({_OF_TABLES}_rows) > 0))", "{{table}} {{branch}}"),),
        "percentunit",
    ),
    Panel("Data files", ((f"topk(10, {_OF_TABLES}_data_files))", "{{table}} {{branch}}"),)),
    Panel(
        "Delete files for each data file",
        ((f"topk(10, {_OF_TABLES}_delete_files) / ({_OF_TABLES}_data_files) > 0))", "{{table}} {{branch}}"),),
    ),
    Panel("Snapshots", ((f"topk(10, {_OF_TABLES}_snapshots))", "{{table}}"),)),
    Panel("Orphans", ((f"topk(10, {_OF_TABLES}_orphan_bytes))", "{{table}}"),), "bytes"),
    Panel(
        "Since the last compaction",
        ((f"topk(10, time() - {_OF_TABLES}_last_compaction_timestamp_seconds))", "{{table}} {{branch}}"),),
        "s",
    ),
    Panel(
        "Watched tables",
        (("max(deltacompact_tables)", "tables"), ("max(deltacompact_tables_unreadable)", "unreadable")),
    ),
)


def rules() -> dict[str, Any]:
    """Prometheus's rules. The tests know the metrics; promtool reads the expressions where everything is tested."""
    return {
        "groups": [
            {
                "name": "deltacompact",
                "rules": [
                    {
                        "alert": alert.name,
                        "expr": alert.expression,
                        "for": alert.lasts,
                        "labels": {"severity": alert.severity},
                        "annotations": {"summary": alert.summary, "description": alert.remedy},
                    }
                    for alert in ALERTS
                ],
            }
        ]
    }


def prometheus_rule() -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "deltacompact"},
        "spec": rules(),
    }


def dashboard() -> dict[str, Any]:
    """Three panels a row. The data source is chosen above them."""
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "title": "deltacompact",
        "uid": "deltacompact",
        "description": BY_HAND,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"}]
        },
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {"x": number % 3 * WIDTH, "y": number // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
                "targets": [
                    {"refId": chr(ord("A") + place), "datasource": source, "expr": expression, "legendFormat": legend}
                    for place, (expression, legend) in enumerate(panel.expressions)
                ],
            }
            for number, panel in enumerate(PANELS)
        ],
    }


def files() -> dict[str, str]:
    """The text of each file."""

    def of_yaml(document: dict[str, Any]) -> str:
        return f"# {BY_HAND}\n" + yaml.safe_dump(document, sort_keys=False, width=120)

    return {
        "alerts.yaml": of_yaml(rules()),
        "prometheus-rule.yaml": of_yaml(prometheus_rule()),
        "dashboard.json": json.dumps(dashboard(), indent=1) + "\n",
    }


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).write_text(text)
