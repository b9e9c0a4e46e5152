"""Finds candidates for changes in a stream between two versions or moments, and the commits in between.

from 1     a: 0 1 2 live      b: all           deltas 80, 90          as version 1 was when it was sealed
to now     a: 0   2 live      b: all     c     delta 95

Live rows are found as a reader finds them: from the index and the keys of the deltas. Compacted files are opened only
if some of their rows came or went: rows that compactions only moved are followed (moved_rows.py). If a version was
compacted into its successor, both have the same rows at that moment, and the successor shares more files with later
ones: so we begin there. In a destination no version is compacted into the next: each compaction brings rows of the
source, and counts as a commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import CorruptionError, InputError, NotFoundError, SchemaError, UnknownColumnError
from deltacompact.base.events import logger
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import ContentType, Partition, Table
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.wording import text_of
from deltacompact.change_feed.candidates import Bits, Candidates, Numbers, changed
from deltacompact.change_feed.columns import ChangeCommit
from deltacompact.change_feed.moved_rows import LiveFiles, without_moved
from deltacompact.change_feed.request import ChangesRequest
from deltacompact.change_feed.steps import ChangeStep
from deltacompact.delta_streams.log.log import StreamLog, genesis_state
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.log.tokens import Commits
from deltacompact.delta_streams.retained import StreamFiles, begins, refuse_missing, state_in
from deltacompact.delta_streams.scan import with_keys_of
from deltacompact.delta_streams.snapshots import everything
from deltacompact.delta_streams.streams import Streams, stream_files
from deltacompact.index.live_bitmaps import LiveBits, live_mask
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.index.remap import Relocator
from deltacompact.layout.skipping import KnownColumns
from deltacompact.reading.live_rows import KeptEntries, live_sources, schema_of
from deltacompact.reading.skipping import Skipping, known_of
from deltacompact.storage.fetched_file import ReadAhead
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, partition_texts, schemas

_ANEW = (
    "take all rows anew: the net change from 1970-01-01, by a new bookmark, and into an empty mirror. A feed that is "
    "no mirror may leave it out with --columns"
)
"""What helps where a restatement has given a column a type, or a value, that does not fit those before it."""

AsOf = str | datetime | None


@dataclass(frozen=True, slots=True)
class StreamFileRows:
    """Rows of a file of a stream."""

    store: ObjectStore
    file: DataFile
    partition: Partition
    limits: ReadLimits

    @property
    def rows(self) -> int:
        return self.file.rows

    @property
    def row_bytes(self) -> int:
        return 1 + self.file.likely_decoded_bytes // max(1, self.rows)

    @property
    def path(self) -> str:
        return self.file.path

    def known(self, columns: pa.Schema) -> KnownColumns:
        return known_of(self.file, self.partition, columns)

    def tables(self, columns: pa.Schema, bits: Bits | None, skipping: Skipping) -> Iterator[tuple[Numbers, pa.Table]]:
        wanted = np.ones(self.rows, bool) if bits is None else live_mask(bits, self.rows)
        if not wanted.any():
            return
        with files.FileReader(self.store, files.Part(self.file, columns.names), ReadAhead(self.limits)) as reader:
            left = skipping.live(reader, wanted)
            for numbers, table in reader.wanted(wanted if left is None else left):
                try:
                    aligned = schemas.align(table, columns, self.partition, self.path)
                except SchemaError as error:
                    partition_texts.check_fit(self.partition, columns)  # else no version is to blame
                    raise SchemaError(f"{error}; other versions of this feed have that type: {_ANEW}") from error
                yield numbers, aligned

    def lineage(self, bits: Bits | None) -> None:
        return None


@dataclass(slots=True)
class StreamRange:
    """The commits of a partition after `begin` up to `end`. `chain` has the versions of the stream since `begin`."""

    catalog: Streams
    table: Table
    partition: Partition
    chain: tuple[StreamState, ...]
    begin: StreamState
    end: StreamState
    limits: ReadLimits
    _known: tuple[StreamState, LiveFiles] | None = field(default=None, repr=False)
    _entries: KeptEntries = field(default_factory=KeptEntries, repr=False)

    @classmethod
    def of(
        cls,
        catalog: Streams,
        table_id: str,
        partition: Partition,
        from_: AsOf | StreamState,
        to: AsOf,
        limits: ReadLimits,
    ) -> StreamRange:
        """Raises NotFoundError for a version that is not there, or whose files are gone."""
        chain = _chain(catalog, table_id, partition, from_, to)
        where = f"table {table_id!r}, partition {partition}"
        end = chain[-1] if to is None else state_in(chain, to, where)
        begin = from_ if from_ is None or isinstance(from_, StreamState) else state_in(chain, from_, where)
        return cls.between(catalog, table_id, partition, chain, begin, end, limits)

    @classmethod
    def between(
        cls,
        catalog: Streams,
        table_id: str,
        partition: Partition,
        chain: Sequence[StreamState],
        begin: StreamState | None,
        end: StreamState,
        limits: ReadLimits,
    ) -> StreamRange:
        """The range between two states of the chain. `begin` None: from the table's beginning."""
        begin = genesis_state() if begin is None else begin_state(table_id, chain, begin)
        for state in (begin, end):
            refuse_vacuumed(catalog, table_id, partition, chain, state)
        table = with_keys_of(catalog, catalog.described(table_id), chain)
        return cls(catalog, table, partition, tuple(chain), begin, end, limits)

    def schemas(self, per_commit: bool) -> list[pa.Schema]:
        """The columns of both ends, and for a feed of each commit those of the versions between them."""
        between = self._between_ends() if per_commit else ()
        return [self._schema(state) for state in (self.begin, *between, self.end)]

    def _between_ends(self) -> tuple[StreamState, ...]:
        """The versions from that of the beginning to the one before the end's."""
        names = [state.version for state in self.chain]
        return self.chain[names.index(self.begin.version) : names.index(self.end.version)]

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key, without partition keys."""
        primary = self.table.keys.primary if self.table.keys else ()
        return tuple(name for name in primary if name not in self.table.partition_keys)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        return self.table.partition_keys

    def lacking(self, name: str) -> str | None:
        """Which end has rows but lacks this column; None: neither. Rows always have their partition's keys."""
        if name in self.table.partition_keys:
            return None
        for words, state in (("the beginning", self.begin), ("the end", self.end)):
            names = self._schema(state).names  # none where there is no row: files of deletes do not count
            if names and name not in names:
                return words
        return None

    def _schema(self, state: StreamState) -> pa.Schema:
        return schema_of(everything(self.table.table_id, self.partition, state))

    def files(self) -> tuple[frozenset[str], frozenset[str]]:
        """The files of both ends, of deltas too."""
        before, after = (frozenset(file.path for file in stream_files(state)) for state in (self.begin, self.end))
        return before, after

    def net(self) -> list[ChangeStep]:
        """One step: all that may have changed."""
        last = self.end.commits[-1] if self.end.commits else None
        time_ms = last.time_ms if last else self.end.opened.time_ms or None
        commit = ChangeCommit(0, self.end.last_position, time_ms)
        return [ChangeStep(commit, lambda: list(self._between(self.begin, self.end)))]

    def commits(self) -> list[ChangeStep]:
        """A step for each commit, rollback, restatement or retraction; in a destination for each version."""
        ends = self.begin, begin_state(self.table.table_id, self.chain, self.end)
        numbers = [(state.opened.number, len(state.commits)) for state in ends]
        if numbers[0] > numbers[1]:
            raise InputError(f"table {self.table.table_id!r}: the feed ends before it begins: ask for the net change")
        self._refuse_gaps()
        return [
            ChangeStep(replace(commit, ordinal=ordinal), lambda pair=pair: list(self._between(*pair)))  # type: ignore[misc]
            for ordinal, (pair, commit) in enumerate(self._pairs())
        ]

    def _refuse_gaps(self) -> None:
        """Raise InputError where a version between the ends is gone: vacuum keeps the ends of a bookmark alone."""
        files = StreamFiles(self.catalog.store, self.catalog.log(self.table.table_id, self.partition).paths)
        for state in self._between_ends():
            if missing := files.missing_of(state):
                raise InputError(
                    f"table {self.table.table_id!r}, partition {self.partition}: version {state.version}, whose "
                    f"commits are asked for, cannot be read any more: {missing[0]} is missing. Ask for the net change"
                )

    def _pairs(self) -> Iterator[tuple[tuple[StreamState, StreamState], ChangeCommit]]:
        """The states before and after each commit, without compactions, which change no row."""
        names = [state.version for state in self.chain]
        first, last = names.index(self.begin.version), names.index(self.end.version)
        before = self.begin
        for number in range(first, last + 1):
            version = self.end if number == last else self.chain[number]
            known = {commit.commit_id for commit in self.chain[number - 1].commits} if number else set()
            count = sum(commit.commit_id in known for commit in version.commits)
            if number == first:
                count = len(before.commits)
            elif version.commits and version.commits[0].commit_id == version.opened.lineage:
                count = 1  # a restatement
            start = replace(version, commits=Commits(version.commits[:count]))
            same = number != first and _is_compacted(self.table.table_id, before, version)
            if not same and (start.retracted != before.retracted or number != first):
                yield (before, start), ChangeCommit(0, version.opened.last_position, version.opened.time_ms or None)
            before = start
            for commit in version.commits[count:]:
                after = replace(version, commits=before.commits.plus([commit]))
                yield (before, after), ChangeCommit(0, commit.last_position, commit.time_ms)
                before = after

    def _between(self, before: StreamState, after: StreamState) -> Iterator[Candidates]:
        lived, lives = self._unmoved(before, after)
        if (after.version, len(after.commits)) == (self.end.version, len(self.end.commits)):
            self._entries.clear()  # nobody asks for a later state, and a feed has many partitions
        for name in dict.fromkeys([*lived, *lives]):
            (former, was), (file, now) = lived.get(name, (None, None)), lives.get(name, (None, None))
            stored = file or former
            assert stored is not None
            rows = StreamFileRows(self.catalog.store, stored, self.partition, self.limits)
            if former is not None and file is not None:
                yield from changed(rows, was, now)
            elif stored.rows:
                yield Candidates(rows, file is not None, now if file is not None else was)

    def _unmoved(self, before: StreamState, after: StreamState) -> tuple[LiveFiles, LiveFiles]:
        """The live rows of both, without those that compactions only moved, as far as the newer index tells."""
        lived, lives = self._lives(before), self._lives(after)
        is_backwards = after.opened.number < before.opened.number
        older, newer = (after, before) if is_backwards else (before, after)
        if older.compacted is None or newer.compacted is None or not self._only_compacted(older, newer):
            return lived, lives
        try:
            compacted, relocator = (older.compacted.files, newer.compacted.files), self._relocator(newer)
            if is_backwards:
                return without_moved(lives, lived, compacted, relocator)[::-1]
            return without_moved(lived, lives, compacted, relocator)
        except (NotFoundError, CorruptionError) as error:
            logger.warning("where rows moved cannot be read, so they are compared: %s", text_of(error))
            return lived, lives

    def _only_compacted(self, older: StreamState, newer: StreamState) -> bool:
        """Whether `newer` came from `older` by compactions alone; if not, file numbers may have been given twice."""
        names = [state.version for state in self.chain]
        between = self.chain[names.index(older.version) : names.index(newer.version) + 1]
        is_own = all(_is_own(self.table.table_id, state) for state in between)
        return len(between) > 1 and is_own and len({state.opened.lineage for state in between}) == 1

    def _relocator(self, state: StreamState) -> Relocator:
        manifest = read_manifest(self.catalog.store, state.index) if state.index else None
        return Relocator(self.catalog.store, manifest.relocations if manifest else (), self.limits)

    def _lives(self, state: StreamState) -> LiveFiles:
        """The files with live rows. The last answer is kept: one commit ends where the next begins."""
        if self._known is None or self._known[0] is not state:
            self._known = state, self._found(state)
        return self._known[1]

    def _found(self, state: StreamState) -> LiveFiles:
        snapshot = everything(self.table.table_id, self.partition, state)
        store = self.catalog.store
        if self.table.keys is not None and snapshot.deltas:
            sources = live_sources(store, snapshot, self.table, self.limits, self._entries)
            return _by_uri((source.file, bits) for source, bits in sources)
        upserts = [file for delta in snapshot.deltas if delta.operation == "upsert" for file in delta.files]
        compacted = list(snapshot.base.files) if snapshot.base else []
        live = LiveBits(store, self.limits)
        return _by_uri((file, live.of(file)) for file in [*compacted, *upserts])


