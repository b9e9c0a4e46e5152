"""Which object a name means: all names of one object have one *identity*, a text. Two questions are asked of a name.

    t/a.parquet of the store /lake   file:///lake/t/./%61.parquet   file:///lake/u/a.parquet, where u is a link to t
                                                     one identity: file:///lake/t/a.parquet
    s3://lake/t/a   s3a://lake/t/a   S3N://lake//t/%61
                                                     one identity: s3://lake/t/a
    gs://lake/t/a   file://server/lake/t/a           in doubt: this module does not know where they lead

*Is the object still needed?* Identities answer. Names that might lead to one object (on S3: escaped or not, with a
slash too many) have one identity, so a mistake keeps too much.

*May the object be deleted?* `doubt` answers as well: a name that might lead somewhere else deletes nothing.

No name shows that two buckets are one (an access point and its bucket). Where this matters, files with unique names
are compared by name alone: see `file_name`.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from deltacompact.storage.objects import ObjectStore

_S3 = ("s3", "s3a", "s3n")
_LOCAL_HOSTS = ("", "localhost")


def is_uri(path: str) -> bool:
    """Whether a path is a full URI, which names the store as well."""
    return "://" in path


def is_far(path: str) -> bool:
    """Whether a path is a URI of something else than a file on a disk: then a network is between."""
    return is_uri(path) and path.partition("://")[0].lower() != "file"


def absolute(path: str | os.PathLike[str]) -> Path:
    """The path from the root on, without "..": what is published from ../lake is known from /srv/lake, too."""
    full = Path(path).absolute()
    if ".." not in full.parts:
        return full
    plain, place = os.path.normpath(full), os.path.realpath(full)
    return Path(plain if os.path.realpath(plain) == place else place)  # after a link, ".." leads elsewhere


def identity(root: ObjectStore, path: str) -> str:
    """The identity of an object. `path` is a path below the root, or any URI. Never raises."""
    if is_uri(path):
        return identity_of_uri(path)
    if isinstance(folder := getattr(root, "root", None), Path):
        return _of_file(folder / path)
    bucket = getattr(root, "bucket", None)
    return root.uri + path if bucket is None else _of_key(bucket, root.prefix + path)  # type: ignore[attr-defined]


def identity_of_uri(uri: str) -> str:
    """The identity of the object that a URI names. In a file URI, percent signs escape."""
    scheme, _, rest = uri.partition("://")
    if scheme.lower() in _S3:
        return _of_key(*_parted(rest))
    if scheme.lower() == "file":
        folder, _, name = uri.rpartition("/")  # a name may contain ? and #, which end the path of a URI
        return _of_file(Path(_unescaped(_path_of(f"{folder}/"))) / _unescaped(name))
    return uri


def doubt(uri: str) -> str | None:
    """Why it is uncertain which object a URI names; None: it is certain."""
    scheme, _, rest = uri.partition("://")
    place, key = _parted(rest)
    if scheme.lower() in _S3:
        return "a dot as a folder" if {".", ".."} & set(key.split("/")) else None
    if scheme.lower() == "file":
        return None if place.lower() in _LOCAL_HOSTS else f"the host {place!r}"
    return f"the scheme {scheme!r}"


def file_name(path: str) -> str:
    """The last part of a path. It identifies a file with a unique name, however its folder is spelled."""
    return path.rpartition("/")[2]


def path_below(root: ObjectStore, uri: str) -> str | None:
    """The path, below the root, of the object that a URI names. None: the object is not below the root."""
    folder = identity(root, ".").rstrip("/") + "/"
    found = identity(root, uri)
    if not found.startswith(folder):
        return None
    below = found.removeprefix(folder)
    return unquote(below) if found.startswith("file:") else below


def _parted(rest: str) -> tuple[str, str]:
    place, _, key = rest.partition("/")
    return place, key


def _path_of(folder: str) -> str:
    """The path of a file URI, without query and fragment, as our stores open it."""
    return "/" + re.split("[?#]", _parted(folder.partition("://")[2])[1])[0]


def _of_key(bucket: str, key: str) -> str:
    return f"s3://{bucket.lower()}/" + posixpath.normpath(unquote(f"/{key}")).lstrip("/")


def _of_file(path: Path) -> str:
    return Path(os.path.realpath(path)).as_uri()


def _unescaped(text: str) -> str:
    return unquote(text, errors="surrogateescape")
