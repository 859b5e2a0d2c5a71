"""Every exception of Smena.

    SmenaError
    ├── ConfigurationError        an option, a DSN or an app that cannot be used
    │   ├── AppNotFound           `module:attribute` cannot be imported
    │   └── EmbeddedError         the embedded PostgreSQL cannot be started
    ├── InvalidArguments          arguments that do not fit the task; nothing was stored
    ├── DatabaseError             PostgreSQL refused or could not be reached
    │   ├── DatabaseUnavailable   not reachable now; trying again later may help
    │   ├── SchemaError           the store is not in the shape this release needs
    │   │   ├── SchemaMissing     never migrated
    │   │   ├── SchemaOutdated    migrated by an older release
    │   │   └── SchemaTooNew      migrated by a newer release
    │   ├── CopiedDatabase        the store was copied from another database
    │   └── RowMoved              the job changed place under the statement; run it again
    ├── NotFound                  no such job, queue or worker
    ├── Refused                   the job is there, but its state forbids the action
    ├── LeaseLost                 the worker's lease ran out; it may not write any more
    └── JobFailure                raised by handlers to say what kind of failure it was
        ├── Permanent             never retried
        ├── Transient             retried by the task's `Retry`
        └── OutcomeUnknown        the effect may or may not have happened; never retried blindly

Each class carries the exit code that the command line ends with.
"""

from __future__ import annotations

from typing import ClassVar


class SmenaError(Exception):
    """Base of everything Smena raises on purpose."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(SmenaError):
    """An option, a DSN or an app that cannot be used."""

    exit_code = 2


class AppNotFound(ConfigurationError):
    """`module:attribute` cannot be imported or is not a `Smena`."""


class EmbeddedError(ConfigurationError):
    """The embedded PostgreSQL cannot be installed, started or shared."""


class InvalidArguments(SmenaError, ValueError):
    """The arguments do not fit the task. Raised at the caller; nothing was stored."""

    exit_code = 2


class DatabaseError(SmenaError):
    """PostgreSQL refused or could not be reached."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached now; trying again later may help."""

    exit_code = 75


class SchemaError(DatabaseError):
    """The store is not in the shape that this release needs."""

    exit_code = 4


class SchemaMissing(SchemaError):
    """The database was never migrated: run `smena db migrate`."""


class SchemaOutdated(SchemaError):
    """The database was migrated by an older release: run `smena db migrate`."""


class SchemaTooNew(SchemaError):
    """The database was migrated by a newer release: upgrade smena."""


class CopiedDatabase(DatabaseError):
    """The store was copied from another database: run `smena db adopt` if it is meant to work."""

    exit_code = 4


class RowMoved(DatabaseError):
    """The job changed its place while the statement waited for it; the same call succeeds when repeated."""

    exit_code = 75


class NotFound(SmenaError):
    """No such job, queue or worker."""

    exit_code = 3


class Refused(SmenaError):
    """The job exists, but its state forbids the action."""


class LeaseLost(SmenaError):
    """The worker's lease ran out: another worker may hold the job now."""


class JobFailure(SmenaError):
    """Raised by a handler to say what kind of failure it was.

    `kind` is one of the words of `smena.failures` or the user's own; `detail` is for people.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


class Permanent(JobFailure):
    """Repeating cannot help: the job goes to `failed` at once.

    >>> raise Permanent("VALIDATION", "amount is 0.00")
    Traceback (most recent call last):
    smena.errors.Permanent: VALIDATION: amount is 0.00
    """

    def __init__(self, kind: str = "PERMANENT", detail: str = "") -> None:
        super().__init__(kind, detail)


class Transient(JobFailure):
    """Repeating may help: the task's `Retry` decides when.

    `retry_after`: seconds until the next attempt, in place of the computed pause (a provider's `Retry-After`).
    """

    def __init__(self, kind: str = "EXTERNAL_UNAVAILABLE", detail: str = "", retry_after: float | None = None) -> None:
        super().__init__(kind, detail)
        self.retry_after = retry_after


class OutcomeUnknown(JobFailure):
    """The effect may or may not have happened: the job goes to `unknown` and waits for a person or a probe.

    `probe_key`: what to ask the other side for, kept with the failure.
    """

    def __init__(self, detail: str = "", probe_key: str | None = None) -> None:
        super().__init__("OUTCOME_UNKNOWN", detail)
        self.probe_key = probe_key
