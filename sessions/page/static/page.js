// The page: one stream of changes in, one view out. Everything that comes from a record is set as text.
//
//   summary   job runs, queue, adherence        -> tiles, list of job runs, the head of the one that is selected
//   sessions  rows of the selected job run      -> counts by state, time line (only rows in sight are in the document)
//   details   one session, asked for by click   -> why it was planned so, its stages, its outcome
//   triggers  asked for every few seconds       -> what policies decided, and why
"use strict";

const STATES = ["running", "failed", "cancelled", "succeeded", "planned", "nothing_to_do"];
const SAID = { running: "running", failed: "failed", succeeded: "succeeded", planned: "planned", nothing_to_do: "nothing to do", accepted: "accepted", cancelled: "cancelled" };
const STAGES = ["hash_bucket", "dedupe", "assign_pointers", "write_index", "materialize"];
const ICONS = { // each state has a shape of its own, so that none depends on colour
  running: "M4 2.5 12 8l-8 5.5z", succeeded: "M2.2 8.6 6 12.4 13.8 4l-1.4-1.3L6 9.6 3.6 7.2z",
  failed: "M3.4 2 2 3.4 6.6 8 2 12.6 3.4 14 8 9.4l4.6 4.6 1.4-1.4L9.4 8 14 3.4 12.6 2 8 6.6z",
  planned: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zm0 2a4 4 0 1 1 0 8 4 4 0 0 1 0-8z", accepted: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zm0 2a4 4 0 1 1 0 8 4 4 0 0 1 0-8z",
  nothing_to_do: "M3 7h10v2H3z", cancelled: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zm-3.5 5h7v2h-7z",
};
const view = { summary: null, sessions: new Map(), run: null, session: null, details: null, states: new Set(), search: "", clock: 0, source: null };
const $ = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [property, given] of Object.entries(value)) element.style[property] = given;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Draws the children of a box. What stays of them is neither replaced nor moved: else a press would end on another element
// than it began on, which is no click, and a selected text or the focus would be lost every second. An element with listeners
// has a data-* attribute for each value that they use.
function draw(box, ...children) {
  const drawn = new Map();
  for (const node of box.childNodes) drawn.has(kind(node)) ? drawn.get(kind(node)).push(node) : drawn.set(kind(node), [node]);
  const pairs = [...make("div", {}, ...children).childNodes].map((wanted) => [wanted, drawn.get(kind(wanted))?.shift()]);
  for (const gone of [...drawn.values()].flat()) gone.remove();
  let place = box.firstChild;
  for (const [wanted, known] of pairs) {
    if (known && place.nextSibling === known) { box.append(place); place = known; } // the one in this place went down the list
    if (known) redraw(known, wanted);
    if (known && known === place) place = place.nextSibling; else box.insertBefore(known || wanted, place);
  }
}
const kind = (node) => node.nodeName + JSON.stringify({ ...node.dataset });

function redraw(drawn, wanted) {
  if (wanted.nodeType === Node.TEXT_NODE) { if (drawn.data !== wanted.data) drawn.data = wanted.data; return; }
  for (const { name } of [...drawn.attributes]) if (!wanted.hasAttribute(name)) drawn.removeAttribute(name);
  for (const { name, value } of wanted.attributes) {
    if (drawn.getAttribute(name) === value) continue;
    if (name === "style") drawn.style.cssText = value; // the policy of the page refuses the attribute
    else drawn.setAttribute(name, value);
  }
  draw(drawn, ...wanted.childNodes);
}

