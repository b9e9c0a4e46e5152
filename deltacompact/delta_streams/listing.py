"""The listing of a table: where each of its streams stood when somebody last looked at all of them.

    orders/listing.json     day=1995-04-03   version 4-a1…, 2 entries, no delta waits, last position 90
                            day=1995-04-04   version 2-77…, 7 entries, 3 deltas wait
                            … 998 others

The listing only saves time. A process that finds too many streams not as listed writes it anew. If it is missing, stale
or damaged, streams are opened one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import FORMAT_VERSION, Partition
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import GENESIS, TablePaths, is_version
from deltacompact.storage.checksummed import checksum
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.ports import NothingToDo


@dataclass(frozen=True, slots=True)
class ListedStream:
    """The active version of a stream and the length of its log, and what a compaction had to do then.

    waiting      deltas to compact
    marked       files with dead rows under deletion vectors
    clustered    the columns by which all files were laid out. "": they were not
    """

    version: str
    tail: int
    waiting: int
    marked: int
    last_position: int | None
    clustered: str = ""

    @classmethod
    def of(cls, state: StreamState) -> ListedStream:
        compacted = state.compacted.files if state.compacted else ()
        marked = sum(file.deletions is not None for file in compacted)
        by = {file.clustered.by if file.clustered else "" for file in compacted}
        clustered = by.pop() if len(by) == 1 else ""
        return cls(state.version, state.tail, len(state.deltas), marked, state.last_position, clustered)

    def is_idle(self, purge: bool, cluster_by: str = "") -> bool:
        """Whether a compaction has nothing to do, if no entry has come. False for first versions: all have one name."""
        lies_well = not cluster_by or self.clustered == cluster_by
        return self.version != GENESIS and not self.waiting and not (purge and self.marked) and lies_well

    @property
    def nothing_to_do(self) -> NothingToDo:
        return NothingToDo(f"no delta since position {self.last_position}")


Listing = dict[Partition, ListedStream]


def read_listing(store: ObjectStore, table_id: str, keys: Sequence[str]) -> Listing:
    """The listing of a table with these partition keys. Empty: it is missing, damaged, or another table's."""
    paths = TablePaths.of(table_id)
    try:
        document = json.loads(store.get(paths.listing))
        streams = document["streams"]
        if document["format"] != FORMAT_VERSION or document["sha256"] != checksum([paths.root, streams]):
            return {}
        found = {Partition(tuple(zip(keys, values, strict=True))): ListedStream(*fields) for values, *fields in streams}
        return {partition: listed for partition, listed in found.items() if is_version(listed.version)}
    except (NotFoundError, ValueError, LookupError, TypeError):
        return {}


def write_listing(store: ObjectStore, table_id: str, listing: Listing) -> None:
    paths = TablePaths.of(table_id)
    streams = [[[value for _, value in partition.values], *_facts(stream)] for partition, stream in listing.items()]
    document = {"format": FORMAT_VERSION, "streams": streams, "sha256": checksum([paths.root, streams])}
    store.put(paths.listing, json.dumps(document, separators=(",", ":")).encode())


def _facts(stream: ListedStream) -> tuple[object, ...]:
    """The stream's facts as the listing stores them. Earlier releases expect five facts."""
    return astuple(stream) if stream.clustered else astuple(stream)[:-1]
