"""What OpenLineage 2-0-2 and the facets that we send require of an event, written down from its specification.

event      eventTime, producer, schemaURL; a run with an UUID, a job; datasets with namespace and name
facet      _producer and _schemaURL, whatever its name; the ones below besides their own fields
"""

from __future__ import annotations

from typing import Any

import jsonschema

_URI = {"type": "string", "pattern": r"^[a-z][a-z0-9+.-]*:\S+$"}
_TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"}
_UUID = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
_TEXT, _NAME = {"type": "string"}, {"type": "string", "minLength": 1}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": required | (optional or {})}


def _facets(**known: dict[str, Any]) -> dict[str, Any]:
    every = _object({"_producer": _URI, "_schemaURL": _URI})
    return {
        "type": "object",
        "additionalProperties": every,
        "properties": {n: {"allOf": [every, k]} for n, k in known.items()},
    }


_DATASET = _object({"namespace": _NAME, "name": _NAME}, {"facets": _facets(version=_object({"datasetVersion": _TEXT}))})
_COUNTS = _object({}, {name: {"type": "integer"} for name in ("rowCount", "size", "fileCount")})
_OF_FILES = ("DataFiles", "DeleteFiles", "EqualityDeleteFiles", "PositionalDeleteFiles", "DVs")
_OF_ROWS = ("Records", "FilesSizeInBytes", "PositionalDeletes", "EqualityDeletes")
_METRICS = ["totalDuration", "attempts"]
_METRICS += [f"{verb}{what}" for verb in ("added", "removed") for what in _OF_FILES + _OF_ROWS]
_METRICS += [f"total{what}" for what in ("DataFiles", "DeleteFiles", *_OF_ROWS)]
_NUMBER = {"type": "number"}
_COMMIT_METRICS = _object({}, dict.fromkeys(_METRICS, _NUMBER)) | {"additionalProperties": False}
_COMMIT = _object(
    {"snapshotId": _NUMBER, "sequenceNumber": _NUMBER, "operation": _TEXT, "commitMetrics": _COMMIT_METRICS}
)
_JOB_TYPE = _object({"processingType": _TEXT, "integration": _TEXT}, {"jobType": _TEXT})
_ERROR = _object({"message": _TEXT, "programmingLanguage": _TEXT}, {"stackTrace": _TEXT})
_OUTPUT = _object({}, {"outputFacets": _facets(outputStatistics=_COUNTS, icebergCommitReport=_COMMIT)})
RUN_EVENT = _object(
    {
        "eventTime": _TIME,
        "producer": _URI,
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "run": _object({"runId": _UUID}, {"facets": _facets(errorMessage=_ERROR)}),
        "job": _object({"namespace": _NAME, "name": _NAME}, {"facets": _facets(jobType=_JOB_TYPE)}),
    },
    {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "inputs": {"type": "array", "items": _DATASET},
        "outputs": {
            "type": "array",
            "items": {"allOf": [_DATASET, _OUTPUT]},
        },
    },
)


def validated(event: dict[str, Any]) -> dict[str, Any]:
    """The event. Raises jsonschema.ValidationError."""
    jsonschema.validate(event, RUN_EVENT, jsonschema.Draft202012Validator)
    return event