function icon(state) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `icon ${state}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", SAID[state] || state);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[state] || ICONS.planned);
  path.setAttribute("fill", "currentColor");
  svg.append(path);
  return svg;
}

// Numbers in words

function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 9.95) return `${Math.max(0, value).toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min ${String(Math.round(value % 60)).padStart(2, "0")} s`.replace(" 60 s", " 59 s");
  return `${Math.floor(value / 3600)} h ${String(Math.floor((value % 3600) / 60)).padStart(2, "0")} min`;
}
const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en-US"));
const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(value === 1 || value === 0 ? 0 : 1)}\u00a0%`);
function big(value) {
  for (const [unit, size] of [["B", 1e9], ["M", 1e6], ["k", 1e3]]) if (value >= 10 * size || (value >= size && size > 1e3)) return `${(value / size).toFixed(value < 100 * size ? 1 : 0)} ${unit}`;
  return count(value);
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let power = 0;
  while (value >= 1024 && power < units.length - 1) { value /= 1024; power += 1; }
  return `${value.toFixed(power && value < 100 ? 1 : 0)} ${units[power]}`;
}
const plural = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
function ago(at) {
  const passed = now() - at;
  if (passed < 60) return "just now";
  if (passed < 5400) return `${Math.round(passed / 60)} min ago`;
  if (passed < 129600) return `${Math.round(passed / 3600)} h ago`;
  return `${Math.round(passed / 86400)} days ago`;
}
const now = () => Date.now() / 1000 + view.clock;
const stamp = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

// The stream

function follow() {
  if (view.source) view.source.close();
  view.sessions = new Map();
  const source = new EventSource("api/changes" + (view.run ? `?job_run=${encodeURIComponent(view.run)}` : ""));
  view.source = source;
  source.addEventListener("change", (event) => {
    const told = JSON.parse(event.data);
    heard(told.summary.at_s);
    view.summary = told.summary;
    for (const session of told.sessions) view.sessions.set(session.id, session);
    if (!view.run && told.summary.job_runs.length) return select(told.summary.job_runs[0].id, null);
    render();
    if (view.session && told.sessions.some((session) => session.id === view.session)) ask();
  });
  source.addEventListener("tick", (event) => heard(JSON.parse(event.data).at_s));
  source.addEventListener("trouble", (event) => say("off", `the records cannot be read: ${JSON.parse(event.data).text}`));
  source.onerror = () => say("off", "not connected, trying again");
  source.onopen = () => { view.sessions = new Map(); };
}
function heard(at) { view.clock = at - Date.now() / 1000; say("on", "live"); }
function say(is, text) {
  const changed = $("live").dataset.is !== is || $("live-text").textContent !== text;
  if (changed) { $("live").dataset.is = is; $("live-text").textContent = text; }
}

function select(run, session) {
  const other = run !== view.run;
  view.run = run;
  view.session = session;
  view.details = null;
  if (other) { view.states = new Set(); view.search = ""; $("detail").replaceChildren(); follow(); }
  const hash = [run, session].filter((part) => part).map(encodeURIComponent).join("/");
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname);
  render();
  if (session) ask();
}
async function ask() {
  const [run, session] = [view.run, view.session];
  try {
    const answer = await fetch(`api/job-runs/${encodeURIComponent(run)}/sessions/${encodeURIComponent(session)}`);
    if (!answer.ok || view.session !== session || view.run !== run) return;
    view.details = await answer.json();
    renderWhy();
  } catch { /* the next change asks again */ }
}

// The view

function render() {
  if (!view.summary) return;
  renderTiles();
  renderNext();
  renderRuns();
  renderDetail();
}

function renderTiles() {
  const { queue, kept, dispatchers, job_runs: runs } = view.summary;
  const open = runs.filter((run) => !ended(run));
  const late = open.filter((run) => isLate(run));
  const running = open.reduce((sum, run) => sum + run.states.running, 0);
  const waiting = open.reduce((sum, run) => sum + run.states.planned, 0);
  const silent = dispatchers.filter((known) => known.silent_s > 120);
  const tiles = [
    ["Job runs under way", count(open.length), `of ${count(view.summary.job_runs_in_all)}`],
    ["Sessions running", count(running), `${count(waiting)} planned`],
    ["SLA at risk", count(late.length), late.length ? "expected after desired" : "", late.length > 0],
    ["SLA kept", percent(kept.job_runs.desired), kept.job_runs.ended ? `of ${count(kept.job_runs.ended)} ended` : "none ended"],
    ["Promises kept", percent(kept.sessions.promise), kept.sessions.error_median === null ? "" : `median error ${percent(kept.sessions.error_median)}`],
    ["Waiting messages", queue ? count(queue.ready + queue.leased) : "–", queue && queue.oldest_s ? `oldest ${seconds(queue.oldest_s)}` : ""],
    ["Dead letters", queue ? count(queue.dead) : "–", "", queue && queue.dead > 0],
    ["Dispatchers", count(dispatchers.length), silent.length ? `${count(silent.length)} silent` : "", silent.length > 0 || (open.length > 0 && !dispatchers.length)],
  ];
  draw($("tiles"), ...tiles.map(([name, value, note, warn]) =>
    make("div", { class: warn ? "tile warn" : "tile" }, make("dt", {}, name), make("dd", {}, value, " ", note && make("small", {}, note)))));
}

