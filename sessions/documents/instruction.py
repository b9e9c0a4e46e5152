"""The instruction document (paper, compaction job runs): `catalog` and every parameter of compact() by its own name.

    {"version": 1, "catalog": "s3://lake/tables", "source_table_id": "orders",
     "sort_keys": [["updated", "ascending"]], "desired_sla": 900, "partitions": [{"day": "2024-01-01"}]}
    {"version": 1, "catalog": "iceberg://prod", "source_table_id": "db.orders", "mode": "rewrite",
     "options": {"delete-file-threshold": 1}, "branch": "main"}

    {"version": 1, …, "desired_sla": 0}        desired_sla: it must be greater than or equal to 1 (it is 0)
    {"version": 1, …, "partitions": [{"day": []}]}
                                               partitions[0].day: it must be a text, a whole number, true, false or null
    {"version": 1, …, "desired_slo": 7}        desired_slo: no such field; did you mean 'desired_sla'?
    {"version": 1, "catalog": "iceberg://prod", …, "purge": true}
                                               purge: it is for delta streams, and iceberg://prod is an Iceberg catalog

A document with an unknown field, a value of another type than the schema's, or a value beyond a limit is refused, in
one line with the field's path. `python -m sessions.documents.instruction` writes the JSON Schema beside this file.
"""

from __future__ import annotations

import json
import re
import typing
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
    create_model,
)

from deltacompact.base.errors import InputError
from deltacompact.base.model import ICEBERG, INT64_MAX, partition_text
from deltacompact.base.options import declared
from deltacompact.base.settings import (
    COUNT_MAX,
    DEFAULTS,
    EXECUTORS,
    HASH_BUCKETS_MAX,
    SETTINGS_OF_STREAMS,
    Options,
    Settings,
)
from deltacompact.base.wording import text_of
from deltacompact.iceberg_modes.modes import mode_named, names, options_of
from deltacompact.layout.cluster_by import cluster_columns
from deltacompact.planning.within_memory import within_memory
from deltacompact.sinks.sns import TOPIC_ARN, TopicArn
from sessions.base.ids import JOB_RUN_ID
from sessions.documents.paths import no_number_in, no_such_field, no_text_in, path_of, short_json

DOCUMENT_BYTES_MAX = 1 << 20
PARTITIONS_MAX = 10_000
SCHEMA_PATH = Path(__file__).with_name("instruction.schema.json")

_DECLARED = declared(Options)
_NAME_CHARACTERS_MAX = 1000
_COLUMNS_MAX = 100
_NOT_OF_A_DOCUMENT = ("ray_address", "partitions_at_once", "limits")
"""Settings that a document may not have: the place of the dispatcher's machines, how many sessions run at a time, and
limits for tests and experts."""


def _topic(arn: str) -> str:
    """Refuse a text that is no topic: otherwise, its events would be lost one by one, a day after the job run."""
    try:
        return TopicArn.of(arn).arn
    except InputError as error:
        raise ValueError(str(error)) from None


def _columns(text: str) -> str:
    try:
        cluster_columns("cluster_by", text)
    except InputError as error:
        raise ValueError(str(error).removeprefix("cluster_by: ")) from None
    return text


Columns: TypeAlias = Annotated[str, Field(max_length=_NAME_CHARACTERS_MAX), AfterValidator(_columns)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=_NAME_CHARACTERS_MAX)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=COUNT_MAX)]
PartitionValue: TypeAlias = (
    Annotated[StrictStr, Field(max_length=_NAME_CHARACTERS_MAX)]
    | Annotated[StrictInt, Field(ge=-INT64_MAX - 1, le=INT64_MAX)]
    | StrictBool
    | None
)
Partition: TypeAlias = Annotated[dict[Name, PartitionValue], Field(max_length=_COLUMNS_MAX)]
OptionValue: TypeAlias = (
    Annotated[StrictStr, Field(max_length=_NAME_CHARACTERS_MAX)] | StrictInt | StrictFloat | StrictBool
)
Topic: TypeAlias = Annotated[
    str, AfterValidator(_topic), WithJsonSchema({"type": "string", "pattern": f"^{TOPIC_ARN}$"})
]
if TYPE_CHECKING:
    Mode: TypeAlias = str
else:
    Mode = Literal[names()]
