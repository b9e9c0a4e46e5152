"""Which fields of an instruction document are for delta streams alone, and which for Iceberg tables alone."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from deltacompact.base.model import ICEBERG
from deltacompact.base.options import declared
from deltacompact.base.settings import SETTINGS_OF_STREAMS
from deltacompact.base.shared_arguments import ARGUMENTS_OF_STREAMS
from deltacompact.iceberg_modes.modes import mode_named, names, options_of
from sessions.documents.paths import short_json
from sessions.documents.refusal import RefusedDocument

_OF_STREAMS = (*ARGUMENTS_OF_STREAMS, "cluster_by")
"""In a document, an Iceberg table has its columns to cluster by among its options."""
_OF_ICEBERG = ("mode", "options", "branch")
_ICEBERG_TABLE = r"^[^./\\?#%\x00-\x20\x7f]+(\.[^./\\?#%\x00-\x20\x7f]+)+$"
"""namespace.table, each part a plain name, because some catalogs put it into a URL."""


def _options_schema(mode: str) -> dict[str, Any]:
    """The meanings of a mode's options, for editors. The values are checked later, with the table and its defaults."""
    said = {
        option.name: {"description": f"{option.meaning}. Default: {option.default}"}
        for option in declared(options_of(mode)).values()
    }
    of_mode = {"properties": {"mode": {"const": mode}}, "required": [] if mode == mode_named(None).name else ["mode"]}
    return {"if": of_mode, "then": {"properties": {"options": {"properties": said}}}}


KINDS = {
    "if": {"properties": {"catalog": {"pattern": f"^{ICEBERG}"}}},
    "then": {
        "properties": {
            **dict.fromkeys(_OF_STREAMS, False),
            "source_table_id": {"pattern": _ICEBERG_TABLE},
            "settings": {"properties": dict.fromkeys(SETTINGS_OF_STREAMS, False)},
        },
        "allOf": [_options_schema(mode) for mode in names()],
    },
    "else": {"properties": dict.fromkeys(_OF_ICEBERG, False)},
}
"""The rules of `check_kind`, as JSON Schema."""


def check_kind(catalog: str, table_id: str, named: Collection[str]) -> None:
    """Raises RefusedDocument for fields of delta streams in a document for an Iceberg table, and the reverse.

    `named`: the fields that the document has itself, those of its settings as "settings.NAME".
    """
    if not catalog.startswith(ICEBERG):
        if field := next((name for name in _OF_ICEBERG if name in named), None):
            raise RefusedDocument(
                field, f"it is for Iceberg tables (iceberg://NAME), and {short_json(catalog)} is none"
            )
        return
    of_streams = (*_OF_STREAMS, *(f"settings.{name}" for name in SETTINGS_OF_STREAMS))
    if field := next((name for name in of_streams if name in named), None):
        raise RefusedDocument(field, f"it is for delta streams, and {short_json(catalog)} is an Iceberg catalog")
    if not re.fullmatch(_ICEBERG_TABLE, table_id):
        raise RefusedDocument(
            "source_table_id", f"it must be namespace.table, of plain names (it is {short_json(table_id)})"
        )
