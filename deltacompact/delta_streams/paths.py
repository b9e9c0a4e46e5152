"""The paths of all objects of a table.

    ORDERS/table.json                                            created once
    ORDERS/keys.json                                             by the first compaction, if keys were not declared
    ORDERS/partitions/order_day=1995-04-03                       the mark of a partition that exists
    ORDERS/listing.json                                          where each stream stood when somebody last looked
    ORDERS/dropped.json                                          the old table.json, while the table is being dropped
    ORDERS/bookmarks/mirror/00000000000000000000.json            how far a consumer of its changes is
    ORDERS/heat/00000000000000000001.json                        what reads ask for
    ORDERS/published/symlink|files/order_day=1995-04-03/…        lists of the compacted files, for other engines
    ORDERS/order_day=1995-04-03/stream/0/00000000000000000000.json      the log
    ORDERS/order_day=1995-04-03/data|index|manifest|sessions/…          all other objects, under names used once

Values are percent-encoded. Null is written `!null`, because no encoded text begins with "!".

Foreign objects may lie among ours: folder markers (`stream/0/`), copies (`…02.json.bak`), files of other programs. The
functions that read a path (`sequence`, `entry_of`, `is_ours`, `partition_of`, …) accept exactly the names that we
write, so code that lists a folder skips all other objects.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.expect import is_text
from deltacompact.base.model import Partition
from deltacompact.storage.identity import identity_of_uri, path_below
from deltacompact.storage.numbered import number_in, numbered_path
from deltacompact.storage.objects import ObjectStore, is_there
from deltacompact.storage.opening import open_object
from deltacompact.table.ports import Workspace

GENESIS = "0"
_NULL = "!null"

_VERSION = re.compile(r"0|[1-9][0-9]*-[0-9a-f]{32}")
_OWNER = r"(?:[0-9a-f]{24}|(?:rehash|retract)-[0-9a-f]{32})"
_FRESH = r"[0-9a-f]{32}(?:\.[^./]+(?:\.(?:gz|GZ|bz2|zst))?|\.manifest\.json|\.(?:masks|moves|exchange)\.arrow)?"
_FRESH_NAME = re.compile(_FRESH)
_RECORD = r"(?:plan|published|tree|round-[0-9]{5,}|outputs-[0-9]{5,}|output-[0-9]{10,})\.json"
"""Releases up to 0.1 recorded each output in an object of its own."""
_MANAGED = re.compile(
    rf"(?P<root>.+?)/(?:(?:data|index|manifest)/(?:(?P<owner>{_OWNER})/)?{_FRESH}|sessions/(?P<session>{_OWNER})/{_RECORD})",
    re.DOTALL,
)
"""Matches a path made by `StreamPaths.fresh` or the path of a session's record; groups: the stream and the session."""


PATH_BYTES_MAX = 800
"""The longest path of a stream's folder: S3 keys have at most 1,024 bytes, and names below the folder need the rest."""


def check_path(what: str, path: str) -> None:
    """Refuse a path that would make too long keys in a store, before the table or stream is begun."""
    if len(path) > PATH_BYTES_MAX:
        raise InputError(f"{what}: its path would have {len(path):,} bytes, more than {PATH_BYTES_MAX}: shorten it")


def table_root(table_id: str) -> str:
    """The table's folder below the catalog's root."""
    if not isinstance(table_id, str):
        raise InputError(f"the table is {table_id!r} ({type(table_id).__name__}), it must be a name")
    if not is_text(table_id):
        raise InputError(f"{table_id!r} is not a table name")
    if not table_id or table_id in (".", "..") or table_id.startswith(".unfinished"):
        raise InputError(f"{table_id!r} is not a table name")
    return quote(table_id, safe="")


def table_name(folder: str) -> str:
    return unquote(folder)