def _by_uri(found: Iterator[tuple[DataFile, Bits | None]]) -> LiveFiles:
    times: Counter[str] = Counter()
    lives: LiveFiles = {}
    for file, bits in found:
        lives[file.path, times[file.path]] = file, bits
        times[file.path] += 1
    return lives


def columns_of(table: Table, ranges: Sequence[StreamRange], asked: ChangesRequest) -> pa.Schema:
    """The columns of all ranges; those that the table declares, if it never had rows.

    Raises SchemaError for a column of two types that do not fit, unless others are asked for: a restatement may give a
    column any type.
    """
    found = [schema for range_ in ranges for schema in range_.schemas(asked.per_commit)]
    try:
        return _joined(found) or _declared(table, asked)
    except SchemaError:
        unfit = _unfit(found)
    for name, types in unfit.items():
        if asked.columns is None or name in asked.columns:
            raise SchemaError(
                f"table {table.table_id!r}: column {name!r} is {' and '.join(types)} in versions of this feed: {_ANEW}"
            )
    return _joined(pa.schema([field for field in schema if field.name not in unfit]) for schema in found)


def _declared(table: Table, asked: ChangesRequest) -> pa.Schema:
    """The columns that a table declares; none if the key, or what is asked for, is another one: a row may bring it.

    Raises InputError for a filter that is malformed, or does not fit these columns.
    """
    declared = table.columns or pa.schema([])
    own = table.keys.primary if table.keys else ()
    with suppress(UnknownColumnError):
        asked.selected(table.table_id, declared, table.partition_keys)
        if {*(own if asked.key is None else asked.key)} <= {*declared.names, *table.partition_keys}:
            return declared
    return pa.schema([])


