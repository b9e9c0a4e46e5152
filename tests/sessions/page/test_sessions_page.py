"""The page, in headless Chromium: what is in the records is on it, live, and nothing of it is markup.

`DELTACOMPACT_PICTURES=docs pytest tests/sessions/page` takes those of the documents, light and dark.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from counting_store import CountingStore
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from sessions_records import NOW_S, OUTCOME, job_run, session
from stores import InterceptedStore

from deltacompact.base.errors import StoreError
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import DispatcherSign, JobRunState, Progress, SessionState
from sessions.overview.overview import OverviewReader
from sessions.page import app
from sessions.page.app import PageServer
from sessions.queues.opening import open_queue
from sessions.queues.queue import DeadReason
from sessions.records.decisions import keep_decisions
from sessions.records.state_store import StateStore

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>\u202e\u0000"
SESSIONS = 1000
CONTRAST = """() => {
  const luminance = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number).map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(found) && found !== "transparent") return found;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const said = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!said || !element.offsetParent || element.closest("noscript")) continue;
    const [one, other] = [luminance(getComputedStyle(element).color), luminance(ground(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) found.push(`${element.className || element.tagName}: ${contrast.toFixed(2)}`);
  }
  return [...new Set(found)];
}"""
"""Text that has less contrast to the ground behind it than WCAG AA asks for."""
expect.set_options(timeout=30_000)  # on a busy machine Playwright's five seconds end before Chromium has drawn


LISTED = """() => JSON.stringify(view.summary.job_runs.map((run) => run.id)) ===
  JSON.stringify([...document.querySelectorAll("[data-run]")].map((button) => button.dataset.run))"""
BOXES = """() => [".sla .desired", ".sla .of-desired", ".sla .of-elapsed"].map(
  (name) => document.querySelector(name).getBoundingClientRect().toJSON())"""
DECISIONS = [
    {
        "table": "orders",
        "partition": {"day": f"2024-{number:04d}"},
        "policy": HOSTILE if number == 1 else "orders, light",
        "action": "submit" if number == 3 else "wait",
        "reason": "deltas" if number == 3 else "below_thresholds",
        "text": "25 deltas, 20 wanted" if number == 3 else HOSTILE if number == 1 else "3 deltas, 20 wanted",
        "job_run_id": "run-big" if number == 3 else None,
    }
    for number in range(250)
]


def filled() -> StateStore:
    """A job run of 1,000 sessions, one that ended, and one whose every string is hostile."""
    state = StateStore(MemoryStore())
    state.accept(job_run("run-big", accepted_s=NOW_S + 2))
    for number in range(SESSIONS):
        made = session(f"2024-{number:04d}", "run-big", started_s=NOW_S + number / 5)
        match number % 5:
            case 0:
                made = replace(made, state=SessionState.PLANNED, started_s=None, attempts=0, progress=Progress())
            case 1 | 2 | 3:
                made = replace(
                    made,
                    state=SessionState.SUCCEEDED,
                    finished_s=made.started_s + 100,
                    outcome=replace(OUTCOME, seconds=100.0),
                )
        state.add_session(made)
    ended = job_run("run-ended", accepted_s=NOW_S + 1, state=JobRunState.SUCCEEDED, finished_s=NOW_S + 300)
    state.accept(ended)
    state.close(ended)
    document = {"catalog": HOSTILE, "source_table_id": HOSTILE}
    failed = job_run(
        "run-hostile", accepted_s=NOW_S, document=document, state=JobRunState.FAILED, error=HOSTILE, finished_s=NOW_S
    )
    state.accept(failed)
    state.close(failed)
    made = session(HOSTILE, "run-hostile", state=SessionState.FAILED, error=HOSTILE * 1000)
    choices = tuple(replace(choice, text=HOSTILE, value=HOSTILE) for choice in made.plan.choices)
    state.add_session(replace(made, plan=replace(made.plan, choices=choices, node_type=HOSTILE)))
    state.accept(job_run("run-next", accepted_s=NOW_S + 3, state=JobRunState.ACCEPTED, lease=None, started_s=None))
    keep_decisions(state.store, "orders", NOW_S, DECISIONS)
    return state


@pytest.fixture
def state():
    return filled()


@pytest.fixture
def server(state):
    served = PageServer(OverviewReader(state))
    served.start()
    yield served
    served.stop()


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "Chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser):
    """Opens the page; whatever it complains of fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_page(address: str, scheme: str = "light", width: int = 1440):
        # Without motion, a bar has its width at once, and not after 0.6 s.
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 1000}, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith((address, "data:")) else complaints.append(asked.url),
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def choose(page, name: str) -> None:
    page.locator(f"[data-run='{name}']").click()