// What to do next: it is drawn anew where it differs, so that nobody loses the command that is being copied

function renderNext() {
  const steps = view.summary.next;
  const box = $("next");
  const told = JSON.stringify(steps.map((step) => ({ ...step, text: step.text.replace(/\d+ (s|min|h)\b/g, "") })));
  box.hidden = !steps.length;
  if (box.dataset.told === told) return;
  box.dataset.told = told;
  draw(box, make("h2", {}, "What to do next"), make("ul", {}, ...steps.map((step) => make("li", { class: "step" },
    make("div", { class: "step-what" },
      step.job_run_id ? make("button", { type: "button", class: "link clip", "data-next": step.job_run_id, onclick: () => { select(step.job_run_id, null); } }, step.about) : make("b", { class: "clip" }, step.about),
      make("bdi", { class: "because" }, step.text)),
    ...step.commands.map((command) => make("div", { class: "command" }, make("code", {}, command), copier(command)))))));
}
function copier(text) {
  const button = make("button", { type: "button", class: "copy", "data-copy": text, "aria-label": `Copy: ${text}`, onclick: async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; } catch { getSelection().selectAllChildren(button.previousSibling); button.textContent = "selected"; }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } }, "copy");
  return button;
}

const ended = (run) => ["succeeded", "failed", "cancelled"].includes(run.state);
const began = (run) => run.started_s ?? run.accepted_s;
const elapsed = (run) => (run.finished_s ?? now()) - began(run);
// The desired SLA counts from the acceptance, waits included; what is expected and promised counts from the start.
const since = (run) => (run.finished_s ?? now()) - run.accepted_s;
const waited = (run) => Math.max(0, (run.started_s ?? (ended(run) ? run.accepted_s : now())) - run.accepted_s);
function isLate(run) {
  if (!run.desired_s) return false;
  if (run.state === "failed") return true;
  return Math.max(since(run), !ended(run) && run.expected ? waited(run) + run.expected[0] : 0) > run.desired_s;
}

function stateBar(states, all) {
  return make("span", { class: "bar", "aria-hidden": "true" }, ...["succeeded", "nothing_to_do", "running", "failed", "cancelled", "planned"]
    .filter((state) => states[state]).map((state) => make("i", { class: `i-${state}`, style: { width: `${(100 * states[state]) / all}%` } })));
}

function renderRuns() {
  const runs = view.summary.job_runs;
  $("run-count").textContent = view.summary.job_runs_in_all > runs.length ? `${count(runs.length)} of ${count(view.summary.job_runs_in_all)}` : "";
  if (!runs.length) return draw($("runs"), make("li", { class: "small-empty" }, "none yet"));
  draw($("runs"), ...runs.map((run) => make("li", { "data-of": run.id }, make("button", {
    class: "run", type: "button", "data-run": run.id, "aria-current": String(run.id === view.run), onclick: () => select(run.id, null),
  }, icon(run.state), make("span", { class: "name clip", title: run.table }, run.table), make("span", { class: "when" }, ago(run.accepted_s)),
  make("span", { class: "sub" },
    make("span", { class: "clip" }, run.sessions ? `${count(run.ended)} of ${plural(run.sessions, "session")}` : ended(run) ? "no session" : run.waits ? "waits" : "not planned yet"),
    make("span", {}, ended(run) ? seconds(elapsed(run)) : run.expected ? `${seconds(run.expected[0])} expected` : "")),
  run.sessions > 0 && stateBar(run.states, run.sessions)))));
}
$("runs").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const buttons = [...$("runs").querySelectorAll("button")];
  const next = buttons[buttons.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { event.preventDefault(); next.focus(); next.click(); }
});

