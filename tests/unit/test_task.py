"""Tasks: what a decorated function promises before any database is involved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Annotated, Any

import msgspec
import pytest

from holdfast.errors import ConfigError, InvalidArguments, InvalidOption, PayloadTooLarge
from holdfast.job import Job, State
from holdfast.options import JobOptions, TaskSpec
from holdfast.task import JobSpec, Task, TaskMaker, make_task


class RecordingApp:
    """Stands for a Holdfast: keeps what it was asked to enqueue."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(payload_bytes_max=1000)
        self.enqueued: list[tuple[JobSpec[Any], Any]] = []

    async def enqueue_jobs(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> list[Job[Any]]:
        return self.enqueue_jobs_sync(jobs, tx)

    def enqueue_jobs_sync(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> list[Job[Any]]:
        self.enqueued += [(job, tx) for job in jobs]
        return [Job(id="1", queue="default", task=job.task.name, state=State.QUEUED, run_id="r") for job in jobs]


class Model:
    """A pydantic model as far as tasks can tell."""

    def __init__(self, size: int) -> None:
        self.size = size

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"size": self.size}

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        if not isinstance(value, dict) or "size" not in value:
            raise ValueError("size: field required")
        return cls(value["size"])


class Address(msgspec.Struct):
    city: str


class NotData:
    pass


async def send_receipt(order_id: int, email: str = "", *, copies: Annotated[int, msgspec.Meta(ge=1)] = 1) -> str:
    return f"{order_id} {email}"


def add(a: int, b: int = 2) -> int:
    return a + b


def rich(when: datetime, to: Address, model: Model | None = None, extra: dict[str, object] | None = None) -> None: ...


def names_what_never_comes(a: Never) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def takes_no_data(a: list[NotData]) -> None: ...


class Later(msgspec.Struct):
    x: int


def each(wrong: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(option, value) for option, values in wrong.items() for value in values]


@pytest.fixture
def app() -> RecordingApp:
    return RecordingApp()


@pytest.fixture
def send(app: RecordingApp) -> Task[Any, Any]:
    return make_task(app, send_receipt)


# -- still a function --------------------------------------------------------------------------------------------------


async def test_a_task_stays_an_ordinary_callable(app: RecordingApp) -> None:
    """Calling a task calls the function and enqueues nothing."""
    assert make_task(app, add)(3) == 5
    assert await make_task(app, send_receipt)(7, "a") == "7 a"
    assert app.enqueued == []


def test_the_decorator_works_bare_and_with_options(app: RecordingApp) -> None:
    """Both forms make a task and put it into the registry."""
    kept: list[Task[Any, Any]] = []
    task = TaskMaker(app, kept.append)
    bare, mail = task(add), task(queue="mail")(send_receipt)
    assert [bare, mail] == kept
    assert (bare.name, bare.spec.queue, mail.name, mail.spec.queue) == ("add", "default", "send_receipt", "mail")


def test_a_sync_task_with_a_timeout_is_isolated_unless_it_says_otherwise(app: RecordingApp) -> None:
    """A thread cannot be ended at its deadline, a process can."""

    def local() -> None: ...

    assert make_task(app, add, timeout=5).isolated
    assert not make_task(app, add, timeout=5, isolate=False).isolated
    assert not make_task(app, add).isolated
    assert not make_task(app, send_receipt, timeout=5).isolated
    assert not make_task(app, local, timeout=5).isolated


# -- options of the decorator ------------------------------------------------------------------------------------------


WRONG_TASK_OPTIONS: dict[str, list[Any]] = {
    "name": ["", "a\0", "x" * 201, 5],
    "timeout": [-1, 0, math.nan, "soon"],
    "expected": ["soon"],
    "lease": [True],
    "max_attempts": [0, 1.5],
    "priority": [2**31],
    "backoff": [(), [60, -1], 60],
    "isolate": ["yes"],
    "memory": [1000, -1],
    "cancel": ["at once"],
    "permanent": [[ValueError()]],
    "order_on_failure": ["stop"],
    "aliases": ["old_name"],
    "expose": ["everybody"],
    "queue": [""],
    "colour": ["red"],
}


@pytest.mark.parametrize(("option", "value"), each(WRONG_TASK_OPTIONS))
def test_a_wrong_option_is_refused_when_the_task_is_defined(app: RecordingApp, option: str, value: Any) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match=option):
        make_task(app, add, **{option: value})


