"""Documents that name an Iceberg catalog: which fields they may have, and which catalogs a dispatcher opens."""

from __future__ import annotations

import json

import jsonschema
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_documents import GOOD, SCHEMA, agree_on_a_broken, refused

from deltacompact.base.errors import InputError
from deltacompact.base.settings import Settings
from sessions.cli import run
from sessions.documents.allow_list import AllowList, NotAllowed
from sessions.documents.instruction import of_accepted, of_values, parse, values_of
from sessions.documents.refusal import RefusedDocument
from sessions.documents.streams import NamedStreams

ICEBERG = {"version": 1, "catalog": "iceberg://prod", "source_table_id": "db.orders"}
TOPICS = ["arn:aws:sns:eu-west-1:123456789012:events", "arn:aws-us-gov:sns:us-gov-west-1:123456789012:e.fifo"]

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
options = st.dictionaries(
    names, st.text(max_size=8) | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e9, 1e9) | st.booleans(), max_size=3
)
documents = st.fixed_dictionaries(
    {"version": st.just(1), "catalog": st.just("iceberg://prod"), "source_table_id": st.just("db.orders")},
    optional={
        "mode": st.none() | st.sampled_from(["rewrite", "convert", "upsert"]),
        "options": st.none() | options,
        "branch": names,
        "desired_sla": st.none() | st.integers(1, 2**53),
        "sns_event_topic_arn": st.none() | st.sampled_from(TOPICS),
        "settings": st.none() | st.fixed_dictionaries({}, optional={"executor": st.sampled_from(["auto", "local"])}),
    },
)


@given(documents)
def test_good_documents_are_accepted_by_schema_and_validator(document):
    values = json.loads(json.dumps(document))
    SCHEMA.validate(values)
    assert values_of(parse(json.dumps(values))) == values


@settings(max_examples=examples(300))
@given(documents, st.data())
def test_schema_and_validator_refuse_the_same_broken_documents(document, data):
    agree_on_a_broken(document, data)


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"primary_keys": ["id"]}, "primary_keys", "it is for delta streams"),
        ({"sort_keys": []}, "sort_keys", "it is for delta streams"),
        ({"partitions": [{"day": "a"}]}, "partitions", 'and "iceberg://prod" is an Iceberg catalog'),
        ({"partitions": None}, "partitions", "it is for delta streams"),
        ({"purge": True}, "purge", "it is for delta streams"),
        ({"cluster_by": "day"}, "cluster_by", "it is for delta streams"),
        ({"destination_compacted_table_id": "db.other"}, "destination_compacted_table_id", "delta streams"),
        ({"rows_per_compacted_file": 5}, "rows_per_compacted_file", "delta streams"),
        ({"rows_per_primary_key_index_file": 5}, "rows_per_primary_key_index_file", "delta streams"),
        ({"hash_bucket_count": 5}, "hash_bucket_count", "delta streams"),
        ({"compacted_file_content_type": "orc"}, "compacted_file_content_type", "delta streams"),
        ({"settings": {"rows_per_round": 5}}, "settings.rows_per_round", "delta streams"),
        ({"settings": {"rewrite_dead_fraction": 0.5}}, "settings.rewrite_dead_fraction", "delta streams"),
        ({"settings": {"target_file_bytes": 5}}, "settings.target_file_bytes", "delta streams"),
        ({"settings": {"write_amplification_max": 2.0}}, "settings.write_amplification_max", "delta streams"),
        ({"mode": "vacuum"}, "mode", "'rewrite', 'convert' or 'upsert'"),
        ({"mode": 7}, "mode", "(it is 7)"),
        ({"options": ["rewrite-all"]}, "options", "it must be an object"),
        ({"options": {"rewrite-all": None}}, "options.rewrite-all", "(it is null)"),
        ({"options": {"rewrite-all": ["true"]}}, "options.rewrite-all", "a list of 1"),
        ({"options": {"": "true"}}, 'options[""]', "at least 1 character"),
        ({"options": {f"o{number}": 1 for number in range(101)}}, "options", "at most 100 items"),
        ({"branch": ""}, "branch", "at least 1 character"),
        ({"branch": None}, "branch", "it must be a string"),
        ({"source_table_id": "orders"}, "source_table_id", "it must be namespace.table"),
        ({"source_table_id": "db..orders"}, "source_table_id", "it must be namespace.table"),
        ({"source_table_id": "../../etc/passwd.x"}, "source_table_id", "it must be namespace.table"),
        ({"source_table_id": "db/x.orders"}, "source_table_id", "it must be namespace.table"),
        ({"source_table_id": "db.orders?token=1"}, "source_table_id", "it must be namespace.table"),
        ({"source_table_id": "db.%2e%2e"}, "source_table_id", "it must be namespace.table"),
        ({"source_table_id": "db.or\nders"}, "source_table_id", "it must be namespace.table"),
        ({"source_table_id": "db.orders\n"}, "source_table_id", "it must be namespace.table"),
        ({"source_table_id": "db\\x.orders"}, "source_table_id", "it must be namespace.table"),
    ],
)
def test_a_refusal_names_the_field(fields, field, said):
    document = {**ICEBERG, **fields}
    error = refused(document)
    assert error.field == field and said in str(error)
    # To Python's re, and so to its jsonschema, "$" also matches before a newline at the end.
    assert not SCHEMA.is_valid(document) or "\n" in document["source_table_id"]


