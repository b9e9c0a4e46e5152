"""Sessions that were killed and that nobody resumed: their journals are closed before their files count as orphans.

    journal of 5c    last sign of life an hour ago     its files stay: the next run of the branch commits them
    journal of 71    last sign of life a week ago      closed: nobody commits from it any more, so its files can go
    journal of 8e    taken over while we look at it    its files stay

All files of a session have its name in their paths: journal, work folder, data files, delete files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deltacompact.iceberg_modes.journal import journal as journals
from deltacompact.iceberg_modes.journal.journal import FOLDER, SESSION_NAME, Journal, TakenOverError
from deltacompact.storage.objects import ObjectStat, ObjectStore, by_folder

SIGNLESS_MIN_MS = 3_600_000
"""A session that gave a sign of life within the hour is at work, however young orphans may be."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions that have a journal below the table's location, and when each gave its last sign of life."""

    store: ObjectStore
    newest_ms: Mapping[str, float]
    dead_before_ms: float

    @classmethod
    def of(cls, store: ObjectStore, now_ms: int, age_ms: int) -> Sessions:
        sessions = by_folder(store, FOLDER).items()
        newest = {session: max(stat.modified_s for stat in stats) * 1000 for session, stats in sessions}
        return cls(store, newest, now_ms - max(age_ms, SIGNLESS_MIN_MS))

    def of_file(self, path: str) -> str | None:
        """The session that the file belongs to."""
        return next((name for name in SESSION_NAME.findall(path) if name in self.newest_ms), None)

    def at_work(self, path: str) -> bool:
        """Whether the file belongs to a session that works or can still be resumed."""
        session = self.of_file(path)
        return session is not None and self.newest_ms[session] >= self.dead_before_ms

    def closed(self, orphans: Iterable[ObjectStat]) -> tuple[list[ObjectStat], list[Journal]]:
        """Close the journals of dead sessions that orphans belong to.

        Returns the orphans that may go, and the journals, which go after them. Those of a session that another process
        takes over are not among them.
        """
        free: list[ObjectStat] = []
        by_session: dict[str, list[ObjectStat]] = {}
        for stat in orphans:
            session = self.of_file(stat.path)
            (free if session is None else by_session.setdefault(session, [])).append(stat)
        held = []
        for session, stats in by_session.items():
            found = list(self.store.list(journals.folder_of(session)))
            if any(stat.modified_s * 1000 >= self.dead_before_ms for stat in found):
                continue
            has_plan = any(stat.path.endswith("/plan.json") for stat in found)
            if has_plan:  # a journal without one is held by nobody
                journal = Journal.take_over(self.store, session)
                if journal is None:
                    continue
                try:
                    journal.finish(())
                except TakenOverError:
                    continue
                held.append(journal)
                stats = [stat for stat in stats if FOLDER not in stat.path]
            free += stats
        return free, held
