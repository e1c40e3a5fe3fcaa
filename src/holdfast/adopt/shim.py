"""An old function that put jobs into Redis keeps its name and shape, and enqueues instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from holdfast.errors import InvalidArguments
from holdfast.job import Job
from holdfast.task import JobSpec, Task


class Platform(Protocol):
    def task_named(self, name: str) -> Task[..., Any]: ...

    async def enqueue_jobs(self, jobs: Any, tx: Any) -> list[Job[Any]]: ...


def queue_function(
    platform: Platform,
    task: str,
    *parameters: str,
    tenant: str | None = None,
    project: str | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Callable[..., Coroutine[Any, Any, Job[Any]]]:
    """`queue_extraction_job = queue_function(hf, "extract", "project_id", "organization_id", tenant="organization_id")`.

    `parameters` are those of the old function, in its order; more may be given by keyword. `tenant` and `project` name the ones
    that say whose job it is; `renamed` maps a parameter to the task's own argument. All that the task takes is passed on.
    """
    of = {"tenant": tenant, "project": project}

    async def queue_job(*args: Any, tx: Any = None, **kwargs: Any) -> Job[Any]:
        if len(args) > len(parameters):
            raise InvalidArguments(f"{task}: {len(args)} arguments were given, and there are {', '.join(parameters)}.")
        named = dict(zip(parameters, args, strict=False))
        twice = sorted(named.keys() & kwargs.keys())
        if twice:
            raise InvalidArguments(f"{task}: {twice[0]} was given twice.")
        given = named | kwargs
        options: dict[str, Any] = {
            option: str(given[name]) for option, name in of.items() if name is not None and given.get(name) is not None
        }
        bound = platform.task_named(task).options(**options)
        taken = inspect.signature(bound.task.fn).parameters
        passed = {(renamed or {}).get(name, name): value for name, value in given.items()}
        # What only says whose job it is need not be an argument; anything else that the task does not know is an error.
        whose = {name for name in of.values() if name is not None}
        arguments = {name: value for name, value in passed.items() if name in taken or name not in whose}
        spec = JobSpec(bound.task, bound.task.bind_arguments((), arguments), bound.job_options)
        return (await platform.enqueue_jobs([spec], tx))[0]

    queue_job.__name__ = queue_job.__qualname__ = f"queue_{task}_job"
    return queue_job
