"""Reads the lines of a log that another program wrote, or still writes: plain, zstd or gzip, in one file or several.

    local-17.zstd                              a log of one file
    eventlog_v2_app-1/events_1_app-1.zstd      a rolled log: its files in the order of their numbers
                      events_2_app-1.zstd      still being written: it ends within a frame, and within a line
    spark-events/                              a folder of both

A damaged or incomplete log is read as far as possible.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted

READ_BYTES = 4 << 10
"""Bytes read at once: at most so many are lost if a compressed file ends within a frame."""
_ROLLED = re.compile(r"events_(?P<number>\d+)_.*")
_NO_LOG = re.compile(r"\..*|appstatus_.*")
_UNREADABLE = (".lz4", ".lzf", ".snappy")
_CODECS = {".zstd": "zstd", ".zst": "zstd", ".gz": "gzip"}


@dataclass(slots=True)
class LeftOut:
    """How many lines, and ends of files, could not be read."""

    lines: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """One line that says how many. Empty: none."""
        left = f"{counted(self.lines, 'line')} left out: cut short, damaged, or of an unknown shape"
        return (left,) if self.lines else ()

    def document(self, line: bytes) -> Any:
        """The JSON of a line. None: the line is empty, or is not JSON; then it is counted."""
        if not line.strip():
            return None
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            self.lines += 1
            return None


def logs_in(path: Path) -> Iterator[tuple[Path, ...]]:
    """The logs at a path: the files of each, in order. Raises InputError if the path does not exist."""
    if not path.exists():
        raise InputError(f"there is no log {path}")
    if path.is_file():
        yield (path,)
        return
    inside = sorted(file for file in path.iterdir() if not _NO_LOG.fullmatch(file.name))
    if rolled := sorted((int(found["number"]), file) for file in inside if (found := _ROLLED.fullmatch(file.name))):
        yield tuple(file for _, file in rolled)
        return
    for file in filter(Path.exists, inside):  # Spark may have removed or renamed one since
        yield from logs_in(file)


def name_of(log: tuple[Path, ...]) -> str:
    """The name of the application that wrote the log: the same for a log in one file or several, complete or not."""
    name = log[0].parent.name if _ROLLED.fullmatch(log[0].name) else log[0].name
    plain = functools.reduce(str.removesuffix, (".inprogress", *_CODECS), name)
    return plain.removeprefix("eventlog_v2_")


def lines_of(files: Iterable[Path], left_out: LeftOut) -> Iterator[bytes]:
    """The lines of these files, in order. Raises InputError for a compression that we cannot read."""
    for path in files:
        begun: list[bytes] = []
        for chunk in _chunks(path, left_out):
            end, *others = chunk.split(b"\n")
            begun.append(end)
            for next_ in others:
                yield b"".join(begun)
                begun = [next_]
        yield b"".join(begun)


def _chunks(path: Path, left_out: LeftOut) -> Iterator[bytes]:
    name = path.name.removesuffix(".inprogress").removesuffix(".compact")
    if name.endswith(_UNREADABLE):
        raise InputError(f"log {path} is compressed by {path.suffix}: set spark.eventLog.compression.codec=zstd")
    try:
        opened = _opened(path, _CODECS.get(Path(name).suffix))
    except FileNotFoundError:  # Spark has removed it since
        left_out.lines += 1
        return
    with opened as stream:
        try:
            while chunk := stream.read(READ_BYTES):
                yield chunk
        except OSError:  # it ends within a frame, or is damaged there
            left_out.lines += 1


def _opened(path: Path, compression: str | None) -> pa.NativeFile:
    """The stream of a file. A log loses ".inprogress" when its application ends, perhaps since it was listed."""
    try:
        return pa.input_stream(path, compression=compression)
    except FileNotFoundError:
        return pa.input_stream(path.with_name(path.name.removesuffix(".inprogress")), compression=compression)
