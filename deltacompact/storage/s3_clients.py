"""The clients of one process for one bucket: boto3's and obstore's, with the credentials of one session.

    two stores of a bucket      one pair of clients: making them takes a quarter of a second of CPU
    after ten minutes           another pair, because a role's credentials expire
    after S3 refused access     forget(): stores that are opened from now on look for credentials anew
    a forked child              another pair

The first request of a process, and the search for its credentials, have a deadline (first_answer.py).
"""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from deltacompact.base.errors import CredentialsError, InputError
from deltacompact.storage.first_answer import ANSWERED, FIRST_ANSWER_S, bounded, first_send
from deltacompact.storage.s3_access import SET_THEM, Access, S3Settings, client_config, session_of
from deltacompact.storage.s3_errors import as_ours
from deltacompact.storage.s3_objects import BACKOFF, BucketAccess, Objects
from deltacompact.storage.traffic import tell

_CREDENTIALS_LAST_S = 600.0


@dataclass(frozen=True, slots=True)
class Clients:
    """boto3's client and obstore's. `expires_s` is on the monotonic clock; `process` is the id of their process."""

    client: Any
    objects: Objects
    expires_s: float
    process: int

    @property
    def is_fresh(self) -> bool:
        return self.process == os.getpid() and time.monotonic() < self.expires_s


_SHARED: dict[tuple[Access, str, frozenset[tuple[str, str]]], Clients] = {}
"""The clients of this process, by access, bucket and environment.

A catalog that is opened again, a table with files in its own bucket, and the tasks of a worker share them.
"""


def forget() -> None:
    """Stores that are opened from now on look for credentials anew."""
    _SHARED.clear()


def clients_of(access: Access, bucket: str, uri: str) -> Clients:
    """The clients for a bucket, made if this process has none that are fresh. `uri` names the store in errors.

    Raises InputError where there are no credentials, CredentialsError where their source does not answer.
    """
    known_by = access, bucket, frozenset(os.environ.items())  # boto3 finds credentials there
    shared = _SHARED.get(known_by)
    if shared is None or not shared.is_fresh:
        with as_ours(uri, bucket, uri, forget):
            shared = _SHARED[known_by] = _made(access, bucket, uri)
    return shared


def _made(access: Access, bucket: str, uri: str) -> Clients:
    settings, static = access
    expires_s = time.monotonic() + _CREDENTIALS_LAST_S
    deadline_s = time.monotonic() + FIRST_ANSWER_S
    may_ask_its_user = settings.profile or os.environ.get("AWS_PROFILE")
    are_known = static and not settings.role_arn
    make = functools.partial(_new_pair, access, bucket)
    if settings in ANSWERED or may_ask_its_user or are_known:
        client, objects = make()
    else:
        try:
            client, objects = bounded(make, deadline_s, f"connecting to {uri}: looking for AWS credentials")
        except TimeoutError:
            raise CredentialsError(f"no AWS credentials for {uri} within {FIRST_ANSWER_S:g} s: {SET_THEM}") from None
    client.meta.events.register("before-send.s3", functools.partial(_send, settings, bucket, client, deadline_s))
    client.meta.events.register("needs-retry.s3", _heed_slow_down)
    client.meta.events.register("before-sign.s3.UploadPart", _unsigned)
    return Clients(client, objects, expires_s, os.getpid())


def _new_pair(access: Access, bucket: str) -> tuple[Any, Objects]:
    settings, static = access
    session = session_of(settings, static)
    client = session.client("s3", config=client_config(settings), endpoint_url=settings.endpoint_url)
    found = session.get_credentials()
    if found is None:
        raise InputError(f"no AWS credentials: {SET_THEM}")
    frozen = found.get_frozen_credentials()
    signed = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    reach = BucketAccess(
        url=signed.partition("?")[0].removesuffix("/k"),
        region=client.meta.region_name or "us-east-1",
        access_key=frozen.access_key,
        secret_key=frozen.secret_key,
        token=frozen.token,
        kms_key_id=settings.kms_key_id,
        ca_file=session._session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE"),
        max_attempts=settings.max_attempts,
        timeout_s=settings.timeout_s,
    )
    return client, Objects(reach)


# What boto3 calls


def _send(
    settings: S3Settings, bucket: str, client: Any, deadline_s: float, request: Any, event_name: str, **_: Any
) -> Any:
    """Send the first request of a process with a deadline. None lets boto3 send later requests itself."""
    if wait_s := BACKOFF.turn_s():
        time.sleep(wait_s)
    key = unquote(urlsplit(request.url).path).partition(f"{bucket}/")[2]
    tell(event_name.rpartition(".")[2], key, int(request.headers.get("Content-Length") or 0))
    if settings in ANSWERED:
        return None
    answer = first_send(client._endpoint.http_session.send, request, max(deadline_s, time.monotonic() + 3))
    ANSWERED.add(settings)
    return answer


def _unsigned(request: Any, **_: Any) -> None:
    """Called before a part is signed. The bytes need no signature if the headers have their CRC-32."""
    from botocore.config import Config

    if "x-amz-checksum-crc32" in request.headers:
        request.context["client_config"] = Config(s3={"payload_signing_enabled": False})


def _heed_slow_down(response: Any, **_: Any) -> None:
    """Called after each attempt. Returning None leaves the decision to retry to boto3."""
    if response is not None and response[0].status_code in (429, 503):
        BACKOFF.throttled()
