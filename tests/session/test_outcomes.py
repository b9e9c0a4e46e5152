"""Nobody is told that a commit failed which is there: after a lost reply, in an advisory put, or by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import InterceptedStore

import deltacompact
from deltacompact import (
    DeltaStreamCatalog,
    InputError,
    Interrupted,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    cli,
)
from deltacompact.base.model import Partition
from deltacompact.delta_streams.log.objects import LogLimits
from deltacompact.delta_streams.versions import retract, rollback
from deltacompact.executors.local import LocalExecutor
from deltacompact.maintenance.check import rehash_table
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore

LOCAL = deltacompact.Settings(executor="local", local_threads=1)
ALL = Partition()
ERRORS = [StoreError, InputError, NotFoundError, OSError, RuntimeError]

Act = Callable[[], Any]


def rows(*keys: int) -> pa.Table:
    return pa.table({"id": list(keys)})


class Faults:
    """An intercept: `fault` sees every operation once it is armed."""

    def __init__(self) -> None:
        self.fault: Callable[[str, str, Act], Any] | None = None

    def __call__(self, kind: str, path: str, act: Act) -> Any:
        return act() if self.fault is None else self.fault(kind, path, act)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def catalog(faults: Faults) -> DeltaStreamCatalog:
    """A table with two versions and a delta on top, over a store that can fail."""
    catalog = DeltaStreamCatalog(InterceptedStore(MemoryStore(), faults))
    catalog.create_table("t", primary_keys=["id"])
    for key in (1, 2):
        catalog.append("t", rows(key), stream_position=key)
        compact(catalog)
    catalog.append("t", rows(3), stream_position=3)
    return catalog


def compact(catalog: DeltaStreamCatalog) -> deltacompact.SessionResult:
    (session,) = deltacompact.compact("t", delta_catalog_client=catalog, settings=LOCAL).sessions
    return session


def keys(catalog: DeltaStreamCatalog) -> list[int]:
    fresh = DeltaStreamCatalog(catalog.store.inner)  # type: ignore[attr-defined]
    return sorted(fresh.read("t")["id"].to_pylist())


WORKS: dict[str, Callable[[DeltaStreamCatalog], Any]] = {
    "append": lambda c: c.append("t", rows(4), stream_position=4, token="nightly"),
    "compact": compact,
    "restate": lambda c: c.restate("t", rows(7)),
    "rollback": lambda c: rollback(c, "t", "1"),
    "retract": lambda c: retract(c, "t", 3),
    "rehash": lambda c: rehash_table(c, "t", 5, LocalExecutor(LOCAL)),
    "create": lambda c: c.create_table("u"),
}
SAID = {
    "append": "the delta at position 4 of t is committed",
    "compact": "of t is published",
    "restate": "of t is published",
    "rollback": "of t is published",
    "retract": "the delta at position 3 of t is retracted",
    "rehash": "the new index of t is in force",
    "create": "table 'u' is created",
}


def takes_effect(catalog: DeltaStreamCatalog, name: str) -> Callable[[str, str], bool]:
    """Whether an operation is the one put that puts this work into effect."""
    state = catalog.state("t", ALL)
    entry = f"t/stream/{state.version}/{state.tail:020d}.json" if name != "create" else "u/table.json"
    return lambda kind, path: kind == "put_if_absent" and path == entry


# A lost reply and what follows it


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.slow
def test_a_put_that_landed_is_a_success_whatever_its_reply_was(
    catalog: DeltaStreamCatalog, faults: Faults, name: str, error: type[Exception]
) -> None:
    is_it, failed = takes_effect(catalog, name), []

    def fault(kind: str, path: str, act: Act) -> Any:
        done = act()
        if is_it(kind, path) and not failed:
            failed.append(path)
            raise error("no reply")
        return done

    faults.fault = fault
    WORKS[name](catalog)
    assert failed


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("second", ERRORS)
@pytest.mark.slow
def test_an_outcome_that_cannot_be_seen_is_said_to_be_unknown(
    catalog: DeltaStreamCatalog, faults: Faults, name: str, landed: bool, second: type[Exception]
) -> None:
    is_it, failed = takes_effect(catalog, name), []

    def fault(kind: str, path: str, act: Act) -> Any:
        if failed:
            raise second("access denied")
        if not is_it(kind, path):
            return act()
        failed.append(path)
        if landed:
            act()
        raise StoreError("no reply")

    faults.fault = fault
    with pytest.raises(OutcomeUnknownError, match="may or may not be") as raised:
        if name == "compact":
            raise compact_error(catalog)
        WORKS[name](catalog)
    assert "\n" not in str(raised.value)
    if name == "append":
        assert "repeat it with the same token" in str(raised.value)
        faults.fault = None
        assert catalog.append("t", rows(4), stream_position=4, token="nightly").committed is not landed
        assert keys(catalog) == [1, 2, 3, 4]


def compact_error(catalog: DeltaStreamCatalog) -> Exception:
    with pytest.raises(Exception) as raised:
        compact(catalog)
    return raised.value


def test_a_refused_put_of_which_nothing_is_there_changes_nothing(catalog: DeltaStreamCatalog, faults: Faults) -> None:
    is_it = takes_effect(catalog, "append")

    def fault(kind: str, path: str, act: Act) -> Any:
        if is_it(kind, path):
            raise InputError("S3 refused access")
        return act()

    faults.fault = fault
    with pytest.raises(InputError, match="refused access"):
        WORKS["append"](catalog)
    assert keys(catalog) == [1, 2, 3]


def test_an_unknown_commit_without_a_token_is_to_be_looked_for(catalog: DeltaStreamCatalog, faults: Faults) -> None:
    is_it = takes_effect(catalog, "append")

    def fault(kind: str, path: str, act: Act) -> Any:
        if is_it(kind, path) or (kind == "get" and path.endswith(f"{catalog_tail:020d}.json") and armed):
            armed.append(path)
            raise StoreError("no reply")
        return act()

    armed: list[str] = []
    catalog_tail = catalog.state("t", ALL).tail
    faults.fault = fault
    with pytest.raises(OutcomeUnknownError, match="has no token, so see with `show`"):
        catalog.append("t", rows(4))


# Advisory puts


def checkpointing(catalog: DeltaStreamCatalog) -> DeltaStreamCatalog:
    """Another process, which writes a checkpoint after every entry."""
    return DeltaStreamCatalog(catalog.store, log_limits=LogLimits(entries_between_checkpoints=1))


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("advisory", ["/checkpoints/", "/hint.json", "/published.json"])
def test_advisory_puts_fail_nothing(
    catalog: DeltaStreamCatalog, faults: Faults, advisory: str, error: type[Exception]
) -> None:
    catalog = checkpointing(catalog)
    failed = []

    def fault(kind: str, path: str, act: Act) -> Any:
        if advisory in path and kind.startswith("put"):
            failed.append(path)
            raise error("advice refused")
        return act()

    faults.fault = fault
    assert catalog.append("t", rows(4), stream_position=4).committed
    session = compact(catalog)
    assert session.error is None and session.version
    catalog.restate("t", rows(7))
    assert failed and keys(catalog) == [7]


@pytest.mark.parametrize("name", WORKS)
def test_no_operation_after_the_one_that_takes_effect_can_fail_the_work(
    catalog: DeltaStreamCatalog, faults: Faults, name: str
) -> None:
    is_it, done = takes_effect(catalog, name), []

    def fault(kind: str, path: str, act: Act) -> Any:
        if done:
            raise StoreError("the store is gone")
        result = act()
        if is_it(kind, path):
            done.append(path)
        return result

    faults.fault = fault
    WORKS[name](catalog)
    assert done


# Ctrl-C


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("when", ["before", "after", "after, and blind"])
@pytest.mark.slow
def test_an_interrupted_put_says_what_became_of_it(
    catalog: DeltaStreamCatalog, faults: Faults, name: str, when: str
) -> None:
    is_it, stopped = takes_effect(catalog, name), []

    def fault(kind: str, path: str, act: Act) -> Any:
        if stopped and when == "after, and blind":
            raise KeyboardInterrupt  # a second Ctrl-C, while the slot is looked at
        if not is_it(kind, path) or stopped:
            return act()
        stopped.append(path)
        if when != "before":
            act()
        raise KeyboardInterrupt

    faults.fault = fault
    with pytest.raises(Interrupted) as raised:
        WORKS[name](catalog)
    said = str(raised.value)
    if when == "after":
        assert said.endswith(SAID[name])
    else:
        assert ("may or may not be" if "blind" in when else "when last checked") in said


def test_ctrl_c_before_anything_took_effect_stays_a_plain_interrupt(
    catalog: DeltaStreamCatalog, faults: Faults
) -> None:
    def fault(kind: str, path: str, act: Act) -> Any:
        raise KeyboardInterrupt

    faults.fault = fault
    for name, work in WORKS.items():
        if name != "create":
            with pytest.raises(KeyboardInterrupt) as raised:
                work(DeltaStreamCatalog(catalog.store))  # it has to read before it can put anything
            assert not isinstance(raised.value, Interrupted), name


@pytest.mark.parametrize("advisory", ["/checkpoints/", "/hint.json", "/published.json"])
def test_ctrl_c_in_an_advisory_put_says_that_the_work_is_done(
    catalog: DeltaStreamCatalog, faults: Faults, advisory: str
) -> None:
    catalog = checkpointing(catalog)

    def fault(kind: str, path: str, act: Act) -> Any:
        if advisory in path and kind.startswith("put"):
            raise KeyboardInterrupt
        return act()

    faults.fault = fault
    with pytest.raises(Interrupted, match="is committed" if "check" in advisory else "is published"):
        catalog.append("t", rows(4), stream_position=4)
        compact(catalog)


def test_a_compaction_of_several_partitions_names_those_that_it_published() -> None:
    def fault(kind: str, path: str, act: Act) -> Any:
        if "t/day=2/sessions" in path:
            raise KeyboardInterrupt
        return act()

    catalog = DeltaStreamCatalog(InterceptedStore(MemoryStore(), fault))
    catalog.create_table("t", ["day"], ["id"])
    for day in (1, 2):
        catalog.append("t", rows(1), {"day": day})
    with pytest.raises(Interrupted, match=r"^version 1-[0-9a-f]+ of t/day=1 is published$"):
        compact(catalog)


def test_the_command_line_prints_what_took_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lake, file = str(tmp_path / "lake"), tmp_path / "rows.parquet"
    pq.write_table(rows(1), file)
    assert cli.run(["create", lake, "t"]) == 0

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("deltacompact.cli.append.answer", stop)  # the delta is committed, and is not printed any more
    assert cli.run(["append", lake, "t", str(file), "--position", "7"]) == 130
    assert capfd.readouterr().err.strip() == "deltacompact: interrupted; the delta at position 7 of t is committed"
    monkeypatch.setattr(LocalStore, "get", stop)
    assert cli.run(["append", lake, "t", str(file), "--position", "8"]) == 130
    assert "interrupted; the table is as it was" in capfd.readouterr().err


DRIVER = """
    import sys, time
    from deltacompact import cli
    from deltacompact.storage.local import LocalStore

    put, where, when = LocalStore.put_if_absent, sys.argv[1], sys.argv[2]

    def slow(self, path, data):
        if where not in path:
            return put(self, path, data)
        done = put(self, path, data) if when == "after" else None
        print("now", flush=True)
        for _ in range(600):  # a signal that comes a moment before a sleep is seen behind it
            time.sleep(0.1)
        return done

    LocalStore.put_if_absent = slow
    sys.exit(cli.run(sys.argv[3:]))
