"""Detects that this machine has run out of a resource: no document is to blame, so no session or job run fails for it.

OSError [Errno 24] Too many open files        file descriptors of this process
OSError [Errno 12] Cannot allocate memory     memory
BlockingIOError [Errno 11]                    processes
RuntimeError can't start new thread           threads
"""

from __future__ import annotations

import errno

_ERRNOS = {
    errno.EMFILE: "file descriptors of this process (ulimit -n)",
    errno.ENFILE: "file descriptors of this machine",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes or memory",
    errno.ENOSPC: "space on a disk",
}


def exhausted(error: BaseException | None) -> str | None:
    """The resource that has run out, by an error or its causes; None: the error has another reason."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # an error that was raised from itself is its own cause
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _ERRNOS:
            return _ERRNOS[error.errno]
        if isinstance(error, MemoryError):
            return "memory"
        if isinstance(error, RuntimeError) and "start new thread" in str(error):
            return "threads"
        error = error.__cause__ or error.__context__
    return None
