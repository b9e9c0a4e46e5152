"""Runs the commands of a program: errors, interrupts and closed pipes become one line and an exit status.

read … | head -1       the pipe is closed       no output, exit 0
status … > /dev/full   nothing can be written   one line, exit 1
compact … 2>&1 | head  stderr has no reader     the work is done to its end
compact … >&-          nobody wants to read     the command's own exit status
Ctrl-C, kill           what is left behind      one line, exit 130
bad input              the error                one line, exit 2; with --json also a document on stdout
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from deltacompact.base import garbage
from deltacompact.base.errors import DeltaCompactError, Interrupted
from deltacompact.base.interrupts import interrupts_are_raised
from deltacompact.base.printable import LINES, printable
from deltacompact.base.without_pandas import forgo_pandas
from deltacompact.base.wording import error_document, one_line
from deltacompact.cli.answers import Failed, say_json
from deltacompact.cli.console import (
    lose_what_stderr_does_not_take,
    open_closed_streams,
    warnings_on_stderr,
    write_ascii_where_utf8_is_not_read,
)
from deltacompact.cli.meant import with_what_was_meant

click.IntRange.name = "whole number"

_FULL = [(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)]


@dataclass(frozen=True, slots=True)
class Program:
    """A command line. `after_interrupt`: what an interrupted command leaves behind, in words.

    `told` makes the document of an error for --json.
    """

    name: str
    commands: click.Group
    after_interrupt: str
    told: Callable[[Exception], dict[str, Any]] = error_document

    def main(self, context: object = None) -> None:
        """The entry point of the process: `run` with its arguments."""
        ended: list[int] = []
        atexit.register(_end, ended)  # the first to be registered is the last to run
        open_closed_streams()
        forgo_pandas()
        garbage.look_seldom()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads for algebra that we never do
        write_ascii_where_utf8_is_not_read()
        lose_what_stderr_does_not_take()
        interrupts_are_raised()
        try:
            status = self.run(sys.argv[1:], context)
            sys.stdout.flush()
        except KeyboardInterrupt:  # while it said how it ended
            status = Interrupted.exit_status
        except BrokenPipeError:  # `| head` read enough
            _write_nowhere()
            status = 0
        except OSError as error:
            _write_nowhere()
            self._say(f"what this command says could not be written: {error.strerror or one_line(error)}")
            status = 1
        ended.append(status)
        sys.exit(status)

    def run(self, arguments: Sequence[str], context: object = None) -> int:
        """Run one command line and return its exit status. Commands get `context` as click's object."""
        debug, as_json = "--debug" in arguments, "--json" in arguments
        try:
            with warnings_on_stderr(debug):
                return self._done([word for word in arguments if word != "--debug"], context)
        except click.exceptions.Exit as stop:
            return stop.exit_code
        except click.UsageError as error:
            usage = with_what_was_meant(error)
            if as_json:
                say_json({"error": {"kind": "UsageError", "message": usage.format_message(), "exit_status": 2}})
            usage.show(file=sys.stderr)
            return 2
        except (KeyboardInterrupt, click.Abort) as stop:
            click.echo(err=True)  # the terminal is in a line with ^C, or a question
            left = stop if isinstance(stop, Interrupted) else self.after_interrupt
            interrupted = Interrupted(f"interrupted; {left}")
            if as_json:
                say_json({"error": error_document(interrupted)})
            return self._failed(interrupted, debug=False)
        except Failed as failed:  # the JSON answer has the error already
            return self._failed(failed.error, debug)
        except Exception as error:
            if _is_of_stdout(error):
                raise
            if as_json:
                say_json({"error": self.told(error)})
            return self._failed(error, debug)

    def _done(self, words: list[str], context: object) -> int:
        """Do what the words say, and return the command's status. click's `main` exits for any pipe that breaks."""
        self._complete()
        with self.commands.make_context(self.name, words, obj=context) as begun:
            done = self.commands.invoke(begun)
        return done if isinstance(done, int) else 0

    def _complete(self) -> None:
        """Answer the shell and exit, if it asks for what may follow in a command line."""
        variable = f"_{self.name}_COMPLETE".replace("-", "_").upper()
        if instruction := os.environ.get(variable):
            from click.shell_completion import shell_complete

            sys.exit(shell_complete(self.commands, {}, self.name, variable, instruction))

    def _failed(self, error: Exception | Interrupted, debug: bool) -> int:
        """Print the error in one line and return its exit status."""
        if debug:
            traceback.print_exception(error)
        known = isinstance(error, (DeltaCompactError, Interrupted))
        self._say(one_line(error) + ("" if known or debug else " (--debug shows where)"))
        return int(error_document(error)["exit_status"])

    def _say(self, text: str) -> None:
        click.secho(printable(f"{self.name}: {text}", LINES), file=sys.stderr, fg="red")


def _end(ended: list[int]) -> None:
    """End the process with the status in the list, if there is one.

    Python would free its objects first. An Arrow thread that drops one of them meanwhile, such as the bytes of a CSV
    file, is unwound through code of C++, which ends the process with SIGABRT and status 134.
    """
    if ended:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(ended[0])


def _is_of_stdout(error: Exception) -> bool:
    """Whether stdout could not be written. Errors of other files have a file name, or a longer text."""
    if isinstance(error, BrokenPipeError):
        return _nobody_reads_stdout()
    return isinstance(error, OSError) and error.args in _FULL and error.filename is None


def _nobody_reads_stdout() -> bool:
    (state := select.poll()).register(1, 0)
    return bool(state.poll(0))


def _write_nowhere() -> None:
    """Redirect stdout to /dev/null, where the interpreter can flush its buffer at the end: otherwise it would fail, and
    print many lines."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