Direction: TypeAlias = Literal["ascending", "descending"]
_OF_STREAMS = (
    "primary_keys",
    "sort_keys",
    "destination_compacted_table_id",
    "rows_per_primary_key_index_file",
    "rows_per_compacted_file",
    "hash_bucket_count",
    "compacted_file_content_type",
    "partitions",
    "purge",
    "cluster_by",
)
_OF_ICEBERG = ("mode", "options", "branch")
_ICEBERG_TABLE = r"^[^./\\?#%\x00-\x20\x7f]+(\.[^./\\?#%\x00-\x20\x7f]+)+$"
"""namespace.table, each part a plain name, because some catalogs put it into a URL."""
_ENVELOPES = (
    (
        {"Type", "TopicArn", "Message"},
        "Message",
        "the envelope of an SNS topic: let its subscription deliver raw messages",
    ),
    ({"detail-type", "detail"}, "detail", "the envelope of EventBridge: let its target get $.detail alone (InputPath)"),
    ({"specversion", "data"}, "data", "the envelope of a CloudEvent: send its data alone"),
)
"""The fields that tell an envelope, the one that has the document, and what to do."""
_SUBJECT = re.compile(r"^(Input|List|String|Tuple|Dictionary|Value) should")
_KIND = re.compile(r"\ba valid (array|boolean|dictionary|integer|number|object|string)")
_KIND_WORDS = {
    "array": "a list",
    "boolean": "true or false",
    "dictionary": "an object",
    "integer": "a whole number",
    "object": "an object",
}
_FORBIDDING = ConfigDict(extra="forbid", strict=True, frozen=True, regex_engine="rust-regex")


def _no_flag(value: Any) -> Any:
    """Refuse true and false for a number: Python's True equals 1."""
    if isinstance(value, bool):
        raise ValueError("it must be 1")
    return value


def _settings_model() -> type[BaseModel]:
    """A model with all fields of deltacompact.Settings that a document may have. Settings itself checks the values."""
    types = typing.get_type_hints(Settings)
    kinds: dict[str, Any] = {
        setting.name: (types[setting.name], Field(setting.default, description=_DECLARED[setting.name].sentence))
        for setting in fields(Settings)
        if setting.name not in _NOT_OF_A_DOCUMENT
    }
    kinds["executor"] = (Literal[EXECUTORS], Field("auto", description=_DECLARED["executor"].sentence))
    return create_model("InstructionSettings", __config__=_FORBIDDING, **kinds)


InstructionSettings = _settings_model()


