"""Keys of text files whose types a parser finds: different texts must not become one key.

JSON    "2026-11-29"  "2026-11-29 00:00"           one timestamp: keys stay the texts that they are
CSV     007, 0x7 and 7, 1.10 and 1.1, true and TRUE
        one number or boolean: refused, the user says what they mean

Sort keys that are texts are read in the order that is surely meant: as a text, "9" is above "10".

    scn    "9999999"  "10000001"                                     decimal(38, 0): a position in a database's log
    at     "2026-11-29T10:00:00Z"  "2026-11-29T11:00:00.5+01:00"     timestamp[us, UTC]; of JSON lines without zone
    rank   "9"  "10"                                                 texts, as the source may mean

Columns that the table knows are read as it knows them. Of columns that an append brings, all its files are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.tabular import column_types, schemas
from deltacompact.tabular.text_types import time_type

_PADDED = r"^[-+]?0[0-9]|^[^eE]*\.[0-9]+0$"
"""Texts of numbers that have a shorter text: 007, 1.10. Not 1.0, because other programs write 1 as 1.0."""

_WHOLE = r"^(0|-?[1-9][0-9]{0,37})$"
"""The usual text of a whole number. Others are 0x7, -0, and 7 with blanks."""

LOG_POSITIONS = ("lsn", "scn", "commit_scn", "change_lsn", "commit_lsn")
"""Names that Debezium gives to positions in a database's log. Those of Oracle are whole numbers, written as texts."""


def is_log_position(name: str) -> bool:
    """Whether a column has such a name, also as flattened events have it: __scn, __source_scn."""
    return name.lstrip("_").removeprefix("source_") in LOG_POSITIONS


def ordered_type(name: str, texts: pa.ChunkedArray) -> pa.DataType:
    """The type in which these texts of a sort key are in order. Null: there is none; string: nobody knows more.

    Positions are decimals, however small: later ones may be greater, and JSON has decimals as texts, too.
    """
    if len(texts) == texts.null_count:
        return pa.null()
    if is_log_position(name) and pc.all(pc.match_substring_regex(texts, pattern=_WHOLE)).as_py():
        return pa.decimal128(38, 0)
    return time_type(texts) or pa.string()


def types_of_sorts(table: pa.Table, sorts: Iterable[str]) -> dict[str, pa.DataType]:
    """The types of the sort keys among these columns that were read as texts."""
    return {name: ordered_type(name, table[name]) for name in sorts if column_types.is_string(table[name].type)}


def types_in_json(table: pa.Table, keys: Iterable[str], sorts: Iterable[str]) -> list[pa.Field]:
    """The types to read these columns in, where others were inferred."""
    texts = [pa.field(name, pa.string()) for name in keys if pa.types.is_timestamp(table[name].type)]
    found = types_of_sorts(table, sorts)
    # Times have no zone, as the parser's whole seconds: of two files that come at once, one may have no fraction.
    types = {name: pa.timestamp(type_.unit) if pa.types.is_timestamp(type_) else type_ for name, type_ in found.items()}
    return texts + [pa.field(name, type_) for name, type_ in types.items() if type_ != table[name].type]


@dataclass(frozen=True, slots=True)
class KeyTexts:
    """What the CSV files of one append say for keys. `known`: the columns that have had types before it."""

    known: frozenset[str]
    _said: dict[str, pa.Table] = field(default_factory=dict)
    """Texts and values of earlier files. Whole numbers are left out: each text tells by itself that others mean it."""

    @staticmethod
    def of(known: pa.Schema | None) -> KeyTexts:
        return KeyTexts(frozenset(schemas.known_types(known)))

    def check(self, texts: pa.Table, values: pa.Table, path: str) -> None:
        """Raise InputError naming a key whose value another text has too, or may have, in this file or an earlier."""
        for name in texts.column_names:
            said, first = pa.table({"text": texts[name], "value": values[name]}), 0
            type_ = said["value"].type
            if (earlier := self._said.get(name)) is not None and earlier.schema == said.schema:
                said, first = pa.concat_tables([earlier, said]), earlier.num_rows
            text, value = (column.combine_chunks() for column in said.columns)
            row = _unusual(text, type_)
            if row is None:
                row = _repeated(text, value)
            if row is not None:
                raise InputError(
                    f"{path}, row {row - first + 1:,}: key {text[row].as_py()!r} in column {name!r} is read as "
                    f"{value[row].as_py()}, as other texts are, and rows of one key are one row: declare the column "
                    f'when you create the table (--columns "{name} string", or the type that the texts mean)'
                )
            if not pa.types.is_integer(type_):
                self._said[name] = said.group_by(said.column_names).aggregate([])


def _unusual(texts: pa.Array, type_: pa.DataType) -> int | None:
    """The row of the first number that is surely said by another text, too."""
    if not column_types.is_number(type_):
        return None
    is_whole = pa.types.is_integer(type_)
    said_so = pc.match_substring_regex(texts, pattern=_WHOLE if is_whole else _PADDED)
    row = pc.index(said_so, not is_whole).as_py()
    return row if row >= 0 else None


def _repeated(texts: pa.Array, values: pa.Array) -> int | None:
    """The row of the first text whose value another text had before."""
    encoded = texts.dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1))
    said, rows = np.unique(codes, return_index=True)
    rows = np.sort(rows[said >= 0])
    numbers = np.asarray(values.take(pa.array(rows)).dictionary_encode().indices.fill_null(-1))
    _, first = np.unique(numbers, return_index=True)
    again = np.setdiff1d(np.arange(len(rows)), first)
    again = again[numbers[again] >= 0]
    return int(rows[again[0]]) if len(again) else None
