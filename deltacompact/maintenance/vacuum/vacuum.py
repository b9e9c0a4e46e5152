"""Vacuum: deletes unreached objects, but none that a running writer, reader or compactor may still need.

    data/5c…       of the active version, or of one sealed less than the minimum age ago    reached: stays
    data/77…       of a version sealed 4 days ago                                           deleted
    data/s1/0a…    of session s1 on the unsealed base, last written 4 days ago              fence s1, then delete
    data/s2/0b…    of session s2 on the unsealed base, written an hour ago                  stays
    data/9e…       newer than the last log entry                                            doubtful: stays
    data/4d…       dropped, but in a retained snapshot of the table's publication           stays
    stream/…       the log of a version in the chain                                        stays for ever

If somebody removed log entries, the log reaches too little. So vacuum deletes nothing at all if the log contradicts
other objects (contradictions.py), if a needed file is missing, or if one is newer than every log entry. Unreached
objects that are newer than the last log entry are kept and reported: a removed entry may have named them.

Vacuum lists candidates first and reads reachability afterwards, so it sees commits in between as reached.

    listing, chain    the objects, then the versions that seals lead to          listing.py, chain.py
    reach             the objects that readers of these versions need            reach.py
    fences            sessions that may still publish                            fences.py
    garbage           objects out of reach, lost logs, old checkpoints           logs.py
                      bookmarks that newer ones replaced, lists of files         context.py

It leaves a mark (mark.py). If the next vacuum lists the same objects, and none of them has become old enough, it
has nothing to do. Otherwise it reads the log back to the versions that the mark knows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from deltacompact.base import expect
from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.model import Partition, PartitionLike
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.partitions import all_done
from deltacompact.base.user_calls import user_call
from deltacompact.base.wording import counted, size
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.paths import TablePaths, listed_version
from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S, Streams, stream_files
from deltacompact.maintenance.vacuum.chain import Chain, newest_s, read_chain, sealed_s
from deltacompact.maintenance.vacuum.context import VacuumContext
from deltacompact.maintenance.vacuum.contradictions import Evidence, contradictions
from deltacompact.maintenance.vacuum.fences import fenced_off
from deltacompact.maintenance.vacuum.listing import StreamListing
from deltacompact.maintenance.vacuum.logs import attempts, superseded_checkpoints, unreached_logs
from deltacompact.maintenance.vacuum.mark import VacuumMark, digest, parsed
from deltacompact.maintenance.vacuum.reach import ReachableFiles
from deltacompact.sinks.upkeep import announced
from deltacompact.storage.identity import file_name
from deltacompact.storage.objects import ObjectStat, ObjectStore, discard, unfinished

_TOLERANCE_S = 60.0
"""A file is older than the entry that names it; but the store's clocks may differ by this many seconds."""


@dataclass(frozen=True, slots=True, repr=False)
class VacuumResult(UsersWords):
    """The result for one partition stream. Paths are relative to the catalog's root.

    waiting       data files that the active version does not need, but that are too young to delete
    retracted     data files of deltas that were retracted in the active version: they stay as long as it is retained
    held          old ones, which a bookmark or the published table needs
    dead_rows     dead rows in files of the active version, under deletion vectors
    doubtful      objects that are old and unreached, but newer than the last log entry: they stay until the next commit
    unfinished    writes that never ended, which the vacuum discarded
    """

    _inside = ("verb",)

    partition: Partition
    deleted: tuple[ObjectStat, ...]
    fenced: tuple[str, ...]
    kept: int
    waiting: tuple[ObjectStat, ...] = ()
    dead_rows: int = 0
    doubtful: tuple[ObjectStat, ...] = ()
    unfinished: tuple[ObjectStat, ...] = ()
    dry_run: bool = False
    held: tuple[ObjectStat, ...] = ()
    retracted: tuple[ObjectStat, ...] = ()

    def __repr__(self) -> str:
        """The line that `vacuum` prints first."""
        fenced = f", fenced {counted(len(self.fenced), 'dead session')}" if self.fenced else ""
        deleted = f"{self.verb} {counted(len(self.deleted), 'object')} ({size(self.bytes)})"
        return f"{self.partition}: {deleted}, kept {self.kept:,}{fenced}"

    @property
    def verb(self) -> str:
        return "would delete" if self.dry_run else "deleted"

    @property
    def bytes(self) -> int:
        return sum(stat.bytes for stat in self.deleted)


