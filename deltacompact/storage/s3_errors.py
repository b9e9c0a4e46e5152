"""Errors of boto3 and obstore become ours, in one line that names the object.

NoSuchKey                    NotFoundError       s3://lake/orders/table.json does not exist
NoSuchBucket                 BucketMissingError  bucket 'lake' does not exist
AccessDenied                 InputError          s3://lake/orders/table.json: S3 refused access (AccessDenied)
ExpiredToken                 CredentialsError    s3://lake/orders/table.json: … the credentials have expired (…)
400 without a body           CredentialsError    the same in answer to a HEAD, which has no room for a code
NotImplemented               InputError          s3://lake/.put-if-absent: this store cannot do that (NotImplemented)
no answer, after retries     StoreError          s3://lake/orders/table.json: Connect timeout on endpoint URL
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from deltacompact.base.errors import (
    BucketMissingError,
    CredentialsError,
    DeltaCompactError,
    InputError,
    NotFoundError,
    StoreError,
)
from deltacompact.base.missing import importing
from deltacompact.base.wording import text_of
from deltacompact.storage.s3_access import EXPIRED_CODES
from deltacompact.storage.s3_objects import RequestFailed


@contextlib.contextmanager
def as_ours(uri: str, bucket: str, store_uri: str, refused: Callable[[], None]) -> Iterator[None]:
    """Turn the block's errors into ours, about the object `uri` of a bucket below `store_uri`.

    `refused` is called where S3 refuses the credentials.
    """
    with importing("botocore"):
        import botocore.exceptions as aws

    try:
        yield
    except DeltaCompactError:
        raise
    except (aws.ClientError, RequestFailed) as error:
        code = code_of(error)
        if code == "NoSuchBucket":
            raise BucketMissingError(f"bucket {bucket!r} does not exist") from error
        if code == "PreconditionFailed":
            raise InputError(f"{uri} changed while it was read") from error
        if code in ("NoSuchKey", "404", "NotFound"):
            raise NotFoundError(f"{uri} does not exist") from error
        if code == "InvalidObjectState":
            raise InputError(f"{uri} is archived by S3 and cannot be read: restore it first ({code})") from error
        if code in EXPIRED_CODES:
            refused()
            raise CredentialsError(f"{uri}: S3 refused access: the credentials have expired ({code})") from error
        if code == "400":
            refused()
            raise CredentialsError(
                f"{uri}: S3 refused a request without saying why (400), as it does if the credentials have expired"
            ) from error
        if code in ("NotImplemented", "501"):
            raise InputError(f"{uri}: this store cannot do that ({code})") from error
        if code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
            refused()
            raise InputError(f"{uri}: S3 refused access ({code})") from error
        if code == "ConditionalRequestConflict":
            raise StoreError(f"{uri}: conditional put kept conflicting ({code})") from error
        answered = "" if code == "NoAnswer" else f"S3 answered {code}: "
        raise StoreError(f"{uri}: {answered}{text_of(error)}") from error
    except (aws.CredentialRetrievalError, aws.TokenRetrievalError) as error:  # their source does not answer
        raise CredentialsError(f"no AWS credentials for {store_uri}: {text_of(error)}") from error
    except (aws.NoCredentialsError, aws.PartialCredentialsError) as error:
        raise InputError(f"no AWS credentials for {store_uri}: {text_of(error)}") from error
    except (aws.ProfileNotFound, aws.NoRegionError, aws.ParamValidationError, ValueError) as error:
        raise InputError(f"{store_uri}: {text_of(error)}") from error
    except (aws.BotoCoreError, aws.HTTPClientError) as error:
        raise StoreError(f"{uri}: {text_of(error)}") from error


def code_of(error: Any) -> str:
    """S3's word for an error of boto3 or obstore."""
    if isinstance(error, RequestFailed):
        return error.code
    return str(error.response.get("Error", {}).get("Code", "unknown"))
