"""What a role may do and see, as decided in one place."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigError, Forbidden, UnknownTask
from holdfast.job import Job, Run, State
from holdfast.web.access import RULES, Act, Caller, Role, may, require, task_to_enqueue, visible_job, visible_run, visible_why
from holdfast.why import Why


def caller(role: Role) -> Caller:
    return Caller(None if role is Role.SERVICE else "acme", role, "key:1")


@pytest.fixture
def hf(sqlite_url: str) -> Holdfast:
    app = Holdfast(sqlite_url)
    app.task(name="open", expose="member")(lambda: None)
    app.task(name="for_admins", expose="admin")(lambda: None)
    app.task(name="closed")(lambda: None)
    app.task(name="secretive", expose="member", private=True)(lambda: None)
    return app


def job(hf: Holdfast, task: str = "open") -> Job[None]:
    return Job(
        id="1",
        queue="q",
        task=task,
        state=State.RUNNING,
        run_id="2",
        args={"card": "4111"},
        machine_id="m1",
        locked_by="host-1",
        _app=hf,
    )


def test_every_act_has_a_rule() -> None:
    """None is left open by being forgotten."""
    assert set(RULES) == set(Act)


@pytest.mark.parametrize(
    ("act", "least"),
    [
        (Act.READ_JOBS, Role.VIEWER),
        (Act.ENQUEUE, Role.MEMBER),
        (Act.CANCEL, Role.MEMBER),
        (Act.RETRY, Role.MEMBER),
        (Act.MANAGE_KEYS, Role.ADMIN),
        (Act.PAUSE, Role.ADMIN),
        (Act.READ_ARGUMENTS, Role.ADMIN),
        (Act.READ_MACHINES, Role.ADMIN),
        (Act.MANAGE_MEMBERS, Role.OWNER),
        (Act.SET_LIMITS, Role.SERVICE),
        (Act.OPERATE, Role.SERVICE),
    ],
)
def test_an_act_takes_its_role(act: Act, least: Role) -> None:
    """Whoever is more may too, whoever is less is told what it takes."""
    for role in Role:
        if role >= least:
            require(caller(role), act)
        else:
            with pytest.raises(Forbidden, match=least.word):
                require(caller(role), act)


def test_only_exposed_tasks_can_be_enqueued_by_a_tenant(hf: Holdfast) -> None:
    """One that is not exposed looks like one that is not there; the service may enqueue any."""
    assert task_to_enqueue(caller(Role.MEMBER), hf.tasks, "open").name == "open"
    assert task_to_enqueue(caller(Role.SERVICE), hf.tasks, "closed").name == "closed"
    told = []
    for name in ("closed", "nothing"):
        with pytest.raises(UnknownTask) as refused:
            task_to_enqueue(caller(Role.OWNER), hf.tasks, name)
        told.append(str(refused.value).replace(name, "…"))
    assert told[0] == told[1]
    with pytest.raises(UnknownTask):
        task_to_enqueue(caller(Role.SERVICE), hf.tasks, "nothing")


def test_a_task_names_the_role_that_may_enqueue_it(hf: Holdfast) -> None:
    """A viewer none."""
    with pytest.raises(Forbidden, match="admin"):
        task_to_enqueue(caller(Role.MEMBER), hf.tasks, "for_admins")
    with pytest.raises(Forbidden):
        task_to_enqueue(caller(Role.VIEWER), hf.tasks, "open")
    assert task_to_enqueue(caller(Role.ADMIN), hf.tasks, "for_admins")


def test_a_task_is_not_exposed_to_a_role_that_there_is_not(hf: Holdfast) -> None:
    """Viewers cannot enqueue, and the service needs no permission."""
    for role in ("viewer", "service", "everybody"):
        with pytest.raises(ConfigError, match="expose"):
            hf.task(name="work", expose=role)(lambda: None)  # type: ignore[arg-type]


def test_arguments_and_machines_are_for_admins(hf: Holdfast) -> None:
    """Others get null."""
    seen = {role: visible_job(caller(role), job(hf)) for role in Role}
    assert {role for role in Role if seen[role]["args"]} == {Role.ADMIN, Role.OWNER, Role.SERVICE}
    assert {role for role in Role if seen[role]["machine_id"] or seen[role]["locked_by"]} == {
        Role.ADMIN,
        Role.OWNER,
        Role.SERVICE,
    }
    run = Run(run_no=1, run_id="2", attempt=1, outcome="running", worker="host-1", machine_id="m1")
    shown = visible_run(caller(Role.MEMBER), run)
    assert (shown["worker"], shown["machine_id"]) == (None, None)
    assert visible_run(caller(Role.ADMIN), run)["worker"] == "host-1"


@pytest.mark.parametrize("task", ["secretive", "unknown here"])
def test_private_arguments_are_shown_to_nobody(hf: Holdfast, task: str) -> None:
    """Nor those of a task that this program does not know: it may be a private one."""
    assert {visible_job(caller(role), job(hf, task))["args"] for role in Role} == {None}


def test_why_tells_the_worker_to_admins_only() -> None:
    """The sentence stays one for the others."""
    why = Why("running", "It is not waiting: it runs on host-1.", {"worker": "host-1"})
    told = visible_why(caller(Role.VIEWER), why)
    assert (told["sentence"], told["details"]["worker"]) == ("It is not waiting: it runs.", None)
    assert "host-1" in visible_why(caller(Role.ADMIN), why)["sentence"]


def test_may_asks_without_raising() -> None:
    """For what is left out rather than refused."""
    assert (may(caller(Role.VIEWER), Act.READ_ARGUMENTS), may(caller(Role.ADMIN), Act.READ_ARGUMENTS)) == (False, True)