def test_options_are_kept_in_their_plain_form(app: RecordingApp) -> None:
    """Lists become tuples, whole seconds become floats, nothing else changes."""
    spec = make_task(app, add, backoff=[60, 300], permanent=[KeyError], aliases=["plus"], timeout=5, isolate=False).spec
    assert (
        TaskSpec(name="add", backoff=(60.0, 300.0), permanent=(KeyError,), aliases=("plus",), timeout=5.0, isolate=False)
        == spec
    )


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda *args: None, r"\*args cannot be checked"),
        (lambda: None, "name="),
        ("mail", "only a function"),
        (make_task(RecordingApp(), add), "add: this function is a task already"),
        (takes_no_data, "takes_no_data: argument a has the type NotData"),
    ],
)
def test_what_cannot_be_a_task_is_refused_when_it_is_defined(app: RecordingApp, fn: Any, says: str) -> None:
    """The error says what to change."""
    with pytest.raises(ConfigError, match=says):
        make_task(app, fn)


def test_isolate_needs_an_importable_function(app: RecordingApp) -> None:
    """A child process could not find a function that was made inside another one."""

    def local() -> None: ...

    with pytest.raises(ConfigError, match="local: isolate needs"):
        make_task(app, local, isolate=True)


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "stored"),
    [
        ((7,), {}, b'{"order_id":7}'),
        ((7, "a"), {}, b'{"order_id":7,"email":"a"}'),
        ((7,), {"email": "a", "copies": 2}, b'{"order_id":7,"email":"a","copies":2}'),
        ((), {"order_id": 7}, b'{"order_id":7}'),
    ],
)
def test_arguments_are_stored_by_name_as_given(send: Task[Any, Any], args: Any, kwargs: Any, stored: bytes) -> None:
    """Defaults are left to the run, so that a new default reaches jobs that are queued already."""
    assert stored == send.bind_arguments(args, kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("x",), {}, "send_receipt: argument order_id: expected int, got str"),
        ((), {}, "send_receipt: argument order_id is missing"),
        ((7,), {"mail": "a"}, "send_receipt: there is no argument mail"),
        ((7,), {"order_id": 8}, "send_receipt: argument order_id was given twice"),
        ((7, "a", 2), {}, "send_receipt: takes 2 positional arguments, got 3"),
        ((7, "a\0"), {}, "send_receipt: argument email contains a NUL character, which PostgreSQL cannot store"),
        (
            (math.nan,),
            {},
            "send_receipt: argument order_id contains NaN or Infinity, which JSON does not know; use None instead",
        ),
        ((7, object()), {}, "send_receipt: argument email contains a value of type object, which has no JSON form"),
        ((7,), {"copies": 0}, "send_receipt: argument copies: expected int >= 1"),
    ],
)
def test_wrong_arguments_are_refused_at_enqueue(send: Task[Any, Any], args: Any, kwargs: Any, message: str) -> None:
    """The error names the task and the argument."""
    with pytest.raises(InvalidArguments) as caught:
        send.bind_arguments(args, kwargs)
    assert message == str(caught.value)


async def test_wrong_arguments_write_nothing(app: RecordingApp, send: Task[Any, Any]) -> None:
    """The app is not even asked."""
    with pytest.raises(InvalidArguments):
        await send.enqueue("x")
    with pytest.raises(InvalidArguments):
        send.enqueue_sync("x")
    assert app.enqueued == []


@pytest.mark.parametrize(
    "data",
    ['{"order_id":"7"}', "{}", '{"order_id":7,"gone":1}', "[]", "null", "", "{", '{"order_id":7,"email":' + "[" * 50_000],
)
def test_stored_arguments_that_no_longer_fit_are_a_typed_error(send: Task[Any, Any], data: str) -> None:
    """After a deploy changed the signature, the worker can fail the job with `args_invalid`."""
    with pytest.raises(InvalidArguments, match="send_receipt: ") as caught:
        send.load_arguments(data)
    assert caught.value.code == "args_invalid"


@pytest.mark.parametrize("data", ['{"order_id":7}', b'{"order_id":7}'])
def test_loading_fills_in_defaults(send: Task[Any, Any], data: str | bytes) -> None:
    """The function can be called with what is returned."""
    assert send.load_arguments(data) == {"order_id": 7, "email": "", "copies": 1}


def test_loaded_arguments_have_their_annotated_types(app: RecordingApp) -> None:
    """Dates, structs and pydantic models arrive as themselves."""
    task = make_task(app, rich)
    when = datetime(2030, 1, 1, tzinfo=UTC)
    loaded = task.load_arguments(task.bind_arguments((when, Address("Rome"), Model(3)), {"extra": {"a": [1, None]}}))
    assert (when, Address("Rome"), {"a": [1, None]}) == (loaded["when"], loaded["to"], loaded["extra"])
    assert loaded["model"].size == 3


def test_a_model_that_refuses_its_data_names_the_argument(app: RecordingApp) -> None:
    """What pydantic would say becomes part of InvalidArguments."""
    with pytest.raises(InvalidArguments, match="rich: argument model: size: field required"):
        make_task(app, rich).bind_arguments((datetime.now(UTC), Address("Rome"), {"length": 3}), {})


