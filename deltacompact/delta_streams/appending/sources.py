"""The files that a command line names: files, directories, globs, S3 prefixes.

    monday.csv                     the file
    landing/                       every data file below it, in byte order of their paths
    'landing/2024-*/*.csv.gz'      every match, in byte order; ** matches any number of folders
    s3://bucket/landing/           every data file below the prefix

Below a directory or prefix, and among the matches of a glob, only data files count: names that begin with "." or "_"
(Spark's _SUCCESS, unfinished files) and other extensions are skipped. A file that is named twice is taken once. The
result lists the skipped files, so that the command can print them. A folder may hold the catalog, too, whose files are
not taken: deltacompact append ./lake orders .
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.wording import counted
from deltacompact.storage.identity import identity_of_uri, is_uri
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import as_uri, open_object, uri_parts
from deltacompact.tabular.formats import content_type_of, is_avro

_MAGIC = "*?["


@dataclass(frozen=True, slots=True)
class Sources:
    """The files, in order, and those left out: (path, why)."""

    files: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def sources(store: ObjectStore, names: Sequence[str], of_events: bool = False) -> Sources:
    """The files that these names stand for. Raises InputError for a name without a data file.

    `of_events`: change events, which may come in Avro files.
    """
    files: dict[str, str] = {}
    left_out: list[tuple[str, str]] = []
    for name in names:
        found = _found(store, name)
        if found is None:
            if not is_uri(name) and not os.path.splitext(name)[1] and not os.path.lexists(name):
                raise NotFoundError(f"{name} does not exist")
            chosen = [name]
        else:
            foreign = _foreign(store, name, found)
            if len(foreign) < len(found):
                left_out.append((canonical_name(store.uri), "it is the catalog"))
            chosen, skipped = _data_files(foreign, of_events)
            left_out += skipped
            if not chosen:
                what = "matches" if _is_glob(name) else "holds"
                first = f": {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
                others = f" ({counted(len(skipped), 'other')} skipped){first}" if skipped else ""
                raise InputError(f"{name} {what} no data file{others}")
        for path in chosen:
            if (known := files.get(canonical_name(path))) is not None:
                same = "it is named twice" if known == path else f"it is the same file as {known}"
                left_out.append((path, same))
            else:
                files[canonical_name(path)] = path
    return Sources(tuple(files.values()), tuple(left_out))


def canonical_name(path: str) -> str:
    """One name for all names of a file: ./a.csv, a symbolic link to it, file:///…/a.csv; s3://b/a.csv, S3://b/a.csv."""
    parts = uri_parts(path) if is_uri(path) else None
    if parts is None:
        return os.path.realpath(path)
    return os.path.realpath(unquote(parts.path, errors="surrogateescape")) if parts.scheme == "file" else as_uri(path)


@dataclass(frozen=True, slots=True)
class _FoundPath:
    """A path below a directory or prefix, or a match of a glob. `inner` is the part that the user did not type."""

    path: str
    inner: str


def _found(store: ObjectStore, name: str) -> list[_FoundPath] | None:
    """The paths below a directory or prefix, or the matches of a glob, in byte order. None: `name` is a file's."""
    if name.startswith("file://"):
        name = unquote(uri_parts(name).path, errors="surrogateescape")
    if is_uri(name):
        if not _is_glob(name) and not name.endswith("/"):
            return None
        return sorted(_remote(store, name), key=lambda entry: os.fsencode(entry.path))
    if os.path.isdir(name):
        found = list(_below(name))
    elif _is_glob(name) and not os.path.lexists(name):
        found = list(_matches(name))
    else:
        return None
    return sorted(found, key=lambda entry: os.fsencode(entry.path))


def _is_glob(name: str) -> bool:
    return any(sign in name for sign in _MAGIC)


def _means_hidden(pattern: str) -> bool:
    """Whether a glob asks for names that would be skipped otherwise: `_*.csv`."""
    return any(part.startswith((".", "_")) for part in pattern.split("/") if _is_glob(part))


def _below(directory: str) -> Iterator[_FoundPath]:
    """Every file below a directory. Raises InputError for a directory that cannot be read."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}") from error

    for folder, folders, names in os.walk(directory, onerror=refuse):
        linked = [inner for inner in folders if os.path.islink(os.path.join(folder, inner))]
        for name in names + linked:
            path = os.path.join(folder, name)
            yield _FoundPath(path, os.path.relpath(path, directory))


def _matches(pattern: str) -> Iterator[_FoundPath]:
    """The files that match a glob, and all files below the directories that match."""
    import glob

    typed = [part for part in pattern.split("/") if not _is_glob(part)]
    for path in glob.glob(pattern, recursive=True):
        inner = "" if _means_hidden(pattern) else "/".join(part for part in path.split("/") if part not in typed)
        if not os.path.isdir(path):
            yield _FoundPath(path, inner)
        elif "**" not in pattern:
            for entry in _below(path):
                yield _FoundPath(entry.path, os.path.join(inner, entry.inner))


def _remote(store: ObjectStore, name: str) -> Iterator[_FoundPath]:
    """The objects below a prefix, or those that match a glob."""
    magic = next((number for number, sign in enumerate(name) if sign in _MAGIC), len(name))
    folder = name[: magic if magic == len(name) else name.rindex("/", 0, magic) + 1]
    pattern = name[len(folder) :]
    its_store, prefix = open_object(store, folder)
    for stat in its_store.list(prefix):
        path = stat.path.removeprefix(prefix)
        if not path or path.endswith("/"):  # consoles make such objects for folders
            continue
        if not pattern or _fits(path.split("/"), pattern.split("/")):
            yield _FoundPath(folder + path, "" if _means_hidden(pattern) else path)


def _fits(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether a path matches a glob, folder by folder."""
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return _fits(parts, patterns[1:]) or (bool(parts) and _fits(parts[1:], patterns))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], patterns[0]) and _fits(parts[1:], patterns[1:])


def _foreign(store: ObjectStore, name: str, found: Sequence[_FoundPath]) -> list[_FoundPath]:
    """The paths outside of the catalog, unless the user names a folder in it."""
    own = _place(store.uri) + "/"
    if _place(name).startswith(own):
        return list(found)
    return [entry for entry in found if not _place(entry.path).startswith(own)]


def _place(name: str) -> str:
    """Where a file or folder is. Two keys of S3 that differ in slashes have one: in doubt, a file is the catalog's."""
    return identity_of_uri(as_uri(name)).rstrip("/")


def _data_files(found: Sequence[_FoundPath], of_events: bool) -> tuple[list[str], list[tuple[str, str]]]:
    """Data files, and the other files with the reason."""
    chosen, skipped = [], []
    for candidate in found:
        if why := _skipped(candidate, of_events):
            skipped.append((candidate.path, why))
        else:
            chosen.append(candidate.path)
    return chosen, skipped


def _skipped(entry: _FoundPath, of_events: bool) -> str | None:
    """Why a path is not a data file. None: it is one."""
    if any(part.startswith((".", "_")) for part in entry.inner.split("/")):
        return "its name begins with . or _"
    try:
        if not (of_events and is_avro(entry.path)):
            content_type_of(entry.path)
    except InputError:
        return "Avro is for change events" if is_avro(entry.path) else "its extension is not that of a data file"
    if not is_uri(entry.path) and not os.path.isfile(entry.path):
        return "it is not a regular file"
    return None
