"""JSON logs, one object a line: time, level, message, and the job run or session that the line is about.

    {"time": "2026-11-22T02:18:00.123Z", "level": "WARNING", "logger": "sessions", "job_run": "run-1",
     "message": "superseded: …"}

A thread or process says once what it works on (`about(job_run="run-1")`); then each of its lines has it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_about: ContextVar[dict[str, Any] | None] = ContextVar("about", default=None)


class JsonLines(logging.Formatter):
    """Formats log records as JSON. Each line has the fields of `about`."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            **self._about,
            **(_about.get() or {}),
            "message": " ".join(record.getMessage().split()),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_json(**about: Any) -> None:
    """Log this project's messages to stderr, as JSON. Each line of this process has the fields of `about`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(about))
    for name in ("sessions", "deltacompact"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False


@contextlib.contextmanager
def about(**named: Any) -> Iterator[None]:
    """Add these fields to the lines that this thread logs in the block."""
    token = _about.set({**(_about.get() or {}), **named})
    try:
        yield
    finally:
        _about.reset(token)
