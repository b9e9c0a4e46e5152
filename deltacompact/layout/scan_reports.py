"""Parses scan reports, as engines post them to a REST catalog (`…/metrics`), into reads: pure.

    {"report-type": "scan-report", "table-name": "prod.db.orders", "filter": {"type": "lt-eq", "term": "day", …},
     "metrics": {"result-data-files": {"unit": "count", "value": 240}, "skipped-data-files": {…}}, …}

    {"at": 1795400000.0, "read": {"table": "orders", "columns": ["day"], "opened": 240, "skipped": 0, "rows": 812}}

The second line is our own record of a read (layout/reads.py). A report does not say when it was made. Its receiver may
add the time: {"at": 1795400000, "report": {…}}; otherwise it counts as made now. Literals are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from deltacompact.base.moments import zoned
from deltacompact.layout.reads import Read, read_from_document

_CHILDREN = ("child", "left", "right")


def read_of(document: Any, now_s: float) -> Read | None:
    """The read in a report or a record. None: the document is neither; it may be the report of a commit."""
    if not isinstance(document, Mapping):
        return None
    if "read" in document:
        return _recorded(document)
    report = document.get("report", document)
    if not isinstance(report, Mapping) or not isinstance(report.get("table-name"), str) or "filter" not in report:
        return None
    at_s = _moment_s(document.get("at"), now_s) if report is not document else now_s
    metrics = report.get("metrics")
    opened, skipped = (_count(metrics, name) for name in ("result-data-files", "skipped-data-files"))
    columns = tuple(dict.fromkeys(_columns(report["filter"])))
    return None if at_s is None else Read(report["table-name"], columns, opened, skipped, at_s)


def _recorded(document: Mapping[str, Any]) -> Read | None:
    try:
        return read_from_document(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _columns(filter_: Any) -> Iterator[str]:
    """The columns with a predicate, in the order of the filter.

    "not-null" is left out: it skips no file, and engines add it to every comparison and every join.
    """
    if not isinstance(filter_, Mapping) or filter_.get("type") == "not-null":
        return
    for name in _CHILDREN:
        yield from _columns(filter_.get(name))
    term = filter_.get("term")
    while isinstance(term, Mapping):  # a transform of a column, or a reference
        term = term.get("term")
    if isinstance(term, str):
        yield term


def _count(metrics: Any, name: str) -> int:
    value = metrics.get(name) if isinstance(metrics, Mapping) else None
    value = value.get("value") if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and value >= 0 else 0


def _moment_s(at: Any, now_s: float) -> float | None:
    """The moment of Unix seconds or an ISO 8601 text; `now_s` without any. None: it is neither."""
    if at is None:
        return now_s
    try:
        if isinstance(at, (int, float)) and not isinstance(at, bool):
            return float(at)
        return zoned(datetime.fromisoformat(str(at))).timestamp()
    except (ValueError, OverflowError):
        return None
