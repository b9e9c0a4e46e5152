"""How the command line behaves towards scripts, pipes, old terminals and strangers."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltacompact
from deltacompact import cli
from deltacompact.base.events import SessionFinished
from deltacompact.cli.arguments import takers_of_iceberg
from deltacompact.cli.console import warnings_on_stderr

COMMANDS = cli.cli.list_commands(None)
LONG = "a_table_with_a_name_that_is_much_longer_than_a_terminal_is_wide_" * 3


@pytest.fixture
def lake(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1, 2], "v": ["x", "é"]}))
    return catalog


def process(*arguments, **environment):
    """A process of its own: (status, stdout, stderr)."""
    return process_of("-m", "deltacompact", *map(str, arguments), **environment)


def process_of(*options, **environment):
    """Python with these options, in the given environment alone where it is about languages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHONIO"))}
    done = subprocess.run([sys.executable, *options], env={**kept, **environment}, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


# Scripts


PROGRAM = """
import atexit, os, sys, threading
import click
from deltacompact.base.errors import InputError
from deltacompact.cli.program import Program

class Held:
    def __del__(self, write=os.write):
        write(2, b"torn down")

@click.command()
def command():
    sys.modules["held"] = Held()
    atexit.register(lambda: sys.stdout.write("at exit "))
    threading.Timer(0.0, lambda: print("said", end=" ")).start()
    raise InputError("bad")

Program("program", command, "").main()
"""


@pytest.mark.processes
def test_a_command_ends_with_its_status_before_python_is_torn_down():
    """A thread of Arrow that drops a Python object then ends the process with status 134."""
    assert process_of("-c", PROGRAM) == (2, b"said at exit ", b"program: bad\n")


@pytest.mark.processes
def test_a_library_that_exits_is_no_closed_pipe():
    """A signal handler of Ray's exited with 15, and the command ended with 0."""
    exits = PROGRAM.replace('raise InputError("bad")', "sys.exit(15)")
    assert process_of("-c", exits)[0] == 15


@pytest.mark.processes
def test_a_pipe_that_breaks_elsewhere_is_a_failure():
    """As the one to a process of ours: only who reads stdout may go, with status 0."""
    breaks = PROGRAM.replace('raise InputError("bad")', "raise BrokenPipeError(32, 'Broken pipe')")
    assert process_of("-c", breaks) == (
        1,
        b"said at exit ",
        b"program: BrokenPipeError: [Errno 32] Broken pipe (--debug shows where)\n",
    )
    assert b", in command\n" in process_of("-c", breaks, "--debug")[2]


@pytest.mark.processes
def test_a_signal_cuts_no_line_of_stderr_short():
    """A write to a full pipe that a signal interrupts has taken a part of the line."""
    long = """
import os, signal, sys
from deltacompact.cli.console import lose_what_stderr_does_not_take
lose_what_stderr_does_not_take()
signal.signal(signal.SIGALRM, lambda *_: os.write(1, b"."))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
print("x" * 200_000, file=sys.stderr)
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    with subprocess.Popen([sys.executable, "-c", long], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        done.stdout.read(20)
        assert len(done.stderr.read()) == 200_001


def test_every_command_has_json_and_an_example():
    for name in COMMANDS:
        command = cli.cli.get_command(None, name)
        assert any("--json" in option.opts for option in command.params), name
        assert f"deltacompact {name} " in command.help, name


JSON_CALLS = {
    "create": ["create", "LAKE", "new"],
    "append": ["append", "LAKE", "t", "FILE"],
    "plan": ["plan", "LAKE", "t"],
    "compact": ["compact", "LAKE", "t"],
    "read": ["read", "LAKE", "t"],
    "export": ["export", "LAKE", "t", "OUT"],
    "show": ["show", "LAKE"],
    "show t": ["show", "LAKE", "t"],
    "show --versions": ["show", "LAKE", "t", "--versions"],
    "publish": ["publish", "LAKE", "t"],
    "history": ["history", "LAKE", "t"],
    "changes": ["changes", "LAKE", "t"],
    "bookmarks": ["bookmarks", "LAKE", "t"],
    "diff": ["diff", "LAKE", "t", "0"],
    "check": ["check", "LAKE", "t"],
    "rehash": ["rehash", "LAKE", "t", "--hash-buckets", "3"],
    "vacuum": ["vacuum", "LAKE", "t"],
    "rollback": ["rollback", "LAKE", "t", "0"],
    "retract": ["retract", "LAKE", "t", "--position", "POSITION"],
}


@pytest.mark.parametrize("name", JSON_CALLS)
def test_json_is_one_document_on_stdout_and_nothing_else_is_there(lake, tmp_path, capfd, name):
    if name in ("publish", "rollback", "rehash"):
        deltacompact.compact("t", delta_catalog_client=lake)
    (partition,) = lake.partitions("t")
    pq.write_table(pa.table({"id": [3], "v": ["z"]}), tmp_path / "x.parquet")
    words = {
        "LAKE": lake.store.root,
        "FILE": tmp_path / "x.parquet",
        "OUT": tmp_path / "out.parquet",
        "POSITION": lake.state("t", partition).last_position,
    }
    assert cli.run([*(str(words.get(word, word)) for word in JSON_CALLS[name]), "--json"]) == 0
    assert "error" not in json.loads(capfd.readouterr().out)


def test_read_as_json_has_all_rows(lake, capfd):
    assert cli.run(["read", str(lake.store.root), "t", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"rows": [{"id": 1, "v": "x"}, {"id": 2, "v": "é"}]}
    assert cli.run(["read", str(lake.store.root), "t", "--json", "--limit", "0"]) == 0
    assert json.loads(capfd.readouterr().out) == {"rows": []}


def test_read_prints_the_rows_for_which_an_expression_is_true(lake, capfd):
    assert cli.run(["read", str(lake.store.root), "t", "--where", "v != 'x' and id > 1", "--column", "id"]) == 0
    assert capfd.readouterr().out == '{"id": 2}\n'
    assert cli.run(["read", str(lake.store.root), "t", "--where", "day = 1"]) == 2
    assert "where 'day = 1': there is no column 'day' (columns: id, v)" in capfd.readouterr().err


def test_numbers_that_json_does_not_have_are_strings(lake, capfd):
    lake.create_table("f", primary_keys=["id"])
    lake.append("f", pa.table({"id": [1], "x": [float("nan")], "y": [[float("-inf"), 1.5]]}))
    assert cli.run(["read", str(lake.store.root), "f"]) == 0
    assert json.loads(capfd.readouterr().out, parse_constant=pytest.fail) == {"id": 1, "x": "nan", "y": ["-inf", 1.5]}


def test_the_list_of_commands_cuts_off_no_sentence(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["--help"]) == 0
    commands = capfd.readouterr().out.partition("Commands:")[2].strip().splitlines()
    assert len(commands) == len(COMMANDS) and not any(line.endswith("...") for line in commands)


def test_the_help_of_compact_tells_options_of_iceberg_tables_apart(capfd):
    assert cli.run(["compact", "--help"]) == 0
    both, of_streams, of_iceberg = re.split(r"\nOptions for .*:\n", capfd.readouterr().out)
    for flag, section in (("--executor", both), ("--target-file-bytes", of_streams), ("--where EXPR", of_iceberg)):
        assert [flag in text for text in (both, of_streams, of_iceberg)].count(True) == 1 and flag in section, flag


def test_the_size_and_codec_of_files_are_options_of_the_command_line(lake, capfd):
    words = ["compact", str(lake.store.root), "t", "--compression", "gzip", "--target-file-bytes", "1"]
    lake.append("t", pa.table({"id": range(100), "v": ["x"] * 100}))
    assert cli.run(words) == 0
    (state,) = [lake.state("t", partition) for partition in lake.partitions("t")]
    files = [pq.ParquetFile(f"{lake.store.root}/{file.path}").metadata for file in state.compacted.files]
    assert len(files) > 1
    assert {file.row_group(0).column(0).compression for file in files} == {"GZIP"}


def test_plan_says_what_a_purge_would_do(lake, capfd):
    folder = str(lake.store.root)
    assert cli.run(["compact", folder, "t"]) == 0
    lake.append("t", pa.table({"id": [1]}), operation="delete")
    assert cli.run(["compact", folder, "t", "--rewrite-dead-fraction", "0.9"]) == 0
    capfd.readouterr()
    assert cli.run(["plan", folder, "t"]) == 0
    assert "nothing to do" in capfd.readouterr().out
    assert cli.run(["plan", folder, "t", "--purge"]) == 0
    assert "rewrite (purge of dead rows)" in capfd.readouterr().out


def test_reading_that_fails_half_way_is_still_one_document(lake, capfd, monkeypatch):
    def half(*_, **__):
        yield pa.record_batch({"id": [1]})
        raise deltacompact.CorruptionError("the second file is gone")

    monkeypatch.setattr(deltacompact.DeltaStreamTable, "scan", half)
    assert cli.run(["read", str(lake.store.root), "t", "--json"]) == 1
    answer = json.loads(capfd.readouterr().out)
    assert answer["rows"] == [{"id": 1}] and answer["error"]["message"] == "the second file is gone"


def test_reading_that_is_interrupted_half_way_is_still_one_document(lake, capfd, monkeypatch):
    def half(*_, **__):
        yield pa.record_batch({"id": [1]})
        raise KeyboardInterrupt

    monkeypatch.setattr(deltacompact.DeltaStreamTable, "scan", half)
    assert cli.run(["read", str(lake.store.root), "t", "--json"]) == 130
    said = capfd.readouterr()
    answer = json.loads(said.out)
    assert answer["rows"] == [{"id": 1}]
    assert answer["error"] == {"kind": "Interrupted", "message": "interrupted", "exit_status": 130}
    assert said.err == "deltacompact: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "kind", "status"),
    [
        (["show", "LAKE", "none"], "NotFoundError", 2),
        (["append", "LAKE", "t", "/none.parquet"], "NotFoundError", 2),
        (["compact", "LAKE", "t", "--hash-buckets", "0"], "UsageError", 2),
        (["compact", "LAKE", "t", "--nonsense"], "UsageError", 2),
        (["nonsense"], "UsageError", 2),
        (["create", "LAKE", "t", "--primary-key", "v"], "ConflictError", 3),
        (["read", "LAKE", "t", "--column", "none"], "InputError", 2),
        (["export", "LAKE", "t", "/proc/none/x.parquet"], "InputError", 2),
        (["show", "s3://"], "InputError", 2),
    ],
    ids=lambda value: str(value),
)
def test_a_failure_as_json_is_one_object_with_the_same_exit_status(lake, capfd, arguments, kind, status):
    arguments = [str(lake.store.root) if word == "LAKE" else word for word in arguments]
    assert cli.run([*arguments, "--json"]) == status
    said = capfd.readouterr()
    error = json.loads(said.out)["error"]
    assert (error["kind"], error["exit_status"]) == (kind, status)
    assert "\n" not in error["message"] and error["message"] in said.err


def test_an_unexpected_error_as_json(lake, capfd, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(type(lake), "tables", broken)
    assert cli.run(["show", str(lake.store.root), "--json"]) == 1
    error = json.loads(capfd.readouterr().out)["error"]
    assert error == {"kind": "ZeroDivisionError", "message": "ZeroDivisionError: surprise", "exit_status": 1}


# Tables without anything


@pytest.mark.parametrize(
    "command",
    [["compact"], ["plan"], ["check"], ["vacuum"], ["publish"], ["validate"], ["rehash", "--hash-buckets", "2"]],
    ids=lambda command: command[0],
)
def test_a_table_without_anything_says_nothing_to_do(tmp_path, capfd, command):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    assert cli.run([command[0], str(tmp_path / "lake"), "t", *command[1:]]) == 0
    assert "nothing to do" in capfd.readouterr().out
    assert cli.run([command[0], str(tmp_path / "lake"), "t", *command[1:], "--json"]) == 0
    assert json.loads(capfd.readouterr().out) is not None


def test_create_of_what_exists_says_so(tmp_path, capfd):
    lake = str(tmp_path / "lake")
    assert cli.run(["create", lake, "t", "--primary-key", "id", "--sort-key", "at"]) == 0
    assert capfd.readouterr().out.startswith("created t in ")
    assert cli.run(["create", lake, "t", "--primary-key", "id", "--sort-key", "at"]) == 0
    assert "t exists already" in capfd.readouterr().out
    assert cli.run(["create", lake, "t", "--primary-key", "id", "--partition-key", "day"]) == 3
    said = capfd.readouterr().err
    assert (
        "exists already and is declared otherwise: primary keys id; sort keys at:ascending; partition keys none" in said
    )


@pytest.mark.parametrize("change", [["--readers", "files"], ["--schema-mode", "fixed"], ["--cluster-by", "v"]])
def test_create_of_what_exists_changes_what_it_names_and_no_more(tmp_path, capfd, change):
    """As the help says, and the error of publish advises. Without the keys it was refused: declared otherwise."""
    lake = str(tmp_path / "lake")
    keys = [
        "--primary-key",
        "id",
        "--sort-key",
        "at:descending",
        "--partition-key",
        "day",
        "--tombstone-retention",
        "9",
    ]
    assert cli.run(["create", lake, "t", *keys, "--readers", "vectors", "--columns", "v long"]) == 0
    before = deltacompact.open_catalog(lake).described("t")
    assert cli.run(["create", lake, "t", *change]) == 0 and " now" in capfd.readouterr().out
    now = deltacompact.open_catalog(lake).described("t")
    assert now != before and (now.keys, now.partition_keys, now.tombstone_retention, now.columns) == (
        (before.keys, before.partition_keys, before.tombstone_retention, before.columns)
    )
    assert cli.run(["create", lake, "t", "--primary-key", "other", *change]) == 3


def test_a_catalog_that_is_a_file_or_holds_nothing(tmp_path, capfd):
    (tmp_path / "über.txt").write_text("")
    for command in (["show"], ["create", "t"], ["read", "t"]):
        assert cli.run([command[0], str(tmp_path / "über.txt"), *command[1:]]) == 2
        assert "über.txt is a file: name a folder" in capfd.readouterr().err
    assert cli.run(["show", str(tmp_path / "ü b")]) == 0
    assert capfd.readouterr().out == f"no tables in {tmp_path}/ü b/: there is no such folder\n"
    assert cli.run(["create", str(tmp_path / "ü b"), "t", "--primary-key", ""]) == 2
    assert "primary_keys holds an empty name" in capfd.readouterr().err
    assert cli.run(["create", str(tmp_path / "ü b"), "t", "--primary-key", "a\udcff"]) == 2
    assert "primary_keys holds 'a\\udcff', which is not a text that UTF-8" in capfd.readouterr().err
    assert cli.run(["read", str(tmp_path / "ü b"), "t"]) == 2
    assert f"does not exist in {tmp_path}/ü b/" in capfd.readouterr().err


def test_vacuum_names_force(lake, capfd):
    assert cli.run(["vacuum", str(lake.store.root), "t", "--older-than-hours", "1"]) == 2
    assert "--older-than-hours 1" in (said := capfd.readouterr().err) and "--force" in said


def test_a_limit_beyond_int64_is_refused(lake, capfd):
    assert cli.run(["read", str(lake.store.root), "t", "--limit", str(2**63)]) == 2
    assert "--limit" in capfd.readouterr().err
    assert cli.run(["read", str(lake.store.root), "t", "--limit", str(2**63 - 1)]) == 0


def test_the_class_of_a_key_has_the_right_article(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": ["1"]}))
    with pytest.raises(deltacompact.SchemaError, match="is int64, an integer, but in the table it is a string"):
        catalog.append("t", pa.table({"id": [1]}))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["create", "LAKE", "u", "--key", "id"], "'--key'. Did you mean --partition-key, --primary-key or --sort-key?"),
        (
            ["create", "LAKE", "u", "--primary-key", "id", "--sort-key", "at desc"],
            "(--sort-key at:descending) to keep that with the smallest",
        ),
        (["append", "LAKE", "t", "f", "--op", "x"], "'--op'. Did you mean --operation or --operation-column?"),
        (["read", "LAKE", "t", "--columns", "id"], "'--columns'. Did you mean --column?"),
        (["show", "LAKE", "t", "--where", "id > 1"], "No such option '--where'."),
        (["compakt", "LAKE", "t"], "No such command 'compakt'. Did you mean compact?"),
        (["xyz"], "No such command 'xyz'."),
        (["check", "LAKE", "t", "--health", "--max-dead-share", "30%"], "'30%' is not a valid number."),
        (["check", "LAKE", "t", "--health", "--max-dead-share", "nan"], "'nan' is not a valid number."),
        (["show", "LAKE", "t", "--usd-per-core-hour", "inf"], "'inf' is not a valid number."),
        (["rehash", "LAKE", "t", "--hash-buckets", "many"], "'many' is not a valid whole number."),
    ],
)
def test_a_wrong_word_is_told_with_what_was_meant(lake, capfd, words, message):
    assert cli.run([lake.where if word == "LAKE" else word for word in words]) == 2
    assert capfd.readouterr().err.endswith(f"{message}\n")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("header.csv", "id,v", "its header line does not end, so it may be cut off: end it with a line break"),
        ("debezium.json", '{"before": {}, "after": {}, "op": "c"}', "give the format (--format debezium)"),
        ("wrapped.json", '{"schema": null, "payload": {"op": "c"}}', "give the format (--format debezium)"),
        (
            "late.csv",
            "v,id\nx,1\ny,1.5\n",
            "'1.5' is not: declare a wider type when you create the table (--columns, columns=)",
        ),
        ("typo.csv", "v,id\nx,1\ny,l\n", "column 'id' is int64 in earlier rows or files, and 'l' is not"),
        (
            "sheet.csv",
            "id;v\n1;x\n",
            "its header has ';' and no ',', which divides fields: write commas, or tabs in a .tsv file",
        ),
    ],
)
def test_a_file_that_is_not_what_it_seems_is_refused_with_a_remedy(lake, tmp_path, capfd, name, text, message):
    (tmp_path / name).write_text(text)
    assert cli.run(["append", lake.where, "t", str(tmp_path / name)]) == 2
    said = capfd.readouterr().err
    assert name in said
    assert said.endswith(f"{message}\n")


def test_words_that_name_neither_a_version_nor_a_time(lake, capfd):
    assert cli.run(["changes", lake.where, "t", "--from", "yesterday"]) == 2
    assert "'yesterday' is no version, time or bookmark (it has no bookmarks)" in (said := capfd.readouterr().err)
    assert "a time is written like 2026-11-22 or" in said


def test_a_uri_of_an_iceberg_catalog_without_slashes_is_no_folder(capfd):
    assert cli.run(["show", "iceberg:/prod"]) == 2
    assert "an Iceberg catalog is written iceberg://NAME" in capfd.readouterr().err


def test_a_table_without_bookmarks_says_so(lake, capfd):
    assert cli.run(["bookmarks", lake.where, "t"]) == 0
    assert capfd.readouterr().out == "no bookmarks\n"


# Pipes and terminals


@pytest.mark.processes
def test_show_cuts_off_no_name_when_it_is_piped(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path)
    for name in (LONG[:150], "short [red]:smile:"):
        catalog.create_table(name, ["a" * 60, "b" * 60], ["c" * 60])
    status, out, _ = process("show", tmp_path, COLUMNS="20")
    lines = out.decode().splitlines()
    assert status == 0 and len(lines) == 3
    assert all(name in out.decode() for name in (LONG[:150], "short [red]:smile:", "a" * 60, "b" * 60, "c" * 60))
    assert len({line.index("c" * 60) for line in lines[1:]}) == 1, "columns stand below one another"


def test_show_says_positions_with_file_names(lake, capfd):
    (partition,) = lake.partitions("t")
    (delta,) = lake.state("t", partition).deltas
    assert cli.run(["show", str(lake.store.root), "t"]) == 0
    said = capfd.readouterr().out
    assert re.search(rf"delta {delta.position} \(\d{{4}}-.* UTC\): upsert of 2 rows in 1 file: ", said)
    assert cli.run(["show", str(lake.store.root), "t", "--json"]) == 0
    (stream,) = json.loads(capfd.readouterr().out)["streams"]
    assert stream["deltas"][0]["files"][0]["name"].endswith(".parquet")


@pytest.mark.processes
@pytest.mark.parametrize("program", ["deltacompact", "sessions"])
def test_ctrl_c_while_it_is_imported_says_nothing(tmp_path, program):
    (tmp_path / "click.py").write_text("print('begun', flush=True); import time; time.sleep(60)")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command, pipe = [sys.executable, "-m", program, "--help"], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == -signal.SIGINT, "a shell says 130"


_ONE_AFTER_ANOTHER = """
import json, sys
from deltacompact.cli import main

for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        for stream in sys.stdout, sys.stderr:
            stream.write(f"\\0{end.code}\\0")
            stream.flush()
"""


def one_after_another(*commands, **environment):
    """Commands in one process, because each takes a second to start: (status, stdout, stderr) of each."""
    told = json.dumps([list(map(str, command)) for command in commands])
    _, out, err = process_of("-c", _ONE_AFTER_ANOTHER, told, **environment)
    outputs, errors = out.split(b"\0"), err.split(b"\0")
    assert len(outputs) == len(errors) == 2 * len(commands) + 1, err
    return list(zip(map(int, outputs[1::2]), outputs[:-1:2], errors[:-1:2], strict=True))


@pytest.mark.processes
@pytest.mark.parametrize("terminal", [{"LANG": "C"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX"}], ids=str)
def test_a_terminal_that_is_not_utf8_gets_ascii(tmp_path, terminal):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("bücher…", primary_keys=["id"])
    catalog.append("bücher…", pa.table({"id": [1], "wörter": ["größe"]}))
    lake, table = tmp_path / "lake", "bücher…"
    done = one_after_another(
        ("show", lake),
        *((command, lake, table) for command in ("show", "plan", "compact", "check", "read")),
        ("show", lake, "nö"),
        PYTHONUTF8="",
        **terminal,
    )
    assert [status for status, _, _ in done] == [0] * 6 + [2]
    for _, out, err in done:
        assert out.isascii() and err.isascii() and b"Traceback" not in err
    assert b"b\\xfccher..." in done[0][1]
    assert json.loads(done[5][1]) == {"id": 1, "wörter": "größe"}
    assert b"n\\xf6" in done[6][2]
    status, out, err = process("show", lake, table, PYTHONUTF8="", **terminal)  # named by the bytes of an argument
    assert status == 0 and out.isascii() and err == b"" and b"b\\xfccher..." in out


@pytest.mark.processes
def test_a_utf8_terminal_gets_the_letters(tmp_path):
    deltacompact.open_catalog(tmp_path / "lake").create_table("bücher", primary_keys=["id"])
    assert "bücher".encode() in process("show", tmp_path / "lake", LANG="C.UTF-8")[1]


@pytest.mark.processes
def test_a_pipe_that_is_closed_is_silent_and_no_failure(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": range(100_000)}))
    for extra in ("", "--json"):
        command = f"({sys.executable} -m deltacompact read {tmp_path / 'lake'} t {extra}; echo $? >&2) | head -n 1"
        done = subprocess.run(command, shell=True, capture_output=True, timeout=60)
        assert done.stderr == b"0\n" and done.stdout.count(b"\n") == 1


@pytest.mark.processes
@pytest.mark.parametrize(("stderr", "status"), [("closed pipe", 0), ("full disk", 1)])
def test_what_stderr_does_not_take_stops_no_command(lake, stderr, status):
    """A compaction ended before its switch, with status 0: `compact 2>&1 | head -1`."""
    command, root = [sys.executable, "-m", "deltacompact"], str(lake.store.root)
    reader, pipe = os.pipe()
    os.close(reader)
    with open(pipe if stderr == "closed pipe" else "/dev/full", "w") as nobody:
        refused = subprocess.run([*command, "show", root, "none"], stderr=nobody, timeout=60)
        done = subprocess.run([*command, "compact", root, "t"], stdout=nobody, stderr=nobody, timeout=60)
    assert (refused.returncode, done.returncode) == (2, status)
    assert lake.table("t").compacted_files()


@pytest.mark.processes
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_command_whose_caller_has_closed_stdout_does_its_work(tmp_path, closed):
    command = f"{sys.executable} -m deltacompact create {tmp_path / 'lake'} t --primary-key id {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert deltacompact.open_catalog(tmp_path / "lake").tables() == ["t"]


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=str)
def test_help_and_version_load_neither_numpy_nor_pyarrow(arguments):
    program = (
        "import sys; from deltacompact import cli; status = cli.run(sys.argv[1:]); "
        "heavy = {'numpy', 'pyarrow', 'pandas', 'ray', 'boto3', 'pyspark', 'rich'} & set(sys.modules); "
        "print(heavy, file=sys.stderr); sys.exit(status or bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii(), "click writes help as UTF-8, whatever the terminal is"


# Events


def test_events_to_sns_carry_no_value_of_a_row(tmp_path, monkeypatch):
    from deltacompact.sinks import sns

    published = []

    class Client:
        def publish(self, **message):
            published.append(json.loads(message["Message"]))

    monkeypatch.setattr(sns, "aws_client", lambda *_: Client())
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    (tmp_path / "x.csv").write_text("id,v\n1,2\n")
    catalog.append_files("t", [tmp_path / "x.csv"])
    (partition,) = catalog.partitions("t")
    (file,) = catalog.state("t", partition).deltas[0].files
    (tmp_path / "lake" / file.path).write_text("id,v\nJohn,2\n")
    arn = "arn:aws:sns:eu-west-1:123456789012:events"
    events = []
    with pytest.raises(deltacompact.DeltaCompactError, match="John"):
        deltacompact.compact("t", delta_catalog_client=catalog, sns_event_topic_arn=arn, event_sinks=[events.append])
    (finished,) = [message for message in published if message["event"] == "session_finished"]
    assert "John" not in json.dumps(published)
    assert file.path in finished["error"] and finished["error"].split(":")[0].endswith("Error")
    assert any(isinstance(event, SessionFinished) and "John" in event.error for event in events)


def test_a_column_that_an_error_names_is_in_the_event():
    from deltacompact.base.model import Partition
    from deltacompact.results import _named_in
    from deltacompact.table.ports import Moment, PartitionSnapshot

    file = deltacompact.DataFile(
        0, "t/data/x.csv", deltacompact.ContentType.CSV, 1, 1, pa.schema([("id", pa.int64()), ("v", pa.string())])
    )
    delta = deltacompact.Delta(1, deltacompact.OperationType.UPSERT, (file,))
    moment = Moment("0", 1, "0", 1)
    snapshot = PartitionSnapshot("t", "t", Partition(), None, True, (delta,), None, 1, 0, moment, {}, "a test")
    named = _named_in("t/data/x.csv: column 'v': value 'John' is no int64", snapshot)
    assert named == ["t/data/x.csv", "column 'v'"]


# The catalog in the environment, completion


def test_a_dash_is_the_catalog_of_the_environment(lake, capfd, monkeypatch):
    monkeypatch.delenv("DELTACOMPACT_CATALOG", raising=False)
    assert cli.run(["show"]) == 2
    assert "Missing argument 'CATALOG'" in capfd.readouterr().err
    assert cli.run(["show", "-"]) == 2
    assert "$DELTACOMPACT_CATALOG, which is not set" in capfd.readouterr().err
    monkeypatch.setenv("DELTACOMPACT_CATALOG", str(lake.store.root))
    for words in (["show", "-"], ["plan", "-", "t"], ["check", "-", "t"]):
        assert cli.run(words) == 0, words
    capfd.readouterr()
    shown = []
    for words in (["show"], ["show", "-"]):
        assert cli.run(words) == 0
        shown.append(capfd.readouterr().out)
    assert shown[0] == shown[1]
    assert cli.run(["plan", "t"]) == 2
    assert "Missing argument 'TABLE'. Write - as CATALOG for the one at $DELTACOMPACT_CATALOG" in capfd.readouterr().err
    for words, is_hinted in ((["export", "t", "x.parquet"], True), (["export", "-", "t"], False)):
        assert cli.run(words) == 2
        assert ("Write - as CATALOG" in capfd.readouterr().err) is is_hinted
    monkeypatch.setenv("DELTACOMPACT_CATALOG", "iceberg://nobody")
    assert cli.run(["publish", "-", "t"]) == 2
    assert "publish does not take the Iceberg catalog iceberg://nobody" in capfd.readouterr().err


def test_the_help_names_the_commands_that_take_iceberg_catalogs(lake, capfd):
    takers = takers_of_iceberg(click.Context(cli.cli))
    assert {"advise", "bookmarks", "check"} <= set(takers)
    assert f"{', '.join(takers[:-1])} and {takers[-1]} also take an Iceberg catalog" in " ".join(cli.cli.help.split())
    assert cli.run(["maintain", str(lake.store.root), "t", "--expire-snapshots"]) == 2
    assert "maintain takes an Iceberg catalog (iceberg://NAME), not " in capfd.readouterr().err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_behind_stdout_is_told_in_one_line(lake, capsys, monkeypatch, more):
    monkeypatch.setattr("sys.argv", ["deltacompact", "read", str(lake.store.root), "t", *more])
    monkeypatch.setattr("deltacompact.cli.program._write_nowhere", lambda: None)  # of this process
    with io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True) as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(SystemExit, match="1"):
            cli.main()
    monkeypatch.undo()
    said = "deltacompact: what this command says could not be written: No space left on device\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["show", "LAKE", "--files"], "--files needs a TABLE"),
        (["show", "LAKE", "--versions"], "--versions needs a TABLE"),
        (["show", "LAKE", "--usd-per-core-hour", "1"], "--usd-per-core-hour needs a TABLE"),
        (["show", "LAKE", "t", "--quick"], "--quick is for a catalog: leave TABLE out"),
        (["show", "LAKE", "t", "--versions", "--files"], "--versions excludes --files"),
        (["validate", "LAKE", "t", "--sql", "--partition", "day=1"], "--sql excludes --partition"),
        (["validate", "LAKE", "t", "--sql", "--before", "1"], "--sql excludes --before"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_would_go_unheard_is_refused(lake, capsys, words, why):
    assert cli.run([str(lake.store.root) if word == "LAKE" else word for word in words]) == 2
    assert why in capsys.readouterr().err


def test_a_warning_moves_no_cursor(capsys):
    with warnings_on_stderr(debug=False):
        logging.getLogger("deltacompact").warning("%s failed", "day=\x1b[2J")
    assert "deltacompact: day=\\x1b[2J failed\n" in capsys.readouterr().err


def test_a_table_in_the_place_of_the_catalog_is_told_of_the_hyphen(lake, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELTACOMPACT_CATALOG", raising=False)
    assert cli.run(["show", "t"]) == 0
    assert capfd.readouterr().out.endswith(": there is no such folder\n")
    monkeypatch.setenv("DELTACOMPACT_CATALOG", str(lake.store.root))
    assert cli.run(["show", "t"]) == 0
    assert "for a table of $DELTACOMPACT_CATALOG write - before it" in capfd.readouterr().out
    assert cli.run(["show", "-", "t"]) == 0
    assert "no such folder" not in capfd.readouterr().out


def test_appends_and_retractions_say_when(lake, tmp_path, capfd):
    (tmp_path / "rows.csv").write_text("id,v\n3,y\n")
    assert cli.run(["append", str(lake.store.root), "t", str(tmp_path / "rows.csv")]) == 0
    said = capfd.readouterr().out
    found = re.search(r"at position (\d{13}) \((\d{4}-\d\d-\d\d \d\d:\d\d UTC)\)$", said.strip())
    assert found, said
    assert cli.run(["retract", str(lake.store.root), "t", "--position", found[1]]) == 0
    assert capfd.readouterr().out == f"the delta at position {found[1]} ({found[2]}) is taken out\n"


@pytest.mark.parametrize(("begun", "expected"), [("t", "plain,t"), ("x", "")])
def test_tables_are_completed(lake, begun, expected, capfd, monkeypatch):
    monkeypatch.setenv("_DELTACOMPACT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"deltacompact plan {lake.store.root} {begun}")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit):
        cli.run([])
    assert capfd.readouterr().out.strip() == expected


@pytest.mark.parametrize("name", ["x.xlsx", "x.jsonl", "x.csv.gz", "x"])
def test_export_names_the_formats_that_it_writes(lake, tmp_path, capfd, name):
    assert cli.run(["export", str(lake.store.root), "t", str(tmp_path / name)]) == 2
    listed = capfd.readouterr().err.strip().partition("files are not written, only ")[2].split(", ")
    assert listed == [".parquet", ".pq", ".feather", ".arrow", ".ipc", ".orc", ".csv", ".tsv"]
    assert not (tmp_path / name).exists()
    for extension in listed:
        assert cli.run(["export", str(lake.store.root), "t", str(tmp_path / f"out{extension}")]) == 0


@pytest.mark.parametrize("spelling", ["file:{}", "file://{}", "{}"])
def test_files_are_written_where_a_uri_says(lake, tmp_path, monkeypatch, spelling):
    """A file that was named as Spark names it, file:/exports/t.csv, went below the working directory."""
    (folder := tmp_path / "here").mkdir()
    monkeypatch.chdir(folder)
    assert cli.run(["export", str(lake.store.root), "t", spelling.format(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").exists() and not list(folder.iterdir())


@pytest.mark.parametrize("command", [["plan"], ["compact"], ["changes", "--from", "1"]], ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("size", "why"), [("10MB", "too little: the least is 256MiB"), ("lots", "no size: write 300MB")]
)
def test_too_little_memory_is_refused_by_the_name_of_its_option(command, size, why, tmp_path, capsys):
    assert cli.run([command[0], str(tmp_path / "lake"), "t", *command[1:], "--memory", size]) == 2
    assert "'--memory'" in (said := capsys.readouterr().err) and why in said
