"""Metadata files in storage: their names, and their JSON.

00003-c9….metadata.json    v3.metadata.json    v3.gz.metadata.json    00003-c9….metadata.json.gz
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from deltacompact.base.errors import CorruptionError


def is_metadata_file(path: str) -> bool:
    """Whether a file is called like the metadata of an Iceberg table or view."""
    return path.endswith((".metadata.json", ".metadata.json.gz"))


def metadata_document(data: bytes, path: str) -> dict[str, Any]:
    """The JSON of a metadata file, which may be compressed. Raises CorruptionError naming it."""
    try:
        found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
        return found
    except (ValueError, OSError, EOFError) as error:
        raise CorruptionError(f"{path} is not a metadata file: {error}") from error