@dataclass(frozen=True, slots=True)
class TablePaths:
    """The objects of a table as a whole."""

    root: str

    @classmethod
    def of(cls, table_id: str) -> TablePaths:
        return cls(table_root(table_id))

    @property
    def table(self) -> str:
        return f"{self.root}/table.json"

    @property
    def keys(self) -> str:
        return f"{self.root}/keys.json"

    @property
    def source(self) -> str:
        return f"{self.root}/source.json"

    @property
    def listing(self) -> str:
        return f"{self.root}/listing.json"

    @property
    def dropped(self) -> str:
        """The old table.json, while the table is being dropped."""
        return f"{self.root}/dropped.json"

    @property
    def bookmarks(self) -> str:
        return f"{self.root}/bookmarks/"

    @property
    def heat(self) -> str:
        return f"{self.root}/heat/"

    @property
    def partitions(self) -> str:
        return f"{self.root}/partitions/"

    @property
    def lists(self) -> str:
        """The folder of the lists of compacted files, for other engines."""
        return f"{self.root}/published/"

    def version_lists(self, partition: Partition) -> str:
        """The folder of a partition's lists of files, one for each version."""
        return f"{self.lists}files/{_below(partition)}"

    def symlinks(self, partition: Partition) -> str:
        """A partition's manifest in the symlink table."""
        return f"{self.lists}symlink/{_below(partition)}manifest"

    def is_list(self, path: str, partition_keys: tuple[str, ...]) -> bool:
        """Whether an object is a list of a partition's compacted files."""
        kind, _, rest = path.removeprefix(self.lists).partition("/")
        folder, _, name = f"/{rest}".rpartition("/")
        is_named = (kind, name) in (("symlink", "manifest"), ("files", "latest.txt"))
        if not is_named and not (kind == "files" and listed_version(name)):
            return False
        return self.partition_of(self.partitions + (folder.removeprefix("/") or "all"), partition_keys) is not None

    def partition_mark(self, partition: Partition) -> str:
        return self.partitions + (partition_folder(partition) or "all")

    def stream(self, partition: Partition) -> StreamPaths:
        folder = partition_folder(partition)
        return StreamPaths(f"{self.root}/{folder}" if folder else self.root)

    def partition_of(self, mark: str, partition_keys: tuple[str, ...]) -> Partition | None:
        """The partition that an object marks. None: the object is not a mark."""
        parts = [part.partition("=")[2] for part in mark.removeprefix(self.partitions).split("/")]
        values = parts if partition_keys else []
        named = zip(partition_keys, values, strict=False)
        partition = Partition(tuple((name, None if value == _NULL else unquote(value)) for name, value in named))
        return partition if self.partition_mark(partition) == mark else None


@dataclass(frozen=True)
class StreamPaths(Workspace):
    """The objects of one partition stream. The stream is also the workspace of its sessions."""

    @property
    def hint(self) -> str:
        return f"{self.root}/stream/hint.json"

    def version(self, version: str) -> str:
        return f"{self.root}/stream/{version}/"

    def entry(self, version: str, sequence: int) -> str:
        return numbered_path(self.version(version), sequence)

    @property
    def vacuum_mark(self) -> str:
        return f"{self.root}/vacuum.json"

    @property
    def logs(self) -> str:
        """The folder of all versions' logs."""
        return f"{self.root}/stream/"

    def sequence(self, version: str, path: str) -> int | None:
        """The sequence number of a log entry of a version. None: the object is not such an entry."""
        return number_in(self.version(version), path)

    def entry_of(self, path: str) -> tuple[str, int] | None:
        """The version and the sequence number of a log entry. None: the object is not a log entry."""
        return _numbered(self.logs, path)

    def checkpoint(self, version: str, tail: int) -> str:
        return numbered_path(self.checkpoints(version), tail)

    def checkpoints(self, version: str = "") -> str:
        """The folder of a version's checkpoints, or the folder of all checkpoints."""
        return f"{self.root}/checkpoints/" + (f"{version}/" if version else "")

    def checkpoint_of(self, path: str) -> tuple[str, int] | None:
        """The version and the tail of a checkpoint. None: the object is not a checkpoint."""
        return _numbered(self.checkpoints(), path)

    @property
    def swept(self) -> tuple[str, ...]:
        """The folders whose objects vacuum may delete."""
        return tuple(f"{self.root}/{name}/" for name in ("data", "index", "manifest", "sessions"))

    @property
    def folders(self) -> tuple[str, ...]:
        """All folders of the stream. In a table without partitions, the table's own objects lie beside them."""
        return (*self.swept, self.logs, self.checkpoints())

    def is_data(self, path: str) -> bool:
        return path.startswith(f"{self.root}/data/")

    def is_record(self, path: str) -> bool:
        """Whether an object is a session's record."""
        return path.startswith(f"{self.root}/sessions/")

    def is_ours(self, path: str) -> bool:
        """Whether this stream gave an object its name, so that this stream's vacuum may delete it."""
        return stream_root_of(path) == self.root

    def session_of(self, path: str) -> str | None:
        """The session in the path of an object of ours: data/<session>/…, sessions/<session>/…, and so on."""
        match = _MANAGED.fullmatch(path)
        return match and (match["owner"] or match["session"])


