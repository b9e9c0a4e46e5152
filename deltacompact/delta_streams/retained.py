"""Finds a state of a stream that can still be read: that of a version, by its name, or that of a moment.

0          create, 2 commits at 08:00, 09:00        vacuumed: one of its files is missing
1-50a3…    compact at 09:10, 1 commit at 11:00      retained

"1"        1-50a3… as it was when it was sealed, or, if it is active, as it is now
10:00      1-50a3… without the commit of 11:00
08:30      0 with its first commit: refused, and the error names the oldest version that is left
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import Partition
from deltacompact.base.moments import TIME_FORMAT, milliseconds_of, moment_of
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.log.tokens import Commits
from deltacompact.delta_streams.paths import StreamPaths
from deltacompact.delta_streams.streams import Streams, stream_files
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.storage.identity import is_uri
from deltacompact.storage.objects import ObjectStore, is_there
from deltacompact.storage.opening import open_object


def state_as_of(catalog: Streams, table_id: str, partition: Partition, as_of: str | datetime) -> StreamState:
    """The state of a version when it was sealed, or of the stream at a moment.

    `as_of`: a version's name, the beginning of it, its number, or a time (see base/moments.py); commits up to that time
    count. Raises NotFoundError if no version fits, if several do, or if a file is missing.
    """
    chain = catalog.log(table_id, partition).since(begins(as_of))
    return state_of_chain(catalog, table_id, partition, chain, as_of)


def state_of_chain(
    catalog: Streams, table_id: str, partition: Partition, chain: Sequence[StreamState], as_of: str | datetime
) -> StreamState:
    """The same, in a chain of versions that the caller has read: later commits do not count."""
    state = state_in(chain, as_of, f"table {table_id!r}, partition {partition}")
    if state.sealed:
        refuse_missing(catalog, table_id, partition, state)
    return state


def begins(as_of: str | datetime) -> Callable[[StreamState], bool]:
    """For StreamLog.since: whether `as_of` names this version, so that `state_in` needs no older one."""
    moment, name = moment_of(as_of), str(as_of)
    if moment is not None:
        time_ms = milliseconds_of(moment)
        return lambda state: state.opened.time_ms <= time_ms
    return lambda state: name == str(state.opened.number) or ("-" in name and state.version.startswith(name))


def state_in(chain: Sequence[StreamState], as_of: str | datetime, where: str) -> StreamState:
    """The same, without checking that the files are there. `where` names the stream in errors."""
    moment = moment_of(as_of)
    return _state_named(chain, str(as_of), where) if moment is None else _state_at(chain, milliseconds_of(moment))


def _state_named(chain: Sequence[StreamState], version: str, where: str) -> StreamState:
    exact = [state for state in chain if version in (state.version, str(state.opened.number))]
    found = exact or [state for state in chain if state.version.startswith(version)]
    if len(found) != 1:
        many = "several versions begin" if found else "no version begins"
        versions = ", ".join(state.version for state in chain[-4:])
        no_time = "" if found else f", and {TIME_FORMAT}"
        raise NotFoundError(f"{where}: {many} with {version!r} (newest: {versions}){no_time}")
    return found[0]


def _state_at(chain: Sequence[StreamState], time_ms: int) -> StreamState:
    """The stream as of a moment: the newest version of that time, with its commits up to then.

    What was retracted from it later is missing: such a delta may be one that nobody can read.
    """
    state = [state for state in chain if state.opened.time_ms <= time_ms or not state.opened.number][-1]
    known = [number for number, commit in enumerate(state.commits) if commit.time_ms <= time_ms]
    return replace(state, commits=Commits(state.commits[: known[-1] + 1 if known else 0]))


def refuse_missing(catalog: Streams, table_id: str, partition: Partition, state: StreamState) -> None:
    """Raise NotFoundError if a file of a state is missing. The error names the oldest version that is left."""
    log = catalog.log(table_id, partition)
    files = StreamFiles(catalog.store, log.paths)
    if not (missing := files.missing_of(state)):
        return
    oldest = next(other.version for other in log.chain() if not other.sealed or not files.missing_of(other))
    raise NotFoundError(
        f"table {table_id!r}, partition {partition}: version {state.version} cannot be read any more: "
        f"{missing[0]} is missing{f' and {len(missing) - 1} more' if missing[1:] else ''}; a vacuum may have "
        f"deleted it (the oldest version that is left: {oldest})"
    )


class StreamFiles:
    """The files of a stream in the store, listed once for all versions."""

    def __init__(self, store: ObjectStore, paths: StreamPaths) -> None:
        self._store = store
        self._there = {stat.path for folder in paths.swept[:3] for stat in store.list(folder)}
        self._elsewhere: dict[str, bool] = {}
        """Files that were appended by reference: whether they exist."""

    def missing_of(self, state: StreamState) -> list[str]:
        """The missing files that a reader of the version, or a compaction on top of it, would need."""
        files = stream_files(state)
        needed = [file.path for file in files] + [file.deletions.masks_path for file in files if file.deletions]
        needed += state.manifests
        if state.index:
            needed.append(state.index.path)
        missing = self._missing(needed)
        if state.index and not missing:
            missing = self._missing(read_manifest(self._store, state.index).paths)
        return missing

    def _missing(self, paths: Iterable[str]) -> list[str]:
        needed = list(dict.fromkeys(paths))
        unknown = [path for path in needed if is_uri(path) and path not in self._elsewhere]
        if unknown:
            with ThreadPoolExecutor(16) as threads:
                self._elsewhere.update(zip(unknown, threads.map(self._is_there, unknown), strict=True))
        return [path for path in needed if not (path in self._there or self._elsewhere.get(path))]

    def _is_there(self, uri: str) -> bool:
        return is_there(*open_object(self._store, uri))
