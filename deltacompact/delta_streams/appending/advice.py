"""Advice in errors: an error about a file also names the delta that blocks, and the command that takes it out.

t/data/5c….parquet: key column 'id' is missing
->  tuesday.csv (t/data/5c….parquet): key column 'id' is missing; take out the upsert at stream position 90:
    deltacompact retract file:///lake/ t --position 90

t/data/5c….parquet cannot be read: column 'v', row group 2: …       if the file is compacted, or one of several
->  …; it is compacted: … deltacompact retract file:///lake/ t --file t/data/5c….parquet

The command loses a commit, so it is printed only with a proof that the delta blocks: see blocking.py. An error about a
compacted file may come from a delta that waits. Without a proof, the error only gets the user's name of the file.
"""

from __future__ import annotations

import contextlib
import copy
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import ConflictError, CorruptionError, DeltaCompactError, InputError, NotFoundError
from deltacompact.base.model import Partition
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.wording import counted
from deltacompact.delta_streams.appending.blocking import culprit
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.tabular.damage import CANNOT_BE_READ

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_COMMAND = "deltacompact retract"
_COMPACTED = ("the compacted files", "the primary key index")
"""What errors name if they are about compacted rows, and about no file."""


def retract_command(catalog_uri: str, table_id: str, partition: Partition, position: int) -> str:
    """The command that takes out a delta."""
    words = [catalog_uri, table_id, "--position", str(position), *_partition_words(partition)]
    return " ".join([_COMMAND, *map(shlex.quote, words)])


def _file_command(catalog_uri: str, table_id: str, partition: Partition, path: str) -> str:
    """The command that takes out one file, which may be compacted already, and nothing else."""
    words = [catalog_uri, table_id, "--file", path, *_partition_words(partition)]
    return " ".join([_COMMAND, *map(shlex.quote, words)])


def _partition_words(partition: Partition) -> Iterator[str]:
    for name, value in partition.values:
        yield from ("--partition", name if value is None else f"{name}={value}")


def with_advice(
    text: str,
    catalog: Streams,
    table_id: str,
    partition: Partition,
    state: StreamState,
    keys: TableKeys | None = None,
) -> str:
    """The text of an error with the user's name of the file, and with advice if a delta blocks the stream.

    `keys`: those of a first compaction, if the table has none yet.
    """
    if _COMMAND in text:
        return text
    compacted = state.compacted.files if state.compacted else ()
    waiting = [file for delta in state.deltas for file in delta.files]
    found = [file for file in (*waiting, *compacted) if file.path in text]
    named = max(found, key=lambda file: len(file.path), default=None)  # a.csv is a part of a.csv.gz
    said = text if named is None else _named(text, named)
    if named is not None and named in compacted and CANNOT_BE_READ in text:  # the error is the proof
        command = _file_command(catalog.uri, table_id, partition, named.path)
        what = f"restore it, or take out its {counted(named.live_rows, 'row')} and append them again"
        return f"{said}; it is compacted: {what}: {command}"
    blocking = None
    if waiting and (named is not None or any(words in text for words in _COMPACTED)):
        with contextlib.suppress(DeltaCompactError):  # of the store, or of another damaged object: no proof
            blocking = culprit(catalog, table_id, partition, state, text, keys)
    if blocking is None:
        return said
    delta, file, why = blocking
    if file is not named:
        said = f"{said}; {_named(why, file)}"
    what = f"the {delta.operation.value} at stream position {delta.position}"
    if CANNOT_BE_READ in text and len(delta.files) > 1:
        command = _file_command(catalog.uri, table_id, partition, file.path)
        return f"{said}; take out this file of {what}: {command}"
    command = retract_command(catalog.uri, table_id, partition, delta.position)
    return f"{said}; {_first(text, file)} out {what}: {command}"


def _first(text: str, file: DataFile) -> str:
    """What to do before the command, if the rows may still be somewhere."""
    if "was changed since" in text:
        return "append the file again and take"
    return "take" if file.managed else "mend the file, or take"


@contextlib.contextmanager
def advising(catalog: Streams, table_id: str, partition: Partition, state: StreamState) -> Iterator[None]:
    """Add advice to errors that the block raises about a file of the stream."""
    try:
        yield
    except DeltaCompactError as error:
        raise advised(error, catalog, table_id, partition, state) from error


def advised(
    error: DeltaCompactError,
    catalog: Streams,
    table_id: str,
    partition: Partition,
    state: StreamState,
    keys: TableKeys | None = None,
) -> DeltaCompactError:
    """The error with advice, or the error that another table has the name by now. Errors of the store stay as they
    are."""
    if not isinstance(error, (InputError, CorruptionError)):
        return error
    try:
        catalog.refuse_another(catalog.remembered_table(table_id))
    except (ConflictError, NotFoundError) as cause:
        return cause
    except DeltaCompactError:
        return error
    better = copy.copy(error)
    better.args = (with_advice(str(error), catalog, table_id, partition, state, keys),)
    return better


def _named(text: str, file: DataFile) -> str:
    """The text with the user's name of the file beside its path."""
    if file.name is None or f"{file.name} ({file.path})" in text:
        return text
    return text.replace(file.path, f"{file.name} ({file.path})", 1)
