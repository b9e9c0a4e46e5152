"""JSON logs, one line each: time, level, message, and what the line is about.

    {"time": "2026-11-22T02:18:00.123Z", "level": "WARNING", "logger": "sessions", "job_run": "run-1",
     "message": "superseded: …"}

What a thread or process works on is bound once (`about(job_run="run-1")`) and is in each of its lines.
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
    """`about` is in each line."""

    def __init__(self, about: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._about = about or {}

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


def log_json(level: int = logging.INFO, **about: Any) -> None:
    """Log to stderr, as JSON, what this project says; `about` is in each line of this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(about))
    for name in ("sessions", "deltacompact"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


@contextlib.contextmanager
def about(**named: Any) -> Iterator[None]:
    """What lines in this block, of this thread, are about."""
    token = _about.set({**(_about.get() or {}), **named})
    try:
        yield
    finally:
        _about.reset(token)