def test_a_thousand_sessions_are_readable(server, opened):
    page = opened(server.address)
    choose(page, "run-big")
    expect(page.locator(".chip[data-state=succeeded] b")).to_have_text("600")
    expect(page.locator(".chip[data-state=running] b")).to_have_text("200")
    assert page.locator("#rows .row").count() < 60  # those in sight, not a thousand
    page.locator("#rows").focus()
    page.keyboard.press("End")
    expect(page.locator("#rows .row[aria-selected=true]")).to_have_attribute("aria-posinset", str(SESSIONS))
    page.keyboard.press("/")
    page.keyboard.type("2024-0007")
    expect(page.locator("#rows .row")).to_have_count(1)
    page.locator("#rows .row").click()
    why = page.locator("#why")
    expect(why).to_contain_text("64 buckets fill half of a task's heap with 948 M rows")
    expect(why.locator(".choices code").first).to_have_text("half_of_heap")
    expect(why).to_contain_text("910,000,000")
    expect(page.locator("#head .sla")).to_have_attribute(
        "aria-label", re.compile("expected 6 min 40 s, promised .*, desired 10 min")
    )


def test_what_changes_shows_without_a_reload(server, state, opened):
    page = opened(server.address)
    choose(page, "run-big")
    page.locator(".chip[data-state=running]").click()
    row = page.locator("#rows .row", has_text="day=2024-0004")
    expect(row).to_contain_text("dedupe 30/64 · round 3/5")
    stored = state.session("run-big", "day=2024-0004")
    moved = replace(stored.value, progress=Progress("materialize", 4, 5, 7, 9, 0.9, NOW_S + 99))
    state.change_session(stored, moved)
    expect(row).to_contain_text("materialize 7/9 · round 5/5")
    row.click()
    expect(page.locator(".stage.now")).to_contain_text("7 of 9 tasks")
    state.change_session(
        state.session("run-big", "day=2024-0004"),
        replace(moved, state=SessionState.FAILED, finished_s=NOW_S + 100, error="StoreError: SlowDown"),
    )
    expect(page.locator("#why .error")).to_have_text("StoreError: SlowDown")
    expect(page.locator(".chip[data-state=failed] b")).to_have_text("1")
    state.accept(job_run("run-new", accepted_s=NOW_S + 9, document={"source_table_id": "brand new"}))
    expect(page.locator("[data-run='run-new']")).to_contain_text("brand new")


def press_while_all_is_drawn_again(page, element: str) -> None:
    page.locator(element).first.hover()
    page.mouse.down()
    page.evaluate("async () => { render(); await askTriggers(); }")
    page.mouse.up()


def test_a_press_a_selected_text_and_the_focus_outlive_what_is_drawn_every_second(server, opened):
    page = opened(server.address)
    press_while_all_is_drawn_again(page, "[data-run=run-big]")
    expect(page.locator("#head code")).to_have_text("run-big")
    press_while_all_is_drawn_again(page, "#rows .row:nth-child(4)")
    expect(page.locator("#rows .row[aria-selected=true]")).to_have_attribute("aria-posinset", "4")
    expect(page.locator("#why .choices")).to_contain_text("half_of_heap")
    selected = "getSelection().toString()"
    copied = page.evaluate(f"getSelection().selectAllChildren(document.querySelector('#why .choices')), {selected}")
    page.evaluate("render()")
    assert "half_of_heap" in copied and page.evaluate(selected) == copied
    press_while_all_is_drawn_again(page, "[data-run=run-ended]")
    expect(page.locator("#head code")).to_have_text("run-ended")
    for move in ("runs.unshift(runs.pop())", "runs.push(runs.shift())", "runs.push({ ...runs.shift(), id: 'other' })"):
        focused = f"{{ const runs = view.summary.job_runs; {move}; render(); document.activeElement.dataset.run }}"
        assert page.evaluate(focused) == "run-ended"
        assert page.evaluate(LISTED)
    press_while_all_is_drawn_again(page, "#triggers .link")
    expect(page.locator("#head code")).to_have_text("run-big")