"""


def interrupted(tmp_path: Path, where: str, when: str, *arguments: str) -> str:
    """Run a command line, press Ctrl-C at a put, and return what it says."""
    driver = tmp_path / "driver.py"
    driver.write_text(textwrap.dedent(DRIVER))
    command = [sys.executable, str(driver), where, when, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            assert process.stdout.readline() == "now\n", process.stderr and process.stderr.read()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            timer.cancel()
    assert process.returncode == 130
    return said


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[tuple[str, str]]:
    lake, file = str(tmp_path / "lake"), tmp_path / "rows.parquet"
    pq.write_table(rows(1), file)
    deltacompact.open_catalog(lake).create_table("t", primary_keys=["id"])
    yield lake, str(file)


@pytest.mark.processes
@pytest.mark.parametrize("when", ["before", "after"])
def test_sigint_in_the_put_of_a_commit(tmp_path: Path, on_disk: tuple[str, str], when: str) -> None:
    lake, file = on_disk
    said = interrupted(tmp_path, "/stream/0/00000000000000000001", when, "append", lake, "t", file, "--position", "7")
    assert "the table is as it was" not in said
    outcome = "is committed" if when == "after" else "was not committed when last checked"
    assert f"deltacompact: interrupted; the delta at position 7 of t {outcome}" in said
    assert deltacompact.open_catalog(lake).read("t").num_rows == (when == "after")


@pytest.mark.processes
@pytest.mark.parametrize("when", ["before", "after"])
def test_sigint_in_the_seal_of_a_compaction(tmp_path: Path, on_disk: tuple[str, str], when: str) -> None:
    lake, file = on_disk
    catalog = deltacompact.open_catalog(lake)
    catalog.append_files("t", [file])
    said = interrupted(tmp_path, "/stream/0/00000000000000000002", when, "compact", lake, "t", "--executor", "local")
    outcome = "is published" if when == "after" else "was not published when last checked"
    assert outcome in said
    state = deltacompact.open_catalog(lake).state("t", ALL)
    assert state.opened.number == (when == "after")
    if when == "after":
        assert f"version {state.version} of t is published" in said
