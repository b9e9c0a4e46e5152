"""Locations as Iceberg writes them, and the URIs by which our stores open them.

    /lake/t/data/a.parquet                     file:///lake/t/data/a.parquet
    file:/lake/t/data/day=3%2F4/a.parquet      file:///lake/t/data/day=3%252F4/a.parquet      nothing is escaped twice
    s3a://lake/t/data/a.parquet                s3://lake/t/data/a.parquet

Manifests and position deletes keep the text that the writer chose; it becomes a URI only to open the object. Two
locations of one object have the same identity (storage/identity.py). If we cannot tell which object a location names,
we never delete it:

    /lake/t/data/a.parquet, file:///lake/t//data/a.parquet     one identity
    gs://lake/a.parquet, file://server/lake/a.parquet          in doubt: never deleted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from deltacompact.base.errors import InputError
from deltacompact.storage import objects
from deltacompact.storage.identity import doubt, identity_of_uri, is_uri
from deltacompact.storage.local import ForeignFolder, LocalStore
from deltacompact.storage.objects import ObjectStat, ObjectStore
from deltacompact.storage.opening import open_object, open_store

_S3_SCHEMES = ("s3", "s3a", "s3n")


def readable(location: str) -> str:
    """The URI that our stores understand. Raises InputError for a scheme that they do not know."""
    if not is_readable(location):
        raise InputError(f"{location}: its scheme is neither file nor s3")
    return _uri_of(location)


def is_readable(location: str) -> bool:
    """Whether our stores know the location's scheme."""
    return _uri_of(location).startswith(("s3://", "file://"))


def _uri_of(location: str) -> str:
    """The URI of a location. One with an unknown scheme stays as it is."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme.lower() in _S3_SCHEMES and rest.startswith("//"):
        return f"s3:{rest}"
    if colon and scheme.lower() == "file":
        path = "/" + rest.removeprefix("//").partition("/")[2] if rest.startswith("//") else rest
        return Path(path).absolute().as_uri()
    return location if is_uri(location) else Path(location).absolute().as_uri()


def identity_of(location: str) -> str:
    """The same text for every location of an object."""
    return identity_of_uri(_uri_of(location))


def folder_identity(folder: str) -> str:
    """The identity of a folder, ending in a slash. The identities of its files begin with it."""
    return identity_of(f"{folder.rstrip('/')}/x").removesuffix("x")


def in_doubt(location: str) -> str | None:
    """Why we cannot tell which object a location names; None: we can. Objects in doubt are never deleted."""
    if is_uri(location):
        return doubt(location)
    return None if location.startswith(("/", "file:/")) else "a path that does not begin at the root"


def store_of(location: str, io_properties: Mapping[str, str]) -> ObjectStore:
    """The store at a table's location. The catalog tells what our own settings leave open: endpoint, region, and the
    credentials that it vends for the table."""
    uri = readable(location)
    if not uri.startswith("s3://"):
        store = open_store(uri)
        return ForeignFolder(store.root) if isinstance(store, LocalStore) else store
    from deltacompact.storage.s3_access import S3Settings

    settings = S3Settings.from_environment()
    chosen = replace(
        settings,
        endpoint_url=settings.endpoint_url or io_properties.get("s3.endpoint"),
        region=settings.region or io_properties.get("s3.region") or io_properties.get("client.region"),
    )
    if not (settings.access_key or settings.profile or settings.role_arn):
        for prefix in ("client.", "s3."):  # if both are there, "s3." wins, as in PyIceberg
            key, secret = io_properties.get(f"{prefix}access-key-id"), io_properties.get(f"{prefix}secret-access-key")
            if key and secret:
                token = io_properties.get(f"{prefix}session-token")
                chosen = replace(chosen, access_key=key, secret_key=secret, session_token=token)
    return open_store(uri, chosen)


def fetched(store: ObjectStore, location: str) -> bytes:
    """The bytes of an object. Raises NotFoundError naming the file if it is missing."""
    found, name = open_object(store, readable(location))
    return found.get(name)


def put(store: ObjectStore, location: str, data: bytes) -> None:
    """Write an object."""
    found, name = open_object(store, readable(location))
    found.put(name, data)


def modified_s(store: ObjectStore, location: str) -> float:
    """When an object was written, by the clock of its store."""
    found, name = open_object(store, readable(location))
    return found.stat(name).modified_s


def discard(store: ObjectStore, location: str) -> None:
    """Delete an object that no metadata refers to, unless its location is in doubt."""
    discard_all(store, [location])


READS_AT_ONCE = 8
"""How many metadata files are read side by side."""
DELETED_AT_ONCE = 1000
"""How many objects S3 deletes in one request."""


def discard_all(
    store: ObjectStore, locations: Iterable[str], deleted: Callable[[int], None] = lambda count: None
) -> None:
    """Delete objects, many in one request, and none that is in doubt. Calls `deleted` after each request with the
    number of its objects."""
    by_store: dict[str, tuple[ObjectStore, list[str]]] = {}
    for location in locations:
        if in_doubt(location) is not None:
            continue
        found, name = open_object(store, readable(location))
        by_store.setdefault(found.uri, (found, []))[1].append(name)
    for found, names in by_store.values():
        for start in range(0, len(names), DELETED_AT_ONCE):
            batch = names[start : start + DELETED_AT_ONCE]
            found.delete(batch)
            deleted(len(batch))


def everything_in(store: ObjectStore, folder: str) -> tuple[ObjectStore, list[ObjectStat]]:
    """The store of a folder, and all objects below it at any depth. Their paths are those of this store."""
    found, name = open_object(store, f"{readable(folder).rstrip('/')}/")
    return found, list(found.list(name))


def listed(store: ObjectStore, folder: str, beginning: str) -> dict[str, int]:
    """The objects in a folder whose names start with `beginning`: their sizes by location."""
    found, name = open_object(store, readable(f"{folder}/{beginning}"))
    return {f"{folder}/{stat.path.rpartition('/')[2]}": stat.bytes for stat in found.list(name)}


def bytes_of(store: ObjectStore, location: str) -> int | None:
    """The size of an object; None: it is missing."""
    return objects.bytes_of(*open_object(store, readable(location)))