def test_a_job_run_with_a_setting_that_an_earlier_release_accepted_runs_as_then():
    document = {**ICEBERG, "settings": {"target_file_bytes": 5, "executor": "local"}}
    assert of_accepted(document).engine_settings() == Settings(executor="local")
    streams = of_accepted({**GOOD, "settings": {"target_file_bytes": 5}})
    assert streams.engine_settings() == Settings(target_file_bytes=5)


@pytest.mark.parametrize(
    ("fields", "field"), [({"mode": "rewrite"}, "mode"), ({"options": {}}, "options"), ({"branch": "main"}, "branch")]
)
def test_what_is_for_iceberg_tables_is_refused_for_delta_streams(fields, field):
    error = refused({**GOOD, **fields})
    assert error.field == field and "it is for Iceberg tables (iceberg://NAME)" in str(error)
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate({**GOOD, **fields})


@pytest.mark.parametrize(
    ("catalog", "allowed"),
    [
        ("iceberg://prod", True),
        ("iceberg://prod.eu", True),
        ("iceberg://production", False),
        ("iceberg://pro", False),
        ("iceberg://PROD", False),
        ("iceberg://prod/", False),
        ("iceberg://prod/eu", False),
        ("iceberg://prod/../staging", False),
        ("iceberg://prod?uri=http://evil", False),
        ("iceberg://prod#x", False),
        ("iceberg://prod%00", False),
        ("iceberg://evil@prod", False),
        ("iceberg://prod:80", False),
        ("iceberg://prod\n", False),
        (" iceberg://prod", False),
        ("iceberg:prod", False),
        ("iceberg:/prod", False),
        ("iceberg://", False),
        ("iceberg://..", False),
        ("Iceberg://prod", False),
        ("iceberg://staging", False),
        ("s3://lake/tables", False),
        ("/etc", False),
    ],
)
def test_only_catalogs_that_are_allowed_by_name(catalog, allowed):
    check = AllowList(["iceberg://prod", "iceberg://prod.eu"]).check
    is_iceberg = catalog.startswith("iceberg://")
    document = of_values({**ICEBERG, "catalog": catalog} if is_iceberg else {**GOOD, "catalog": catalog})
    if allowed:
        check(document)
        return
    with pytest.raises(RefusedDocument) as caught:
        check(document)
    assert caught.value.field == "catalog" and str(caught.value).isprintable()


def test_without_a_name_no_iceberg_catalog_is_allowed():
    """A catalog of delta streams is a folder; what is behind a name is the dispatcher's configuration."""
    for allowed in (AllowList(), AllowList(["/srv", "s3://lake"])):
        assert not allowed.has_iceberg
        with pytest.raises(NotAllowed, match="is not allowed here by its name"):
            allowed.check(of_values(ICEBERG))
    both = AllowList(["s3://lake", "iceberg://prod"])
    both.check(of_values(ICEBERG))
    both.check(of_values(GOOD))
    assert both.has_iceberg


@pytest.mark.parametrize("prefix", ["iceberg://", "iceberg://*", "iceberg://a/b", "iceberg:a"])
def test_a_dispatcher_is_not_started_with_what_names_no_catalog(prefix):
    with pytest.raises(InputError):
        AllowList([prefix])


@pytest.mark.parametrize(
    ("other", "overlap"),
    [
        (ICEBERG, True),
        ({**ICEBERG, "branch": "main", "mode": "convert"}, True),
        ({**ICEBERG, "branch": "audit"}, False),
        ({**ICEBERG, "source_table_id": "db.other"}, False),
        ({**ICEBERG, "catalog": "iceberg://staging"}, False),
        ({**GOOD, "source_table_id": "db.orders"}, False),
    ],
)
def test_job_runs_on_one_branch_overlap(other, overlap):
    assert NamedStreams.of(ICEBERG).overlap(NamedStreams.of(other)) is overlap
    assert NamedStreams.of(other).overlap(NamedStreams.of(ICEBERG)) is overlap


def test_validate_says_what_a_dispatcher_would(tmp_path, capsys):
    document = tmp_path / "job.json"
    document.write_text(json.dumps({**ICEBERG, "mode": "rewrite", "options": {"rewrite-all": True}}))
    assert run(["validate", str(document), "--allow", "iceberg://prod"]) == 0
    capsys.readouterr()
    assert run(["validate", str(document)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert 'catalog: "iceberg://prod" is not allowed here by its name: --allow "iceberg://prod" allows it' in err
    document.write_text(json.dumps({**ICEBERG, "purge": True}))
    assert run(["validate", str(document), "--allow", "iceberg://prod"]) == 2
    assert "purge: it is for delta streams" in capsys.readouterr().err