function renderDetail() {
  const run = view.summary.job_runs.find((known) => known.id === view.run);
  const detail = $("detail");
  if (!run) {
    detail.replaceChildren(make("div", { class: "card empty" },
      make("h2", {}, view.run ? "This job run is not listed" : "No job run yet"),
      make("p", {}, view.run ? "It may be older than those on the left." : "Send an instruction document, and it shows up here."),
      view.run ? "" : make("code", {}, "deltacompact-sessions submit orders.json --queue file:///var/lib/deltacompact/queue")));
    return;
  }
  if (!$("head")) {
    detail.replaceChildren(
      make("div", { class: "card", id: "head" }),
      make("div", { class: "card", id: "line" },
        make("div", { class: "filters", id: "filters" }, make("h3", {}, "Sessions on the time line")),
        make("div", { class: "axis", id: "axis", "aria-hidden": "true" }),
        make("div", { class: "rows", id: "rows", role: "listbox", tabindex: "0", "aria-label": "Sessions" }, make("div", { class: "space", id: "space" }))),
      make("div", { class: "card", id: "why" }));
    for (const state of STATES) $("filters").append(make("button", { class: "chip", type: "button", "data-state": state, "aria-pressed": "false", onclick: () => {
      view.states.has(state) ? view.states.delete(state) : view.states.add(state);
      $("rows").scrollTop = 0;
      renderLine();
    } }));
    $("filters").append(make("input", { type: "search", id: "search", placeholder: "Filter:  press /", "aria-label": "Filter partitions", autocomplete: "off", oninput: (event) => {
      view.search = event.target.value.toLowerCase();
      $("rows").scrollTop = 0;
      renderLine();
    } }));
    $("rows").addEventListener("scroll", () => requestAnimationFrame(renderRows));
    $("rows").addEventListener("keydown", walk);
  }
  renderHead(run);
  renderLine();
  renderWhy();
}

