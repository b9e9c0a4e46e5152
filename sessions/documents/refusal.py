"""Why a document is refused: one line, which names the field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from deltacompact.base.errors import InputError
from deltacompact.base.wording import text_of
from sessions.documents.paths import no_such_field, path_of, short_json

_SUBJECT = re.compile(r"^(Input|List|String|Tuple|Dictionary|Value) should")
_KIND = re.compile(r"\ba valid (array|boolean|dictionary|integer|number|object|string)")
_KIND_WORDS = {
    "array": "a list",
    "boolean": "true or false",
    "dictionary": "an object",
    "integer": "a whole number",
    "object": "an object",
}


class RefusedDocument(InputError):
    """A document that can never be served. `field` is the path of the wrong field; "" is the document itself."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}" if field else text)
        self.field = field


def refusal(
    refused: ValidationError, document: Mapping[str, Any], fields: Collection[str], settings: Collection[str]
) -> RefusedDocument:
    """The first fault, in one line. `fields` and `settings` are those that a document may have."""
    first = refused.errors(include_url=False)[0]
    field = path_of(first["loc"], document)
    same = [fault for fault in refused.errors(include_url=False) if path_of(fault["loc"], document) == field]
    match first["type"]:
        case "missing":
            return RefusedDocument(
                field, 'it is missing: write "version": 1' if field == "version" else "it is missing"
            )
        case "extra_forbidden":
            of_settings = len(first["loc"]) > 1 and first["loc"][0] == "settings"
            known = settings if of_settings else fields
            return RefusedDocument(field, no_such_field(str(first["loc"][-1]), known))
        case "json_invalid":
            return RefusedDocument("", text_of(first["msg"]))
    of_value = [fault for fault in same if not fault["type"].endswith("_type")]
    kinds = of_value or same  # a fault of a value of the right type says more than a type that does not match
    said = "; or ".join(dict.fromkeys(_said(fault["msg"]) for fault in kinds))
    return RefusedDocument(field, f"{said} (it is {short_json(first['input'])})")


def _said(message: str) -> str:
    message = _SUBJECT.sub("it must", message.removeprefix("Value error, ")).replace(" after validation", "")
    return text_of(_KIND.sub(lambda found: _KIND_WORDS.get(found[1], f"a {found[1]}"), message))