def refuse_files_of_other_streams(store: ObjectStore, uri: str, stream: StreamPaths) -> None:
    """Raise InputError for a file that the vacuum of another stream may delete, in this catalog or in another one.

    That vacuum reads only its own log. It deletes the file once its own compaction has dropped it.
    """
    below = path_below(store, uri)
    if below is None:
        owner, where = _stream_elsewhere(store, uri), "another catalog"
    else:
        owner, where = stream_root_of(below), "this catalog"
    if owner is not None and (below is None or unquote(owner) != unquote(stream.root)):
        raise InputError(
            f"{uri} is a file of {unquote(owner)!r} in {where}, whose vacuum may delete it: append a copy of it "
            "(leave out --reference)"
        )


def _stream_elsewhere(store: ObjectStore, uri: str) -> str | None:
    """The URI of the stream in another catalog that owns a file; None: none does that we could see."""
    for name in dict.fromkeys((uri, identity_of_uri(uri))):
        if (root := stream_root_of(name)) is not None:
            with contextlib.suppress(DeltaCompactError):
                if is_there(*open_object(store, StreamPaths(root).entry(GENESIS, 0))):
                    return root
    return None


def is_fresh_name(name: str) -> bool:
    """Whether a file's name looks like the names that we give."""
    return bool(_FRESH_NAME.fullmatch(name))


def is_version(name: str) -> bool:
    """Whether a name has the form of our version names."""
    return bool(_VERSION.fullmatch(name))


def listed_version(path: str) -> str | None:
    """The version whose files an object lists for other engines. None: the object is no list of one version."""
    name, _, kind = path.rpartition("/")[2].rpartition(".")
    return name if kind == "txt" and is_version(name) and name != GENESIS else None


def stream_root_of(path: str) -> str | None:
    """The folder of the stream that owns an object and may vacuum it. None: no stream does.

    `orders` owns `orders/data/5c….parquet`; no stream owns `orders/data/backup/5c….parquet` or `landing/a.csv`.
    """
    match = _MANAGED.fullmatch(path)
    return match and match["root"]


def _numbered(folder: str, path: str) -> tuple[str, int] | None:
    version = path.removeprefix(folder).partition("/")[0]
    number = number_in(f"{folder}{version}/", path) if is_version(version) else None
    return None if number is None else (version, number)


def _below(partition: Partition) -> str:
    folder = partition_folder(partition)
    return f"{folder}/" if folder else ""


def partition_folder(partition: Partition) -> str:
    return "/".join(
        f"{quote(name, safe='')}={_NULL if value is None else quote(value, safe='')}"
        for name, value in partition.values
    )
