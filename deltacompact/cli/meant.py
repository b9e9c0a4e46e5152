"""Suggests what was meant by an option or a command that does not exist.

--key          --partition-key, --primary-key or --sort-key    a word of their names
--op           --operation or --operation-column               the beginning of their names
--colums       --column                                        similar spelling
compakt        compact
list           cancel, expire or retry                         nothing is similar: all, if there are few commands
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

_FEW = 4


def with_what_was_meant(error: click.UsageError) -> click.UsageError:
    """The error. If it is about an unknown option or command, it says which may have been meant.

    click's own suggestions compare the spelling with the dashes: it took --where for --help.
    """
    if error.ctx is None:
        return error
    command = error.ctx.command
    if isinstance(error, click.NoSuchOption):
        options = [name for option in command.get_params(error.ctx) for name in (*option.opts, *option.secondary_opts)]
        likely = _likely(error.option_name, (name for name in options if name.startswith("--") and name != "--help"))
    elif isinstance(command, click.Group) and (name := getattr(error, "command_name", None)):  # newer clicks only
        commands = command.list_commands(error.ctx)
        likely = _likely(name, commands) or (commands if len(commands) <= _FEW else [])
    else:
        return error
    meant = f" Did you mean {' or '.join(filter(None, [', '.join(likely[:-1]), likely[-1]]))}?" if likely else ""
    return click.UsageError(error.message + meant, error.ctx)


def _likely(word: str, known: Iterable[str]) -> list[str]:
    """The known names that contain the word or begin with it, in order; if there are none, names of similar
    spelling."""
    word = word.strip("-").lower()
    names = {name.strip("-"): name for name in known}
    having = [name for bare, name in names.items() if bare.startswith(word) or word in bare.split("-")]
    return having[:_FEW] or [names[bare] for bare in difflib.get_close_matches(word, names, 2, 0.7)]
