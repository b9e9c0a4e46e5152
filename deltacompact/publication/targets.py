"""Finds the target that a URI names, by its scheme."""

from __future__ import annotations

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import ICEBERG
from deltacompact.publication.delta.target import DELTA, DeltaTarget
from deltacompact.publication.iceberg.target import IcebergTarget
from deltacompact.publication.port import PublicationTarget


def target_of(uri: str) -> PublicationTarget:
    """Raises InputError for a URI that does not name a table of a known format."""
    expect.text("the target of a publication", uri)
    if uri.startswith(DELTA):
        return DeltaTarget.of(uri)
    if uri.startswith(ICEBERG):
        return IcebergTarget.of(uri)
    raise InputError(
        f"{uri!r} does not name a table to publish to: iceberg://NAME/namespace.table, or delta://PATH of a folder"
    )