class Instruction(BaseModel):
    """A job run's instruction document. Names and meanings are those of `deltacompact.compact`."""

    model_config = _FORBIDDING

    version: Annotated[Literal[1], BeforeValidator(_no_flag)] = Field(description="Of this format.")
    job_run_id: Annotated[str, Field(pattern=f"^{JOB_RUN_ID}$")] | None = Field(
        None, description="Names the job run, which runs once however often it is sent. Default: made by submit."
    )
    catalog: Annotated[str, Field(min_length=1, max_length=_NAME_CHARACTERS_MAX)] = Field(
        description="s3://bucket/prefix, file:///path or an absolute path, under a prefix that the dispatcher allows; "
        "or iceberg://NAME, a catalog that it allows by name."
    )
    source_table_id: Name = Field(description="The table whose deltas are folded; of Iceberg, namespace.table.")
    primary_keys: Annotated[list[Name], Field(min_length=1, max_length=_COLUMNS_MAX)] | None = Field(
        None, description="Columns. Default: those of the table."
    )
    sort_keys: Annotated[list[tuple[Name, Direction]], Field(max_length=_COLUMNS_MAX)] | None = Field(
        None, description="Pairs of column and direction, the most significant first. Default: those of the table."
    )
    desired_sla: Annotated[int, Field(ge=1, le=COUNT_MAX)] | None = Field(
        None, description="Seconds in which every session is to be done."
    )
    destination_compacted_table_id: Name | None = Field(None, description="Default: in place.")
    rows_per_primary_key_index_file: Count = Field(
        DEFAULTS.rows_per_primary_key_index_file, description=_DECLARED["rows_per_primary_key_index_file"].sentence
    )
    rows_per_compacted_file: Count = Field(
        DEFAULTS.rows_per_compacted_file, description=_DECLARED["rows_per_compacted_file"].sentence
    )
    hash_bucket_count: Annotated[int, Field(ge=1, le=HASH_BUCKETS_MAX)] | None = Field(
        DEFAULTS.hash_bucket_count, description=_DECLARED["hash_bucket_count"].sentence
    )
    sns_event_topic_arn: Topic | None = Field(None, description="Where events of the job run are published.")
    compacted_file_content_type: Literal[
        "parquet", "feather", "orc", "csv", "application/parquet", "application/feather", "application/orc", "text/csv"
    ] = Field("parquet", description=_DECLARED["content_type"].sentence)
    partitions: Annotated[list[Partition], Field(min_length=1, max_length=PARTITIONS_MAX)] | None = Field(
        None, description="Values by partition key, for each partition; null is a value. Default: all partitions."
    )
    purge: bool = Field(DEFAULTS.purge, description=_DECLARED["purge"].sentence)
    cluster_by: Columns | None = Field(None, description=_DECLARED["cluster_by"].sentence)
    mode: Mode | None = Field(None, description="Iceberg: how it is compacted. Default: rewrite.")
    options: Annotated[dict[Name, OptionValue], Field(max_length=_COLUMNS_MAX)] | None = Field(
        None, description="Iceberg: options of the mode, under Iceberg's own names."
    )
    branch: Name = Field("main", description="Iceberg: the branch that is compacted.")
    settings: InstructionSettings | None = Field(  # type: ignore[valid-type]
        None, description="Limits and choices of the compaction: deltacompact.Settings."
    )

    @property
    def is_iceberg(self) -> bool:
        return self.catalog.startswith(ICEBERG)

    @property
    def chosen_mode(self) -> str:
        """The mode of a document for an Iceberg table."""
        return mode_named(self.mode).name

    @property
    def partition_values(self) -> list[dict[str, str | None]] | None:
        """The partitions in the engine's form: every value is a text or null."""
        if self.partitions is None:
            return None
        return [{name: partition_text(value) for name, value in values.items()} for values in self.partitions]

    def engine_settings(self, **overriding: Any) -> Settings:
        """The engine's settings: those of the document, and `overriding` ones that the planner decided.

        Earlier releases accepted settings of delta streams for Iceberg tables, where nobody read them.
        """
        unread = frozenset(SETTINGS_OF_STREAMS) if self.is_iceberg else frozenset[str]()
        asked: dict[str, Any] = self.settings.model_dump(exclude_unset=True, exclude=unread) if self.settings else {}
        return Settings(**{**asked, **overriding})


class RefusedDocument(InputError):
    """A document that can never be served. `field` is the path of the wrong field; "" is the document itself."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}" if field else text)
        self.field = field


def parse(data: bytes | str) -> Instruction:
    """The document in bytes or text. Raises RefusedDocument, which names the field."""
    try:
        raw = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    except UnicodeEncodeError:
        raise RefusedDocument("", "the document has a text that UTF-8 cannot hold (half of a surrogate pair)") from None
    if len(raw) > DOCUMENT_BYTES_MAX:
        raise RefusedDocument("", f"the document has more than {DOCUMENT_BYTES_MAX:,} bytes, which is the most")
    if not raw.strip():
        raise RefusedDocument("", "the document is empty")
    try:
        document = json.loads(raw, object_pairs_hook=_without_repeats, parse_constant=_no_number, parse_int=_number)
    except RecursionError:
        raise RefusedDocument("", "the document is nested too deeply") from None
    except RefusedDocument:
        raise
    except ValueError as error:
        raise RefusedDocument("", f"the document is not JSON: {text_of(error)[:200]}") from None
    return of_values(document)


def of_values(document: Any) -> Instruction:
    """The document in JSON values. Raises RefusedDocument."""
    instruction = of_accepted(document)
    _check_kind(instruction)
    return instruction


def of_accepted(document: Any) -> Instruction:
    """The document of a job run, as accepted by any release. Raises RefusedDocument for what can never be served."""
    if not isinstance(document, dict):
        raise RefusedDocument("", f"the document is {short_json(document)}, it must be a JSON object")
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
    if (place := no_text_in(document)) is not None:
        raise RefusedDocument(path_of(place, document), "a text that UTF-8 cannot hold (half of a surrogate pair)")
    if (place := no_number_in(document)) is not None:
        raise RefusedDocument(path_of(place, document), "a number that JSON cannot hold: it is too large for a float")
    try:
        # Strict Python values would want tuples where JSON has lists.
        instruction = Instruction.model_validate_json(json.dumps(document))
    except ValidationError as refused:
        raise _refusal(refused, document) from None
    except RecursionError:
        raise RefusedDocument("", "the document is nested too deeply") from None
    _check_settings(instruction)
    return instruction


def _is_of_s3(document: Mapping[str, Any]) -> bool:
    """Whether this is a notification of S3, or the test that S3 sends where notifications are set up."""
    match document:
        case {"Records": [{"s3": _}, *_]} | {"Service": _, "Event": _, "Bucket": _}:
            return True
    return False


def values_of(instruction: Instruction) -> dict[str, Any]:
    """The document as JSON values, only with fields that it has itself."""
    return instruction.model_dump(mode="json", exclude_unset=True)


def json_schema() -> str:
    """The JSON Schema of instruction documents, as it is kept in the repository."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Instruction.model_json_schema(), **_KINDS}
    return json.dumps(schema, indent=2) + "\n"


