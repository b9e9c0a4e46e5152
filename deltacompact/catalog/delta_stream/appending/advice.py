"""Advice in errors: an error about a file also names the delta that brought it, and the command that takes it out.

t/data/5c….parquet: key column 'id' is missing
->  tuesday.csv (t/data/5c….parquet): key column 'id' is missing; take out the upsert at stream position 90:
    deltacompact retract file:///lake/ t --position 90
"""

from __future__ import annotations

import contextlib
import copy
import shlex
from collections.abc import Iterator

from deltacompact.base.errors import CorruptionError, DeltaCompactError, InputError
from deltacompact.base.model import DataFile, Partition
from deltacompact.catalog.delta_stream.log.state import StreamState

_COMMAND = "deltacompact retract"


def retract_command(catalog_uri: str, table_id: str, partition: Partition, position: int) -> str:
    """The command that takes out a delta."""
    words = [catalog_uri, table_id, "--position", str(position)]
    for name, value in partition.values:
        words += ["--partition", name if value is None else f"{name}={value}"]
    return " ".join([_COMMAND, *map(shlex.quote, words)])


def with_advice(text: str, catalog_uri: str, table_id: str, partition: Partition, state: StreamState) -> str:
    """The text of an error with the user's name of the file, and with advice where a delta brought the file."""
    if _COMMAND in text:
        return text
    named = [(delta, file) for delta in state.deltas for file in delta.files if file.path in text]
    if named:
        delta, file = max(named, key=lambda pair: len(pair[1].path))  # a.csv is a part of a.csv.gz
        first = "append the file again and take" if "was changed since" in text else "take"
        command = retract_command(catalog_uri, table_id, partition, delta.position)
        what = f"the {delta.operation.value} at stream position {delta.position}"
        return f"{_named(text, file)}; {first} out {what}: {command}"
    compacted = [file for file in (state.compacted.files if state.compacted else ()) if file.path in text]
    return _named(text, compacted[0]) if compacted else text


@contextlib.contextmanager
def advising(catalog_uri: str, table_id: str, partition: Partition, state: StreamState) -> Iterator[None]:
    """Add advice to errors that the block raises about a file of the stream."""
    try:
        yield
    except DeltaCompactError as error:
        raise advised(error, catalog_uri, table_id, partition, state) from error


def advised(
    error: DeltaCompactError, catalog_uri: str, table_id: str, partition: Partition, state: StreamState
) -> DeltaCompactError:
    """The error with advice. Errors of the store get none: no delta causes them."""
    if not isinstance(error, (InputError, CorruptionError)):
        return error
    better = copy.copy(error)
    better.args = (with_advice(str(error), catalog_uri, table_id, partition, state),)
    return better


def _named(text: str, file: DataFile) -> str:
    """The text with the user's name of the file beside its path."""
    if file.name is None or f"{file.name} ({file.path})" in text:
        return text
    return text.replace(file.path, f"{file.name} ({file.path})", 1)
