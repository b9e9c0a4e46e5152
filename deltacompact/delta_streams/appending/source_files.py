"""Files of users, on their way into one stream: inspected, then copied or left in place.

    ~/monday.parquet    copied        data/5c….parquet, which the table owns; name: ~/monday.parquet
    ~/monday.parquet    reference     file:///…/monday.parquet, with its stamp: readers refuse a changed file

A file that was written to after its inspection is inspected again, as the copy that the table will own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.table_keys import TableKeys
from deltacompact.delta_streams.appending.sources import canonical_name
from deltacompact.delta_streams.appending.written_files import discarding
from deltacompact.delta_streams.paths import StreamPaths, refuse_files_of_other_streams
from deltacompact.index.sort_widths import measured_file
from deltacompact.storage.identity import is_uri
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import as_uri, copy_into
from deltacompact.tabular import formats, stamps
from deltacompact.tabular.inferred_keys import KeyTexts
from deltacompact.tabular.inspecting import Asked, inspect


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Takes files into one partition stream. `reference`: they stay where they are. `texts`: of their keys in CSV."""

    store: ObjectStore
    paths: StreamPaths
    partition: Partition
    keys: TableKeys | None
    reference: bool
    texts: KeyTexts

    def inspected(self, source: str, content_type: ContentType | None, types: pa.Schema | None) -> DataFile:
        """The description of a file. Text takes these types. Raises InputError for a file that cannot be read."""
        uri = as_uri(source if is_uri(source) else os.path.abspath(source))
        format_ = content_type or formats.content_type_of(source)
        file = self._inspect(uri, format_, types, managed=False, hashed=self.reference)
        if self.keys is None:
            file = replace(file, nulls=None)
        if self.reference:
            refuse_files_of_other_streams(self.store, file.path, self.paths)
        return measured_file(self.store, replace(file, name=_readable(source)), self.keys)

    def copied(self, source: DataFile, types: pa.Schema | None) -> DataFile:
        """Copy an inspected file. If the file changed meanwhile, inspect the copy instead."""
        name = source.name or source.path
        path = self.paths.fresh("data", formats.stored_suffix(source.path))
        copy = replace(source, path=path, stamp=None, managed=True)
        with discarding(self.store, [copy], BaseException):
            if copy_into(self.store, source.path, path) == source.bytes and stamps.is_untouched(self.store, source):
                return copy
            try:
                described = self._inspect(path, source.content_type, types)
                return measured_file(self.store, replace(described, name=name), self.keys)
            except InputError as error:
                raise type(error)(f"{name} was written to while it was copied: {error}") from error

    def _inspect(
        self, path: str, content_type: ContentType, types: pa.Schema | None, managed: bool = True, hashed: bool = False
    ) -> DataFile:
        return inspect(
            self.store,
            path,
            content_type,
            Asked.of(self.keys, self.partition.names, self.texts, types, self.partition),
            managed=managed,
            hashed=hashed,
            decoded=True,
        )


def distinct_names(sources: Sequence[str]) -> list[str]:
    """The names of files. Raises InputError if two names stand for the same file."""
    names: dict[str, str] = {}
    for source in sources:
        if (known := names.get(canonical_name(source))) is not None:
            raise InputError(f"{source} is named twice" if known == source else f"{source} and {known} are one file")
        names[canonical_name(source)] = source
    return list(names.values())


def _readable(name: str) -> str:
    """A file name as valid UTF-8 text: names on a disk may be any bytes."""
    return os.fsencode(name).decode(errors="replace")