def test_unannotated_arguments_take_any_json(app: RecordingApp) -> None:
    """No annotation means no check."""
    task = make_task(app, lambda a, b=None: None, name="untyped")
    assert task.load_arguments(task.bind_arguments(({"x": [1]},), {})) == {"a": {"x": [1]}, "b": None}


def test_a_task_without_parameters_accepts_only_nothing(app: RecordingApp) -> None:
    """Arguments that were stored for an older signature are not dropped silently."""
    task = make_task(app, lambda: None, name="nothing")
    assert task.load_arguments(task.bind_arguments((), {})) == {}
    with pytest.raises(InvalidArguments, match="there is no argument a"):
        task.load_arguments('{"a":1}')


def test_annotations_may_name_what_is_defined_later() -> None:
    """They are resolved at the first use, when the module is complete."""
    namespace: dict[str, Any] = {}
    exec("def fn(a: 'Soon') -> None: ...", namespace)
    task = make_task(RecordingApp(), namespace["fn"])
    namespace["Soon"] = Later
    assert {"a": Later(1)} == task.load_arguments('{"a":{"x":1}}')


def test_an_annotation_that_never_resolves_is_explained_at_the_first_use(app: RecordingApp) -> None:
    """The task can be defined, and using it says which name is missing."""
    task = make_task(app, names_what_never_comes)
    with pytest.raises(ConfigError, match="name 'Never' is not defined"):
        task.bind_arguments((1,), {})


def test_a_payload_above_the_limit_is_refused_with_both_sizes(app: RecordingApp, send: Task[Any, Any]) -> None:
    """The last byte that fits is accepted, one more is not."""
    room = app.settings.payload_bytes_max - len(send.bind_arguments((7, ""), {}))
    assert len(send.bind_arguments((7, "x" * room), {})) == 1000
    with pytest.raises(PayloadTooLarge, match="1001 bytes and 1000 are allowed"):
        send.bind_arguments((7, "x" * (room + 1)), {})


# -- options of one job ------------------------------------------------------------------------------------------------


WRONG_JOB_OPTIONS: dict[str, list[Any]] = {
    "tenant": ["", 5],
    "project": ["x" * 201],
    "actor": ["a\0"],
    "queue": ["\ud800"],
    "unique": ["x" * 501],
    "order": [""],
    "priority": [2**31, True],
    "delay": [-1, math.inf, math.nan],
    "run_at": ["tomorrow", datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))],
    "tags": ["x", ["x"] * 51, [""]],
    "meta": [[1], {"a": math.nan}, {"a": "x" * 70_000}],
    "max_attempts": [0, 1001],
    "on_duplicate": ["ignore"],
    "colour": ["red"],
}


@pytest.mark.parametrize(("option", "value"), each(WRONG_JOB_OPTIONS))
def test_a_wrong_job_option_is_refused(send: Task[Any, Any], option: str, value: Any) -> None:
    """The error names the task and the option."""
    with pytest.raises(InvalidOption, match=f"send_receipt: .*{option}"):
        send.options(**{option: value})


def test_an_ambiguous_time_is_refused(send: Task[Any, Any]) -> None:
    """Nobody guesses which zone was meant, or which of two times."""
    with pytest.raises(InvalidOption, match="time zone"):
        send.options(run_at=datetime(2030, 1, 1))
    with pytest.raises(InvalidOption, match="exclude each other"):
        send.options(delay=1, run_at=datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_sync"])
async def test_options_and_transaction_reach_the_app(app: RecordingApp, send: Task[Any, Any], verb: str) -> None:
    """Both verbs hand over the same checked job."""
    tx = object()
    meta = {"a": 1}
    bound = send.options(tenant="acme", priority=5, delay=10, unique="r:7", order="acct:1", tags=["x"], meta=meta, tx=tx)
    meta["a"] = 2
    job = await bound.enqueue(7) if verb == "enqueue" else bound.enqueue_sync(7)
    [(spec, seen_tx)] = app.enqueued
    assert job.task == "send_receipt"
    assert (send, b'{"order_id":7}', tx) == (spec.task, spec.args, seen_tx)
    given: dict[str, Any] = {"tenant": "acme", "priority": 5, "delay": 10.0, "unique": "r:7", "order": "acct:1"}
    assert JobOptions(**given, tags=["x"], meta={"a": 1}) == spec.options


def test_a_job_for_enqueue_many_takes_no_transaction(send: Task[Any, Any]) -> None:
    """A transaction that would be ignored is refused."""
    assert send.options(tenant="acme").job(7).args == b'{"order_id":7}'
    with pytest.raises(InvalidOption, match="enqueue_many"):
        send.options(tx=object()).job(7)
