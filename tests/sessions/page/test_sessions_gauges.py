"""What a watcher serves: gauges of its tables and its health, by the command and by a clock that stands still."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import deltacompact
from sessions.metrics.tables import TableSizes, TablesSeen
from sessions.page.gauges import GaugesServer

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
NOW_S = 1_795_300_000.0


def test_a_watcher_serves_what_it_saw(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("orders", ["day"], ["id"])
    for day in ("1", "2", "2"):
        catalog.append("orders", pa.table({"id": [1, 2]}), {"day": day})
    policies = tmp_path / "policies.json"
    orders = {"name": "p", "catalog": str(tmp_path / "lake"), "source_table_id": "orders", "when": [{"deltas": 9}]}
    gone = {**orders, "name": "gone", "source_table_id": "gone"}
    policies.write_text(json.dumps({"version": 1, "every": 1, "policies": [orders, gone]}))
    arguments = ["--policies", str(policies), "--queue", str(tmp_path / "queue"), "--state", str(tmp_path / "state")]
    watcher = subprocess.Popen(
        [sys.executable, "-m", "sessions", "watch", *arguments, "--port", "0"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    address = None
    while address is None:
        if found := re.search(
            r"the gauges at (http://127[0-9.]+:[0-9]+/)", json.loads(watcher.stderr.readline())["message"]
        ):
            address = found[1]
    until_s = time.monotonic() + 60
    while "table_deltas{" not in (text := httpx.get(address + "metrics").text):
        assert time.monotonic() < until_s, text
        time.sleep(0.1)
    assert re.search(r'deltacompact_table_deltas\{branch="",catalog="[^"]+/lake",table="orders"\} 3.0', text)
    assert "deltacompact_tables_unreadable 1.0" in text
    assert httpx.get(address + "healthz").json() == {"status": "ok", "unreadable": 1}
    assert httpx.get(address + "metrics", headers={"Host": "evil.example"}).status_code == 400
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(30) == 0
    watcher.stderr.close()


def test_a_watcher_that_looks_no_more_is_not_healthy():
    now_s = [NOW_S]
    seen = [TablesSeen()]
    served = GaugesServer(lambda: seen[0], 120.0, clock=lambda: now_s[0])
    served.start()
    try:
        now_s[0] += 1199
        assert httpx.get(served.address + "healthz").status_code == 200, "its first look takes a while"
        now_s[0] += 2
        assert httpx.get(served.address + "healthz").status_code == 503
        assert "deltacompact_watch_look_age_seconds 1201.0" in httpx.get(served.address + "metrics").text
        seen[0] = TablesSeen(alive_s=now_s[0])
        assert httpx.get(served.address + "healthz").status_code == 200, (
            "each table that it looked at is a sign of life"
        )
        table = TableSizes(oldest_delta_s=NOW_S, deltas=1)
        seen[0] = TablesSeen(now_s[0], {("/lake", "t", ""): table}, alive_s=now_s[0])
        assert httpx.get(served.address + "healthz").status_code == 200
        now_s[0] += 60
        text = httpx.get(served.address + "metrics").text
        assert "deltacompact_watch_look_age_seconds 60.0" in text
        assert 'deltacompact_table_backlog_age_seconds{branch="",catalog="/lake",table="t"} 1261.0' in text
    finally:
        served.stop()
