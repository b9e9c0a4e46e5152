"""JSON documents with the checksum of their body: readers reject a document that was cut short or edited.

    {"format": 1, "kind": "compaction plan", "sha256": "5c5c…", "plan": {"rounds": [[1, 2, 5, 80, 0]], …}}

The checksum covers the body in one canonical form, so the document itself may be indented, or its keys in any order.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def with_checksum(key: str, body: Any, **heading: Any) -> dict[str, Any]:
    """The document: the heading, the checksum, and `body` under `key`."""
    return {**heading, "sha256": checksum(body), key: body}


def is_whole(document: dict[str, Any], key: str) -> bool:
    """Whether the body under `key` is the one that was written."""
    return document.get("sha256") == checksum(document.get(key))


def canonical(body: Any) -> str:
    """The body as one line of JSON, the same for equal bodies."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def checksum(body: Any) -> str:
    """SHA-256 of the body in its canonical form."""
    return hashlib.sha256(canonical(body).encode()).hexdigest()
