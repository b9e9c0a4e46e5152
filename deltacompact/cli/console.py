"""Printing: results go to stdout, progress and warnings to stderr.

A terminal that is not UTF-8 gets ASCII: "…" becomes "...", "é" becomes "\\xe9". No character raises an error.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deltacompact.base.printable import LINES, printable

if TYPE_CHECKING:
    from rich.console import Console

_SPELLED = {"…": "...", "→": "->", "·": "-", "–": "-", "—": "-", "−": "-", "×": "x", "‥": ".."}  # noqa: RUF001


def __getattr__(name: str) -> Console:
    """Make `out` and `err` at their first use: importing rich takes longer than --help may take."""
    if name not in ("out", "err"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = console = _console(stderr=name == "err")
    return console


def _console(stderr: bool) -> Console:
    """A console that prints names as they are, but no control characters in them."""
    from rich.console import Console

    class Printable(Console):
        def print(self, *objects: Any, **how: Any) -> None:
            super().print(*(printable(item, LINES) if isinstance(item, str) else item for item in objects), **how)

        def on_broken_pipe(self) -> None:
            """Raise the BrokenPipeError; rich would exit."""
            raise

    return Printable(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def open_closed_streams() -> None:
    """Open /dev/null in the place of standard streams that the caller has closed. Otherwise the next file of ours gets
    such a number, and what a child process prints is written into it."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(number, mode, closefd=False)))


def lose_what_stderr_does_not_take() -> None:
    """A closed pipe or a full disk behind stderr stops no command: what it says there is lost."""
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        encoding, errors = sys.stderr.encoding, sys.stderr.errors
        taken = io.BufferedWriter(
            _Lossy(2, "w", closefd=False)
        )  # it writes the rest, where a signal cuts a write short
        sys.stderr = io.TextIOWrapper(taken, encoding, errors, line_buffering=True)


class _Lossy(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)  # None: a reader that must not be waited for is late
        except OSError:
            return len(data)


def write_ascii_where_utf8_is_not_read() -> None:
    """Set stdout and stderr to ASCII if the locale or the stream's own encoding is not UTF-8."""
    codecs.register_error("spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (_c_locale() or not _is_utf8(stream.encoding)):
            stream.reconfigure(encoding="ascii", errors="spelled")


def writes_utf8() -> bool:
    return _is_utf8(getattr(sys.stdout, "encoding", None))


@contextlib.contextmanager
def warnings_on_stderr(debug: bool) -> Iterator[None]:
    """Print each warning of the package as one line; tracebacks only with --debug."""
    handler = _LogLines(debug)
    logger = logging.getLogger("deltacompact")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _LogLines(logging.Handler):
    """Prints log records. Without --debug it skips errors, because the command prints the error that ends it."""

    def __init__(self, debug: bool) -> None:
        super().__init__(logging.WARNING)
        self._debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and not self._debug:
            return
        print(printable(f"deltacompact: {record.getMessage()}", LINES), file=sys.stderr, flush=True)
        if self._debug and record.exc_info:
            print(printable(logging.Formatter().formatException(record.exc_info), LINES), file=sys.stderr)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    escaped = (_SPELLED.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in text)
    return "".join(escaped), error.end


def _c_locale() -> bool:
    """Whether the user asked for the C locale. Python then uses UTF-8 and sets LC_CTYPE to C.UTF-8."""
    if os.environ.get("PYTHONIOENCODING") or os.environ.get("PYTHONUTF8") == "1":
        return False
    names = ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get("LC_CTYPE") != "C.UTF-8" else ("LC_ALL", "LANG")
    return next((os.environ[name] for name in names if os.environ.get(name)), "") in ("C", "POSIX")


def _is_utf8(encoding: str | None) -> bool:
    return (encoding or "").lower().replace("-", "").replace("_", "") == "utf8"
