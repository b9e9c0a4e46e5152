"""Finds earlier sessions of a branch: dead ones, whose work is taken up, and live ones, which are left alone.

journal 5c    of this branch, its process was killed      dead
journal 71    of this branch, a sign of life 2 s ago      live: its journal and its files are its own
journal 8e    of another branch                           ignored
journal a0    has no plan any more                        its session died while clearing it: deleted
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from deltacompact.base.errors import NotFoundError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.journal import journal as journals
from deltacompact.iceberg_modes.journal.journal import FOLDER, Planned, Records, UntrustedError
from deltacompact.iceberg_modes.journal.signs_of_life import Signs
from deltacompact.iceberg_modes.plan_envelope import all_input_paths
from deltacompact.storage.objects import ObjectStat, ObjectStore, by_folder
from deltacompact.storage.store_clock import store_now_s

_CLOCK = "clock-"

Tell: TypeAlias = Callable[[str, float, float], None]
"""Called before we wait for a session: its name, the most seconds to wait, seconds by which its last sign is ahead."""


def no_tell(session: str, wait_s: float, ahead_s: float) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LeftSession:
    """A session that has a journal. `records`: those of a dead one, as they were found."""

    session: str
    plan: Planned
    records: Records | None = field(default=None, hash=False)

    @property
    def files(self) -> frozenset[str]:
        """The data files that it plans."""
        return all_input_paths(self.plan.body)


@dataclass(frozen=True, slots=True)
class SessionsLeft:
    """The sessions of a branch. `notes` are about journals that cannot be read."""

    dead: tuple[LeftSession, ...] = ()
    live: tuple[LeftSession, ...] = ()
    notes: tuple[str, ...] = ()


def left_behind(store: ObjectStore, state: TableState, signs: Signs, tell: Tell = no_tell) -> SessionsLeft:
    """Read the journals. Waits for a sign of life from each session of another machine that was at work just now.

    `tell` is called before each wait.
    """
    dead, live, notes = [], [], []
    for session, stats in by_folder(store, FOLDER).items():
        if not journals.is_session(session):
            continue
        paths = [stat.path for stat in stats]
        if journals.folder_of(session) + "plan.json" not in paths:
            store.delete(paths)
            continue
        try:
            found = LeftSession(session, journals.plan_of(store, session))
            if (found.plan.body["uuid"], found.plan.body["branch"]) != (state.metadata.uuid, state.branch):
                continue
            if _is_alive(store, session, stats, signs, tell):
                live.append(found)
                continue
            dead.append(replace(found, records=journals.read(store, session, paths)))
        except NotFoundError:
            continue  # another process is clearing this journal
        except UntrustedError as error:
            notes.append(not_resumed(session, error))
    return SessionsLeft(tuple(dead), tuple(live), tuple(notes))


def not_resumed(session: str, error: UntrustedError) -> str:
    return f"the journal of session {session} is not resumed, maintain removes it: {text_of(error)}"


def _is_alive(store: ObjectStore, session: str, stats: Sequence[ObjectStat], signs: Signs, tell: Tell) -> bool:
    """Whether a session gives a new sign of life before it counts as dead.

    Its last sign may be dated in the future, by a clock that was ahead. So any sign with another date counts as new,
    and we stop after a fixed number of looks, whatever the store's clock does meanwhile.
    """
    paths = [stat.path for stat in stats]
    folder = journals.folder_of(session)
    if folder + "ended" in paths:
        return False
    known = journals.holder_of(store, session, paths).is_at_work(session)
    if known is not None:
        return known
    given, now_s = _given(stats), _store_time(store, folder)
    last_s = max(given.values(), default=0.0)
    dead_s = min(last_s, now_s) + signs.dead_after_s
    if now_s <= dead_s:
        tell(session, dead_s - now_s, max(0.0, last_s - now_s))
    for _ in range(signs.looks):
        if now_s > dead_s:
            return False
        signs.wait(signs.every_s / 2)
        if (found := _given(store.list(folder))) != given:
            return folder + "plan.json" in found
        now_s = _store_time(store, folder)
    return False


def _given(stats: Iterable[ObjectStat]) -> dict[str, float]:
    """The signs of a session, and when it gave them, without the `clock` objects that we put ourselves."""
    return {stat.path: stat.modified_s for stat in stats if _CLOCK not in stat.path}


def _store_time(store: ObjectStore, folder: str) -> float:
    """The store's time now. The object that tells it lies in the journal's folder, and goes with it if we die here."""
    return store_now_s(store, f"{folder}{_CLOCK}{uuid.uuid4().hex}")