@user_call
def vacuum(
    catalog: Streams,
    table_id: str,
    partition: PartitionLike = None,
    *,
    age_min_s: float = VACUUM_AGE_MIN_S,
    force: bool = False,
    dry_run: bool = False,
    full: bool = False,
) -> list[VacuumResult]:
    """Delete unreached objects that are `age_min_s` seconds old (since the seal that dropped them, or last modified).

    `catalog` is what open_catalog returned, `table_id` and `partition` say what is vacuumed (default: all partitions).
    `dry_run` deletes nothing. `full` reads the whole history again, and not only what came since the last vacuum.
    Raises InputError for an age below VACUUM_AGE_MIN_S, which writers and readers rely on, unless `force` says that
    none is running. Raises CorruptionError, and deletes nothing of the partition, where the stored objects contradict
    each other.

    If the table is published, the snapshots or versions of that other table that are older are expired first,
    and files of the others stay. Nothing is deleted where that table cannot be read.

    Examples:
        >>> [found.bytes for found in deltacompact.vacuum(catalog, "orders", dry_run=True)]
        [0]
    """
    expect.number("age_min_s", age_min_s)
    expect.flag("force", force)
    expect.flag("dry_run", dry_run)
    expect.flag("full", full)
    if age_min_s < VACUUM_AGE_MIN_S and not force:
        raise InputError(
            f"a minimum age of {age_min_s:.0f} s is below {VACUUM_AGE_MIN_S} s: running readers and writers could lose "
            "their files; if none are running, force it (force=True, --force)"
        )
    context = VacuumContext(catalog, table_id, age_min_s, dry_run)
    return all_done(
        catalog.chosen(table_id, partition), lambda chosen: vacuumed(context, chosen, full), catalog.at_once
    )


def vacuumed(context: VacuumContext, partition: Partition, full: bool = False) -> VacuumResult:
    """One partition of a vacuum, with what its partitions share."""
    work, emit = _Vacuum(context, partition), context.emit
    if emit is None:
        return work.collect(full)
    log = context.catalog.log(context.table_id, partition)
    return announced(
        emit, context.table_id, partition, "vacuum", lambda: log.active().version, lambda: work.collect(full)
    )


