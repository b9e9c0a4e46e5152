"""The smallest protocol that a table needs (PROTOCOL.md, "Protocol Evolution"). Pure.

    plain columns, all rows live          reader 1, writer 2
    deletion vectors                      reader 3, writer 7, features deletionVectors
    timestamps without a zone             …, timestampNtz
    a file narrower than the table        …, typeWidening

A feature is never removed, because older versions may need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.publication.delta import schema

VECTORS, LOCAL_TIMES, WIDENING = "deletionVectors", "timestampNtz", "typeWidening"
_KNOWN_FEATURES = {VECTORS, LOCAL_TIMES, WIDENING, "appendOnly", "invariants"}
_SMALLEST: Mapping[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
_ENABLED = {VECTORS: "delta.enableDeletionVectors", WIDENING: "delta.enableTypeWidening"}


def features_of(columns: pa.Schema, schema_string: str, has_vectors: bool) -> set[str]:
    """The features that a table with these columns needs."""
    needed = {
        VECTORS: has_vectors,
        LOCAL_TIMES: schema.has_local_times(columns),
        WIDENING: schema.is_widened(schema_string),
    }
    return {feature for feature, needs in needed.items() if needs}


def protocol_with(known: Mapping[str, Any] | None, features: Set[str]) -> dict[str, Any]:
    """The protocol with its known features, and these."""
    known = known or _SMALLEST
    readers, writers = set(known.get("readerFeatures") or ()), set(known.get("writerFeatures") or ())
    if features <= readers:
        return dict(known)
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(readers | features),
        "writerFeatures": sorted(writers | features),
    }


def properties_of(features: Set[str]) -> dict[str, str]:
    """The table properties that let writers use the features."""
    return {_ENABLED[feature]: "true" for feature in sorted(features & set(_ENABLED))}


def refuse_unknown(protocol: Mapping[str, Any], configuration: Mapping[str, str], table: str) -> None:
    """Raise InputError for a table that has got, from another writer, a feature that we do not write."""
    reader, writer = protocol["minReaderVersion"], protocol["minWriterVersion"]
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    if unknown := sorted(features - _KNOWN_FEATURES):
        raise InputError(f"{table} has the feature {unknown[0]!r}, which publications do not write")
    if not (reader in (1, 3) and writer in (1, 2, 7)):
        raise InputError(f"{table} has reader version {reader} and writer version {writer}: not one of a publication")
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise InputError(f"{table} has column mapping, but compacted files have the columns' own names")
    if configuration.get("delta.appendOnly", "false").lower() == "true":
        raise InputError(f"{table} is append-only (delta.appendOnly), and a compaction replaces files")
