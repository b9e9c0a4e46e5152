"""Handles a table that was dropped while a session worked on it: the session fails, and its objects are removed.

    10:00:00   orders is read, its rows are in memory
    10:00:05   somebody removes the folder orders/
    10:00:07   the session writes its outputs, and seals the base: into a folder that holds nothing else
               -> orders/table.json is not there: the session's objects are removed, "was dropped meanwhile"

Only objects with the name of the session, or of the version that it made, are removed. If a new table was created under
the same name meanwhile, it has a table.json, and is left alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from deltacompact.base.errors import DeltaCompactError, NotFoundError
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.storage.objects import ObjectStore, is_there

_OF_THE_LOG = re.compile(r".*/stream/(.+/)?([0-9]{20}|hint)\.json")


def check_there(store: ObjectStore, table_ids: Iterable[str], session_id: str | None, version: str | None) -> None:
    """Raises NotFoundError for a table that was dropped, after removing the objects that the session left there.

    `session_id`: the engine's. `version`: the version that it has published.
    """
    for table_id in dict.fromkeys(table_ids):
        paths = TablePaths.of(table_id)
        if not is_there(store, paths.table):
            with contextlib.suppress(DeltaCompactError):  # the user who dropped the table sees what is left
                _remove(store, paths.root, session_id, version)
            raise NotFoundError(f"table {table_id!r} was dropped while it was compacted")


def _remove(store: ObjectStore, root: str, session_id: str | None, version: str | None) -> None:
    if session_id is None:
        return
    left = [stat.path for stat in store.list(f"{root}/")]
    ours = {path for path in left if f"/{session_id}/" in path}
    log = {path: store.get(path) for path in left if _OF_THE_LOG.fullmatch(path)}
    made = {version, *(path.rsplit("/", 2)[1] for path, data in log.items() if session_id.encode() in data)}
    names = [name for name in made if name and "-" in name]  # version 0 is the base of every table
    ours |= {path for path, data in log.items() if any(name in path or name.encode() in data for name in names)}
    store.delete(sorted(ours))
