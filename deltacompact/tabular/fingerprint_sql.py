"""The fingerprint of rows as one SQL statement: for DuckDB, and for Spark in ANSI mode with its session in UTC.

    id int64, field 1       coalesce('00000001' || '0101' || sign of id || id in 16 hexadecimal digits, '')
    note string, field 2    coalesce('00000002' || '0109' || number of its bytes || its bytes in hexadecimal, '')
    the row                 SHA-1 of these bytes; the first 128 bits are summed in two halves

The statement shares no code with the kernel that computes the same sum (`fingerprint.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.tabular.column_types import is_binary, is_string, values_type
from deltacompact.tabular.conversion import is_list
from deltacompact.tabular.field_ids import field_id
from deltacompact.tabular.published_types import alike_names

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HALF = str(1 << 64)
_LONG_DIGITS = 18
"""Decimals of up to this many digits fit a BIGINT."""

_INTEGER = "CASE WHEN {x} < 0 THEN '00' ELSE '01' END || lpad(hex(CAST({x} AS BIGINT)), 16, '0')"
_DECIMAL = "lpad({digits}, 64, CASE WHEN {x} < 0 THEN 'f' ELSE '0' END)"
_BOOLEAN = "CASE WHEN {x} THEN '01' WHEN NOT {x} THEN '00' END"
_STRUCT = "CASE WHEN {x} IS NOT NULL THEN {inside} || 'ffffffff' END"

_DUCKDB = {
    "name": '"{}"',
    "child": "struct_extract({x}, '{name}')",
    "integer": _INTEGER,
    "unsigned": "'01' || lpad(hex(CAST({x} AS UBIGINT)), 16, '0')",
    "float": "lpad(hex(CAST(CAST(CASE WHEN isnan(CAST({x} AS DOUBLE)) THEN CAST('NaN' AS DOUBLE) "
    "WHEN {x} = 0 THEN CAST(0 AS DOUBLE) ELSE CAST({x} AS DOUBLE) END AS BIT) AS BIGINT)), 16, '0')",
    "decimal": _DECIMAL.format(x="{x}", digits="hex(CAST(replace(CAST({x} AS VARCHAR), '.', '') AS HUGEINT))"),
    "naive timestamp": "epoch_us(CAST({x} AS TIMESTAMP))",
    "zoned timestamp": "epoch_us({x})",
    "instant": "lpad(hex(({x} - (({x} % {m} + {m}) % {m})) // {m}), 16, '0') "
    "|| lpad(hex((({x} % {m} + {m}) % {m}) * 1000), 8, '0')",
    "date": "lpad(hex(CAST({x} - DATE '1970-01-01' AS BIGINT)), 16, '0')",
    "time": "lpad(hex(CAST(epoch_us({x}) * 1000 AS BIGINT)), 16, '0')",
    "string": "lpad(hex(strlen(CAST({x} AS VARCHAR))), 8, '0') || hex(CAST({x} AS VARCHAR))",
    "binary": "lpad(hex(octet_length({x})), 8, '0') || hex({x})",
    "uuid": "'00000010' || replace(CAST({x} AS VARCHAR), '-', '')",
    "boolean": _BOOLEAN,
    "list": "lpad(hex(CAST(len({x}) AS BIGINT)), 8, '0') "
    "|| coalesce(array_to_string(list_transform({x}, lambda {item}: {inside}), ''), '')",
    "map": "lpad(hex(CAST(cardinality({x}) AS BIGINT)), 8, '0') "
    "|| coalesce(array_to_string(list_transform(map_entries({x}), lambda {item}: {inside}), ''), '')",
    "struct": _STRUCT,
    "half": "coalesce(sum(CAST(CAST('0x' || substr(digest, {first}, 16) AS UBIGINT) AS HUGEINT)), 0)",
    "carry": f"(high + low // {_HALF})",
    "sum": f"lower(lpad(hex(CAST({{x}} % {_HALF} AS UBIGINT)), 16, '0'))",
}
_SPARK = {
    "name": "`{}`",
    "child": "{x}.`{name}`",
    "integer": _INTEGER,
    "unsigned": "'01' || lpad(conv(CAST({x} AS STRING), 10, 16), 16, '0')",  # uint64 is DECIMAL(20, 0)
    "float": "CASE WHEN {x} IS NOT NULL THEN lpad(hex(CAST(java_method('java.lang.Double', 'doubleToLongBits', "
    "CASE WHEN {x} = 0 THEN 0D ELSE CAST({x} AS DOUBLE) END) AS BIGINT)), 16, '0') END",
    "decimal": _DECIMAL.format(x="{x}", digits="hex(CAST(replace(CAST({x} AS STRING), '.', '') AS BIGINT))"),
    "long decimal": _DECIMAL.format(
        x="{x}",
        digits="lpad(hex({unscaled} div {half} - CASE WHEN {unscaled} % {half} < 0 THEN 1 ELSE 0 END), 16, '0') "
        "|| lpad(conv(CAST(pmod({unscaled}, {half}) AS STRING), 10, 16), 16, '0')",
    ),
    "unscaled": "CAST(replace(CAST({x} AS STRING), '.', '') AS DECIMAL(38, 0))",
    "naive timestamp": "unix_micros(CAST({x} AS TIMESTAMP))",
    "zoned timestamp": "unix_micros({x})",
    "instant": "lpad(hex(({x} - pmod({x}, {m})) div {m}), 16, '0') || lpad(hex(pmod({x}, {m}) * 1000), 8, '0')",
    "date": "lpad(hex(CAST(unix_date({x}) AS BIGINT)), 16, '0')",
    "string": "lpad(hex(octet_length({x})), 8, '0') || hex({x})",
    "binary": "lpad(hex(octet_length({x})), 8, '0') || hex({x})",
    "uuid": "'00000010' || replace({x}, '-', '')",
    "boolean": _BOOLEAN,
    "list": "CASE WHEN {x} IS NOT NULL THEN lpad(hex(size({x})), 8, '0') "
    "|| array_join(transform({x}, {item} -> {inside}), '') END",
    "map": "CASE WHEN {x} IS NOT NULL THEN lpad(hex(size({x})), 8, '0') "
    "|| array_join(transform(map_entries({x}), {item} -> {inside}), '') END",
    "struct": _STRUCT,
    "half": "coalesce(sum(CAST(conv(substr(digest, {first}, 16), 16, 10) AS DECIMAL(28, 0))), 0)",
    "carry": f"(high + low div {_HALF})",
    "sum": f"lower(lpad(conv(CAST({{x}} % {_HALF} AS STRING), 10, 16), 16, '0'))",
}
_WORDS = {"duckdb": _DUCKDB, "spark": _SPARK}
_TAGS = {
    "integer": "0101",
    "unsigned": "0101",
    "float": "0102",
    "decimal": "0103",
    "long decimal": "0103",
    "naive timestamp": "0104",
    "zoned timestamp": "0105",
    "date": "0106",
    "time": "0107",
    "string": "0109",
    "binary": "010a",
    "uuid": "010a",
    "boolean": "010b",
    "list": "010c",
    "map": "010d",
    "struct": "010e",
}


def fingerprint_statement(schema: pa.Schema, relation: str, engine: str, uuids: bool = False) -> str:
    """A statement whose one value is the fingerprint of `relation`, in the form of `str(Fingerprint)`.

    `engine` is "duckdb" or "spark". `uuids`: the engine reads binaries of 16 bytes as UUIDs. Raises InputError naming a
    column for which the engine has no type, and two whose names differ in case alone.
    """
    words = _SqlEngine(engine, _WORDS[engine], uuids)
    row = words.labelled((words.named(field.name), field) for field in schema)
    high, low = words.word("half", first=1), words.word("half", first=17)
    shown = f"{words.word('sum', x=words.words['carry'])} || {words.word('sum', x='low')}"
    return (
        f"SELECT row_count || ':' || {shown} AS fingerprint FROM (\n"
        f"  SELECT count(*) AS row_count, {high} AS high, {low} AS low FROM (\n"
        f"    SELECT sha1(unhex({row})) AS digest FROM {relation}\n  ) AS digests\n) AS sums"
    )


def spark_name(*parts: str) -> str:
    """A name of several parts as Spark reads it: a part that is no plain word stands in backticks."""
    doubled = (part if _WORD.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in parts)
    return ".".join(doubled)


class _SqlEngine:
    """Writes SQL expressions whose values are hexadecimal digits."""

    def __init__(self, name: str, words: dict[str, str], uuids: bool) -> None:
        self._name = name
        self._uuids = uuids
        self.words = words

    def word(self, kind: str, **parts: object) -> str:
        return self.words[kind].format(**parts)

    def named(self, column: str) -> str:
        quote = self.words["name"][0]
        return self.words["name"].format(column.replace(quote, quote * 2))

    def labelled(self, columns: Iterable[tuple[str, pa.Field]], depth: int = 0) -> str:
        """The columns' values, each after its label, in the order of the labels. A null value adds nothing."""
        found = list(columns)
        self._refuse_alike([field.name for _, field in found])
        have_ids = all(field_id(field) is not None for _, field in found)
        labels = [_label(field, have_ids) for _, field in found]
        pieces = [
            f"coalesce('{label}' || {self._value(x, field, depth)}, '')"
            for label, (x, field) in sorted(zip(labels, found, strict=True), key=lambda pair: pair[0])
            if not pa.types.is_null(values_type(field.type))
        ]
        return "concat(" + ", ".join(["''", *pieces]) + ")"  # `||` would nest one level for each column

    def _refuse_alike(self, names: Sequence[str]) -> None:
        """Raise InputError for two names that differ in case alone: the statement would read one of the two twice."""
        if (alike := alike_names(names)) is not None:
            raise InputError(
                f"columns {alike[0]!r} and {alike[1]!r} are one column for {self._name}: validate --by self knows both"
            )

    def _value(self, x: str, field: pa.Field, depth: int) -> str:
        """Presence byte, class tag and value; NULL if the value is null."""
        kind = self._kind(field)
        type_ = values_type(field.type)
        if kind not in _TAGS or (kind != "long decimal" and kind not in self.words):
            raise InputError(f"column {field.name!r} is {field.type}, for which {self._name} has no type of that kind")
        return f"'{_TAGS[kind]}' || {self._digits(kind, x, type_, depth)}"

    def _digits(self, kind: str, x: str, type_: pa.DataType, depth: int) -> str:
        item = f"e{depth}"
        if kind == "struct":
            children = ((self._child(x, child.name), child) for child in type_)
            return self.word(kind, x=x, inside=self.labelled(children, depth))
        if kind == "list":
            return self.word(kind, x=x, item=item, inside=self._item(item, type_.value_field, depth + 1))
        if kind == "map":
            sides = (("key", type_.key_field), ("value", type_.item_field))
            inside = " || ".join(self._item(self._child(item, side), field, depth + 1) for side, field in sides)
            return self.word(kind, x=x, item=item, inside=inside)
        if kind.endswith("timestamp"):
            return self.word("instant", x=self.word(kind, x=x), m=1_000_000)
        if kind == "long decimal":
            unscaled = self.word("unscaled", x=x)
            return self.word(kind, x=x, unscaled=unscaled, half=_HALF)
        return self.word(kind, x=x)

    def _child(self, x: str, name: str) -> str:
        quote = "'" if self._name == "duckdb" else "`"
        return self.word("child", x=x, name=name.replace(quote, quote * 2))

    def _item(self, x: str, field: pa.Field, depth: int) -> str:
        if pa.types.is_null(values_type(field.type)):
            return "'00'"
        return f"coalesce({self._value(x, field, depth)}, '00')"

    def _kind(self, field: pa.Field) -> str:
        """The class of a column's values; "": this SQL has no type for them."""
        t, type_ = pa.types, values_type(field.type)
        if t.is_timestamp(type_):
            kind = "zoned timestamp" if type_.tz else "naive timestamp"
            return kind if type_.unit != "ns" else ""
        if t.is_decimal(type_):
            is_long = type_.precision > _LONG_DIGITS and "long decimal" in self.words
            is_known = type_.precision <= 38 and type_.scale >= 0
            return "" if not is_known else "long decimal" if is_long else "decimal"
        if field.type == pa.uuid() or (self._uuids and type_ == pa.binary(16)):
            return "uuid"
        if t.is_time(type_):
            return "time" if type_.unit != "ns" else ""
        kinds = {
            "unsigned": t.is_uint64,
            "integer": t.is_integer,
            "float": lambda type_: t.is_floating(type_) and not t.is_float16(type_),
            "date": t.is_date,
            "string": is_string,
            "binary": is_binary,
            "boolean": t.is_boolean,
            "list": is_list,
            "map": t.is_map,
            "struct": t.is_struct,
        }
        return next((kind for kind, test in kinds.items() if test(type_)), "")


def _label(field: pa.Field, by_id: bool) -> str:
    if by_id:
        return f"{field_id(field):08x}"
    name = field.name.encode()
    return f"{len(name):08x}{name.hex()}"