class _Vacuum:
    """The vacuum of one partition stream."""

    def __init__(self, context: VacuumContext, partition: Partition) -> None:
        catalog = context.catalog
        self.partition = partition
        self._context = context
        self._store: ObjectStore = catalog.store
        paths = TablePaths.of(context.table_id).stream(partition)
        self._log = StreamLog(catalog.store, paths, catalog.log_limits, catalog.wait)
        self._paths = self._log.paths
        self._age_min_s = context.age_min_s
        self._count_from(catalog.clock())

    def _count_from(self, now_s: float) -> None:
        """Let ages count from this time."""
        self._now_s = now_s
        self._old_s = now_s - self._age_min_s
        self._shared_old_s = now_s - max(self._age_min_s, VACUUM_AGE_MIN_S)

    def _count_by_store(self) -> None:
        """Let ages count by the store's clock, if this machine's disagrees with it."""
        self._count_from(self._context.now_s(self._paths.fresh("data", ".json")))

    def collect(self, full: bool) -> VacuumResult:
        """List; read what is reached; refuse a doubtful log; fence dead sessions; delete; leave a mark."""
        dry_run = self._context.dry_run
        log, mark = self._log, None if full else self._mark()
        listing = StreamListing.of(self._store, self._paths, self._old_s)
        if mark and mark.is_current(listing.all.values(), self._old_s):
            return self._as_before(mark, listing, dry_run)
        self._count_by_store()
        listing = replace(listing, old_s=self._old_s)
        evidence = Evidence.of(log, listing.all.values(), mark.records if mark else ())
        chain = read_chain(log, listing, dict(mark.chain) if mark else {})
        self._refuse(contradictions(log, evidence, chain.tails))
        reach = ReachableFiles(listing, chain)
        reached = reach.reached()
        trusted_s = newest_s(log, listing, chain) + _TOLERANCE_S
        self._refuse(reach.doubts(reached, trusted_s))
        protected, fenced = fenced_off(log, listing, chain, dry_run)
        unreached = [stat for stat in reach.ours if stat.path not in reached]
        old = [
            stat for stat in unreached if listing.is_old(stat) and self._paths.session_of(stat.path) not in protected
        ]
        held = list[ObjectStat]()
        if old:
            names = self._context.names()
            held = [stat for stat in old if file_name(stat.path) in names]
            old = [stat for stat in old if file_name(stat.path) not in names]
        doubtful = [stat for stat in old if stat.modified_s > trusted_s]
        requests = [
            (
                *(stat for stat in old if stat.modified_s <= trusted_s),
                *superseded_checkpoints(listing, evidence, chain.tails.keys()),
                *self._context.replaced_bookmarks(self._old_s),
                *self._forgotten_lists(listing, chain),
            ),
            *unreached_logs(log.objects, listing, evidence, chain),
        ]
        garbage = [stat for stats in requests for stat in stats]
        begun = self._unfinished()
        gone = {stat.path for stat in garbage}
        active = stream_files(chain.active)
        result = VacuumResult(
            self.partition,
            deleted=tuple(garbage),
            fenced=fenced,
            kept=sum(stat.path not in gone for stat in listing.beside),
            waiting=reach.waiting(active, gone.union(_paths(doubtful), _paths(held))),
            dead_rows=sum(file.rows - file.live_rows for file in active),
            doubtful=tuple(doubtful),
            unfinished=tuple(begun),
            dry_run=dry_run,
            held=tuple(held),
            retracted=reach.retracted(),
        )
        if not dry_run:
            for stats in requests:
                self._store.delete([stat.path for stat in stats])
            discard(self._store, begun)
            full_s = self._now_s if chain.is_whole or not mark else mark.full_s
            with contextlib.suppress(Exception):  # without it, the next vacuum reads more
                self._put_mark(result, listing, chain, unreached, evidence, full_s)
        return result

    def _refuse(self, reasons: Iterator[str]) -> None:
        """Raise CorruptionError for the first reason not to trust the log, if there is any."""
        for reason in reasons:
            raise CorruptionError(f"partition {self.partition}: {reason} (nothing was deleted)")

    def _forgotten_lists(self, listing: StreamListing, chain: Chain) -> list[ObjectStat]:
        """Lists of the files of versions that nobody may read any more, for other engines."""
        retained = {state.version for state in chain.retained}
        lists = self._context.version_lists(self.partition)
        return [stat for stat in lists if listing.is_old(stat) and listed_version(stat.path) not in retained]

    def _unfinished(self) -> list[ObjectStat]:
        """Writes that never ended. If the store does not say for which table, a write must have the default age."""
        root = f"{self._paths.root}/"
        return [
            stat
            for stat in unfinished(self._store, root)
            if stat.modified_s <= (self._old_s if self._paths.is_ours(stat.path) else self._shared_old_s)
            and (self._paths.is_ours(stat.path) or not stat.path.startswith(root))
        ]

    # The mark

    def _mark(self) -> VacuumMark | None:
        try:
            return parsed(self._paths.root, self._store.get(self._paths.vacuum_mark), self._now_s)
        except NotFoundError:
            return None

    def _put_mark(
        self,
        result: VacuumResult,
        listing: StreamListing,
        chain: Chain,
        unreached: list[ObjectStat],
        evidence: Evidence,
        full_s: float,
    ) -> None:
        gone = {stat.path for stat in result.deleted}
        settled = gone | {stat.path for stat in result.doubtful}  # doubtful objects wait for an entry, not for an age
        ages = [stat.modified_s for stat in unreached if stat.path not in settled]
        ages += [sealed_s(listing, state) for state in chain.retained if state.sealed]
        logs = attempts(listing, evidence, chain).values()
        ages += [max(stat.modified_s for stat in log) for log in logs if not gone.issuperset(_paths(log))]
        mark = VacuumMark(
            digest(stat for stat in listing.all.values() if stat.path not in gone),
            min(ages, default=None),
            full_s,
            _paths((*result.waiting, *result.held)),  # found again, they are too young: a greater age was asked for
            _paths(result.doubtful),
            _paths(result.retracted),
            result.dead_rows,
            chain.sealed,
            tuple(path for path in evidence.records if path in listing.all and path not in gone),
        )
        self._store.put(self._paths.vacuum_mark, mark.encoded(self._paths.root))

    def _as_before(self, mark: VacuumMark, listing: StreamListing, dry_run: bool) -> VacuumResult:
        """The result of a vacuum that finds exactly the objects that the last one left."""
        begun, listed = self._unfinished(), listing.all
        if begun:  # by the clock of this machine, which may be ahead of the store's: a live writer's are younger
            self._count_by_store()
            begun = self._unfinished()
        if not dry_run:
            discard(self._store, begun)
        return VacuumResult(
            self.partition,
            deleted=(),
            fenced=(),
            kept=len(listing.beside),
            waiting=tuple(listed[path] for path in mark.waiting if path in listed),
            dead_rows=mark.dead_rows,
            doubtful=tuple(listed[path] for path in mark.doubtful if path in listed),
            unfinished=tuple(begun),
            dry_run=dry_run,
            retracted=tuple(listed[path] for path in mark.retracted if path in listed),
        )


def _paths(stats: Iterable[ObjectStat]) -> tuple[str, ...]:
    return tuple(stat.path for stat in stats)
