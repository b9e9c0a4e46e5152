"""Files that are written or copied, and that no log names yet.

write data/5c….parquet · refused: SchemaError      delete data/5c….parquet; the error names "appended table 2"
write data/5c….parquet · commit: StoreError        it stays: the log may name it
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import DeltaCompactError, SchemaError
from deltacompact.storage.objects import ObjectStore


def discard(store: ObjectStore, files: Sequence[DataFile]) -> None:
    """Delete the files among these that the table owns. No log may name them."""
    with contextlib.suppress(DeltaCompactError):  # a vacuum deletes what stays
        store.delete([file.path for file in files if file.managed])


@contextlib.contextmanager
def discarding(store: ObjectStore, files: Sequence[DataFile], refusal: type[BaseException]) -> Iterator[None]:
    """Discard the files if the block raises `refusal`. The block may add to `files`."""
    try:
        yield
    except refusal:
        discard(store, files)
        raise


@contextlib.contextmanager
def calling(files: Sequence[DataFile], called: Mapping[str, str] | None = None) -> Iterator[None]:
    """In errors of the block, replace paths of files by the caller's names."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(_as_called(str(error), files, called or {})) from error


def _as_called(text: str, files: Sequence[DataFile], called: Mapping[str, str]) -> str:
    """The text of an error with the caller's names of the files instead of paths, whose files are deleted."""
    for number, file in enumerate(files, 1):
        name = called.get(file.path) or file.name
        text = text.replace(file.path, name or (f"appended table {number}" if files[1:] else "the appended table"))
    return text
