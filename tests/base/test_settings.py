"""What a caller may choose: one class, one default, one check, and what of it makes another session."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path

import click
import pytest

from deltacompact import ContentType, InputError, Settings, compact
from deltacompact.arguments import content_type
from deltacompact.base.limits import LIMITS, Limits, ReadLimits
from deltacompact.base.options import declared
from deltacompact.base.settings import DEFAULTS, Options
from deltacompact.cli.compaction import compact as command
from docs import options_page
from sessions.documents.instruction import SCHEMA_PATH

DOCS = Path(__file__).parents[2] / "docs/settings.md"
FIELDS = {field.name for field in dataclasses.fields(Options)}
OUTPUT_OPTIONS = FIELDS - {
    "certify",
    "cluster_by",
    "executor",
    "memory_bytes",
    "memory_per_task_bytes",
    "object_store_bytes",
    "local_rows_max",
    "local_bytes_max",
    "local_threads",
    "ray_address",
    "ray_cpus",
    "ray_wait_s",
    "partitions_at_once",
    "concurrent_tasks",
    "read_mb_per_s",
    "write_mb_per_s",
    "requests_per_s",
    "task_retries",
    "limits",
    "write_amplification_max",
}
OTHERS = [
    Options(rows_per_compacted_file=7, hash_bucket_count=3, content_type=ContentType.ORC, purge=True),
    Options(executor="local", target_file_bytes=1, limits=Limits(local_nodes=(1, 2), reading=ReadLimits(tail_bytes=9))),
]


def test_options_are_the_settings_and_the_parameters_of_compact() -> None:
    settings = Settings(executor="local", rows_per_round=7, limits=Limits(groups=3))
    options = Options.of(settings, purge=True, hash_bucket_count=5)
    assert isinstance(options, Settings)
    for field in dataclasses.fields(Settings):
        assert getattr(options, field.name) == getattr(settings, field.name)
    assert (options.purge, options.hash_bucket_count) == (True, 5)
    parameters = inspect.signature(compact).parameters
    for name in ("rows_per_primary_key_index_file", "rows_per_compacted_file", "hash_bucket_count", "purge"):
        assert parameters[name].default == getattr(DEFAULTS, name)
    assert parameters["compacted_file_content_type"].default is DEFAULTS.content_type


def test_the_command_line_has_the_same_defaults() -> None:
    for parameter in command.params:
        if parameter.name in FIELDS - {"content_type"}:
            assert parameter.default == getattr(DEFAULTS, parameter.name), parameter.name
        if parameter.name == "content_type":
            assert content_type(parameter.default) is DEFAULTS.content_type


def test_the_page_of_settings_is_made_from_the_declarations() -> None:
    """`python docs/options_page.py` writes it."""
    text = DOCS.read_text()
    assert options_page.settings_page(text) == text
    assert all(f"`{name}`" in text for name in FIELDS - {"content_type"})


def test_help_schema_and_docstrings_say_what_is_declared() -> None:
    said = declared(Options)
    assert said.keys() == FIELDS and all(name == setting.name for name, setting in said.items())
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name in FIELDS - {"content_type"}:
            assert parameter.help is not None
            assert said[parameter.name].text.replace("`", "")[1:] in parameter.help
    schema = json.loads(SCHEMA_PATH.read_text())
    described = {**schema["$defs"]["InstructionSettings"]["properties"], **schema["properties"]}
    for name in (FIELDS & described.keys()) - {"content_type"}:
        assert described[name]["description"] == said[name].sentence
    assert inspect.getdoc(Options) != inspect.getdoc(Settings)
    assert f"purge {said['purge'].text}" in re.sub(" +", " ", Options.__doc__ or "")


def test_a_default_in_words_is_that_of_the_field() -> None:
    for field in dataclasses.fields(Options):
        words = field.metadata["option"].default
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert words in (f"{field.default:,}", f"{field.default:g}", f"{int(field.default) >> 30} GiB"), field.name


def test_options_that_change_the_output_are_part_of_the_session() -> None:
    """In the words of 0.1.0, so that its sessions are resumed."""
    assert DEFAULTS.output_options == {
        "rows_per_primary_key_index_file": "38000000",
        "rows_per_compacted_file": "4000000",
        "hash_bucket_count": "None",
        "content_type": "application/parquet",
        "target_file_bytes": "None",
        "compression": "None",
        "row_group_rows": "131072",
        "rows_per_round": "None",
        "rewrite_dead_fraction": "0.0",
        "purge": "False",
    }
    assert DEFAULTS.output_options.keys() == OUTPUT_OPTIONS
    clustered = dataclasses.replace(DEFAULTS, cluster_by="day*3")
    assert clustered.output_options == DEFAULTS.output_options | {"cluster_by": "day*3"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows_per_primary_key_index_file", 0),
        ("rows_per_compacted_file", 2**53 + 1),
        ("rows_per_compacted_file", None),
        ("hash_bucket_count", 1_000_001),
        ("hash_bucket_count", "2"),
        ("content_type", "parquet"),
        ("purge", 1),
        ("limits", {}),
        ("row_group_rows", 0),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^{field} is "):
        Options(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (Limits, "runs_max", 0),
        (Limits, "held_share", -0.1),
        (Limits, "chunk_entries", "2"),
        (Limits, "groups", 0),
        (Limits, "local_nodes", (1, 0)),
        (Limits, "reading", {}),
        (Limits, "ray_answer_s", float("nan")),
        (ReadLimits, "batch_bytes", 0),
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(kind: type, field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^{field} is "):
        kind(**{field: value})


def test_every_limit_is_described() -> None:
    for kind in (Limits, ReadLimits):
        assert kind.__doc__ is not None
        for field in dataclasses.fields(kind):
            assert re.search(rf"^    {field.name}  +\w", kind.__doc__, re.M), field.name
    assert dataclasses.replace(LIMITS) == Limits() == Settings().limits
