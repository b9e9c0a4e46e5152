"""run-group: launchers start it. It is hidden, because users should not."""

from __future__ import annotations

import click

from sessions.cli.options import state_option


@click.command("run-group", hidden=True)
@state_option
@click.option("--job-run", "job_run_id", required=True, metavar="NAME")
@click.option("--group", required=True, metavar="NAME")
@click.option("--epoch", required=True, type=click.IntRange(min=1), metavar="N")
def run_group(state: str, job_run_id: str, group: str, epoch: int) -> int:
    """Run the sessions of one group in this process.

    Exit status: 0 all ended, 75 try again, 76 superseded, 77 to 80 try again later.
    """
    from sessions.runner.group import run_group as run

    return run(state, job_run_id, group, epoch)
