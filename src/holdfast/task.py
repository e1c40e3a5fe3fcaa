"""Tasks: a function, its options and its typed arguments."""

from __future__ import annotations

import contextlib
import functools
import inspect
import reprlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec
from msgspec.structs import asdict

from holdfast import codec
from holdfast.errors import ConfigError, InvalidArguments, InvalidOption, PayloadTooLarge
from holdfast.job import Failure, Job
from holdfast.options import EnqueueOptions, JobOptions, TaskOptions, TaskSpec, job_options, task_spec

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class JobSpec(msgspec.Struct, Generic[R], frozen=True):
    """A job that is checked and ready to be enqueued."""

    task: Task[..., R]
    args: bytes
    options: JobOptions


class TaskApp(Protocol):
    """What a task asks of the Holdfast it belongs to."""

    @property
    def settings(self) -> Any: ...

    def enqueue_jobs(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> Awaitable[list[Job[Any]]]: ...

    def enqueue_jobs_sync(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> list[Job[Any]]: ...


class Task(Generic[P, R]):
    """A function that can also be enqueued. Calling it calls the function itself."""

    def __init__(self, app: TaskApp, fn: Callable[P, Any], spec: TaskSpec) -> None:
        functools.update_wrapper(self, fn)
        self.app = app
        self.fn = fn
        self.spec = spec
        self.name = spec.name
        self.is_async = codec.is_async(fn)
        self.isolated = _isolated(fn, spec)
        self.guarded = spec.rate is not None or spec.needs is not None or spec.budget is not None
        """Whether something is asked before each run."""
        self._plain: BoundTask[P, R] = BoundTask(self, JobOptions(), None)
        parameters = inspect.signature(fn).parameters
        self._positional = tuple(name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD)
        self._takes_nothing = not parameters
        self._decode: Callable[[str | bytes], msgspec.Struct] = self._resolve_then_decode
        # An annotation may name what is defined further down: then it is resolved at the first use.
        with contextlib.suppress(NameError, AttributeError):
            self._resolve()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def job(self, *args: P.args, **kwargs: P.kwargs) -> JobSpec[R]:
        """One job for `hf.enqueue_many`."""
        return self._plain.job(*args, **kwargs)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return await self._plain.enqueue(*args, **kwargs)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return self._plain.enqueue_sync(*args, **kwargs)

    def options(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R]:
        """The same task with tenant, priority, delay and so on for the jobs enqueued through what is returned."""
        given: dict[str, Any] = dict(options)
        tx = given.pop("tx", None)
        return BoundTask(self, job_options(self.name, given), tx)

    def bind_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments as a JSON object, checked by the same decoder that the worker will read them with."""
        named = self._named(args, kwargs)
        try:
            data = codec.encode(named)
        except codec.NotJson as error:
            raise InvalidArguments(f"{self.name}: {codec.first_unencodable(named)}") from error
        most: int = self.app.settings.payload_bytes_max
        if len(data) > most:
            raise PayloadTooLarge(
                f"{self.name}: the arguments take {len(data)} bytes and {most} are allowed; store the data and pass its key"
            )
        self.load_arguments(data)
        return data

    def load_arguments(self, data: str | bytes) -> dict[str, Any]:
        """Typed keyword arguments, defaults filled in, from what `bind_arguments` made."""
        if self._takes_nothing and (data == "{}" or data == b"{}"):
            return {}
        try:
            return asdict(self._decode(data))
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidArguments(f"{self.name}: {codec.explain(error)}") from error
        except RecursionError:
            raise InvalidArguments(f"{self.name}: the arguments are nested too deeply") from None

    @functools.cached_property
    def failure_argument(self) -> str:
        """The name of the argument by which this task takes what its `on_failed` is told; ConfigError where it cannot."""
        try:
            name = self._positional[0]
            self.bind_arguments((), {name: Failure(job_id="", task="", queue="")})
        except (IndexError, InvalidArguments):
            raise ConfigError(
                f"task {self.name} cannot be an on_failed: it must take one argument, such as failure: holdfast.Failure"
            ) from None
        return name

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not args:
            return kwargs
        if len(args) > len(self._positional):
            raise InvalidArguments(f"{self.name}: takes {len(self._positional)} positional arguments, got {len(args)}")
        named = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name in named:
                raise InvalidArguments(f"{self.name}: argument {name} was given twice")
            named[name] = value
        return named

    def _resolve(self) -> None:
        try:
            self._decode = codec.signature_decoder(self.fn).decode
        except (TypeError, SyntaxError) as error:
            raise ConfigError(f"task {self.name}: {error}") from error

    def _resolve_then_decode(self, data: str | bytes) -> msgspec.Struct:
        try:
            self._resolve()
        except (NameError, AttributeError) as error:
            raise ConfigError(
                f"task {self.name}: an annotation cannot be resolved ({error}); import its type where the task is defined, "
                "not only under TYPE_CHECKING"
            ) from error
        return self._decode(data)


class AsyncTask(Task[P, R]):
    """A task made of an `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return cast(Coroutine[Any, Any, R], self.fn(*args, **kwargs))


class SyncTask(Task[P, R]):
    """A task made of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.fn(*args, **kwargs))


class BoundTask(Generic[P, R]):
    """A task with options for the jobs it makes."""

    def __init__(self, task: Task[P, R], options: JobOptions, tx: Any) -> None:
        self.task = task
        self.job_options = options
        self.tx = tx

    def job(self, *args: P.args, **kwargs: P.kwargs) -> JobSpec[R]:
        """One job for `hf.enqueue_many`, which takes a transaction itself."""
        if self.tx is not None:
            raise InvalidOption(f"{self.task.name}: a job for enqueue_many has no tx of its own; call enqueue_many(jobs, tx=…)")
        return self._spec(args, kwargs)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return (await self.task.app.enqueue_jobs([self._spec(args, kwargs)], self.tx))[0]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return self.task.app.enqueue_jobs_sync([self._spec(args, kwargs)], self.tx)[0]

    def _spec(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobSpec[R]:
        return JobSpec(self.task, self.task.bind_arguments(args, kwargs), self.job_options)


class TaskDecorator(Protocol):
    """What `hf.task(queue="mail")` returns."""

    # The overloads overlap on purpose: an `async def` is also a plain function that returns a coroutine.
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...


class TaskMaker:
    """What `hf.task` is: a decorator, bare or with options. `keep` puts each new task into the app's registry."""

    def __init__(self, app: TaskApp, keep: Callable[[Task[Any, Any]], None]) -> None:
        self._app = app
        self._keep = keep

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...

    @overload
    def __call__(self, fn: None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def __call__(self, fn: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        def decorate(fn: Callable[..., Any]) -> Task[Any, Any]:
            task = make_task(self._app, fn, **options)
            self._keep(task)
            return task

        return decorate if fn is None else decorate(fn)


def make_task(app: TaskApp, fn: Callable[..., Any], **options: Unpack[TaskOptions]) -> Task[Any, Any]:
    """A task from a function and its options; ConfigError where one of them cannot work."""
    given: dict[str, Any] = dict(options)
    own_name = getattr(codec.unwrapped(fn), "__name__", None)
    name = given["name"] = own_name if given.get("name") is None else given["name"]
    label = f"task {name if isinstance(name, str) and name.isidentifier() else reprlib.repr(name)}"
    if isinstance(fn, Task):
        raise ConfigError(f"{label}: this function is a task already; decorate it once")
    try:
        codec.check_signature(fn)
    except TypeError as error:
        raise ConfigError(f"{label}: {error}") from None
    if name is None or name == "<lambda>":
        raise ConfigError(f"{label}: this function has no name of its own; give the task one with name=…")
    spec = task_spec(label, given)
    if spec.isolate and not codec.is_importable(fn):
        raise ConfigError(f"{label}: isolate needs a function that another process can import; define it at module level")
    if spec.budget_max is not None and spec.budget is None:
        raise ConfigError(f"{label}: budget_max says how much of a budget one run may take; name it with budget=")
    if spec.memory is not None and not _isolated(fn, spec):
        raise ConfigError(f"{label}: memory limits isolated tasks only; add isolate=True")
    if spec.on_failed is not None:
        check_hook(label, spec.on_failed)
    return (AsyncTask if codec.is_async(fn) else SyncTask)(app, fn, spec)


def check_hook(label: str, hook: object) -> None:
    if not isinstance(hook, Task):
        raise ConfigError(f"{label}: on_failed must be a task (a function under @hf.task), not {reprlib.repr(hook)}")
    _ = hook.failure_argument


def _isolated(fn: Callable[..., Any], spec: TaskSpec) -> bool:
    if spec.isolate is None:
        return spec.timeout is not None and not codec.is_async(fn) and codec.is_importable(fn)
    return spec.isolate
