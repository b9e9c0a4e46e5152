"""Names of job runs, sessions, attempts and lease holders.

job_run_id_of("7c4…-SQS message id")         the id itself, if it can be a name
session_id({"day": "2024-01-01"})            day=2024-01-01
session_id({"day": None})                    day=!null
session_id({})                               all
attempt_name("run-1", epoch=3, attempts=2)   run-1/3/2
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import uuid
from collections.abc import Mapping
from urllib.parse import quote

JOB_RUN_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NAME_CHARACTERS_MAX = 120


def new_job_run_id() -> str:
    return f"run-{uuid.uuid4().hex[:20]}"


def job_run_id_of(message_id: str) -> str:
    """The job run id for a message without a `job_run_id`."""
    if re.fullmatch(JOB_RUN_ID, message_id):
        return message_id
    return f"run-{hashlib.sha256(message_id.encode(errors='surrogateescape')).hexdigest()[:20]}"


def session_id(partition: Mapping[str, str | None]) -> str:
    """A name for each partition, which can be a file name. A long name ends in a digest."""
    if not partition:
        return "all"
    name = ",".join(
        f"{_quoted(key)}={'!null' if value is None else _quoted(value)}" for key, value in partition.items()
    )
    if len(name) <= _NAME_CHARACTERS_MAX:
        return name
    return f"{name[: _NAME_CHARACTERS_MAX - 25]}~{hashlib.sha256(name.encode()).hexdigest()[:24]}"


def attempt_name(job_run_id: str, epoch: int, attempts: int) -> str:
    """The name of one try at a session. It is unique: epochs grow with every claim, and `attempts` with every try."""
    return f"{job_run_id}/{epoch}/{attempts}"


def new_owner() -> str:
    """This process, as the holder of leases."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60]
    return f"{host}.{os.getpid()}.{uuid.uuid4().hex[:8]}"


def _quoted(text: str) -> str:
    """Percent-encoded. A name of dots alone is encoded too, which quote() would leave as it is."""
    return (
        quote(text, safe=" ").replace(" ", "%20").replace("~", "%7E") if text.strip(".") else text.replace(".", "%2E")
    )
