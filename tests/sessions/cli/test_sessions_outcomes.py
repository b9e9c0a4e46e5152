"""What schedulers see: exit statuses by what became of a job run, and waiting for its end."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from sessions_records import NOW_S, job_run, session
from sqs_pair import sqs_queue
from stores import InterceptedStore

from deltacompact.base.errors import ConflictError, InputError, Interrupted, StoreError
from deltacompact.cli.answers import Failed
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import Estimate, JobRunState, SessionState, Trouble
from sessions.cli import run
from sessions.cli.live import drawn
from sessions.cli.printed import plain_table, print_whole
from sessions.cli.waiting import JobRunWait, NotSucceeded, check_outcome
from sessions.dispatch.dispatcher import Dispatcher
from sessions.overview import overview as overview_module
from sessions.overview.overview import OverviewReader
from sessions.queues.directory import DirectoryQueue
from sessions.queues.opening import open_queue
from sessions.queues.queue import DeadReason
from sessions.records.lives import cancel
from sessions.records.state_store import StateStore

RUN = job_run("run-1", state=JobRunState.ACCEPTED, message="m-1", started_s=None, lease=None)


class Waited:
    """Waiting, where each look is followed by one thing that happens."""

    def __init__(self, tmp_path, *happens, message="m-1"):
        self.state, self.queue = StateStore(MemoryStore()), DirectoryQueue(tmp_path / "queue")
        self.now_s, self.said, self.happens = 0.0, [], list(happens)
        self.waiting = JobRunWait(
            self.state, self.queue, "run-1", message, RUN.document, self.said.append, lambda: self.now_s, self.sleep
        )

    def sleep(self, seconds):
        self.now_s += seconds
        if self.happens:
            self.happens.pop(0)(self)

    def put(self, **changes):
        try:
            stored = self.state.job_run("run-1")
        except InputError:
            self.state.accept(replace(RUN, **changes))
        else:
            self.state.change_job_run(stored, replace(stored.value, **changes))


def accepted(waited):
    waited.put()


def running(waited):
    waited.state.add_session(session(state=SessionState.RUNNING))
    waited.put(state=JobRunState.RUNNING, session_ids=(session().id,), started_s=NOW_S)


def ended(state, **changes):
    return lambda waited: waited.put(state=state, finished_s=NOW_S + 9, **changes)


def test_waiting_says_how_far_it_is_and_how_it_ended(tmp_path):
    trouble = Trouble("unreachable", "StoreError: no route", NOW_S, 3, NOW_S + 9)
    waits = [accepted, lambda waited: waited.put(trouble=trouble), lambda waited: waited.put(trouble=None), running]
    waited = Waited(tmp_path, *waits, ended(JobRunState.SUCCEEDED))
    assert waited.waiting.until_ended(None).state is JobRunState.SUCCEEDED
    assert waited.said == [
        "not accepted yet",
        "accepted",
        "waits: StoreError: no route (unreachable, 3 tries, tried again)",
        "accepted",
        "running: 1 running",
    ]


@pytest.mark.parametrize("state", [JobRunState.FAILED, JobRunState.CANCELLED])
def test_what_has_not_succeeded_is_an_error(tmp_path, state):
    waited = Waited(tmp_path, accepted, running, ended(state, error="day=z: no such partition"))
    with pytest.raises(Failed, match="day=z: no such partition") as failed:
        check_outcome(waited.waiting.until_ended(None))
    assert failed.value.error.exit_status == 1


def test_a_wait_that_is_over_leaves_the_job_run_alone(tmp_path):
    waited = Waited(tmp_path, accepted)
    with pytest.raises(NotSucceeded, match="has not ended within 1 min, and goes on: accepted"):
        waited.waiting.until_ended(60)
    assert 59 < waited.now_s < 61 and waited.state.job_run("run-1").value.state is JobRunState.ACCEPTED


def test_a_state_that_is_not_there_is_named_while_nothing_is_accepted(tmp_path):
    waited = Waited(tmp_path)
    waited.waiting._state = StateStore(str(tmp_path / "stat"))
    with pytest.raises(NotSucceeded, match=r"not accepted yet, and no job run in .*stat/: there"):
        waited.waiting.until_ended(3)
    assert not (tmp_path / "stat").exists()


def test_ctrl_c_leaves_the_job_run_alone_and_says_so(tmp_path):
    def interrupt(waited):
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="run-1 goes on"):
        Waited(tmp_path, accepted, interrupt).waiting.until_ended(None)


def test_the_end_of_an_earlier_one_is_not_taken_for_ours(tmp_path):
    """The id of a job run that has failed: ours takes its place with the next look of a dispatcher."""
    again = lambda waited: waited.put(state=JobRunState.ACCEPTED, message="m-2")  # noqa: E731
    waited = Waited(tmp_path, again, running, ended(JobRunState.SUCCEEDED), message="m-2")
    waited.put(state=JobRunState.FAILED, finished_s=NOW_S)
    assert waited.waiting.until_ended(100).state is JobRunState.SUCCEEDED
    waited = Waited(tmp_path, running, ended(JobRunState.FAILED), message="m-2")
    waited.put()
    assert waited.waiting.until_ended(100).state is JobRunState.FAILED, "ours is a duplicate of one that was open"


def test_what_is_refused_is_not_waited_for(tmp_path):
    def refuse(waited):
        (message,) = waited.queue.receive(1, 0)
        waited.queue.dead_letter(message, DeadReason.CATALOG_NOT_ALLOWED, "catalog", "catalog: not allowed here")

    sent = DirectoryQueue(tmp_path / "queue").send('{"job_run_id":"run-1"}')
    with pytest.raises(InputError, match=r"was refused .catalog_not_allowed.: catalog: not allowed here"):
        Waited(tmp_path, refuse, message=sent).waiting.until_ended(None)
    corrected = Waited(tmp_path, accepted, running, ended(JobRunState.SUCCEEDED))
    assert corrected.waiting.until_ended(100).state is JobRunState.SUCCEEDED, "the letter was an earlier message"
    waited = Waited(tmp_path / "other")
    waited.put(document={"another": 1})
    with pytest.raises(ConflictError, match="another document"):
        waited.waiting.until_ended(None)


def test_dead_letters_that_nobody_can_see_do_not_end_the_wait(tmp_path, moto_endpoint, capsys):
    """A queue without a redrive policy: dispatchers may know its dead-letter queue by an option."""
    url, dead = sqs_queue(), sqs_queue()
    waited = Waited(tmp_path, *[lambda waited: None] * 40, running, ended(JobRunState.SUCCEEDED))
    waited.waiting._queue = open_queue(url)
    assert waited.waiting.until_ended(3600).state is JobRunState.SUCCEEDED
    (said,) = (line for line in waited.said if "refused" in line)
    assert "whether it was refused cannot be seen now" in said and "no redrive policy" in said
    (tmp_path / "job.json").write_text(json.dumps({"version": 1, "catalog": "/lake", "source_table_id": "t"}))
    command = ["submit", str(tmp_path / "job.json"), "--queue", url, "--dead-letters", dead]
    assert run([*command, "--wait", "--state", str(tmp_path / "state"), "--timeout", "0"]) == 1
    assert "goes on" in capsys.readouterr().err


def test_a_state_that_does_not_answer_does_not_end_the_wait(tmp_path):
    silent = [True]

    def intercept(kind, path, act):
        if kind == "get" and "sessions/" in path and silent[0]:
            raise StoreError("no route")
        return act()

    def answers(waited):
        silent[0] = False

    waited = Waited(tmp_path, running, *[lambda waited: None] * 3, answers, ended(JobRunState.SUCCEEDED))
    waited.state = waited.waiting._state = StateStore(InterceptedStore(MemoryStore(), intercept))
    assert waited.waiting.until_ended(None).state is JobRunState.SUCCEEDED
    assert waited.said == ["not accepted yet", "how far it is cannot be seen now: no route", "running: 1 running"]


def test_status_of_one_job_run_is_an_exit_status(tmp_path, capsys):
    state = StateStore(str(tmp_path))
    state.accept(RUN)
    state.accept(replace(RUN, id="run-2"))
    command = ["status", "--state", str(tmp_path)]
    assert run([*command, "--job-run", "run-1"]) == 0, "it has not ended"
    cancel(state, "run-1")
    assert run([*command, "--job-run", "run-1"]) == 1 and "run-1 was cancelled" in capsys.readouterr().err
    assert run([*command, "--job-run", "run-1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["job_runs"][0]["state"] == "cancelled"
    assert run([*command, "--job-run", "none"]) == 2 and run(command) == 0


def test_status_reads_the_open_job_runs_and_the_latest_that_have_ended(tmp_path, monkeypatch, capsys):
    """It read each that had ever been, with all its sessions."""
    state = StateStore(str(tmp_path))
    state.accept(replace(RUN, id="open", accepted_s=NOW_S - 9))
    for number in range(3):
        done = replace(RUN, id=f"ended-{number}", state=JobRunState.SUCCEEDED, finished_s=NOW_S + number)
        state.accept(done)
        state.close(done)
    latest = StateStore.recently_ended
    monkeypatch.setattr(StateStore, "recently_ended", lambda state, most: latest(state, 1))
    assert run(["status", "--state", str(tmp_path), "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["job_runs"]] == ["open", "ended-2"]


def test_an_empty_name_is_that_of_no_job_run(tmp_path, capsys):
    """As of a shell variable that is not set: another job run answered, or each submission was a new one."""
    (tmp_path / "job.json").write_text(json.dumps({"version": 1, "catalog": "/lake", "source_table_id": "t"}))
    StateStore(str(tmp_path / "state")).accept(RUN)
    queue = str(tmp_path / "queue")
    assert run(["status", "--state", str(tmp_path / "state"), "--job-run", ""]) == 2
    assert "no job run ''" in capsys.readouterr().err
    assert run(["submit", str(tmp_path / "job.json"), "--queue", queue, "--job-run-id", ""]) == 2
    assert "job_run_id" in capsys.readouterr().err and open_queue(queue).depth().is_empty


def test_a_drain_that_is_stopped_before_its_end_is_an_exit_status(tmp_path, monkeypatch, capsys):
    command = ["dispatch", "--queue", str(tmp_path / "queue"), "--state", str(tmp_path / "state"), "--drain"]
    monkeypatch.setattr("sessions.base.logs.log_json", lambda **fields: None)
    monkeypatch.setattr(Dispatcher, "_receive_for_ever", lambda dispatcher: None)
    monkeypatch.setattr(Dispatcher, "_is_drained", Dispatcher.stop)  # SIGTERM, while it looks whether all is done
    assert run(command) == 1 and "stopped before the queue was drained" in capsys.readouterr().err
    monkeypatch.setattr(Dispatcher, "_is_drained", lambda dispatcher: True)
    assert run(command) == 0


def test_job_runs_are_cancelled_and_retried_from_the_command_line(tmp_path, capsys):
    StateStore(str(tmp_path)).accept(RUN)
    command = ["--state", str(tmp_path), "run-1"]
    assert run(["job-runs", "retry", *command]) == 3, "it has not ended"
    assert run(["job-runs", "cancel", *command]) == 0 and "cancelled" in capsys.readouterr().out
    assert run(["job-runs", "cancel", *command]) == 0, "once more does no harm"
    assert run(["job-runs", "retry", *command, "--json"]) == 0
    assert StateStore(str(tmp_path)).job_run("run-1").value.life == 1
    assert run(["job-runs", "cancel", "--state", str(tmp_path), "none"]) == 2


def test_wait_needs_the_state(tmp_path, capsys):
    (tmp_path / "job.json").write_text(json.dumps({"version": 1, "catalog": "/lake", "source_table_id": "t"}))
    command = ["submit", str(tmp_path / "job.json"), "--queue", str(tmp_path / "queue")]
    assert run([*command, "--wait"]) == 2 and "--wait needs --state" in capsys.readouterr().err
    assert run([*command, "--timeout", "5"]) == 2
    assert run([*command, "--wait", "--state", str(tmp_path / "state"), "--timeout", "0"]) == 1
    assert "goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("dispatch --queue Q --state S --host 0.0.0.0", "--host is for --port"),
        ("dispatch --queue Q --state S --heartbeat 5", "--heartbeat is for --task-token"),
        ("dispatch --queue Q --state S --namespace jobs", "--namespace is for --kuberay"),
        ("dispatch --queue Q --state S --max-workers 3", "--max-workers is for --ray-clusters or --kuberay"),
        ("dispatch --queue Q --state S --service-account jobs", "--service-account is for --kuberay"),
        ("watch --queue Q --state S --policies P --json", "--json is for --once"),
        ("watch --queue Q --state S --policies P --host ::", "--host is for --port"),
        ("page --state S --dead-letters https://sqs/dead", "--dead-letters is for --queue"),
        ("submit J --queue Q --timeout 5", "--timeout is for --wait"),
        ("status --state S --watch --job-run none", "leave out --json and --job-run"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(tmp_path, monkeypatch, capsys, command, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTACOMPACT_TASK_TOKEN", raising=False)
    assert run(command.split()) == 2 and said in capsys.readouterr().err


def test_open_job_runs_are_drawn_first_and_the_rest_is_counted():
    state = StateStore(MemoryStore())
    state.accept(replace(RUN, id="open", accepted_s=NOW_S - 9))
    for number in range(20):
        state.accept(replace(RUN, id=f"ended-{number}", state=JobRunState.SUCCEEDED, finished_s=NOW_S))
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(drawn(OverviewReader(state).read()))
    lines = console.export_text().splitlines()
    assert " open " in lines[1] and lines[-1] == "and 6 more"


@pytest.mark.parametrize("ended", [False, True])
def test_what_it_took_stands_beside_the_desired_sla_and_what_it_worked_beside_the_expected(
    tmp_path, monkeypatch, capsys, ended
):
    """A job run that had waited for six minutes was shown with 37 s, beside a desired SLA that had passed."""
    end = {"state": JobRunState.SUCCEEDED, "finished_s": NOW_S} if ended else {"state": JobRunState.RUNNING}
    times = {"accepted_s": NOW_S - 397, "started_s": NOW_S - 37, "desired_sla_s": 300}
    state = StateStore(str(tmp_path))
    state.accept(replace(RUN, expected=Estimate(30.0, 20.0, 40.0), **times, **end))
    monkeypatch.setattr(overview_module, "clock_of", lambda state: lambda: NOW_S)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(drawn(OverviewReader(state, clock=lambda: NOW_S).read()))
    assert run(["status", "--state", str(tmp_path)]) == 0
    printed, drawn_live = (" ".join(text.split()) for text in (capsys.readouterr().out, console.export_text()))
    assert "took desired at work expected" in printed and "397.0 s 300.0 s 37.0 s 30.0 s" in printed
    assert "took desired expected" in drawn_live and "397.0 s 300.0 s 30.0 s late" in drawn_live


@pytest.mark.parametrize(("width", "lines"), [(20, 4), (200, 2)])
def test_a_narrow_terminal_cuts_no_name_off(monkeypatch, width, lines):
    """The name of a job run was left out where the terminal had 40 columns."""
    out = Console(file=io.StringIO(), force_terminal=True, width=width, no_color=True)
    monkeypatch.setattr("deltacompact.cli.console.out", out, raising=False)
    table = plain_table("job run", "state", "why")
    table.add_row("nightly-of-all-orders", "nothing_to_do", "no delta since position 7")
    print_whole(table)
    said = out.file.getvalue()
    assert "nightly-of-all-orders  nothing_to_do  no delta" in said
    assert len(said.splitlines()) == lines, "a reason is folded all the same"
