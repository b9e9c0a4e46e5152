"""Which catalogs a document may name: those under the prefixes that the dispatcher was started with.

    allowed s3://lake/tables       s3://lake/tables, s3://lake/tables/eu/       yes
                                   s3://lake/tables2, s3://other/tables         no
                                   s3://lake/tables/../secret, …/%2e%2e/…       refused: no part of a path
    allowed file:///srv/lake       /srv/lake/eu                                 yes
                                   /srv/lake/link, which leads to /etc          no: links are followed first
    allowed iceberg://prod         iceberg://prod                               yes
                                   iceberg://production, iceberg://PROD         no
    nothing allowed                iceberg://prod                               no: an Iceberg catalog must be named

Both sides are normalised before they are compared, part by part. A catalog that can be read in two ways is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

from deltacompact.base.errors import InputError
from deltacompact.base.model import ICEBERG
from deltacompact.storage.opening import uri_parts
from sessions.documents.instruction import Instruction
from sessions.documents.paths import short_json
from sessions.documents.refusal import RefusedDocument

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_ICEBERG_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class Place:
    """A catalog or a prefix of catalogs.

    "s3" with bucket and folders, "file" with the folders from the root, or "iceberg" with the name of a catalog in
    PyIceberg's configuration.
    """

    scheme: str
    parts: tuple[str, ...]

    @classmethod
    def of(cls, uri: str) -> Place:
        """Raises InputError for a place that is not absolute, or that can be read in two ways."""
        if _CONTROL.search(uri) or uri != uri.strip():
            raise InputError(f"{short_json(uri)} has control characters or spaces at its ends")
        scheme = _SCHEME.match(uri)
        if scheme is None:
            return cls._local(uri, uri)
        parts = uri_parts(uri)
        if parts.query or parts.fragment or uri.endswith(("?", "#")):
            raise InputError(f"{short_json(uri)} has a query or a fragment: it is no catalog")
        if parts.scheme == "file" and uri.startswith("file://") and parts.netloc in ("", "localhost"):
            return cls._local(unquote(parts.path), uri)
        if parts.scheme == "s3" and uri.startswith("s3://"):
            return cls._s3(parts.netloc, parts.path, uri)
        if parts.scheme == "iceberg":
            return cls._iceberg(uri)
        raise InputError(
            f"{short_json(uri)} is no catalog: use s3://bucket/prefix, file:///path, an absolute path or iceberg://NAME"
        )

    @classmethod
    def _iceberg(cls, uri: str) -> Place:
        name = uri.removeprefix(ICEBERG)
        if not uri.startswith(ICEBERG) or not _ICEBERG_NAME.fullmatch(name):
            raise InputError(
                f"{short_json(uri)} names no Iceberg catalog: iceberg://NAME, of letters, digits, '.', '-', '_'"
            )
        return cls("iceberg", (name,))

    @classmethod
    def _s3(cls, bucket: str, path: str, uri: str) -> Place:
        if not _BUCKET.fullmatch(bucket):
            raise InputError(f"{short_json(uri)} names no bucket that there can be")
        if "//" in path:
            raise InputError(f"{short_json(uri)} has an empty part (//)")
        folders = tuple(path.strip("/").split("/")) if path.strip("/") else ()
        for folder in folders:
            _refuse_dots(folder, uri)
        return cls("s3", (bucket, *folders))

    @classmethod
    def _local(cls, path: str, uri: str) -> Place:
        if not path.startswith("/"):
            raise InputError(f"{short_json(uri)} is no absolute path: use s3://bucket/prefix, file:///path or /path")
        if "\x00" in path:
            raise InputError(f"{short_json(uri)} holds a null byte")
        for folder in path.split("/"):
            if folder:
                _refuse_dots(folder, uri)
        return cls("file", Path(os.path.realpath(path)).parts[1:])

    def holds(self, other: Place) -> bool:
        return self.scheme == other.scheme and other.parts[: len(self.parts)] == self.parts


def place_of(instruction: Instruction) -> Place:
    """The catalog of a document. Raises RefusedDocument for a text that names none, which no dispatcher takes."""
    try:
        return Place.of(instruction.catalog)
    except InputError as error:
        raise RefusedDocument("catalog", str(error)) from None


class AllowList:
    """Prefixes of catalogs, and names of Iceberg catalogs. An empty list allows every catalog of delta streams.

    An Iceberg catalog must always be named: its configuration, with credentials, is the dispatcher's.
    """

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        self.prefixes = tuple(map(_absolute, prefixes))
        self._places = tuple(map(Place.of, self.prefixes))

    @property
    def has_iceberg(self) -> bool:
        """Whether an Iceberg catalog is allowed."""
        return any(place.scheme == "iceberg" for place in self._places)

    def check(self, instruction: Instruction) -> None:
        """Raises RefusedDocument for a catalog that is not allowed, or a text that names no catalog."""
        place = place_of(instruction)
        if place.scheme == "iceberg" and place not in self._places:
            shown = short_json(instruction.catalog)
            raise NotAllowed("catalog", f"{shown} is not allowed here by its name: --allow {shown} allows it")
        if self._places and not any(allowed.holds(place) for allowed in self._places):
            raise NotAllowed("catalog", f"{short_json(instruction.catalog)} is not under a prefix that is allowed here")


class NotAllowed(RefusedDocument):
    """A catalog that this dispatcher does not serve."""


def _refuse_dots(folder: str, uri: str) -> None:
    """Refuse a path part that leads elsewhere (`..`, `/`), even if it is percent-encoded several times."""
    if folder == "":
        raise InputError(f"{short_json(uri)} has an empty part (//)")
    decoded = folder
    for _ in range(4):
        if decoded in (".", "..") or "/" in decoded.replace(folder, "", 1) or "\\" in decoded:
            raise InputError(f"{short_json(uri)} has a part that leads elsewhere: {short_json(folder)}")
        again = unquote_to_bytes(decoded).decode(errors="replace")
        if again == decoded:
            return
        if "/" in again or "\x00" in again:
            raise InputError(f"{short_json(uri)} has a part that leads elsewhere: {short_json(folder)}")
        decoded = again
    raise InputError(f"{short_json(uri)} is encoded too often")


def _absolute(prefix: str) -> str:
    """The absolute path of a folder, which may be given as a relative path when a dispatcher is started."""
    return prefix if _SCHEME.match(prefix) or not prefix else os.path.abspath(prefix)
