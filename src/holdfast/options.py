"""What may be said of a task by its decorator, and of a job beside its arguments: names, types and checks."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

import msgspec

from holdfast import codec
from holdfast.errors import ConfigError, HoldfastError, InvalidOption

NAME_CHARS_MAX = 200
KEY_CHARS_MAX = 500
TAGS_MAX = 50
TAG_CHARS_MAX = 100
META_BYTES_MAX = 64 * 1024
ATTEMPTS_MAX = 1000
ALIASES_MAX = PERMANENT_MAX = 100

Backoff = tuple[float, ...] | Callable[[int], float]


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a task's decorator said. None means: as configured."""

    name: str
    aliases: tuple[str, ...] = ()
    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout: float | None = None
    expected: float | None = None
    lease: float | None = None
    isolate: bool | None = None
    memory: int | None = None
    cancel: Literal["cooperative", "immediate"] = "cooperative"
    permanent: tuple[type[BaseException], ...] = ()
    order_on_failure: Literal["skip", "block"] = "skip"
    noun: str | None = None
    rate: str | None = None
    on_rate_limited: Literal["fail", "wait"] = "fail"
    needs: str | None = None
    budget: str | None = None
    budget_max: float | None = None
    on_budget: Literal["refuse", "hold"] = "refuse"
    expose: Literal["member", "admin", "owner"] | None = None
    capture: tuple[str, ...] = ("logging",)
    private: bool = False
    on_failed: Any = None
    """The task that is enqueued when a job of this one fails for good."""
    announce: bool = False


class TaskOptions(TypedDict, total=False):
    """The keywords of `hf.task(…)`."""

    name: str
    aliases: Sequence[str]
    queue: str
    priority: int
    max_attempts: int | None
    backoff: Sequence[float] | Callable[[int], float] | None
    timeout: float | None
    expected: float | None
    lease: float | None
    isolate: bool | None
    memory: int | None
    cancel: Literal["cooperative", "immediate"]
    permanent: Sequence[type[BaseException]]
    order_on_failure: Literal["skip", "block"]
    noun: str | None
    rate: str | None
    on_rate_limited: Literal["fail", "wait"]
    needs: str | None
    budget: str | None
    budget_max: float | None
    on_budget: Literal["refuse", "hold"]
    expose: Literal["member", "admin", "owner"] | None
    capture: Sequence[Literal["logging", "debug", "print"]]
    private: bool
    on_failed: Any
    announce: bool


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one enqueue said beside the arguments, checked. None means: as the task says."""

    tenant: str | None = None
    project: str | None = None
    actor: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    unique: str | None = None
    on_duplicate: Literal["return", "raise"] = "return"
    order: str | None = None
    tags: list[str] | None = None
    meta: dict[str, Any] | None = None
    max_attempts: int | None = None
    queue: str | None = None
    enqueued_by: str | None = None


class EnqueueOptions(TypedDict, total=False):
    """The keywords of `task.options(…)`."""

    tenant: str | None
    project: str | None
    actor: str | None
    priority: int | None
    delay: float | None
    run_at: datetime | None
    unique: str | None
    on_duplicate: Literal["return", "raise"]
    order: str | None
    tags: Sequence[str] | None
    meta: Mapping[str, Any] | None
    max_attempts: int | None
    queue: str | None
    tx: Any
    enqueued_by: str | None


def task_spec(label: str, given: dict[str, Any]) -> TaskSpec:
    """Checked options of one task; ConfigError where one of them cannot work."""
    return TaskSpec(**_checked(given, _TASK_CHECKS, label, ConfigError))


def job_options(task_name: str, given: dict[str, Any]) -> JobOptions:
    """Checked options for one job; InvalidOption where one of them cannot work."""
    options = JobOptions(**_checked(given, _JOB_CHECKS, task_name, InvalidOption))
    if options.delay is not None and options.run_at is not None:
        raise InvalidOption(f"{task_name}: delay and run_at exclude each other; give one of them")
    return options


def _checked(given: dict[str, Any], checks: dict[str, codec.Check], label: str, error: type[HoldfastError]) -> dict[str, Any]:
    kept = {}
    for option, value in given.items():
        if option not in checks:
            raise error(f"{label}: there is no option {option}; the options are {', '.join(checks)}")
        if value is not None:
            try:
                kept[option] = checks[option](value)
            except ValueError as wrong:
                raise error(f"{label}: {option} must be {wrong}, not {reprlib.repr(value)}") from None
    return kept


_waits = codec.several(codec.seconds(0.0), 1, ATTEMPTS_MAX)
_tags = codec.several(codec.text(TAG_CHARS_MAX), 0, TAGS_MAX)
_name = codec.text(NAME_CHARS_MAX)
_attempts = codec.whole(1, ATTEMPTS_MAX)
_int32 = codec.whole(-(2**31), 2**31 - 1)

_TASK_CHECKS: dict[str, codec.Check] = {
    **dict.fromkeys(("name", "queue", "noun", "rate"), _name),
    **dict.fromkeys(("needs", "budget"), codec.label),
    **dict.fromkeys(("timeout", "expected", "lease"), codec.seconds(0.001)),
    "aliases": codec.several(_name, 0, ALIASES_MAX),
    "priority": _int32,
    "max_attempts": _attempts,
    "backoff": lambda value: value if callable(value) else _waits(value),
    **dict.fromkeys(("isolate", "private", "announce"), codec.one_of(True, False)),
    "memory": codec.whole(1, 2**63 - 1),
    "cancel": codec.one_of("cooperative", "immediate"),
    "permanent": codec.several(codec.exception_type, 0, PERMANENT_MAX),
    "on_rate_limited": codec.one_of("fail", "wait"),
    "budget_max": codec.cents,
    "on_budget": codec.one_of("refuse", "hold"),
    "order_on_failure": codec.one_of("skip", "block"),
    "expose": codec.one_of("member", "admin", "owner"),
    "capture": codec.several(codec.one_of("logging", "debug", "print"), 0, 3),
    "on_failed": lambda value: value,  # a task, which task.py knows how to look at
}
_JOB_CHECKS: dict[str, codec.Check] = {
    **dict.fromkeys(("tenant", "project", "actor", "queue", "enqueued_by"), _name),
    **dict.fromkeys(("unique", "order"), codec.text(KEY_CHARS_MAX)),
    "priority": _int32,
    "max_attempts": _attempts,
    "delay": codec.seconds(0.0),
    "run_at": codec.moment,
    "on_duplicate": codec.one_of("return", "raise"),
    "tags": lambda value: list(_tags(value)),
    "meta": codec.json_object(META_BYTES_MAX),
}
