"""The first request of a process must be answered soon: a wrong endpoint must not keep a user waiting for minutes.

    looking for credentials, connecting    9 s in all, then an error that says what to set or to check
    after the first answer                 long time-outs and many attempts

A call without a time-out of its own runs in a thread, which is abandoned at the deadline.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from deltacompact.base.errors import StoreError
from deltacompact.base.wording import text_of
from deltacompact.storage.s3_access import S3Settings

FIRST_ANSWER_S = 9.0

_LOG = logging.getLogger("deltacompact")
_SILENT_S = 2.0
"""Waits shorter than this are not reported."""
_CHECK_IT = "is it the right endpoint (AWS_ENDPOINT_URL, region), and can this machine reach it?"

ANSWERED: set[S3Settings] = set()
"""Settings whose endpoint has answered a request of this process."""


def first_send(send: Callable[[Any], Any], request: Any, deadline_s: float) -> Any:
    """Send the first request to an endpoint, up to three times. Any answer counts, even an error."""
    from botocore.exceptions import BotoCoreError

    url = urlsplit(request.url)
    endpoint = f"{url.scheme}://{url.netloc}"
    for left in (2, 1, 0):
        try:
            return bounded(lambda: send(request), deadline_s, f"connecting to {endpoint}")
        except TimeoutError:
            raise StoreError(f"{endpoint} did not answer within {FIRST_ANSWER_S:g} s: {_CHECK_IT}") from None
        except BotoCoreError as error:
            if not left:
                raise StoreError(f"{endpoint} does not answer: {text_of(error)}: {_CHECK_IT}") from error
            request.reset_stream()
            time.sleep(0.3)
    raise AssertionError("unreachable")


def bounded(call: Callable[[], Any], deadline_s: float, doing: str) -> Any:
    """The result of the call, which runs in a thread. Raises TimeoutError at the deadline and abandons the thread."""
    outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as error:
            outcome.put((None, error))

    threading.Thread(target=run, name="deltacompact-connects", daemon=True).start()
    try:
        value, error = outcome.get(timeout=min(_SILENT_S, max(0.0, deadline_s - time.monotonic())))
    except queue.Empty:
        _LOG.warning("%s ...", doing)
        try:
            value, error = outcome.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(doing) from None
    if error is not None:
        raise error
    return value
