"""The plan of any mode as JSON, as `plan --out` writes it."""

from __future__ import annotations

import json

from deltacompact.iceberg_modes.modes import mode_named
from deltacompact.iceberg_modes.plan import ModePlan


def plan_to_json(plan: ModePlan) -> str:
    return json.dumps(mode_named(plan.mode).steps().document(plan), indent=1)
