"""What PyIceberg raises, as our errors.

    loading       no such table                          NotFoundError
                  no client, region or credentials       InputError               what to install or set
                  401, 419; AWS: ExpiredToken            CredentialsError         they have expired
                  403; AWS: AccessDenied                 InputError               the catalog refuses us
                  400, 405, 406, 413, 422                InputError               it refuses the request
                  metadata of no sense                   passes                   the table is to be named
                  no route, 500, 503, a page of HTML     StoreError               it does not answer

    committing    404, 409, a failed requirement         ConflictError            refused: others came first
                  a table property of no sense           CommitRefusedError       before the swap
                  429                                    CommitThrottledError     refused: we asked too often
                  400, 405, 406, 413, 422                CommitRefusedError       refused: it asks for the impossible
                  401, 419; AWS: ExpiredToken            CredentialsError         refused: they have expired
                  403, 501; AWS: AccessDenied            InputError               refused: we may not
                  500, 502, 503, 504, no answer          CommitUnansweredError    it may have been carried out
                  what our own store said                the same                 before the swap

A refusal answers one request. An earlier request of ours may have been carried out all the same (a proxy may have sent
the commit twice): the caller must look at the table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationError,
    ValidationException,
)

from deltacompact.base.errors import ConflictError, CredentialsError, DeltaCompactError, InputError, StoreError
from deltacompact.base.wording import text_of
from deltacompact.storage.s3_access import EXPIRED_CODES

UNREADABLE = (ValueError, KeyError, TypeError, ValidationError)
"""What PyIceberg raises for metadata of no sense."""
_INVALID = (400, 405, 406, 413, 422)
_BAD_PROPERTY = "Could not parse table property"
"""What PyIceberg says of a property by which it writes metadata, before the swap."""
_EXPIRED = (UnauthorizedError, AuthorizationExpiredError)
_NOT_ALLOWED = (ForbiddenError, OAuthError)
_MISSING = {
    "NoRegionError": "AWS region: set glue.region in .pyiceberg.yaml, or AWS_DEFAULT_REGION",
    "NoCredentialsError": "AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role",
}
"""What botocore, which need not be imported, says by the names of its errors."""


class CommitRefusedError(InputError):
    """The catalog found the commit invalid. Some catalogs answer so if another commit only came first."""


class CommitThrottledError(ConflictError):
    """The catalog is asked too often. The same commit may succeed later."""


class CommitUnansweredError(StoreError):
    """The catalog did not say whether a commit took effect. Load the table again to see."""


_AWS_REFUSALS: dict[str, type[InputError | CredentialsError]] = {
    **dict.fromkeys(EXPIRED_CODES, CredentialsError),
    **dict.fromkeys(("AccessDenied", "AccessDeniedException"), InputError),
    **dict.fromkeys(("InvalidSignatureException", "UnrecognizedClientException"), InputError),
    **dict.fromkeys(("InvalidInputException", "ResourceNumberLimitExceededException"), CommitRefusedError),
}
"""What AWS answers to a request that it does not carry out."""


@contextlib.contextmanager
def answering(name: str, asked: str = "the request") -> Iterator[None]:
    """Turn errors of a catalog that refuses us or does not answer into ours, of one line. Other errors pass: those of
    a table that is not there, and of one whose metadata has no sense."""
    try:
        yield
    except (DeltaCompactError, NoSuchTableError, NoSuchNamespaceError, CommitFailedException):
        raise
    except (*UNREADABLE, NoSuchPropertyException, FileNotFoundError):  # the catalog has answered: it is the table
        raise
    except _EXPIRED as error:
        raise CredentialsError(f"Iceberg catalog {name!r} refuses us: {text_of(error)}") from error
    except _NOT_ALLOWED as error:
        raise InputError(f"Iceberg catalog {name!r} refuses us: {text_of(error)}") from error
    except NotInstalledError as error:
        raise InputError(f"Iceberg catalog {name!r} cannot be opened: {text_of(error)}") from error
    except NotImplementedError as error:
        raise InputError(f"Iceberg catalog {name!r} cannot do this: {text_of(error)}") from error
    except Exception as error:  # of requests, SQLAlchemy, botocore or Thrift, whichever catalog it is
        if (refusal := _aws_refusal(error)) is not None:
            raise refusal(f"Iceberg catalog {name!r} refuses us: {text_of(error)}") from error
        if (missing := _MISSING.get(type(error).__name__)) is not None:
            raise InputError(f"Iceberg catalog {name!r} has no {missing}") from error
        if _status(error) in _INVALID:
            raise InputError(f"Iceberg catalog {name!r} refuses {asked}: {text_of(error)}") from error
        raise StoreError(f"Iceberg catalog {name!r} does not answer: {text_of(error)}") from error


@contextlib.contextmanager
def committing(table_id: str) -> Iterator[None]:
    """Turn the answer to a commit into our errors: see the table above."""
    try:
        yield
    except (InputError, CredentialsError, ConflictError):  # of our own store, where the metadata file goes first
        raise
    except TooManyRequestsError as error:
        raise CommitThrottledError(f"{table_id}: {text_of(error)}") from error
    except (CommitFailedException, ValidationException, NoSuchTableError) as error:
        raise ConflictError(f"{table_id}: {text_of(error)}") from error
    except _EXPIRED as error:
        raise CredentialsError(f"{table_id}: the catalog refuses the commit: {text_of(error)}") from error
    except (*_NOT_ALLOWED, NotImplementedError) as error:
        raise InputError(f"{table_id}: the catalog refuses the commit: {text_of(error)}") from error
    except Exception as error:  # a lost connection, a server's error: the commit may have been carried out
        status = _status(error)
        if status == HTTPStatus.NOT_FOUND:
            raise ConflictError(f"{table_id}: {text_of(error)}") from error
        is_invalid = status in _INVALID or str(error).startswith(_BAD_PROPERTY)
        refusal = CommitRefusedError if is_invalid else _aws_refusal(error)
        if refusal is not None:
            raise refusal(f"{table_id}: the catalog refuses the commit: {text_of(error)}") from error
        raise CommitUnansweredError(f"{table_id}: {text_of(error)}") from error


def first_of(error: Exception) -> str:
    """The text of an error. Of a pydantic error, which lists every field with a link, only the first: where it is.

    What is there is said for a word that is none of the known ones alone: a document that was cut may hold credentials.
    """
    for found in (error, error.__cause__):
        if callable(errors := getattr(found, "errors", None)):
            first = errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            said = f"{first['msg']}, not {first['input']!r}" if first["type"] == "literal_error" else first["msg"]
            return text_of(f"{where}: {said}" if where else said)
    return text_of(error)


def _aws_refusal(error: Exception) -> type[InputError | CredentialsError] | None:
    """Our error for one in which AWS refuses a request. None: it is another one, or an earlier sending of the request,
    whose answer was lost, may have been carried out."""
    answer = getattr(error, "response", None)
    if not isinstance(answer, dict) or answer.get("ResponseMetadata", {}).get("RetryAttempts"):
        return None
    return _AWS_REFUSALS.get(answer.get("Error", {}).get("Code"))


def _status(error: Exception) -> int | None:
    """The status of the answer that a REST catalog gave. PyIceberg has no class of its own for most of them."""
    answer = getattr(error.__cause__, "response", None)
    return answer.status_code if isinstance(error, RESTError) and answer is not None else None