def test_a_run_that_failed_before_it_was_planned_says_so_and_labels_stand_at_their_lines(server, state, opened):
    times = {"accepted_s": NOW_S - 900, "started_s": None, "finished_s": NOW_S}
    late = job_run("run-late", state=JobRunState.FAILED, error="no", **times)
    state.accept(late)
    state.close(late)
    page = opened(server.address)
    choose(page, "run-late")
    expect(page.locator("#space")).to_have_text("No session: the job run ended before one was planned.")
    line, label, elapsed = page.evaluate(BOXES)  # at once: the page may draw them anew in between
    assert abs(label["right"] - line["left"]) < 4
    assert elapsed["bottom"] <= label["top"] + 2


def test_a_run_that_waited_beyond_its_desired_sla_has_missed_it(server, state, opened):
    """The SLA counts from the acceptance; the estimates count from the start."""
    times = {"accepted_s": NOW_S - 1300, "started_s": NOW_S - 100, "finished_s": NOW_S}
    waited = job_run("run-waited", state=JobRunState.SUCCEEDED, **times)
    state.accept(waited)
    state.close(waited)
    page = opened(server.address)
    choose(page, "run-waited")
    expect(page.locator("#head .pill.late")).to_have_text("missed its desired SLA")
    told = "21 min 40 s taken, 20 min 00 s of it waiting, expected 6 min 52 s"
    expect(page.locator("#head .sla")).to_have_attribute("aria-label", re.compile(f"^{told}"))
    desired, _, _ = page.evaluate(BOXES)
    bar = page.locator(".sla .elapsed").bounding_box()
    assert bar["x"] > desired["right"] and bar["width"] > 1


def test_what_triggers_decided_is_there_with_its_reason(server, state, opened):
    page = opened(server.address)
    choose(page, "run-ended")
    triggers = page.locator("#triggers")
    expect(triggers).to_contain_text("249 left alone: below thresholds · 1 submitted: deltas")
    expect(triggers).to_contain_text("and 50 more")
    first = triggers.locator(".decision").first
    expect(first).to_contain_text("orders  day=2024-0003")
    expect(first).to_contain_text("25 deltas, 20 wanted")
    first.locator("button").click()
    expect(page.locator("#head code")).to_have_text("run-big")
    assert page.locator("#triggers img, #triggers script").count() == 0
    choose(page, "run-next")
    expect(page.locator("#head")).to_contain_text("It waits: run-big works on the same stream")


def test_it_says_what_to_do_next_with_command_lines_to_copy(state, opened, tmp_path):
    queue = open_queue(str(tmp_path / "queue"))
    queue.send("{")
    (message,) = queue.receive(1, 0)
    queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "no JSON")
    said_s = state.say(DispatcherSign("host-7.4711.aa", "host-7", 4711, NOW_S, NOW_S, "q", 4, ("run-big",)))
    served = PageServer(OverviewReader(state, queue, clock=lambda: said_s + 7200))
    served.start()
    try:
        page = opened(served.address)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        steps = page.locator("#next .step")
        expect(steps.filter(has_text="host-7.4711.aa")).to_contain_text(
            "process 4711 on host-7 has been silent for 2 h"
        )
        expect(steps.filter(has_text="the queue")).to_contain_text("1 dead letter")
        expect(steps.filter(has_text="the queue")).to_contain_text("deltacompact-sessions dlq list --queue file://")
        late = steps.filter(has=page.get_by_role("button", name="run-big", exact=True))
        cancel = f"deltacompact-sessions job-runs cancel --state {state.uri} run-big"
        expect(late.locator("code").last).to_have_text(cancel)
        late.locator(".copy").last.click()
        expect(late.locator(".copy").last).to_have_text("copied")
        assert page.evaluate("navigator.clipboard.readText()") == cancel
        late.locator(".link").click()
        expect(page.locator("#head code")).to_have_text("run-big")
        assert page.locator("#next img, #next script").count() == 0
    finally:
        served.stop()


def test_a_session_says_why_it_was_tried_again_and_where_its_logs_are(server, state, opened):
    stored = state.session("run-big", "day=2024-0004")
    error = "StoreError: SlowDown"
    state.change_session(stored, replace(stored.value, attempts=3, failures=1, attempt="run-big/2/3", error=error))
    state.store.put("logs/run-big.2.g0.1.1.log", b"printed")
    page = opened(server.address)
    choose(page, "run-big")
    page.locator("#rows").focus()
    page.keyboard.press("/")
    page.keyboard.type("2024-0004")
    page.locator("#rows .row").first.click()
    expect(page.locator("#why .again")).to_have_text(f"Try 3 (run-big/2/3), 1 failed. Why: {error}.")
    expect(page.locator("#why .logs code")).to_have_text(state.uri + "logs/run-big.2.g0.1.1.log")


