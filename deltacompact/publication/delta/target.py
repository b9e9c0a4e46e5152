"""A Delta table as the target of a publication, by its folder.

delta:///exports/orders              a folder of a disk; delta://exports/orders is below the working directory
delta://s3://lake/exports/orders     a folder of a bucket
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

from deltacompact.base.errors import InputError
from deltacompact.publication.delta.held import held_files
from deltacompact.publication.delta.table import ShownDeltaTable
from deltacompact.publication.port import Source
from deltacompact.storage.identity import identity_of_uri, is_uri
from deltacompact.storage.objects import ObjectStore, is_there
from deltacompact.storage.opening import open_store
from deltacompact.tabular.published_types import DELTA_TYPES, PublishedTypes

DELTA = "delta://"
_FILE = re.compile(r"file:(?://)?(/[^/].*)", re.DOTALL)
"""A folder as file:///exports, or as Spark spells it, file:/exports."""


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A folder: the absolute path of a local one, or s3://bucket/prefix."""

    place: str
    kind: ClassVar[str] = "Delta"
    types: ClassVar[PublishedTypes] = DELTA_TYPES

    @classmethod
    def of(cls, uri: str) -> DeltaTarget:
        """Raises InputError for anything but delta:// followed by a path, or by s3://, a bucket and a prefix."""
        place = uri.removeprefix(DELTA)
        if (of_file := _FILE.fullmatch(place)) is not None:
            place = unquote(of_file[1])
        named = _is_folder_of_bucket(place) if is_uri(place) else bool(place.strip("/"))
        if not named or place.startswith("file:") or set(place) & set("?#"):
            raise InputError(f"{uri!r} does not name a folder: delta:///PATH, or delta://s3://BUCKET/PATH")
        return cls(place.rstrip("/") if is_uri(place) else os.path.abspath(place))

    def __str__(self) -> str:
        return f"{DELTA}{self.place}"

    @property
    def folder(self) -> str:
        """The URI, with a slash at its end; percent signs in it are literal."""
        return f"{self.place if is_uri(self.place) else f'file://{self.place}'}/"

    def open(self, source: Source) -> ShownDeltaTable:
        """Raises InputError for a folder in which a VACUUM of Delta Lake would delete files of our catalog."""
        self._refuse_our_folders(source)
        return ShownDeltaTable(self._store(source.store), self.folder, source)

    def held_files(self, store: ObjectStore, old_s: float, dry_run: bool) -> frozenset[str]:
        return held_files(self._store(store), self.folder, old_s, dry_run)

    def _store(self, beside: ObjectStore) -> ObjectStore:
        return open_store(self.place, getattr(beside, "settings", None))

    def _refuse_our_folders(self, source: Source) -> None:
        catalog, ours = _identity(source.where), _identity(self.folder)
        inside = ours.removeprefix(catalog).split("/")[0] if ours.startswith(catalog) else None
        if catalog.startswith(ours) or (inside is not None and is_there(source.store, f"{inside}/table.json")):
            raise InputError(
                f"{self.place} has files of the delta catalog {source.where}, which a VACUUM of Delta Lake would "
                "delete: publish to a folder of its own"
            )


def _is_folder_of_bucket(place: str) -> bool:
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    return place.startswith("s3://") and bool(bucket and prefix) and not is_uri(prefix)


def _identity(folder: str) -> str:
    uri = folder if folder.startswith("s3://") else Path(folder.removeprefix("file://")).as_uri()
    return identity_of_uri(uri).rstrip("/") + "/"
