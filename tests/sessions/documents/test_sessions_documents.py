"""Instruction documents: what is accepted, what is refused and how that is said, and which catalogs may be named.

The JSON Schema in the repository and the validator agree on documents that hypothesis makes good and then breaks.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from dataclasses import fields

import pytest
from budgets import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from judged_documents import GOOD, SCHEMA, agree_on_a_broken, names, refused

from deltacompact import Settings, compact
from deltacompact.base.errors import InputError
from sessions.cli import run
from sessions.documents.allow_list import AllowList, NotAllowed, Place
from sessions.documents.instruction import (
    PARTITIONS_MAX,
    SCHEMA_PATH,
    Instruction,
    InstructionSettings,
    json_schema,
    of_values,
    parse,
    values_of,
)
from sessions.documents.json_text import DOCUMENT_BYTES_MAX
from sessions.documents.refusal import RefusedDocument

TOPICS = ["arn:aws:sns:eu-west-1:123456789012:events", "arn:aws-cn:sns:cn-north-1:123456789012:events.fifo"]


# --- the schema ----------------------------------------------------------------------------------------------------


def test_the_schema_in_the_repository_is_that_of_the_validator():
    assert SCHEMA_PATH.read_text() == json_schema(), "run python -m sessions.documents.instruction"


def test_every_parameter_of_compact_is_a_field_by_its_own_name_and_default():
    parameters = inspect.signature(compact).parameters
    not_of_a_document = {"delta_catalog_client", "event_sinks", "attempt"}
    assert set(Instruction.model_fields) - {"version", "job_run_id", "catalog"} == set(parameters) - not_of_a_document
    for name, field in Instruction.model_fields.items():
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if default is not inspect.Parameter.empty and name != "compacted_file_content_type":
            assert field.default == default, name


def test_every_setting_is_a_field_but_where_the_machines_are_and_what_is_for_experts():
    left_out = {"ray_address", "partitions_at_once", "limits"}
    assert set(InstructionSettings.model_fields) == {each.name for each in fields(Settings)} - left_out


counts = st.integers(1, 2**53)
partition_values = st.one_of(names, st.just(""), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none())
partitions = st.dictionaries(names, partition_values, max_size=3)
good_documents = st.fixed_dictionaries(
    {"version": st.just(1), "catalog": names, "source_table_id": names},
    optional={
        "job_run_id": st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z"),
        "primary_keys": st.none() | st.lists(names, min_size=1, max_size=3),
        "sort_keys": st.none() | st.lists(st.tuples(names, st.sampled_from(["ascending", "descending"])), max_size=3),
        "desired_sla": st.none() | counts,
        "destination_compacted_table_id": st.none() | names,
        "rows_per_primary_key_index_file": counts,
        "rows_per_compacted_file": counts,
        "hash_bucket_count": st.none() | st.integers(1, 1_000_000),
        "sns_event_topic_arn": st.none() | st.sampled_from(TOPICS),
        "compacted_file_content_type": st.sampled_from(["parquet", "feather", "orc", "csv", "text/csv"]),
        "partitions": st.none()
        | st.lists(st.dictionaries(names, partition_values, max_size=3), min_size=1, max_size=3),
        "purge": st.booleans(),
        "cluster_by": st.sampled_from([None, "", "day*3,customer"]),
        "settings": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "executor": st.sampled_from(["auto", "ray", "local"]),
                "rows_per_round": st.none() | counts,
                "local_threads": st.integers(1, 64),
                "rewrite_dead_fraction": st.floats(0, 1),
            },
        ),
    },
)


@given(good_documents)
def test_good_documents_are_accepted_by_schema_and_validator(document):
    values = json.loads(json.dumps(document))
    SCHEMA.validate(values)
    assert values_of(parse(json.dumps(values))) == values


def test_what_a_document_quotes_is_told_in_ascii():
    assert "'\\xa1' is not an ARN" in str(refused({**GOOD, "sns_event_topic_arn": "\xa1"}))


@settings(max_examples=examples(400))
@given(good_documents, st.data())
def test_schema_and_validator_refuse_the_same_broken_documents(document, data):
    agree_on_a_broken(document, data)


# --- refusals name the field ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields_", "field", "said"),
    [
        ({"priority": 7}, "priority", "priority: no such field"),
        ({"attempt": "a/b"}, "attempt", "no such field"),
        ({"desired_slo": 7}, "desired_slo", "did you mean 'desired_sla'?"),
        ({"settings": {"exekutor": "ray"}}, "settings.exekutor", "did you mean 'executor'?"),
        ({"desired_sla": 0}, "desired_sla", "greater than or equal to 1 (it is 0)"),
        ({"desired_sla": "900"}, "desired_sla", '(it is "900")'),
        ({"desired_sla": True}, "desired_sla", "(it is true)"),
        ({"version": 2}, "version", "it must be 1 (it is 2)"),
        ({"version": True}, "version", "it must be 1 (it is true)"),
        ({"catalog": None}, "catalog", "it must be a string (it is null)"),
        ({"partitions": []}, "partitions", "at least 1 item"),
        ({"partitions": [{"day": "a"}, {"day": []}]}, "partitions[1].day", "it must be a string"),
        ({"partitions": [{"day": 1.5}]}, "partitions[0].day", "(it is 1.5)"),
        ({"partitions": [{"day": {"a": 1}}]}, "partitions[0].day", "true or false (it is an object of 1)"),
        ({"partitions": [{"a\nb": []}]}, 'partitions[0]["a\\nb"]', "it must be a string"),
        ({"partitions": [{"": "x"}]}, 'partitions[0][""]', "at least 1 character"),
        ({"sort_keys": [["updated", "up"]]}, "sort_keys[0][1]", "'ascending' or 'descending'"),
        ({"sort_keys": ["updated"]}, "sort_keys[0]", "it must be a list"),
        ({"primary_keys": ["id", ""]}, "primary_keys[1]", "at least 1 character"),
        ({"settings": {"rows_per_round": 0}}, "settings.rows_per_round", "at least 1"),
        ({"settings": {"compression": "lol"}}, "settings.compression", "not a codec"),
        ({"settings": {"ray_address": "evil:6379"}}, "settings.ray_address", "no such field"),
        ({"job_run_id": "../run"}, "job_run_id", "pattern"),
        ({"job_run_id": "run\n"}, "job_run_id", "pattern"),
        ({"source_table_id": "x" * 1001}, "source_table_id", "at most 1000 characters"),
    ],
)
def test_a_refusal_names_the_field(fields_, field, said):
    error = refused({**GOOD, **fields_})
    assert error.field == field and said in str(error)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "the document is empty"),
        (b"[]", "must be a JSON object"),
        (b"{", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"version": NaN}', "NaN is no number"),
        (b"1" * 5000, "must be a JSON object"),
        pytest.param(b'{"catalog": %s}' % (b"1" * 5000), "catalog: a number that JSON cannot hold", id="digits"),
        (b'{"version": 1, "catalog": "s3://a-lake/x", "catalog": "s3://b/x", "source_table_id": "t"}', "there twice"),
        (b'{"version": 1, "catalog": "/x", "source_table_id": "\\ud800"}', "source_table_id: a text that UTF-8"),
        (b'{"version": 1, "catalog": "/x", "source_table_id": "t", "partitions": [{"\\udfff": 1}]}', "partitions[0]"),
        (b'{"version": 1, "catalog": "/x", "source_table_id": "t", "desired_sla": 1e999}', "desired_sla"),
    ],
)
def test_hostile_bytes_are_refused_in_one_line(raw, said):
    assert said in str(refused(raw))


def test_a_document_in_the_envelope_of_a_topic_says_so():
    """It was told to write "version": 1, which it has, inside of the envelope."""
    said = refused({"Type": "Notification", "MessageId": "1", "TopicArn": "arn:…", "Message": json.dumps(GOOD)})
    assert said.field == "Message" and "let its subscription deliver raw messages" in str(said)


@pytest.mark.parametrize(
    ("message", "field", "said"),
    [
        (
            {"version": "0", "detail-type": "Jobs", "source": "cron", "detail": GOOD},
            "detail",
            "$.detail alone (InputPath)",
        ),
        ({"specversion": "1.0", "type": "job", "source": "/a", "id": "1", "data": GOOD}, "data", "send its data alone"),
        (
            {"Type": "SubscriptionConfirmation", "TopicArn": "arn:…", "Message": "…", "SubscribeURL": "https://…"},
            "SubscribeURL",
            "open this address",
        ),
        ({"Records": [{"eventSource": "aws:s3", "s3": {"object": {"key": "a+b%2Fc"}}}]}, "", "a notification of S3"),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}, "", "a notification of S3"),
        ({"Records": [{"eventSource": "aws:sqs", "body": "{}"}]}, "version", "it is missing"),
    ],
    ids=["EventBridge", "CloudEvents", "SNS", "S3", "test of S3", "others"],
)
def test_what_other_services_send_is_named(message, field, said):
    """A message of EventBridge was told that its version must be 1, one of S3 to write one."""
    refusal = refused(message)
    assert refusal.field == field and said in str(refusal)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("read_mb_per_s", 10**400, "a number that JSON cannot hold"),  # it was infinite in the record of the job run
        ("rows_per_round", 10**400, "a number that JSON cannot hold"),
        ("compression", "x" * 100_000, "'xxx"),
        ("compression", "x", "'x' is not a codec"),
    ],
    ids=["infinite", "huge", "long", "unknown"],
)
def test_a_setting_is_refused_by_name_in_a_line_that_a_log_can_hold(name, value, said):
    error = str(refused({**GOOD, "settings": {name: value}}))
    assert error.startswith(f"settings.{name}: {said}") and len(error) < 400


def test_limits_of_size():
    many = [{"day": str(number)} for number in range(PARTITIONS_MAX + 1)]
    assert "partitions: it must have at most 10000 items" in str(refused({**GOOD, "partitions": many}))
    assert len(parse(json.dumps({**GOOD, "partitions": many[1:]})).partitions) == PARTITIONS_MAX
    large = json.dumps({**GOOD, "source_table_id": "x" * DOCUMENT_BYTES_MAX})
    assert "more than 1,048,576 bytes" in str(refused(large))


def test_partition_values_are_texts_to_the_engine():
    instruction = of_values({**GOOD, "partitions": [{"n": 5, "b": True, "s": "x", "none": None}]})
    assert instruction.partition_values == [{"n": "5", "b": "true", "s": "x", "none": None}]


def test_a_planner_overrides_the_settings_of_a_document():
    instruction = of_values({**GOOD, "settings": {"executor": "ray", "rows_per_round": 7}})
    assert instruction.engine_settings(executor="local") == Settings(executor="local", rows_per_round=7)


# --- the allow-list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catalog", "allowed"),
    [
        ("s3://lake/tables", True),
        ("s3://lake/tables/", True),
        ("s3://lake/tables/eu", True),
        ("S3://lake/tables/eu", False),
        ("s3://lake/tables2", False),
        ("s3://lake", False),
        ("s3://lake2/tables", False),
        ("s3://lake@evil/tables", False),
        ("s3://lake:80/tables", False),
        ("s3://lake/tables/../secret", False),
        ("s3://lake/tables/./x", False),
        ("s3://lake/tables/%2e%2e/secret", False),
        ("s3://lake/tables/%252e%252E/secret", False),
        ("s3://lake/tables/..%2fsecret", False),
        ("s3://lake/tables/a%2fb", False),
        ("s3://lake/tables/..\\secret", False),
        ("s3://lake//tables", False),
        ("s3://lake/tables//eu", False),
        ("s3://lake/other?x=s3://lake/tables", False),
        ("s3://lake/tables#x", False),
        ("s3://lake/tables\n", False),
        (" s3://lake/tables", False),
        ("s3:lake/tables", False),
        ("s3:///tables", False),
        ("https://lake/tables", False),
        ("tables", False),
        ("../tables", False),
        ("file:///lake/tables", False),
        ("file://lake/tables", False),
        ("/lake/tables", False),
    ],
)
def test_catalogs_of_s3_under_a_prefix(catalog, allowed):
    check = AllowList(["s3://lake/tables/"]).check
    if allowed:
        check(of_values({**GOOD, "catalog": catalog}))
    else:
        with pytest.raises(RefusedDocument) as caught:
            check(of_values({**GOOD, "catalog": catalog}))
        assert caught.value.field == "catalog" and str(caught.value).isprintable()


def test_catalogs_in_folders_by_where_they_really_are(tmp_path):
    lake, other = tmp_path / "lake", tmp_path / "other"
    (lake / "eu").mkdir(parents=True)
    other.mkdir()
    (lake / "link").symlink_to(other)
    (tmp_path / "alias").symlink_to(lake)
    check = AllowList([f"file://{tmp_path}/alias/"]).check
    for catalog in (lake, lake / "eu", lake / "new", tmp_path / "alias" / "eu", lake.as_uri(), f"{lake}/"):
        check(of_values({**GOOD, "catalog": str(catalog)}))
    for catalog in (
        other,
        lake / "link",
        lake / "link" / "x",
        tmp_path,
        f"{tmp_path}/lakes",
        lake.as_uri() + "/%2e%2e/other",
    ):
        with pytest.raises(RefusedDocument):
            check(of_values({**GOOD, "catalog": str(catalog)}))


def test_a_prefix_may_be_relative_for_who_starts_a_dispatcher(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    AllowList(["lake"]).check(of_values({**GOOD, "catalog": f"{os.getcwd()}/lake/x"}))
    with pytest.raises(InputError):
        AllowList(["s3://lake/../x"])


def test_without_prefixes_every_catalog_is_allowed_but_must_be_one():
    AllowList().check(of_values(GOOD))
    with pytest.raises(RefusedDocument, match="no absolute path"):
        AllowList().check(of_values({**GOOD, "catalog": "lake"}))


def test_a_prefix_that_does_not_hold_the_catalog_is_not_an_invalid_document():
    with pytest.raises(NotAllowed):
        AllowList(["s3://other"]).check(of_values(GOOD))


@given(
    st.lists(st.sampled_from(["..", ".", "%2e%2e", "tables", "lake", "%2f", "a", "", "\\", "%00", "%5c"]), max_size=6)
)
@example(["", "tables"])
@example(["tables", "", ""])
def test_whatever_is_allowed_lies_below_the_prefix(parts):
    catalog = "s3://lake/" + "/".join(parts)
    try:
        AllowList(["s3://lake/tables"]).check(of_values({**GOOD, "catalog": catalog}))
    except RefusedDocument:
        return
    normal = os.path.normpath("/" + catalog.removeprefix("s3://lake/"))
    assert normal == "/tables" or normal.startswith("/tables/")
    assert Place.of("s3://lake/tables").holds(Place.of(catalog))


# --- validate ------------------------------------------------------------------------------------------------------


def test_a_package_of_the_extra_that_is_missing_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    monkeypatch.delitem(sys.modules, "sessions.documents.instruction")
    assert run(["validate", str(tmp_path / "job.json")]) == 2
    said = capsys.readouterr().err
    assert said == "deltacompact-sessions: pydantic is not installed: pip install 'deltacompact[sessions]'\n"


def test_validate_says_yes_or_one_line_that_names_the_field(tmp_path, capsys):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(GOOD))
    bad.write_text(json.dumps({**GOOD, "partitions": [{"day": []}]}))
    assert run(["validate", str(good)]) == 0
    capsys.readouterr()
    assert run(["validate", str(bad)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "partitions[0].day" in err
    assert run(["validate", str(bad), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["field"] == "partitions[0].day"
    assert run(["validate", str(tmp_path / "none.json")]) == 2
    assert run(["validate"]) == 2
    assert run(["validate", str(good), "--allow", "s3://other"]) == 2
    assert "catalog" in capsys.readouterr().err
    assert run(["validate", "--schema"]) == 0
    assert capsys.readouterr().out == SCHEMA_PATH.read_text()


@pytest.mark.parametrize("catalog", ["lake", "./lake", "s3://lake/../x"])
def test_submit_sends_no_document_that_every_dispatcher_refuses(tmp_path, capsys, catalog):
    (tmp_path / "job.json").write_text(json.dumps({**GOOD, "catalog": catalog}))
    assert run(["submit", str(tmp_path / "job.json"), "--queue", str(tmp_path / "queue")]) == 2
    assert "catalog: " in capsys.readouterr().err
    assert not (tmp_path / "queue").exists()
