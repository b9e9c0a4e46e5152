"""An error about a file says which delta brought the file, and how to take that delta out.

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
from deltacompact.catalog.delta_stream.state import StreamState

_COMMAND = "deltacompact retract"


def retract_command(catalog_uri: str, table_id: str, partition: Partition, position: int) -> str:
    """What to type to take out a delta."""
    words = [catalog_uri, table_id, "--position", str(position)]
    for name, value in partition.values:
        words += ["--partition", name if value is None else f"{name}={value}"]
    return " ".join([_COMMAND, *map(shlex.quote, words)])


def with_advice(text: str, catalog_uri: str, table_id: str, partition: Partition, state: StreamState) -> str:
    """The text of an error, with the file's own name, and with advice where the text names a file of a delta."""
    if _COMMAND in text:
        return text
    told = [(delta, file) for delta in state.deltas for file in delta.files if file.path in text]
    if told:
        delta, file = max(told, key=lambda pair: len(pair[1].path))  # a.csv is a part of a.csv.gz
        first = "append the file again and take" if "was changed since" in text else "take"
        command = retract_command(catalog_uri, table_id, partition, delta.position)
        what = f"the {delta.operation.value} at stream position {delta.position}"
        return f"{_named(text, file)}; {first} out {what}: {command}"
    compacted = [file for file in (state.compacted.files if state.compacted else ()) if file.path in text]
    return _named(text, compacted[0]) if compacted else text


@contextlib.contextmanager
def advising(catalog_uri: str, table_id: str, partition: Partition, state: StreamState) -> Iterator[None]:
    """Errors inside the block about a file of the stream leave it with advice."""
    try:
        yield
    except DeltaCompactError as error:
        raise advised(error, catalog_uri, table_id, partition, state) from error


def advised(
    error: DeltaCompactError, catalog_uri: str, table_id: str, partition: Partition, state: StreamState
) -> DeltaCompactError:
    """The error with advice. What a store failed to do is no fault of a delta."""
    if not isinstance(error, (InputError, CorruptionError)):
        return error
    better = copy.copy(error)
    better.args = (with_advice(str(error), catalog_uri, table_id, partition, state),)
    return better


def _named(text: str, file: DataFile) -> str:
    """The text with what the user called the file."""
    if file.name is None or f"{file.name} ({file.path})" in text:
        return text
    return text.replace(file.path, f"{file.name} ({file.path})", 1)
