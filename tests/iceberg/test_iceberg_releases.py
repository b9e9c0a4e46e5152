"""Releases of PyIceberg that lack something or behave otherwise: what the door uses is broken, piece by piece."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pydantic import BaseModel, model_serializer
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import AlwaysTrue, visitors
from pyiceberg.table import update
from pyiceberg.table.snapshots import Summary
from pyiceberg.transforms import BucketTransform, MonthTransform
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

import deltacompact
from deltacompact.iceberg.table.pyiceberg_door import (
    behaviour,
    commits,
    metrics,
    partitions,
    plain,
    rest_sessions,
    version_3,
    where,
    where_text,
)

ROOM = "deltacompact.iceberg.table.pyiceberg_door"


class _Everything:
    """An evaluator for which every file may match."""

    def __init__(self, *_):
        pass

    def eval(self, file):
        return True


def _no_field_ids(schema):
    return pa.schema([("day", pa.date32()), ("price", pa.decimal128(9, 2))][: len(schema.fields)])


def _integers(self, schema, name):
    return {"fields": [{"type": ["null", "int"]} for _ in schema.fields]}


def _removing_nothing(metadata, updates):
    kept = tuple(update for update in updates if not update.action.startswith("remove"))
    return update.update_table_metadata(metadata, kept)


def _counting_no_row_ids(metadata, updates):
    return update.update_table_metadata(metadata, updates).model_copy(update={"next_row_id": 20})


def _nothing(*_, **__):
    return None


def _everything(*_, **__):
    return [AlwaysTrue()]


def _raises(*_, **__):
    raise TypeError("takes 2 positional arguments")


BROKEN = [
    (plain, "schema_to_pyarrow", _no_field_ids, "field ids in Arrow schemas"),
    (AvroSchemaConversion, "iceberg_to_avro", _integers, "Avro schemas"),
    (AvroSchemaConversion, "iceberg_to_avro", _raises, r"Avro|Arrow"),
    (metrics, "match_metrics_mode", _raises, "column bounds"),
    (metrics, "parquet_path_to_id_mapping", lambda schema: {}, "column bounds"),
    (where_text, "_GRAMMAR", SimpleNamespace(parse_string=_everything), "expressions about files"),
    (where, "_InclusiveMetricsEvaluator", _Everything, "expressions about files"),
    (where, "expression_evaluator", lambda *_: lambda record: True, "expressions about files"),
    (where, "inclusive_projection", lambda *_: lambda expression: AlwaysTrue(), "expressions about files"),
    (where, "unscaled_to_decimal", lambda value, scale: value, "expressions about files"),
    (where, "Record", _raises, "expressions about files"),
    (where.DataFile, "from_args", _raises, "expressions about files"),
    (partitions, "from_bytes", lambda type_, value: 99, "partitions by bounds"),
    (MonthTransform, "transform", lambda self, type_: lambda value: 7, "partitions by bounds"),
    (BucketTransform, "transform", _raises, "(expressions about files|partitions by bounds)"),
    (Summary, "additional_properties", property(lambda self: {}), "snapshots of the operation replace"),
    (behaviour, "update_table_metadata", lambda metadata, updates: metadata, "snapshots of the operation replace"),
    (IcebergBaseModel, "model_dump_json", lambda self, **_: "{}", "snapshots of the operation replace"),
    (commits.AssertTableUUID, "validate", _nothing, "requirements of a commit"),
    (commits.AssertRefSnapshotId, "validate", _nothing, "requirements of a commit"),
    (commits.AssertTableUUID, "model_dump_json", lambda self: "{}", "requests to REST catalogs"),
    (behaviour, "update_table_metadata", _removing_nothing, "snapshots that are removed"),
    (behaviour, "update_table_metadata", _counting_no_row_ids, "metadata of version 3"),
    (version_3, "IcebergBaseModel", SimpleNamespace(model_dump_json=lambda *_, **__: "{}"), "metadata of version 3"),
    (version_3.Compressor, "get_compressor", _raises, "compressed metadata files"),
    (MetastoreCatalog, "_update_and_stage_table", _raises, "catalogs that build metadata"),
    (RestCatalog, "_create_session", _raises, "sessions of REST catalogs"),
    (behaviour, "name_mapping", lambda metadata: "[{}]", "name mappings"),
]


@pytest.mark.parametrize(("owner", "name", "broken", "told"), BROKEN, ids=[f"{line[1]}-{line[3]}" for line in BROKEN])
@pytest.mark.slow
def test_what_behaves_otherwise_is_refused_in_one_line(monkeypatch, owner, name, broken, told):
    behaviour.check_behaviour.cache_clear()
    rest_sessions._check_sessions.cache_clear()
    monkeypatch.setenv("PYICEBERG_CATALOG__ANY__URI", "http://127.0.0.1:1")
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(deltacompact.InputError, match=rf"PyIceberg 0\.12\.\d+ does not behave as .*{told}") as caught:
        deltacompact.open_catalog("iceberg://any")
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    behaviour.check_behaviour()


REMOVED = [(visitors, "_InclusiveMetricsEvaluator"), (update, "update_table_metadata"), (update, "AddSnapshotUpdate")]


@pytest.mark.parametrize(("module", "name"), REMOVED, ids=[name for _, name in REMOVED])
def test_a_name_that_is_gone_is_told_in_one_line(monkeypatch, module, name):
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(ROOM)]:
        monkeypatch.delitem(sys.modules, loaded)
    before = set(sys.modules)
    monkeypatch.delattr(module, name)
    with pytest.raises(deltacompact.InputError, match=rf"does not behave as .*cannot import name '{name}'") as caught:
        importlib.import_module(ROOM)
    assert "\n" not in str(caught.value)
    for loaded in set(sys.modules) - before:  # those that were imported until then
        del sys.modules[loaded]


def test_an_interrupt_that_pydantic_takes_for_an_error_blames_no_release():
    """Ctrl-C a third of a second after the start told the user to install another PyIceberg."""

    class Model(BaseModel):
        @model_serializer
        def interrupted(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        behaviour.check({"models": lambda: bool(Model().model_dump_json())})
