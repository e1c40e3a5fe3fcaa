"""Who calls, and what he may do and see: the one place that decides it. Nothing here touches a database."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.errors import Forbidden, UnknownTask
from holdfast.job import Event, Job, Run
from holdfast.roles import ROLES, Role
from holdfast.task import Task
from holdfast.why import Why

__all__ = [
    "RULES",
    "Act",
    "Caller",
    "Proof",
    "Role",
    "may",
    "require",
    "task_to_enqueue",
    "visible_event",
    "visible_job",
    "visible_run",
    "visible_why",
]


class Proof(StrEnum):
    """What a caller showed, and what has to hold for as long as he is believed."""

    HOST = "host"
    """The host application's own login."""
    KEY = "key"
    SESSION = "session"
    MEMBER = "member"
    """A token, and a line in the list of members."""
    TOKEN = "token"
    """A token that names tenant and role itself."""


class Caller(msgspec.Struct, frozen=True):
    """Whoever a request speaks for. Only the service role has no tenant: it works across all of them."""

    tenant: str | None
    role: Role
    actor: str
    """`key:<id>`, `user:<sub>` and so on: goes into `enqueued_by`, `by=` and events."""
    key_id: str | None = None
    user_id: str | None = None
    proof: Proof = Proof.HOST
    session_id: str | None = None
    expires: float | None = None
    """Unix seconds, where a token says so."""

    def __post_init__(self) -> None:
        if self.tenant is None and self.role is not Role.SERVICE:
            raise ValueError("only a caller with the service role has no tenant")


class Act(StrEnum):
    """The kinds of things that a caller may want to do."""

    READ_JOBS = "read jobs, runs and logs"
    READ_QUEUES = "read queues"
    READ_TENANT = "read the organization and its limits"
    READ_PROJECTS = "read projects"
    READ_SCHEDULES = "read schedules"
    READ_BUDGETS = "read budgets"
    ENQUEUE = "enqueue jobs"
    CANCEL = "cancel jobs"
    RETRY = "retry jobs"
    CONNECT_REPOSITORY = "connect repositories"
    READ_MEMBERS = "read members"
    READ_ARGUMENTS = "read the arguments of jobs"
    READ_MACHINES = "read machine ids"
    READ_EVENTS = "read the organization's events"
    MANAGE_KEYS = "manage keys"
    MANAGE_PROJECTS = "manage projects"
    PAUSE = "pause and resume the organization"
    MANAGE_SCHEDULES = "manage schedules"
    MANAGE_WEBHOOKS = "manage webhooks"
    MANAGE_MEMBERS = "manage members"
    SET_LIMITS = "set plans, limits and budgets"
    OPERATE = "see and steer what all tenants share"


RULES: dict[Act, Role] = {
    Act.READ_JOBS: Role.VIEWER,
    Act.READ_QUEUES: Role.VIEWER,
    Act.READ_TENANT: Role.VIEWER,
    Act.READ_PROJECTS: Role.VIEWER,
    Act.READ_SCHEDULES: Role.VIEWER,
    Act.READ_BUDGETS: Role.VIEWER,
    Act.ENQUEUE: Role.MEMBER,
    Act.CANCEL: Role.MEMBER,
    Act.RETRY: Role.MEMBER,
    Act.CONNECT_REPOSITORY: Role.MEMBER,
    Act.READ_MEMBERS: Role.MEMBER,
    Act.READ_ARGUMENTS: Role.ADMIN,
    Act.READ_MACHINES: Role.ADMIN,
    Act.READ_EVENTS: Role.ADMIN,
    Act.MANAGE_KEYS: Role.ADMIN,
    Act.MANAGE_PROJECTS: Role.ADMIN,
    Act.PAUSE: Role.ADMIN,
    Act.MANAGE_SCHEDULES: Role.ADMIN,
    Act.MANAGE_WEBHOOKS: Role.ADMIN,
    Act.MANAGE_MEMBERS: Role.OWNER,
    Act.SET_LIMITS: Role.SERVICE,  # nobody raises his own plan
    Act.OPERATE: Role.SERVICE,  # queues, workers, machines and metrics tell of other tenants
}
"""The least role for each act."""


WORKERS_IN_EVENTS = {"worker", "machine", "machine_id", "locked_by"}


def may(caller: Caller, act: Act) -> bool:
    return caller.role >= RULES[act]


def require(caller: Caller, act: Act) -> None:
    if not may(caller, act):
        needed = RULES[act].word
        raise Forbidden(f"To {act.value} takes the role {needed}, and this caller is {caller.role.word}.")


def task_to_enqueue(caller: Caller, tasks: Mapping[str, Task[..., Any]], name: str) -> Task[..., Any]:
    """The task if this caller may enqueue it over HTTP. A tenant is told nothing of tasks that are not exposed."""
    require(caller, Act.ENQUEUE)
    task = tasks.get(name)
    if task is not None and caller.role is Role.SERVICE:
        return task
    if task is None or task.spec.expose is None:
        raise UnknownTask(f"There is no task called {name!r:.80} that can be enqueued over HTTP; tasks say so with expose=.")
    if caller.role < ROLES[task.spec.expose]:
        raise Forbidden(f"To enqueue {task.name} takes the role {task.spec.expose}, and this caller is {caller.role.word}.")
    return task


def visible_job(caller: Caller, job: Job[Any]) -> dict[str, Any]:
    """The job's fields as this caller may see them; what is hidden is null."""
    shown = job.as_dict()
    if not (may(caller, Act.READ_ARGUMENTS) and _shows_arguments(job)):
        shown["args"] = None
    if not may(caller, Act.READ_MACHINES):
        shown["machine_id"] = shown["locked_by"] = None
    return shown


def visible_run(caller: Caller, run: Run) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(run)
    if not may(caller, Act.READ_MACHINES):
        shown["machine_id"] = shown["worker"] = None
    return shown


def visible_why(caller: Caller, why: Why) -> dict[str, Any]:
    """The sentence about a job that runs names its worker, the one about a paused queue who paused it for all tenants."""
    shown: dict[str, Any] = msgspec.to_builtins(why)
    for name, word, act in (("worker", "on", Act.READ_MACHINES), ("paused_by", "by", Act.OPERATE)):
        if why.details.get(name) is not None and not may(caller, act):
            shown["sentence"] = why.sentence.replace(f" {word} {why.details[name]}", "")
            shown["details"] = {**why.details, name: None}
    return shown


def _shows_arguments(job: Job[Any]) -> bool:
    """A task that this program does not know may be one that hides its arguments."""
    task = job._app.tasks.get(job.task) if job._app is not None else None
    return task is not None and not task.spec.private


def visible_event(caller: Caller, event: Event) -> dict[str, Any]:
    """What happened, without the workers that took part in it for those who may not see machines."""
    shown: dict[str, Any] = msgspec.to_builtins(event)
    if not may(caller, Act.READ_MACHINES):
        shown["data"] = {name: value for name, value in event.data.items() if name not in WORKERS_IN_EVENTS}
    return shown
