"""The files that snapshots reach: manifest lists, manifests, data and delete files, statistics.

    snapshot 8    list 8    manifest 1: a, b     manifest 2: v.puffin at 4
    snapshot 9    list 9    manifest 1           manifest 3: v.puffin at 60
    reached       list 8, list 9, 1, 2, 3, a, b, v.puffin

Each manifest is read once, however many snapshots name it, and only its paths are kept. A Puffin file is reached as
long as one deletion vector in it is. Files with the same identity are one file: s3a://b/x and s3://b/x, or two
spellings of one escaped name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.iceberg.table import avro, locations, manifests
from deltacompact.iceberg.table.content_files import Content, Manifest, Status
from deltacompact.iceberg.table.locations import folder_identity, identity_of
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.storage.objects import ObjectStore

DATA, DELETES, MANIFESTS, LISTS, STATISTICS = "data", "deletes", "manifests", "manifest lists", "statistics"
PATHS_SHOWN = 10
"""How many paths a result names."""
PROGRESS_EACH = 500
"""We report progress after so many manifests each."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that metadata names: its kind, its location, and its size according to the metadata."""

    kind: str
    location: str
    bytes: int


def folders_of(metadata: TableMetadata) -> list[str]:
    """The identities of the table's own folders, each with a slash at its end."""
    found = {metadata.location, metadata.data_folder, metadata.metadata_folder}
    return [folder_identity(folder) for folder in sorted(found)]


def is_inside(file: str, folders: Iterable[str]) -> bool:
    """Whether the file with this path or identity lies in one of the folders."""
    return any(file.startswith(folder) for folder in folders)


def is_below(file: str, folders: Collection[str]) -> bool:
    """The same for identities, and for thousands of folders: one look-up for each part of the path."""
    return bool(folders) and any(file[: at + 1] in folders for at, letter in enumerate(file) if letter == "/")


def manifests_of(
    store: ObjectStore, snapshots: Collection[Snapshot], tolerant: bool = False
) -> tuple[list[File], dict[str, Manifest]]:
    """The manifest lists of snapshots, and the manifests that they name, by path.

    `tolerant`: a list that is gone names nothing. Else NotFoundError is raised.
    """
    lists: list[File] = []
    found: dict[str, Manifest] = {}
    guard = threading.Lock()

    def read(snapshot: Snapshot) -> None:
        try:
            data = locations.fetched(store, snapshot.manifest_list)
        except NotFoundError:
            if tolerant:
                return
            raise
        lines = manifests.read_manifest_list(data, snapshot.manifest_list)
        with guard:
            lists.append(File(LISTS, snapshot.manifest_list, len(data)))
            found.update({line.path: line for line in lines})

    for _ in _in_threads(read, snapshots):
        pass
    return lists, found


def each_live_file(
    store: ObjectStore,
    listed: Collection[Manifest],
    take: Callable[[Mapping[str, File]], None],
    say: Callable[[str], None],
    tolerant: bool = False,
) -> None:
    """Read each manifest once, and give `take` its live files by identity. `take` is called by one thread at a time.

    `say` is told how far it is.

    Raises InputError for an encrypted manifest, and NotFoundError for one that is missing, if not `tolerant`.
    """
    guard = threading.Lock()

    def read(manifest: Manifest) -> None:
        try:
            data = locations.fetched(store, manifest.path)
        except NotFoundError:
            if tolerant:
                return
            raise
        files = {identity_of(file.location): file for file in _live_files(data, manifest)}
        with guard:
            take(files)

    for number, _ in enumerate(_in_threads(read, listed), 1):
        if number % PROGRESS_EACH == 0:
            say(f"read {number:,} of {len(listed):,} manifests")


def _live_files(data: bytes, manifest: Manifest) -> list[File]:
    if manifest.key_metadata is not None:
        raise InputError(f"{manifest.path} is encrypted: encrypted Iceberg tables cannot be maintained")
    try:
        schema = avro.schema_of(data, manifest.path)
        above = {field["field-id"]: field for field in schema["fields"]}
        names = {field["field-id"]: field["name"] for field in above[2]["type"]["fields"]}
        seen = {names[number] for number in (134, 100, 104) if number in names}
        return [
            File(
                DELETES if part.seen.get(names.get(134, ""), Content.DATA) else DATA,
                part.seen[names[100]],
                part.seen[names[104]],
            )
            for part in avro.split(data, manifest.path, above[2]["name"], seen)
            if part.around[above[0]["name"]] != Status.DELETED
        ]
    except (KeyError, TypeError) as error:
        raise CorruptionError(f"{manifest.path} is not a manifest: {error!r}") from error


def _in_threads(read: Callable[..., None], what: Iterable[object]) -> Iterator[None]:
    with ThreadPoolExecutor(locations.READS_AT_ONCE) as pool:
        yield from pool.map(read, what)