def test_it_runs_on_its_own_for_a_state_without_a_dispatcher(tmp_path):
    StateStore(str(tmp_path / "state")).accept(job_run("run-1"))
    command = [sys.executable, "-m", "sessions", "page", "--state", str(tmp_path / "state"), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        address = re.search(r"http://127[0-9.]+:[0-9]+/", process.stdout.readline())[0]
        told = httpx.get(address + "api/overview").json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [run["id"] for run in told["job_runs"]] == ["run-1"] and told["queue"] is None
    assert told["next"][0]["about"] == "no dispatcher"


def test_a_folder_that_is_not_there_is_told(tmp_path):
    command = [sys.executable, "-m", "sessions", "page", "--state", str(tmp_path / "stat"), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().endswith("/stat/: there is no such folder\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_hostile_strings_are_text(server, opened):
    page = opened(server.address)
    choose(page, "run-hostile")
    page.locator("#rows .row").first.click()
    expect(page.locator("#why .error")).to_contain_text("<script>alert('x')</script>")
    assert page.locator("main img, main script, #next img, #next script").count() == 0
    page.goto(server.address + "#%ff/" + HOSTILE.replace("\0", ""))
    expect(page.locator("#live-text")).to_have_text("live")


def test_an_empty_state_says_what_to_do(opened):
    served = PageServer(OverviewReader(StateStore(MemoryStore())))
    served.start()
    try:
        page = opened(served.address)
        expect(page.locator("#detail")).to_contain_text("No job run yet")
        expect(page.locator("#detail code")).to_contain_text("deltacompact-sessions submit")
        expect(page.locator("#triggers")).to_be_hidden()
        page.close()
    finally:
        served.stop()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)])