def _joined(found: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all schemas. A type that no row has had fits every other one."""
    return schemas.unmarked(
        schemas.union(DataFile(UNNUMBERED, "its versions", ContentType.PARQUET, 1, 0, each) for each in found)
    )


def _unfit(found: Sequence[pa.Schema]) -> dict[str, list[str]]:
    """The types of each column that has several of which none holds all."""
    unfit: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for schema in found for name in schema.names):
        alone = [pa.schema([schema.field(name)]) for schema in found if name in schema.names]
        try:
            _joined(alone)
        except SchemaError:
            types = (str(schema.field(0).type) for schema in alone if not schemas.is_promised(schema.field(0)))
            unfit[name] = list(dict.fromkeys(types))
    return unfit


def _chain(
    catalog: Streams, table_id: str, partition: Partition, from_: AsOf | StreamState, to: AsOf
) -> list[StreamState]:
    """The versions from the older of both ends to the active one."""
    log = catalog.log(table_id, partition)
    if from_ is None:
        return list(log.chain())
    chain = since_version(log, from_.version) if isinstance(from_, StreamState) else log.since(begins(from_))
    if to is not None and not any(map(begins(to), chain)):
        chain = log.since(begins(to))
    return chain


def since_version(log: StreamLog, version: str, other: str | None = None) -> list[StreamState]:
    """The versions from this one to the active one; from `other`, where that is older."""
    chain = log.since(lambda state: state.version == version)
    if other is None or other in [state.version for state in chain]:
        return chain
    return since_version(log, other)


def refuse_vacuumed(
    catalog: Streams, table_id: str, partition: Partition, chain: Sequence[StreamState], state: StreamState
) -> None:
    """Raise NotFoundError if a file of a state is missing. Those of the active version are there, or their readers say
    which one is not."""
    if state.version != chain[-1].version and stream_files(state):
        refuse_missing(catalog, table_id, partition, state)


def _contents(state: StreamState) -> tuple[int, frozenset[int]]:
    return len(state.commits), state.retracted


def _is_own(table_id: str, state: StreamState) -> bool:
    """Whether the compacted rows are the table's own. If not, it is the destination of another table."""
    return state.compacted is None or state.compacted.source_table_id == table_id


def _is_compacted(table_id: str, state: StreamState, successor: StreamState) -> bool:
    """Whether a compaction made the successor of this state, and brought no rows of another table."""
    opened = successor.opened
    return opened.lineage == state.lineage and opened.taken_out is None and _is_own(table_id, successor)


def begin_state(table_id: str, chain: Sequence[StreamState], state: StreamState) -> StreamState:
    """The state with the same rows that shares most files with today: the beginning of the version after it."""
    place = next(number for number, link in enumerate(chain) if link.version == state.version)
    while chain[place].sealed and _contents(state) == _contents(chain[place]):
        successor = chain[place + 1]
        if not _is_compacted(table_id, state, successor):
            break
        known = {commit.commit_id for commit in state.commits}
        carried = [commit for commit in successor.commits if commit.commit_id in known]
        state = replace(successor, commits=Commits(carried), retracted=state.retracted)
        place += 1
        if len(carried) != len(successor.commits) or state.retracted != successor.retracted:
            break
    return state
