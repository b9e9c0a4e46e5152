"""Other writers of an Iceberg table, and catalogs that misbehave: what commits meet.

writing(lake, table_id)     another writer that commits all the time
Racing                      another writer that commits once, before our first commit reaches the catalog
Late                        another writer that commits once, between the checks of our first commit and its swap
LostReply                   a catalog whose replies to commits are lost, before or after they are carried out
Busy                        a catalog in which somebody else is faster
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from iceberg_lake import Lake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

EVERY_S = 0.15


class Writing:
    """A thread that appends a row with the next id, again and again. `appended` has the ids."""

    def __init__(self, lake: Lake, table_id: str, first: int) -> None:
        self.appended: list[int] = []
        self._lake = lake
        self._table_id = table_id
        self._first = first
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def begin(self) -> None:
        """Start, and return once the first row is committed."""
        self._thread.start()
        while not self.appended:
            self._stopped.wait(0.01)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _write(self) -> None:
        other = Lake(self._lake.folder, self._lake.name)
        while not self._stopped.is_set():
            number = self._first + len(self.appended)
            other.append(self._table_id, [{"id": number}])
            self.appended.append(number)
            self._stopped.wait(EVERY_S)


@contextlib.contextmanager
def writing(lake: Lake, table_id: str, first: int = 1000) -> Iterator[Writing]:
    """A writer that begins when it is told to, and has stopped after the block."""
    writer = Writing(lake, table_id, first)
    try:
        yield writer
    finally:
        writer.stop()


class Racing(SqlCatalog):
    """Before our first commit reaches the catalog, `others` happens."""

    others: Callable[[], object] | None = None

    def commit_table(self, table, requirements, updates):
        others, self.others = self.others, None
        if others:
            others()
        return super().commit_table(table, requirements, updates)


def racing(lake: Lake, others: Callable[[], object]) -> Racing:
    catalog = Racing(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    catalog.others = others
    return catalog


class Late(SqlCatalog):
    """Once our first commit has passed all checks, `others` happens: the swap itself fails. `swap` is told of each."""

    others: Callable[[], object] | None = None
    swap: Callable[[], object]

    def _update_and_stage_table(self, *given):
        staged = super()._update_and_stage_table(*given)
        others, self.others = self.others, None
        if others:
            others()
        return staged

    def commit_table(self, table, requirements, updates):
        try:
            return super().commit_table(table, requirements, updates)
        finally:
            self.swap()


def late(lake: Lake, others: Callable[[], object], swap: Callable[[], object] = lambda: None) -> Late:
    catalog = Late(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    catalog.others, catalog.swap = others, swap
    return catalog


class LostReply(SqlCatalog):
    """The reply to the first commit is lost. `answers_again`: the catalog answers everything after that."""

    carried_out = True
    answers_again = True
    asked = 0

    def commit_table(self, table, requirements, updates):
        self.asked += 1
        if self.asked > 1 and self.answers_again:
            return super().commit_table(table, requirements, updates)
        if self.carried_out and self.asked == 1:
            super().commit_table(table, requirements, updates)
        if not self.answers_again:
            self.load_table = self._silent
        raise CommitStateUnknownException("502 Bad Gateway")

    def _silent(self, identifier):
        raise ConnectionError("no route to host")


def losing(lake: Lake, carried_out: bool, answers_again: bool = True) -> LostReply:
    catalog = LostReply(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    catalog.carried_out, catalog.answers_again = carried_out, answers_again
    return catalog


class Busy(SqlCatalog):
    """Somebody else is faster, so many times."""

    others = 0

    def commit_table(self, table, requirements, updates):
        self.others -= 1
        if self.others >= 0:
            raise CommitFailedException("somebody was faster")
        return super().commit_table(table, requirements, updates)


def busy(lake: Lake, table_id: str, others: int) -> Busy:
    """A commit that fails is not tried again."""
    with lake.catalog.load_table(table_id).transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    catalog = Busy(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    catalog.others = others
    return catalog
