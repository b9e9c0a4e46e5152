"""The JSON in the text of a document, and texts that other services send in place of one.

values_in('{"version": 1}')         {"version": 1}
values_in('{"a": 1, "a": 2}')       RefusedDocument: a: the field is there twice
check_sender({"Records": […]})      RefusedDocument: the document is a notification of S3 about an object, …
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from deltacompact.base.wording import text_of
from sessions.documents.paths import path_of
from sessions.documents.refusal import RefusedDocument

DOCUMENT_BYTES_MAX = 1 << 20

_ENVELOPES = (
    (
        {"Type", "TopicArn", "Message"},
        "Message",
        "the envelope of an SNS topic: let its subscription deliver raw messages",
    ),
    ({"detail-type", "detail"}, "detail", "the envelope of EventBridge: let its target get $.detail alone (InputPath)"),
    ({"specversion", "data"}, "data", "the envelope of a CloudEvent: send its data alone"),
)
"""The fields by which an envelope is known, the field that holds the document, and what the sender has to change."""


def values_in(data: bytes | str) -> Any:
    """The JSON values of bytes or text. Raises RefusedDocument, which names a field that is there twice."""
    try:
        raw = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    except UnicodeEncodeError:
        raise RefusedDocument("", "the document has a text that UTF-8 cannot hold (half of a surrogate pair)") from None
    if len(raw) > DOCUMENT_BYTES_MAX:
        raise RefusedDocument("", f"the document has more than {DOCUMENT_BYTES_MAX:,} bytes, which is the most")
    if not raw.strip():
        raise RefusedDocument("", "the document is empty")
    try:
        return json.loads(raw, object_pairs_hook=_without_repeats, parse_constant=_no_number, parse_int=_number)
    except RecursionError:
        raise RefusedDocument("", "the document is nested too deeply") from None
    except RefusedDocument:
        raise
    except ValueError as error:
        raise RefusedDocument("", f"the document is not JSON: {text_of(error)[:200]}") from None


def check_sender(document: Mapping[str, Any]) -> None:
    """Raises RefusedDocument for what a service sends in place of an instruction document, or around it."""
    if document.get("Type") == "SubscriptionConfirmation" and "SubscribeURL" in document:
        said = "an SNS topic asks whether this queue subscribes to it, and sends nothing before it is told"
        raise RefusedDocument(
            "SubscribeURL", f"{said}: open this address, and let the subscription deliver raw messages"
        )
    for names_of, field, said in _ENVELOPES:
        if document.keys() >= names_of:
            raise RefusedDocument(field, f"the document is in {said}")
    if _is_of_s3(document):
        said = "the document is a notification of S3 about an object, and this queue is for instruction documents"
        raise RefusedDocument("", f"{said}: let S3 notify another one")


def _is_of_s3(document: Mapping[str, Any]) -> bool:
    """Whether this is a notification of S3, or the test that S3 sends where notifications are set up."""
    match document:
        case {"Records": [{"s3": _}, *_]} | {"Service": _, "Event": _, "Bucket": _}:
            return True
    return False


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a repeated name: JSON readers take one of the two values, perhaps the wrong one."""
    document = dict(pairs)
    if len(document) < len(pairs):
        ((repeated, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise RefusedDocument(path_of((repeated,), document), "the field is there twice")
    return document


def _no_number(name: str) -> None:
    raise RefusedDocument("", f"the document is not JSON: {name} is no number in JSON")


def _number(digits: str) -> int | float:
    """A whole number. Python converts no thousands of digits: such a number is infinite here, and refused later."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)
