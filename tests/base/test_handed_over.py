"""What a driver hands to tasks comes out of its pickle as it went in."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace

import pyarrow as pa
import pytest

from deltacompact.base.data_file import DataFile, DeletionVector
from deltacompact.base.handed_over import HandedOver
from deltacompact.base.model import ContentType, OperationType
from deltacompact.base.numbers import DeltaFileNumber, Ordinal
from deltacompact.steps.hash_bucket import SourceSlice
from deltacompact.steps.materialize import LiveRange

FILE = DataFile(DeltaFileNumber(3), "t/a.parquet", ContentType.PARQUET, 8, 90, pa.schema([("k", pa.int64())]))
MARKED = replace(FILE, deletions=DeletionVector(2, "t/masks/1.arrow", Ordinal(7)), far=(("k", 1, 2),), decodes=True)
VALUES = [
    FILE,
    MARKED,
    LiveRange(MARKED, Ordinal(7), 1, 5),
    SourceSlice(FILE, Ordinal(0), OperationType.DELETE, (0, 8)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_the_same_after_a_pickle_and_a_copy(value):
    for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert type(again) is type(value)
        assert [getattr(again, field.name) for field in fields(value)] == [
            getattr(value, field.name) for field in fields(value)
        ]


def test_each_class_takes_all_of_its_fields_in_their_order():
    kinds = {type(value) for value in VALUES}
    assert {kind.__name__ for kind in kinds} == {kind.__name__ for kind in HandedOver.__subclasses__()}
    for kind in kinds:
        assert len(fields(kind)) > 1
        assert all(field.init and not field.kw_only for field in fields(kind))