function renderHead(run) {
  const open = !ended(run);
  draw($("head"),
    make("div", { class: "title" }, make("h1", {}, run.table), make("span", { class: `pill ${run.state}` }, icon(run.state), SAID[run.state]),
      isLate(run) && make("span", { class: "pill late" }, open ? "expected after its desired SLA" : "missed its desired SLA")),
    make("dl", { class: "facts" }, ...[
      ["job run", make("code", {}, run.id)], ["catalog", run.catalog], ["accepted", `${stamp(run.accepted_s)}, ${ago(run.accepted_s)}`],
      run.sessions > 0 && ["done", `${percent(run.share)}, ${count(run.ended)} of ${plural(run.sessions, "session")}`],
      run.owner && open && ["dispatcher", `${run.owner}, epoch ${run.epoch}`], run.takeovers > 0 && ["takeovers", count(run.takeovers)],
    ].filter(Boolean).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
    run.error ? make("p", { class: "error" }, run.error) : "",
    run.waits ? make("p", { class: "nearest" }, `It waits: ${run.waits}.`) : "",
    slaChart(run),
    run.nearest_s ? make("p", { class: "nearest" }, `A desired SLA of ${seconds(run.desired_s)} cannot be promised. The nearest that can is ${seconds(run.nearest_s)}${run.cpus_needed ? `, or ${count(run.cpus_needed)} CPUs would keep it` : ""}.`) : "");
}

function slaChart(run) {
  const took = since(run), start = waited(run);
  const expected = run.expected || run.first;
  if (run.state === "accepted" || (!expected && !run.desired_s)) return make("p", { class: "sla-none facts" }, run.state === "accepted" ? "Accepted; a dispatcher has not planned it yet." : "No SLA is desired, and none is expected yet.");
  const first = ended(run) ? run.first || expected : expected;
  const scale = 1.06 * Math.max(took, run.desired_s || 0, first ? start + first[3] : 0, 1);
  const said = `${seconds(took)} ${ended(run) ? "taken" : "so far"}${start < 1 ? "" : `, ${seconds(start)} of it waiting`}`;
  const at = (value) => `${Math.min(100, (100 * value) / scale)}%`;
  const tag = (name, value, edge, text) => make("span", { class: `tag ${name} ${edge}`, style: { left: at(value) } }, text);
  const parts = [make("span", { class: "track" }), make("span", { class: "elapsed", style: { left: at(start), width: at(Math.max(0, took - start)) } })];
  if (first) {
    const middle = start + first[0];
    const edge = middle < 0.4 * scale ? "left" : middle > 0.6 * scale ? "right" : "";
    parts.push(
      make("span", { class: "interval", style: { left: at(start + first[1]), width: `${(100 * (first[2] - first[1])) / scale}%` } }),
      make("span", { class: "expected", style: { left: at(middle) } }),
      tag("of-expected", middle, edge, `expected ${seconds(first[0])}, promised ${seconds(first[3])}`),
      make("span", { class: "promise", style: { left: at(start + first[3]) } }));
  }
  const late = run.desired_s && took > run.desired_s;
  if (run.desired_s) parts.push(
    make("span", { class: "desired", style: { left: at(run.desired_s) } }),
    tag("of-desired", run.desired_s, run.desired_s > 0.5 * scale ? "right" : "left", `desired ${seconds(run.desired_s)}`));
  parts.push(tag("of-elapsed", late ? took : 0, late ? "right" : "left", said));
  const words = [said, first && `expected ${seconds(first[0])}, promised ${seconds(first[3])}`, run.desired_s && `desired ${seconds(run.desired_s)}`].filter(Boolean).join(", ");
  return make("div", { class: `sla ${run.state}`, role: "img", "aria-label": words }, ...parts);
}

// The time line

const ORDER = { failed: 0, running: 1, planned: 2, cancelled: 3, succeeded: 4, nothing_to_do: 5 };
function listed() {
  return [...view.sessions.values()]
    .filter((session) => (!view.states.size || view.states.has(session.state)) && (!view.search || session.label.toLowerCase().includes(view.search)))
    .sort((one, other) => ORDER[one.state] - ORDER[other.state] || (one.started_s ?? Infinity) - (other.started_s ?? Infinity) || (one.label < other.label ? -1 : 1));
}
const rowHeight = () => (matchMedia("(max-width: 900px)").matches ? 46 : 28);

function renderLine() {
  const states = {};
  for (const session of view.sessions.values()) states[session.state] = (states[session.state] || 0) + 1;
  for (const chip of $("filters").querySelectorAll(".chip")) {
    const state = chip.dataset.state;
    chip.setAttribute("aria-pressed", String(view.states.has(state)));
    draw(chip, icon(state), SAID[state], make("b", {}, count(states[state] || 0)));
    chip.hidden = !states[state] && !view.states.has(state);
  }
  $("search").hidden = view.sessions.size < 8 && !view.search;
  const run = view.summary.job_runs.find((known) => known.id === view.run);
  const start = began(run);
  const ends = [...view.sessions.values()].map((session) => session.finished_s ?? (session.started_s ? Math.max(now(), session.started_s + (session.expected ? session.expected[2] : 0)) : 0));
  view.line = { start, over: ended(run), span: Math.max(1, Math.max(run.finished_s ?? now(), ...ends.slice(0, 20000)) - start) * 1.02, rows: listed() };
  draw($("axis"), ...[0, 0.25, 0.5, 0.75, 1].map((share) => make("span", { style: { left: `${100 * share}%` } }, share ? `+${seconds(share * view.line.span)}` : stamp(start))));
  $("axis").hidden = !view.line.rows.length;
  renderRows();
}

function renderRows() {
  const { rows } = view.line;
  const height = rowHeight();
  const box = $("rows");
  $("space").style.height = `${Math.max(rows.length * height, 34)}px`;
  if (!rows.length) {
    draw($("space"), make("p", { class: "small-empty" }, view.sessions.size ? "No session fits the filter." : view.line.over ? "No session: the job run ended before one was planned." : "No session yet: they appear once the job run is planned."));
    return;
  }
  const first = Math.max(0, Math.floor(box.scrollTop / height) - 4);
  const last = Math.min(rows.length, Math.ceil((box.scrollTop + Math.max(box.clientHeight, 300)) / height) + 4);
  draw($("space"), ...rows.slice(first, last).map((session, place) => rowOf(session, first + place, height)));
  const chosen = rows.findIndex((session) => session.id === view.session);
  if (chosen >= first && chosen < last) box.setAttribute("aria-activedescendant", `row-${chosen}`);
  else box.removeAttribute("aria-activedescendant");
}

function rowOf(session, place, height) {
  return make("div", {
    class: "row", id: `row-${place}`, "data-session": session.id, role: "option", "aria-selected": String(session.id === view.session), "aria-setsize": view.line.rows.length, "aria-posinset": place + 1,
    style: { top: `${place * height}px` }, onclick: () => { select(view.run, session.id); },
  }, icon(session.state), make("span", { class: "clip", title: session.label }, session.label), lane(session), make("span", { class: "what clip" }, saidOf(session)));
}

function lane(session) {
  const { start, span } = view.line;
  const bars = [];
  const left = (at) => `${Math.max(0, (100 * (at - start)) / span)}%`;
  const width = (from, to) => `${Math.max(0, (100 * (to - from)) / span)}%`;
  if (session.started_s) {
    const end = session.finished_s ?? now();
    if (session.state === "running" && session.expected) {
      const [expected, low, high] = session.expected.map((value) => session.started_s + value);
      if (expected > end) bars.push(make("i", { class: "ahead", style: { left: left(end), width: width(end, expected) } }));
      if (high > end) bars.push(make("i", { class: "whisker", style: { left: left(Math.max(low, end)), width: width(Math.max(low, end), high) } }));
    }
    bars.push(make("i", { class: `done i-${session.state === "planned" ? "nothing_to_do" : session.state}`, style: { left: left(session.started_s), width: width(session.started_s, end) } }));
  }
  return make("span", { class: "lane", "aria-hidden": "true" }, ...bars);
}

function saidOf(session) {
  const tries = session.attempts > 1 ? `, try ${session.attempts}` : "";
  if (session.state === "running") {
    const round = session.rounds > 1 ? ` · round ${Math.min(session.round + 1, session.rounds)}/${session.rounds}` : "";
    const tasks = session.tasks ? ` ${count(session.tasks_done)}/${count(session.tasks)}` : "";
    return `${(session.stage || "starting").replaceAll("_", " ")}${tasks}${round}${tries}`;
  }
  if (session.state === "planned" && session.waits) return `waits: ${session.waits}${tries}`;
  if (session.state === "planned") return (session.expected ? `${seconds(session.expected[0])} expected` : "planned") + tries;
  if (session.state === "nothing_to_do") return "nothing to do";
  if (session.state === "cancelled") return `cancelled${tries}`;
  const took = session.started_s && session.finished_s ? seconds(session.finished_s - session.started_s) : "";
  return session.state === "failed" ? `failed after ${took || "no start"}${tries}` : `${took}${tries}`;
}

function walk(event) {
  const { rows } = view.line;
  const page = Math.max(1, Math.floor($("rows").clientHeight / rowHeight()) - 1);
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
  if (step === undefined || !rows.length) return;
  event.preventDefault();
  const from = rows.findIndex((session) => session.id === view.session);
  const to = Math.min(rows.length - 1, Math.max(0, (from < 0 && step > 0 ? -1 : from) + step));
  const [top, height, box] = [to * rowHeight(), rowHeight(), $("rows")];
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
  select(view.run, rows[to].id);
}
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && $("search") && !$("search").hidden && document.activeElement !== $("search")) { event.preventDefault(); $("search").focus(); }
  if (event.key === "Escape" && document.activeElement === $("search")) { $("search").value = ""; $("search").dispatchEvent(new Event("input")); $("rows").focus(); }
});

