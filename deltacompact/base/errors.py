"""Errors, sorted by who has to act.

    InputError      the caller: a wrong name, file, option or credential     exit status 2
    ConflictError   nobody: another process was faster, run it again         exit status 3
    PassingError    somebody else, and then run it again:                    exit status 1
      StoreError          the store: it failed
      OutcomeUnknownError   the same, during a commit: repeat the commit with the same token
      CredentialsError    whoever renews the credentials: they have expired
      ClusterError        whoever runs the Ray cluster: it is not up
    UnhealthyError  an operator: a table is beyond a threshold, compact it   exit status 4
    CorruptionError an operator: stored bytes differ from written bytes      exit status 1

Every message is one line that names the culprit.
"""

from __future__ import annotations


class DeltaCompactError(Exception):
    """Root of all errors that deltacompact raises on purpose."""

    exit_status = 1

    @property
    def kind(self) -> str:
        """The name of the error for users: that of its class, or of the one that they know."""
        return type(self).__name__


class InputError(DeltaCompactError):
    """The request is wrong. Nothing was changed."""

    exit_status = 2


class NotFoundError(InputError):
    """A table, partition, file or object that was named does not exist."""


class BucketMissingError(NotFoundError):
    """The bucket itself does not exist, so nobody can say whether an object in it would."""


class UnknownColumnError(InputError):
    """A table has no column of a name that the caller gave."""

    kind = InputError.__name__


class SchemaError(InputError):
    """A file does not fit the table: names file and column."""


class PositionError(InputError):
    """A stream position is not greater than all earlier ones."""


class TokenError(InputError):
    """A token stands for another batch: two batches have the same one."""

    kind = InputError.__name__


class ConflictError(DeltaCompactError):
    """Another writer or compactor changed the stream first. Nothing that this process wrote is visible."""

    exit_status = 3


class PassingError(DeltaCompactError):
    """Nothing is wrong with the request, but what it needs is not there now. The same call succeeds once it is."""


class CredentialsError(PassingError):
    """Credentials have expired or cannot be fetched now. Repeat the call once they have been renewed."""


class ClusterError(PassingError):
    """A Ray cluster does not answer, or has no CPU yet. Repeat the call once it is up."""


class StoreError(PassingError):
    """The object store failed. Whether a pending write took effect is unknown."""


class OutcomeUnknownError(StoreError):
    """A commit may or may not have taken effect. The message names it and says what to do."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, told: the message says what took effect, what did not, and what to do."""

    exit_status = 130


class UnhealthyError(DeltaCompactError):
    """A table is beyond a threshold that the user has set: readers fold or skip too much. Nothing is damaged."""

    exit_status = 4


class CorruptionError(DeltaCompactError):
    """Stored bytes contradict the log: a checksum, an order, a count."""
