"""A plan is written as JSON and read back equal; a session of the plan that was read gives the same rows."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from fold_cases import PROFILE, SESSIONS, Case, assert_any_division_gives_the_oracles_rows, cases
from hand_made import LARGE, delete, file, planned, upsert
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import unmeasured  # noqa: F401

from deltacompact.base.errors import InputError
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.plan_document import plan_from_json, plan_to_json
from deltacompact.session import attempts
from deltacompact.session.driver import CompactionSession


class SessionOfReadPlan(CompactionSession):
    """A session that is handed its plan as JSON."""

    def __init__(self, ports: Any, plan: CompactionPlan, *others: Any) -> None:
        read = plan_from_json(plan_to_json(plan))
        assert read == plan
        super().__init__(ports, read, *others)


def with_deletion_vectors(session: dict[str, Any]) -> dict[str, Any]:
    return {**session, "settings": replace(session["settings"], rewrite_dead_fraction=0.9)}


@given(cases(sessions=st.none() | SESSIONS | SESSIONS.map(with_deletion_vectors)))
@settings(PROFILE, max_examples=100)
def test_sessions_of_plans_that_were_read_give_the_oracles_rows(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "Session", SessionOfReadPlan)
        assert_any_division_gives_the_oracles_rows(case)


def a_plan() -> CompactionPlan:
    base = [file(100, LARGE, 14), file(100, LARGE, 15, dead=5)]
    return planned(base, [upsert(file(3)), delete(file(1))], identity={"fences": 0, "retracted": [7]})


def test_a_plan_made_by_hand_is_read_back_equal() -> None:
    assert plan_from_json(plan_to_json(a_plan())) == a_plan()
    assert plan_from_json(plan_to_json(a_plan()).encode()) == a_plan()


TEXT = plan_to_json(a_plan())


@given(st.integers(0, len(TEXT) - 1), st.sampled_from(' 0"{}[],:abnul\\'))
@settings(max_examples=300, deadline=None)
def test_a_character_that_was_changed_is_noticed(at: int, character: str) -> None:
    with contextlib.suppress(InputError):
        assert plan_from_json(TEXT[:at] + character + TEXT[at + 1 :]) == a_plan()


@given(st.integers(0, len(TEXT) - 1))
def test_a_plan_that_was_cut_short_is_refused(length: int) -> None:
    with pytest.raises(InputError, match="not a compaction plan"):
        plan_from_json(TEXT[:length])


def signed(body: Any) -> str:
    data = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    return json.dumps({**json.loads(TEXT), "plan": body, "sha256": hashlib.sha256(data).hexdigest()})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON"),
        ("7", "this is not a compaction plan"),
        ('{"format": 1}', "this is not a compaction plan"),
        (json.dumps({**json.loads(TEXT), "format": 2}), "has format 2, not 1: update deltacompact"),
        (json.dumps({**json.loads(TEXT), "plan": {}}), "is damaged: its SHA-256 differs"),
        (signed({}), "cannot be read: KeyError"),
        (signed(None), "cannot be read: TypeError"),
        (signed({**json.loads(TEXT)["plan"], "rounds": [[1]]}), "cannot be read: TypeError"),
        (signed({**json.loads(TEXT)["plan"], "keys": []}), "cannot be read: TypeError"),
    ],
)
def test_what_is_no_plan_of_this_format_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_from_json(text)