// Why a session was planned as it was

function renderWhy() {
  const panel = $("why");
  if (!panel) return;
  const known = view.details;
  panel.hidden = !view.sessions.size;
  if (!known || known.id !== view.session) {
    if (!view.session) draw(panel, make("p", { class: "small-empty" }, "Select a session to see why it was planned as it was."));
    return;
  }
  const plan = known.plan;
  const choices = plan ? plan.choices : [];
  draw(panel, make("div", { class: "why" },
    make("h2", {}, known.label, make("span", { class: `pill ${known.state}` }, icon(known.state), SAID[known.state])),
    known.error && (ended(known) || known.attempts < 2) ? make("p", { class: "error" }, known.error) : "",
    known.state === "planned" && known.waits ? make("p", {}, `It waits: ${known.waits}.`) : "",
    known.attempts > 1 || known.trouble ? make("p", { class: "again" }, againOf(known)) : "",
    known.state === "running" || known.state === "succeeded" ? stagesOf(known) : "",
    make("div", {}, make("h3", {}, "Why it was planned so"),
      choices.length ? make("ol", { class: "choices" }, ...choices.map((choice) => make("li", {},
        make("div", {}, make("div", { class: "what" }, choice.what), make("div", { class: "value clip", title: valueOf(choice.value) }, valueOf(choice.value))),
        make("p", {}, choice.text, " ", make("code", {}, choice.reason)))))
        : make("p", { class: "small-empty" }, plan ? "The plan gives no reasons." : "It has no plan yet.")),
    make("div", {}, ...factsOf(known)),
    known.logs.length ? make("div", { class: "logs" }, make("h3", {}, "What its job run printed"), ...known.logs.map((uri) => make("div", { class: "command" }, make("code", {}, uri), copier(uri)))) : ""));
}
function againOf(known) {
  const why = known.trouble ? `${words(known.trouble.cause)}, since ${stamp(known.trouble.since_s)}: ${known.trouble.text}` : known.failures ? known.error || "the try before it failed" : "the dispatcher or the process before it was lost";
  const tries = known.attempts > 1 ? `Try ${count(known.attempts)} (${known.attempt}), ${count(known.failures)} failed` : "It is tried again";
  const resumed = known.outcome && known.outcome.rounds_resumed ? ` It resumed ${plural(known.outcome.rounds_resumed, "round")} of an earlier try.` : "";
  return `${tries}. Why: ${why}.${resumed}`;
}
const valueOf = (value) => (typeof value === "number" ? count(value) : typeof value === "boolean" ? (value ? "yes" : "no") : value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));