def _refusal(refused: ValidationError, document: Mapping[str, Any]) -> RefusedDocument:
    """The first fault, in one line."""
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
            known = (InstructionSettings if of_settings else Instruction).model_fields
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


def _options_schema(mode: str) -> dict[str, Any]:
    """The meanings of a mode's options, for editors. The values are checked later, with the table and its defaults."""
    said = {
        option.name: {"description": f"{option.meaning}. Default: {option.default}"}
        for option in declared(options_of(mode)).values()
    }
    of_mode = {"properties": {"mode": {"const": mode}}, "required": [] if mode == mode_named(None).name else ["mode"]}
    return {"if": of_mode, "then": {"properties": {"options": {"properties": said}}}}


_KINDS = {
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
"""The rules of `_check_kind`, as JSON Schema."""


def _check_kind(instruction: Instruction) -> None:
    """Refuse fields of delta streams in a document for an Iceberg table, and the reverse."""
    catalog, named = instruction.catalog, instruction.model_fields_set
    if not instruction.is_iceberg:
        if field := next((name for name in _OF_ICEBERG if name in named), None):
            raise RefusedDocument(
                field, f"it is for Iceberg tables (iceberg://NAME), and {short_json(catalog)} is none"
            )
        return
    of_settings: set[str] = instruction.settings.model_fields_set if instruction.settings else set()
    fields_ = [name for name in _OF_STREAMS if name in named]
    fields_ += [f"settings.{name}" for name in SETTINGS_OF_STREAMS if name in of_settings]
    if fields_:
        raise RefusedDocument(fields_[0], f"it is for delta streams, and {short_json(catalog)} is an Iceberg catalog")
    if not re.fullmatch(_ICEBERG_TABLE, instruction.source_table_id):
        said = short_json(instruction.source_table_id)
        raise RefusedDocument("source_table_id", f"it must be namespace.table, of plain names (it is {said})")


def _check_settings(instruction: Instruction) -> None:
    """Check what the schema cannot say: the ranges and combinations that deltacompact.Settings checks."""
    try:
        within_memory(instruction.engine_settings())
    except InputError as error:
        name, _, said = str(error).partition(" ")  # "read_mb_per_s is -3, it must be greater than 0"
        quoted = said.startswith(("'", '"'))  # "compression 'x' is not a codec"
        raise RefusedDocument(f"settings.{name}", f"{'' if quoted else 'it '}{said[:300]}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a repeated name: JSON readers take one of the two values, perhaps the wrong one."""
    document = dict(pairs)
    if len(document) < len(pairs):
        ((repeated, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise RefusedDocument(path_of((repeated,), document), "the field is there twice")
    return document


def _no_number(name: str) -> None:
    raise RefusedDocument("", f"the document is not JSON: {name} is no number of it")


def _number(digits: str) -> int | float:
    """A whole number. One of thousands of digits, which Python does not convert, is infinite: `of_values` names it."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


if __name__ == "__main__":
    SCHEMA_PATH.write_text(json_schema())
