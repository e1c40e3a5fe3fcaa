"""Everything that can go wrong and that a caller can meet: one tree, each with a stable `code`.

A message says what happened in one sentence and, where somebody can act on it, what to do next.
"""

from __future__ import annotations

from collections.abc import Mapping


class HoldfastError(Exception):
    """Base of every error that Holdfast raises on purpose."""

    code = "holdfast_error"


class ConfigError(HoldfastError):
    """A setting, an option or a URL has a value that cannot work."""

    code = "config_invalid"


# -- what a caller hands in ------------------------------------------------------------------------------------------


class InvalidJob(HoldfastError):
    """The job was refused before anything was written."""

    code = "job_invalid"


class InvalidArguments(InvalidJob):
    """The arguments do not fit the task's signature."""

    code = "args_invalid"


class PayloadTooLarge(InvalidJob):
    """The arguments take more bytes than a job's may."""

    code = "payload_too_large"


class InvalidOption(InvalidJob):
    """An option has a value that cannot work, or there is no such option."""

    code = "option_invalid"


class UnknownTask(InvalidJob):
    """There is no task of this name in the app."""

    code = "task_unknown"


class QueueFull(InvalidJob):
    """The tenant has as many jobs waiting as its plan allows."""

    code = "queue_full"


class DuplicateJob(InvalidJob):
    """A job with the same unique key is still active; `job_id` names it."""

    code = "duplicate_job"

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


# -- jobs that are there, or not -------------------------------------------------------------------------------------


class JobNotFound(HoldfastError):
    """There is no such job, or it is another tenant's."""

    code = "job_not_found"


class RunNotFound(HoldfastError):
    """The job has no such run."""

    code = "run_not_found"


class JobConflict(HoldfastError):
    """The job is in a state that does not allow this; `code` says which (`already_completed`, `job_running`, …)."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class JobFailed(HoldfastError):
    """Raised by `job.result()`: the job ended in failure. `error_code` is the job's own code."""

    code = "job_failed"

    def __init__(self, message: str, error_code: str | None) -> None:
        super().__init__(message)
        self.error_code = error_code


class JobCancelled(HoldfastError):
    """Raised by `job.result()`, and by `current().check_cancelled()` inside a run that somebody cancelled."""

    code = "job_cancelled"


class ResultTimeout(HoldfastError, TimeoutError):
    """The job had not ended when the time to wait for it was over. It goes on."""

    code = "result_timeout"


class ResultTooLarge(HoldfastError):
    """What a step or `current().complete` is to keep takes more bytes than a result may."""

    code = "result_too_large"


class SealedUnreadable(HoldfastError):
    """Arguments or a result were sealed with a key that is not here, or were changed in the database."""

    code = "sealed_unreadable"


class LeaseLost(HoldfastError):
    """This run no longer holds its job: nothing it writes is accepted, so it should stop."""

    code = "lease_lost"


# -- who calls -------------------------------------------------------------------------------------------------------


class Unauthenticated(HoldfastError):
    """Nothing in the request says who calls, or what says so does not hold."""

    code = "unauthenticated"


class Forbidden(HoldfastError):
    """The caller is known, and his role does not suffice."""

    code = "forbidden"


class SignerUnavailable(HoldfastError):
    """The public keys that sign tokens could not be fetched."""

    code = "signer_unavailable"


class SignatureInvalid(Unauthenticated):
    """A webhook that came in is not signed, not by whom it should be, or not just now."""

    code = "signature_invalid"


class NotFound(HoldfastError):
    """There is no such key, member, project or the like, or it is another tenant's."""

    code = "not_found"


class Conflict(HoldfastError):
    """What is there already does not allow this; `code` says what (`last_owner`, `project_exists`, …)."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class MachinesUnavailable(HoldfastError):
    """The provider of machines did not do what it was asked."""

    code = "machines_unavailable"


# -- how often, and once only ----------------------------------------------------------------------------------------


class RateLimited(HoldfastError):
    """A rate limit is used up; it opens again in `retry_after` seconds. `headers` tell an HTTP client the same."""

    code = "rate_limited"

    def __init__(self, message: str, retry_after: float, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.headers = headers


class BudgetExhausted(InvalidJob):
    """The tenant has spent what it may this month; its budget opens again in `retry_after` seconds, or when it is raised."""

    code = "budget_exhausted"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BreakerOpen(HoldfastError):
    """A service that this needs has failed too often; ask again in `retry_after` seconds. In a run, its job waits as long."""

    code = "breaker_open"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooManyStreams(HoldfastError):
    """This caller has as many streams open as one may have."""

    code = "too_many_streams"


class IdempotencyKeyInvalid(HoldfastError):
    """There is no idempotency key where one must be, or it is none."""

    code = "idempotency_key_invalid"


class IdempotencyKeyReused(HoldfastError):
    """The same key came with another request."""

    code = "idempotency_key_reused"


class IdempotencyInProgress(HoldfastError):
    """Somebody is doing this very request right now: ask again in `retry_after` seconds, and get his answer."""

    code = "idempotency_in_progress"
    retry_after = 1.0


# -- webhooks --------------------------------------------------------------------------------------------------------


class TargetRefused(HoldfastError):
    """A webhook would go where none may go, such as into a private network."""

    code = "webhook_target_refused"


# -- the database ----------------------------------------------------------------------------------------------------


class StorageError(HoldfastError):
    """The database refused, or answered what it should not."""

    code = "storage_error"


class StorageUnavailable(StorageError):
    """The database could not be reached, or went away; nothing was half-written."""

    code = "storage_unavailable"


class NotMigrated(StorageError):
    """The tables are missing or older than this program: `holdfast migrate`."""

    code = "not_migrated"


class SchemaTooNew(StorageError):
    """The tables are newer than this program, which must be updated."""

    code = "schema_too_new"


class NotOurDatabase(StorageError):
    """The database belongs to something else."""

    code = "not_our_database"


# -- what a task raises to steer its own job -------------------------------------------------------------------------


class Abort(Exception):
    """Fail the job at once, whatever attempts are left."""

    def __init__(self, reason: str, code: str = "aborted") -> None:
        super().__init__(reason)
        self.code = code


class RetryLater(Exception):
    """Fail this attempt and try again after `delay` seconds instead of the task's own backoff."""

    def __init__(self, delay: float, reason: str = "asked to be retried later", code: str = "retry_later") -> None:
        super().__init__(reason)
        self.delay = delay
        self.code = code


class Snooze(Exception):
    """Run the job again after `delay` seconds; this costs no attempt."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"snoozed for {delay} s")
        self.delay = delay