function stagesOf(known) {
  const laidOut = known.stage === "lay_out" || (known.outcome && known.outcome.stage_seconds.lay_out !== undefined);
  const stages = laidOut ? STAGES.toSpliced(STAGES.indexOf("write_index"), 0, "lay_out") : STAGES;
  const names = known.plan && known.plan.rehash ? ["rehash", ...stages] : stages;
  const done = known.state !== "running";
  const current = names.indexOf(known.stage);
  const spent = known.outcome ? known.outcome.stage_seconds : {};
  return make("div", { class: "stages" }, ...names.map((name, place) => {
    const is = done || place < current ? "past" : place === current ? "now" : "";
    const note = spent[name] !== undefined ? seconds(spent[name]) : is === "now" && known.tasks ? `${count(known.tasks_done)} of ${plural(known.tasks, "task")}` : "\u00a0";
    return make("div", { class: `stage ${is}` }, is === "now" && make("i", { style: { width: `${known.tasks ? (100 * known.tasks_done) / known.tasks : 0}%` } }), name.replaceAll("_", " "), make("small", {}, note));
  }));
}

function factsOf(known) {
  const { plan, outcome } = known;
  const table = (title, facts) => [make("h3", {}, title), make("dl", { class: "table" }, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]))];
  const parts = [];
  if (outcome) parts.push(...table("Outcome", [
    ["took", seconds(outcome.seconds)], ["rows in", count(outcome.rows_in)], ["live", count(outcome.live)], ["superseded", count(outcome.superseded)], ["deleted", count(outcome.deleted)],
    ["bytes", `${bytes(outcome.bytes_in)} to ${bytes(outcome.bytes_out)}`],
    ...(outcome.measured_peak_bytes ? [["peak memory of a process", `${bytes(outcome.measured_peak_bytes)}, ${bytes(outcome.planned_peak_bytes)} planned`]] : []),
    ...(known.nothing_to_do ? [["nothing to do", known.nothing_to_do]] : []),
  ]));
  if (plan) {
    if (parts.length) parts.push(make("div", { class: "table" }, make("span", { class: "rule" })));
    parts.push(...table("Plan", [
      ["expected", `${seconds(plan.expected.seconds)}, ${seconds(plan.expected.low_s)} to ${seconds(plan.expected.high_s)}, promised ${seconds(plan.expected.promise_s)}`],
      ...(plan.expected_cpu ? [["CPU seconds", `${seconds(plan.expected_cpu.seconds)}, promised ${seconds(plan.expected_cpu.promise_s)}`]] : []),
      ["runs on", plan.node_type === "local" ? `this machine, ${plan.executor}` : `${plan.node_type}, ${plan.workers_initial} to ${plural(plan.workers_max, "worker")}`],
      ["hash buckets", plan.hash_bucket_count === 0 ? "those of the index" : count(plan.hash_bucket_count) + (plan.rehash ? ", rehashed first" : "")], ["rounds", count(plan.rounds)],
      ["delta", `${big(plan.delta_rows)} rows in ${plural(plan.delta_files, "file")}`], ["compacted before", `${big(plan.base_rows)} rows`],
      ["to read", bytes(plan.bytes)], ["peak memory", bytes(plan.peak_bytes)], ["cost", plan.cost_usd ? `$${plan.cost_usd.toFixed(2)}` : "–"], ["group", plan.group],
    ]));
  }
  return parts;
}

