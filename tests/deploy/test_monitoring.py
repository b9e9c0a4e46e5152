"""Alerts and dashboard are what their program makes. test_sessions_metrics.py holds their names against `/metrics`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.monitoring import generate


@pytest.mark.parametrize("name", sorted(generate.files()))
def test_the_files_are_what_the_program_makes(name):
    made = generate.files()[name]
    assert (generate.HERE / name).read_text() == made, "run python deploy/monitoring/generate.py"


def test_the_operator_gets_the_same_rules():
    rules, wrapped = (yaml.safe_load(generate.files()[name]) for name in ("alerts.yaml", "prometheus-rule.yaml"))
    assert wrapped["spec"] == rules
    found = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in found}) == len(found) == len(generate.ALERTS)
    assert all(re.fullmatch(r"\d+m", rule["for"]) and rule["annotations"]["description"] for rule in found)


if os.environ.get("DELTACOMPACT_TEST_EVERYTHING"):

    @pytest.mark.processes
    def test_prometheus_takes_the_alerts():
        promtool = Path(__file__).parents[2] / ".venv/promtool/promtool"
        done = subprocess.run(
            [promtool, "check", "rules", generate.HERE / "alerts.yaml"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 and f"{len(generate.ALERTS)} rules found" in done.stdout, done.stdout + done.stderr


def test_panels_do_not_cover_each_other():
    panels = json.loads(generate.files()["dashboard.json"])["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places) == len(generate.PANELS)
    assert all(place["x"] + place["w"] <= 24 for place in (panel["gridPos"] for panel in panels))