def test_it_is_readable_light_and_dark_wide_and_narrow(server, opened, scheme, width):
    page = opened(server.address, scheme, width)
    choose(page, "run-big")
    page.locator(".chip[data-state=running]").click()
    page.locator("#rows .row").first.click()
    expect(page.locator("#why .choices li")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off at the side"
    assert page.evaluate(CONTRAST) == []
    choose(page, "run-hostile")
    expect(page.locator("#head .pill.failed")).to_be_visible()
    assert page.evaluate(CONTRAST) == []
    choose(page, "run-ended")
    expect(page.locator("#head .pill.succeeded")).to_be_visible()
    assert page.evaluate(CONTRAST) == []


def evening() -> StateStore:
    """A few job runs four minutes after the largest began: one is late, one has failed, a session was tried again."""
    state = StateStore(MemoryStore())
    visits = {"source_table_id": "visits", "catalog": "s3://lake/tables"}
    orders = job_run("orders-2026-11-22", document={"source_table_id": "sales.orders", "catalog": "s3://lake/tables"})
    state.accept(orders)
    for number in range(12):
        made = session(f"2026-11-{number + 1:02d}", orders.id, started_s=NOW_S + 15 * number)
        match number % 4:
            case 0 | 1:
                made = replace(made, state=SessionState.SUCCEEDED, finished_s=made.started_s + 49, outcome=OUTCOME)
            case 2:
                made = replace(made, state=SessionState.PLANNED, started_s=None, attempts=0, progress=Progress())
        if number == 3:
            error = "StoreError: s3://lake/tables/sales.orders answered SlowDown"
            made = replace(made, attempts=2, failures=1, attempt=f"{orders.id}/1/2", error=error)
        state.add_session(made)
    state.store.put(f"logs/{orders.id}.1.g0.1.1.log", b"")
    state.accept(job_run("visits-2026-11-22", accepted_s=NOW_S - 900, document=visits, started_s=NOW_S - 700))
    failed = job_run(
        "returns-2026-11-21",
        accepted_s=NOW_S - 9000,
        document={**visits, "source_table_id": "sales.returns"},
        state=JobRunState.FAILED,
        error="NotFoundError: partition day=2026-11-21 does not exist",
        finished_s=NOW_S - 8990,
    )
    state.accept(failed)
    state.close(failed)
    state.say(DispatcherSign("host-7.4711.aa", "host-7", 4711, NOW_S, NOW_S, "q", 4, (orders.id,)))
    return state


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_of_the_documents(opened, tmp_path, scheme):
    """It is what the page shows now, and names what the documents say of it."""
    state = evening()
    heard_s = next(state.dispatchers()).modified_s
    served = PageServer(OverviewReader(state, clock=lambda: NOW_S + 250))
    served.start()
    try:
        assert heard_s > NOW_S, "the dispatcher was heard of after that"
        page = opened(served.address, scheme, 1280)
        choose(page, "orders-2026-11-22")
        page.locator("#rows .row", has_text="2026-11-04").click()
        expect(page.locator("#why .again")).to_contain_text("answered SlowDown")
        expect(page.locator("#next .step")).to_have_count(2)
        page.evaluate("document.activeElement.blur()")
        folder = os.environ.get("DELTACOMPACT_PICTURES")
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        picture.quantize(128).save((Path(folder) if folder else tmp_path) / f"page-{scheme}.png", optimize=True)
    finally:
        served.stop()
    for picture in ("page-light.png", "page-dark.png"):
        assert picture in (ROOT / "docs/watching.md").read_text()


def test_it_listens_on_loopback_and_keeps_to_itself(server):
    assert server.address.startswith("http://127.0.0.1:")
    port = int(server.address.rstrip("/").rpartition(":")[2])
    with pytest.raises(OSError), socket.create_connection((_outside(), port), timeout=2):
        pass
    answer = httpx.get(server.address)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "'unsafe" not in policy and answer.headers["x-content-type-options"]
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", answer.text)
    assert httpx.get(server.address, headers={"Host": "evil.example"}).status_code == 400
    assert httpx.get(server.address + "api/job-runs/..%2F..%2Fetc/sessions/passwd").status_code == 404
    assert httpx.post(server.address + "api/overview").status_code == 405


def _outside() -> str:
    """An address of this machine that is not loopback; where it has none, one that nobody answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "192.0.2.1"
        return probe.getsockname()[0]


def test_health_is_answered_while_a_summary_takes_long_and_all_pages_share_one(server, monkeypatch):
    """It was made in the event loop, of thousands of sessions, each second and for each open page."""
    entered, go_on, made = threading.Event(), threading.Event(), []

    def slow(overview, places):
        entered.set()
        assert go_on.wait(30)
        made.append(overview)
        return {"at_s": overview.at_s}

    monkeypatch.setattr(app, "summary", slow)
    with ThreadPoolExecutor(2) as pages:
        answers = [pages.submit(httpx.get, server.address + "api/overview", timeout=30) for _ in range(2)]
        try:
            assert entered.wait(30)
            assert httpx.get(server.address + "healthz", timeout=10).json()["status"] == "ok"
        finally:
            go_on.set()
        assert {answer.result().json()["at_s"] for answer in answers} == {overview.at_s for overview in made}
    assert len(made) == len({id(overview) for overview in made})


def test_health_costs_one_listing_and_waits_for_no_overview():
    """Kubernetes ended dispatchers again and again, while they read the sessions of 1,000 ended job runs."""
    memory = MemoryStore()
    StateStore(memory).accept(job_run())
    entered, go_on = threading.Event(), threading.Event()

    def intercept(kind, path, act):
        if kind == "get":
            entered.set()
            assert go_on.wait(30)
        return act()

    store = CountingStore(InterceptedStore(memory, intercept))
    served = PageServer(OverviewReader(StateStore(store)))
    served.start()
    with ThreadPoolExecutor(1) as pages:
        overview = pages.submit(httpx.get, served.address + "api/overview", timeout=30)
        try:
            assert entered.wait(30)
            store.reset()
            for _ in range(2):
                assert httpx.get(served.address + "healthz", timeout=5).json()["status"] == "ok"
            assert store.requests == [("list", "open/")], "the second time it had answered a moment ago"
        finally:
            go_on.set()
        assert overview.result().json()["job_runs_in_all"] == 1
    served.stop()


def test_machines_get_metrics_and_health(state):
    served = PageServer(OverviewReader(state))
    served.start()
    answer = httpx.get(served.address + "metrics")
    assert 'deltacompact_sessions{state="running"} 200.0' in answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert httpx.get(served.address + "healthz").json() == {"status": "ok", "unreadable": 0}
    served.stop()

    def broken(kind, path, act):
        raise StoreError("nobody answers")

    silent = PageServer(OverviewReader(StateStore(InterceptedStore(MemoryStore(), broken))))
    silent.start()
    answer = httpx.get(silent.address + "healthz")
    assert answer.status_code == 503 and "nobody answers" in answer.json()["status"]
    silent.stop()
    stuck = PageServer(OverviewReader(state), healthy=lambda: "the dispatcher's loop stands still")
    stuck.start()
    assert httpx.get(stuck.address + "healthz").status_code == 503
    stuck.stop()
