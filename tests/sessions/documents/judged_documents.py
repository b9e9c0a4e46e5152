"""Documents that schema and validator judge alike."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import strategies as st

from sessions.documents.instruction import SCHEMA_PATH, parse
from sessions.documents.refusal import RefusedDocument

GOOD = {"version": 1, "catalog": "s3://lake/tables", "source_table_id": "orders"}
SCHEMA = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text()))


def refused(document) -> RefusedDocument:
    with pytest.raises(RefusedDocument) as caught:
        parse(document if isinstance(document, bytes | str) else json.dumps(document))
    said = str(caught.value)
    assert said.isprintable() and len(said) < 500, "one clear line"
    return caught.value


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(names, values, max_size=3),
    max_leaves=6,
)


def agree_on_a_broken(document, data):
    """A value somewhere in a good document is replaced, taken out or added."""
    values = json.loads(json.dumps(document))
    holder = data.draw(st.sampled_from(_holders(values)))
    if isinstance(holder, dict):
        name = data.draw(st.sampled_from(sorted(holder)) | names if holder else names)
        if name in holder and data.draw(st.booleans()):
            del holder[name]
        else:
            holder[name] = data.draw(json_values)
    else:
        holder.insert(data.draw(st.integers(0, len(holder))), data.draw(json_values))
    try:
        parse(json.dumps(values))
        accepted = True
    except RefusedDocument as error:
        assert str(error).isascii() and str(error).isprintable()
        accepted = False
        if "must be greater" in str(error) or "must lie" in str(error) or "it must be a whole number" in str(error):
            return  # ranges of settings, and whether compression is a codec: what the schema does not say
        if error.field.startswith("settings.") and SCHEMA.is_valid(values):
            return
        if error.field == "cluster_by" and SCHEMA.is_valid(values):
            return  # which texts name columns is not the schema's business
    # JSON Schema takes 1.0 for an integer, and cannot tell it from 1.
    if SCHEMA.is_valid(values) != accepted:
        assert not accepted and any(isinstance(value, float) for value in _leaves(values)), values


def _holders(value):
    found = [value]
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            found += _holders(part)
    return found


def _leaves(value):
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield value
