"""What earlier sessions of a branch left: dead ones, whose work can be taken up, and live ones, which are left alone.

journal 5c    of this branch, its process was killed      dead
journal 71    of this branch, a sign of life 2 s ago      live: its journal and its files are its own
journal 8e    of another branch                           does not concern us
journal a0    no plan in it any more                      the rest of one that was being cleared: deleted
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import NotFoundError
from deltacompact.base.wording import counted, text_of
from deltacompact.catalog.iceberg.journal import journal as journals
from deltacompact.catalog.iceberg.journal.journal import FOLDER, Planned, UntrustedError
from deltacompact.catalog.iceberg.journal.signs_of_life import Signs
from deltacompact.catalog.iceberg.plan_envelope import input_paths
from deltacompact.catalog.iceberg.table.table_state import TableState
from deltacompact.storage.objects import ObjectStat, ObjectStore

_DOING = {"rewrite": "rewriting", "convert": "converting deletes of", "upsert": "comparing"}
_CLOCK = "clock-"


@dataclass(frozen=True, slots=True)
class LeftSession:
    """A session that has a journal."""

    session: str
    plan: Planned

    @property
    def files(self) -> frozenset[str]:
        """The data files that it plans."""
        return frozenset[str]().union(*map(input_paths, self.plan.body["groups"]))


@dataclass(frozen=True, slots=True)
class Left:
    """The sessions of a branch."""

    dead: tuple[LeftSession, ...] = ()
    live: tuple[LeftSession, ...] = ()
    notes: tuple[str, ...] = ()


def left_behind(store: ObjectStore, state: TableState, signs: Signs) -> Left:
    """What is in the journals. Waits for signs of life of sessions on other machines that were at work just now."""
    sessions: dict[str, list[ObjectStat]] = defaultdict(list)
    for stat in store.list(FOLDER):
        session, slash, _ = stat.path.removeprefix(FOLDER).partition("/")
        if slash and journals.is_session(session):
            sessions[session].append(stat)
    dead, live, notes = [], [], []
    for session, stats in sessions.items():
        paths = [stat.path for stat in stats]
        if journals.folder_of(session) + "plan.json" not in paths:
            store.delete(paths)
            continue
        try:
            found = LeftSession(session, journals.plan_of(store, session))
            if (found.plan.body["uuid"], found.plan.body["branch"]) != (state.metadata.uuid, state.branch):
                continue
            if _is_alive(store, session, stats, signs):
                live.append(found)
                files = counted(len(found.files), "file")
                notes.append(f"session {session} is {_DOING[found.plan.mode]} {files} of this branch")
                continue
            journals.read(store, session, paths)
            dead.append(found)
        except NotFoundError:
            continue  # it is being cleared
        except UntrustedError as error:
            notes.append(f"the journal of session {session} is not resumed, maintain removes it: {text_of(error)}")
    return Left(tuple(dead), tuple(live), tuple(notes))


def _is_alive(store: ObjectStore, session: str, stats: Sequence[ObjectStat], signs: Signs) -> bool:
    paths = [stat.path for stat in stats]
    folder = journals.folder_of(session)
    if folder + "ended" in paths:
        return False
    known = journals.holder_of(store, session, paths).is_at_work(session)
    if known is not None:
        return known
    first = latest = _newest(stats)
    while latest == first:
        if _store_time(store, folder) - latest > signs.dead_after_s:
            return False
        time.sleep(signs.every_s / 2)
        latest = _newest(store.list(folder))
    return latest > first


def _newest(stats: Iterable[ObjectStat]) -> float:
    """When the session gave its last sign. Clocks are ours."""
    return max((stat.modified_s for stat in stats if _CLOCK not in stat.path), default=0.0)


def _store_time(store: ObjectStore, folder: str) -> float:
    """The time of now by the clock that dates objects. If we die here, the clock goes with the journal."""
    path = f"{folder}{_CLOCK}{uuid.uuid4().hex}"
    store.put(path, b"")
    try:
        return store.stat(path).modified_s
    finally:
        store.delete([path])
