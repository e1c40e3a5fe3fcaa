"""The sentences for acts that a job's state does not allow: the same on both stores."""

from __future__ import annotations

from holdfast.errors import HoldfastError, JobConflict, JobNotFound

_CANCEL = {
    "already_completed": "Job {id} has already completed; there is nothing to cancel.",
    "already_failed": "Job {id} has already failed; there is nothing to cancel.",
    "already_cancelled": "Job {id} is already cancelled.",
    "already_cancelling": "Job {id} is already being cancelled; its worker has been told.",
}
_RETRY = {
    "job_queued": "Job {id} is queued and will run by itself.",
    "job_running": "Job {id} is running; cancel it first, or wait for its end.",
    "already_completed": "Job {id} has completed; enqueue a new job to do the work again.",
    "duplicate_active": "Another active job has taken the unique key of job {id}; wait for that one, or cancel it.",
}


def cancel_conflict(job_id: str, verdict: str) -> HoldfastError:
    return _conflict(_CANCEL, job_id, verdict)


def retry_conflict(job_id: str, verdict: str) -> HoldfastError:
    return _conflict(_RETRY, job_id, verdict)


def _conflict(sentences: dict[str, str], job_id: str, verdict: str) -> HoldfastError:
    if verdict == "not_found":
        return JobNotFound(f"There is no job {job_id}.")
    return JobConflict(sentences[verdict].format(id=job_id), code=verdict)
