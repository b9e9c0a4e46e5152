"""Which queue a URI names.

https://sqs.eu-west-1.amazonaws.com/1/jobs      a queue of SQS
/var/spool/jobs, file:///var/spool/jobs         a directory on this machine
"""

from __future__ import annotations

from deltacompact.base.errors import InputError
from sessions.queues.queue import VISIBILITY_S, Queue


def is_url(uri: str) -> bool:
    """Whether the URI names a queue of SQS, to which other machines may send."""
    return uri.startswith(("https://", "http://"))


def open_queue(
    uri: str, dead_letters: str | None = None, visibility_s: float = VISIBILITY_S, make: bool = True
) -> Queue:
    """The queue at "https://sqs.…", or in a directory: "file:///path" or a local path.

    `dead_letters` is the URL of the dead-letter queue of an SQS queue; default: that of its redrive policy. A directory
    that is missing is made; with `make=False` it is an InputError.
    """
    if is_url(uri):
        from sessions.queues.sqs import SqsQueue

        return SqsQueue(uri, dead_letters, visibility_s)
    if dead_letters is not None:
        raise InputError("a directory keeps its own dead letters: name a dead-letter queue with an SQS queue only")
    from sessions.queues.directory import DirectoryQueue

    return DirectoryQueue.at(uri, visibility_s, make)
