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
import typing
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
from deltacompact.iceberg_modes.modes import mode_named, names
from deltacompact.layout.cluster_by import cluster_columns
from deltacompact.planning.within_memory import within_memory
from deltacompact.sinks.sns import TOPIC_ARN, TopicArn
from sessions.base.ids import JOB_RUN_ID
from sessions.documents.json_text import check_sender, values_in
from sessions.documents.kinds import KINDS, check_kind
from sessions.documents.paths import no_number_in, no_text_in, path_of, short_json
from sessions.documents.refusal import RefusedDocument, refusal

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
    def named(self) -> set[str]:
        """The fields that the document has itself, those of its settings as "settings.NAME"."""
        of_settings = self.settings.model_fields_set if self.settings else frozenset[str]()
        return self.model_fields_set | {f"settings.{name}" for name in of_settings}

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


def parse(data: bytes | str) -> Instruction:
    """The document in bytes or text. Raises RefusedDocument, which names the field."""
    return of_values(values_in(data))


def of_values(document: Any) -> Instruction:
    """The document in JSON values. Raises RefusedDocument."""
    instruction = of_accepted(document)
    check_kind(instruction.catalog, instruction.source_table_id, instruction.named)
    return instruction


def of_accepted(document: Any) -> Instruction:
    """The document of a job run, as accepted by any release. Raises RefusedDocument for what can never be served."""
    if not isinstance(document, dict):
        raise RefusedDocument("", f"the document is {short_json(document)}, it must be a JSON object")
    check_sender(document)
    if (place := no_text_in(document)) is not None:
        raise RefusedDocument(path_of(place, document), "a text that UTF-8 cannot hold (half of a surrogate pair)")
    if (place := no_number_in(document)) is not None:
        raise RefusedDocument(path_of(place, document), "a number that JSON cannot hold: it is too large for a float")
    try:
        # Strict Python values would want tuples where JSON has lists.
        instruction = Instruction.model_validate_json(json.dumps(document))
    except ValidationError as refused:
        raise refusal(refused, document, Instruction.model_fields, InstructionSettings.model_fields) from None
    except RecursionError:
        raise RefusedDocument("", "the document is nested too deeply") from None
    _check_settings(instruction)
    return instruction


def values_of(instruction: Instruction) -> dict[str, Any]:
    """The document as JSON values, only with fields that it has itself."""
    return instruction.model_dump(mode="json", exclude_unset=True)


def json_schema() -> str:
    """The JSON Schema of instruction documents, as it is kept in the repository."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Instruction.model_json_schema(), **KINDS}
    return json.dumps(schema, indent=2) + "\n"


def _check_settings(instruction: Instruction) -> None:
    """Check what the schema cannot say: the ranges and combinations that deltacompact.Settings checks."""
    try:
        within_memory(instruction.engine_settings())
    except InputError as error:
        name, _, said = str(error).partition(" ")  # "read_mb_per_s is -3, it must be greater than 0"
        quoted = said.startswith(("'", '"'))  # "compression 'x' is not a codec"
        raise RefusedDocument(f"settings.{name}", f"{'' if quoted else 'it '}{said[:300]}") from None


if __name__ == "__main__":
    SCHEMA_PATH.write_text(json_schema())