// What triggers decided

async function askTriggers() {
  try {
    const answer = await fetch("api/triggers");
    if (answer.ok) renderTriggers(await answer.json());
  } catch { /* the stream says that nobody answers */ }
}
const words = (name) => name.replaceAll("_", " ");

function renderTriggers(told) {
  const box = $("triggers");
  box.hidden = !told.in_all;
  draw(box,
    make("div", { class: "triggers-head" }, make("h2", {}, "Triggers"), make("p", {}, told.counts.map((known) => `${count(known.count)} ${known.action === "submit" ? "submitted" : "left alone"}: ${words(known.reason)}`).join(" · "))),
    make("div", { class: "decisions", role: "table", "aria-label": "What triggers decided last" }, ...told.decisions.map((made) => make("div", { class: "decision", role: "row", "data-of": `${made.at_s} ${made.table} ${made.partition}` },
      make("span", { class: "name clip", role: "cell", title: `${made.table} ${made.partition}` }, `${made.table}  ${made.partition}`),
      make("span", { class: "clip muted", role: "cell", title: `policy ${made.policy}` }, made.policy),
      make("span", { class: `verdict ${made.action}`, role: "cell" }, made.action === "submit" ? "submitted" : "left alone"),
      make("span", { class: "because", role: "cell" }, make("bdi", {}, made.text), " ", make("code", {}, made.reason)),
      make("span", { class: "when", role: "cell" }, made.job_run_id ? make("button", { type: "button", class: "link clip", title: made.job_run_id, "data-submitted": made.job_run_id, onclick: () => { select(made.job_run_id, null); scrollTo(0, 0); } }, made.job_run_id) : ago(made.at_s))))),
    told.in_all > told.decisions.length ? make("p", { class: "small-empty" }, `and ${count(told.in_all - told.decisions.length)} more`) : "");
}

// Bars of what runs grow between two messages

setInterval(() => { if (view.summary && !document.hidden && view.summary.job_runs.some((run) => !ended(run))) render(); }, 1000);
addEventListener("resize", () => { if (view.line) renderRows(); });
{
  let parts = [];
  try { parts = location.hash.slice(1).split("/").map(decodeURIComponent); } catch { /* a hash that is none of ours */ }
  view.run = parts[0] || null;
  view.session = parts[1] || null;
  follow();
  askTriggers();
  setInterval(() => { if (!document.hidden) askTriggers(); }, 5000);
  if (view.session) ask();
}
