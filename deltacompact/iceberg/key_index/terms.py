"""The terms of an index: all that an entry depends on besides its data file. Each terms have an index of their own.

equality deletes by column 1      "equality 1"       1: long
an upsert                         "key 1; sort 4 desc; operation 5 D"      1: long, 4: timestamp, 5: string

A renamed column keeps its field id, and so the index. A column whose type was promoted, or that was dropped and added
again under its name, makes other terms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.name_mapping import PROPERTY as NAME_MAPPING
from deltacompact.iceberg.table.row_lineage import has_lineage
from deltacompact.index.keys import ENCODING_VERSION

FOLDER = "metadata/deltacompact-index/"
"""The folder of indexes below the table's location, with a folder for each. Journals lie elsewhere, because there each
folder is a session."""


@dataclass(frozen=True, slots=True)
class Terms:
    """`words` is JSON, `table_uuid` the table that the index belongs to."""

    table_uuid: str
    words: str

    @property
    def folder(self) -> str:
        return f"{FOLDER}{hashlib.sha256(self.words.encode()).hexdigest()[:24]}/"


def terms_of(metadata: TableMetadata, what: str, ids: Iterable[int]) -> Terms:
    """The terms for a purpose (`what`), such as "equality 1", whose entries are made of these columns."""
    columns = []
    for number in ids:
        column = metadata.columns[number]
        default = repr(column.default) if column.has_default else None
        columns.append((number, column.type, default))
    mapping = metadata.properties.get(NAME_MAPPING)  # entries of files without field ids depend on it
    words = {
        "of": what,
        "columns": columns,
        "lineage": has_lineage(metadata),
        "names": mapping,
        "encoding": ENCODING_VERSION,
    }
    return Terms(metadata.uuid, json.dumps(words, sort_keys=True))
