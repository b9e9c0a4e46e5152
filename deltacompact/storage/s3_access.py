"""How to reach S3: settings, credentials, and boto3's clients. The only door to boto3.

S3Settings(region="eu-west-1", role_arn=…)     from the caller, else from the environment
static credentials                             of settings or environment: they travel to workers with the store
other credentials                              from boto3's chain in each process; a role's credentials expire
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import CredentialsError, InputError
from deltacompact.base.missing import importing
from deltacompact.base.settings import at_least
from deltacompact.base.wording import text_of

REQUESTS_AT_ONCE = 32
"""Connections of a client."""

_CHAIN = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
"""Variables of boto3's own chain that we read, too."""

_KNOWN_FOR = timedelta(minutes=25)
"""botocore looks for other credentials in the last 15 minutes. A role's last for 15 at least."""

EXPIRED_CODES = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired")
"""How services of AWS say that credentials have expired."""

SET_THEM = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach S3. None: boto3's own chain (environment, profile, instance role) fills it in."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    kms_key_id: str | None = None
    max_attempts: int = 10
    timeout_s: float = 60.0
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        texts = ("endpoint_url", "region", "profile", "role_arn", "kms_key_id")
        for name in (*texts, "access_key", "secret_key", "session_token"):
            expect.text_or_none(name, getattr(self, name))
        at_least("max_attempts", self.max_attempts, 1)
        if not expect.number("timeout_s", self.timeout_s) > 0:
            raise InputError(f"timeout_s is {self.timeout_s!r}, it must be greater than 0")

    @classmethod
    def from_environment(cls) -> S3Settings:
        """Each field from DELTACOMPACT_S3_<FIELD>, if that variable is set."""
        chosen: dict[str, Any] = {}
        for setting in fields(cls):
            if value := os.environ.get(f"DELTACOMPACT_S3_{setting.name.upper()}"):
                kind: Any = type(setting.default) if setting.default is not None else str
                try:
                    chosen[setting.name] = kind(value)
                except ValueError:
                    raise InputError(f"DELTACOMPACT_S3_{setting.name.upper()}={value!r} is not a number") from None
        return cls(**chosen)


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """Credentials of settings or environment. They travel to workers with the store; credentials of roles do not."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(repr=False)


Access = tuple[S3Settings, StaticCredentials | None]


def aws_client(service: str, region: str | None = None, answer_within_s: float = 5) -> Any:
    """A boto3 client of another AWS service, with few retries and short time-outs.

    It knows boto3's own chain alone: the settings of S3 may be those of another store, or of a role for the lake. A
    process may keep the client for ever: it looks for credentials again before they expire.
    """
    settings = resolved(S3Settings())
    session = _renewing(lambda: session_of(settings, static_credentials(settings)))
    config = _config(retries={"mode": "standard", "max_attempts": 2}, connect_timeout=3, read_timeout=answer_within_s)
    return session.client(service, region_name=region or settings.region, config=config)


def _renewing(made: Callable[[], Any]) -> Any:
    """A session whose clients look for credentials every ten minutes: of a role, or in a file that was written anew.

    Credentials that renew themselves stay as they are.
    """
    from botocore.credentials import RefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    session = made()
    credentials = session.get_credentials()
    if credentials is None or isinstance(credentials, RefreshableCredentials):
        return session

    def renewed(credentials: Any = None) -> dict[str, Any]:
        if (credentials := credentials or made().get_credentials()) is None:
            raise NoCredentialsError
        known = credentials.get_frozen_credentials()
        until = datetime.now(UTC) + _KNOWN_FOR
        names = {"access_key": known.access_key, "secret_key": known.secret_key, "token": known.token}
        return {**names, "expiry_time": until.isoformat()}

    session._session._credentials = RefreshableCredentials.create_from_metadata(
        renewed(credentials), renewed, "deltacompact"
    )
    return session


def resolved(settings: S3Settings) -> S3Settings:
    """The settings, completed from the environment of the process that opens the store, for its workers too."""
    environment = os.environ.get
    endpoint_url = settings.endpoint_url or environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL")
    region = settings.region or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION")
    return replace(
        settings, endpoint_url=endpoint_url or None, region=region or None
    )  # a variable may be set and empty


def plain_environment() -> dict[str, str]:
    """The variables of this process that say how to reach S3, without secrets and names of profiles here: for processes
    on other machines."""
    plain = (setting.name for setting in fields(S3Settings) if setting.repr and setting.name != "profile")
    names = (*_CHAIN, *(f"DELTACOMPACT_S3_{name.upper()}" for name in plain))
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def client_config(settings: S3Settings) -> Any:
    return _config(
        retries={"mode": "standard", "total_max_attempts": settings.max_attempts},  # BACKOFF heeds SlowDown
        signature_version="s3v4",
        connect_timeout=settings.timeout_s,
        read_timeout=settings.timeout_s,
        max_pool_connections=REQUESTS_AT_ONCE,
    )


def _config(**settings: Any) -> Any:
    with importing("botocore"):
        from botocore.config import Config
    return Config(**settings)


def static_credentials(settings: S3Settings) -> StaticCredentials | None:
    if settings.access_key and settings.secret_key:
        return StaticCredentials(settings.access_key, settings.secret_key, settings.session_token)
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if settings.profile or not (key and secret):
        return None
    return StaticCredentials(key, secret, os.environ.get("AWS_SESSION_TOKEN"))


def session_of(settings: S3Settings, static: StaticCredentials | None) -> Any:
    with importing("boto3"):
        import boto3

    credentials = {}
    if static:
        credentials = {
            "aws_access_key_id": static.access_key,
            "aws_secret_access_key": static.secret_key,
            "aws_session_token": static.token,
        }
    session = boto3.Session(profile_name=settings.profile, region_name=settings.region, **credentials)
    if not settings.role_arn:
        return session
    assumed = _assumed(session, settings.role_arn)
    return boto3.Session(
        aws_access_key_id=assumed["AccessKeyId"],
        aws_secret_access_key=assumed["SecretAccessKey"],
        aws_session_token=assumed["SessionToken"],
        region_name=session.region_name,
    )


def _assumed(session: Any, role_arn: str) -> dict[str, str]:
    """The credentials of a role. Raises an error that names the role, not the object that somebody asked for."""
    from botocore.exceptions import ClientError

    try:
        answer = session.client("sts").assume_role(RoleArn=role_arn, RoleSessionName="deltacompact")
    except ClientError as error:
        code, status = error.response.get("Error", {}).get("Code"), error.response["ResponseMetadata"]["HTTPStatusCode"]
        passes = code in (*EXPIRED_CODES, "Throttling") or status >= 500
        kind = CredentialsError if passes else InputError
        raise kind(f"role {role_arn} cannot be assumed: {text_of(error)}") from error
    return dict(answer["Credentials"])
