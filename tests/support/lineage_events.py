"""Validates the events that we send with OpenLineage's own schemas, of version 2-0-2 and of the facets that we use.

tests/support/openlineage has copies from spec/ of the project OpenLineage (August 2026, Apache License 2.0). A facet
names its schema, which must be one of these.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

_SCHEMAS = [json.loads(path.read_text()) for path in (Path(__file__).parent / "openlineage").glob("*.json")]
_REGISTRY: Registry = Registry().with_resources(
    [(schema["$id"], Resource.from_contents(schema)) for schema in _SCHEMAS]
)
_FORMATS = jsonschema.FormatChecker(("uuid",))
_FORMATS.checks("date-time", ValueError)(lambda text: bool(datetime.datetime.fromisoformat(text).tzinfo))
_FORMATS.checks("uri")(lambda text: bool(urlsplit(text).scheme))


def validated(event: dict[str, Any]) -> dict[str, Any]:
    """The event. Raises jsonschema.ValidationError, and referencing's Unresolvable for a facet of another schema."""
    _validate(event, event["schemaURL"])
    for facet in _facets(event):
        _validate(facet, facet["_schemaURL"])
    return event


def _validate(document: Any, schema_url: str) -> None:
    validator = Draft202012Validator({"$ref": schema_url}, registry=_REGISTRY, format_checker=_FORMATS)
    validator.validate(document)


def _facets(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, list):
        for part in document:
            yield from _facets(part)
    elif isinstance(document, dict):
        for name, value in document.items():
            yield from value.values() if name in ("facets", "outputFacets") else _facets(value)
