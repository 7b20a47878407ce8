"""The exceptions of `annals`.

Every error of the store is an `Error` with a `code`, as `CHECKPOINT_NOT_FOUND`, which does not change between versions.
The class says how to react: of a `ConflictError` and a `BusyError` nothing was written, and the call may be repeated.
"""

from __future__ import annotations

__all__ = [
    "BusyError",
    "ConflictError",
    "CorruptError",
    "Error",
    "FormatError",
    "IntegerSizeError",
    "InvalidError",
    "NotFoundError",
    "OutcomeUnknownError",
    "SchemaChangedError",
    "StorageError",
    "UnsupportedError",
    "ValueTypeError",
]


class Error(Exception):
    """Any error of `annals`."""

    code: str
    """The code of the error, as `CONFLICT`."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[Error], tuple[str, str]]:
        return type(self), (str(self), self.code)

    @property
    def is_retryable(self) -> bool:
        """True if nothing was written, so that repeating the call is safe and may succeed."""
        return False


class ConflictError(Error):
    """Another writer was faster. Nothing was written."""

    @property
    def is_retryable(self) -> bool:
        """True: load the new head, and decide."""
        return True


class BusyError(Error):
    """Another process is writing, or another owner has the lease of the thread. Nothing was written."""

    @property
    def is_retryable(self) -> bool:
        """True: the other one ends."""
        return True


class OutcomeUnknownError(Error):
    """It is not known whether the last commit is stored. Read the head before repeating it."""


class NotFoundError(Error, LookupError):
    """A thread, a checkpoint, a branch or an interrupt does not exist."""


class InvalidError(Error, ValueError):
    """An argument, an id or a value is not valid. The message names the field and the limit. Nothing was written."""


class ValueTypeError(InvalidError, TypeError):
    """An object of Python cannot be stored as a value. The message names its place."""


class IntegerSizeError(InvalidError, OverflowError):
    """An integer has more digits than the store takes. The message names its place."""


class CorruptError(Error):
    """The file is damaged, or it is not a store."""


class SchemaChangedError(Error):
    """Another program has changed the schema of the file. The rows are not damaged by that."""


class FormatError(Error):
    """The file has the format of a newer version, or of a build before the first release."""


class StorageError(Error):
    """The disk or the operating system refused, or the store is open for reading only."""


class UnsupportedError(Error, NotImplementedError):
    """The call is not possible on what is stored. Nothing was written."""
