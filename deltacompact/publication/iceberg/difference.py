"""Finds the files that a snapshot must add and remove, so that a table shows the versions of its streams. Pure.

    shown now      a, b with position deletes b1         of stream day=1; c of stream day=2
    version        a with dead rows a1, b with b2, d     of stream day=1
    difference     removed b1                            added d, a1, b2            c stays: day=2 was not asked for

A compacted file never changes, and its path is never used again, so paths identify files. The name of a delete file has
a digest of its dead rows. So the table tells what is shown, and after a crash the next run just compares again. A
delete file applies to no data file that is added after it, so then the dead rows are added anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deltacompact.base.errors import InputError
from deltacompact.iceberg.deletes.matching import only_path
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestEntry
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.publication.port import FilesToShow, ShownFile, Source, foreign
from deltacompact.storage.identity import file_name

_OUR_DELETES = re.compile(r"deltacompact-(?P<digest>[0-9a-f]{32})-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True)
class IcebergDifference:
    """Entries to remove, data files to add, and data files whose dead rows must be added."""

    removed: tuple[ManifestEntry, ...]
    data: tuple[ShownFile, ...]
    dead: tuple[ShownFile, ...]


def deletes_name(dead_rows: str, unique: str) -> str:
    """The name of a delete file. `unique` is different for each attempt, so that no two attempts write one object."""
    return f"deltacompact-{dead_rows}-{unique}.parquet"


def difference(head: TableState, source: Source, now: FilesToShow) -> IcebergDifference:
    """The missing and the superfluous files on the head.

    Raises InputError if the head has a file that does not come from a stream of the table.
    """
    removed: list[ManifestEntry] = []
    data: dict[str, int] = {}
    dead: set[str] = set()
    for entry in head.data:
        path = entry.file.path
        wanted = now.of(_stream_of(head, entry.file, source, path))
        if wanted is not None and path not in wanted:
            removed.append(entry)
        data[path] = entry.sequence
    for entry in head.deletes:
        path, known = _named_by(head, entry.file)
        wanted = now.of(_stream_of(head, entry.file, source, path))
        applies = path in data and data[path] <= entry.sequence  # another engine may have dropped the data file alone
        if wanted is not None and not (applies and path in wanted and wanted[path].dead_rows == known):
            removed.append(entry)
        else:
            dead.add(known)
    return IcebergDifference(
        tuple(removed),
        tuple(file for file in now.files if file.location not in data),
        tuple(file for file in now.files if file.dead_rows is not None and file.dead_rows not in dead),
    )


def _stream_of(head: TableState, file: ContentFile, source: Source, data_path: str) -> str:
    """The folder of the stream that a data file belongs to."""
    stream = source.stream_of(data_path)
    if stream is None:
        raise _foreign(head, file)
    return stream


def _named_by(head: TableState, file: ContentFile) -> tuple[str, str]:
    """(data file, digest of its dead rows) of a delete file of ours."""
    name = _OUR_DELETES.fullmatch(file_name(file.path))
    path = only_path(file) if file.content is Content.POSITION_DELETES else None
    if name is None or path is None:
        raise _foreign(head, file)
    return path, name["digest"]


def _foreign(head: TableState, file: ContentFile) -> InputError:
    return foreign(f"Iceberg table {head.metadata.table_id!r}", file.path)
