"""Tenants, plans, queues and `why` on the command line, on both databases; and the guide that shows them."""

from __future__ import annotations

import ast
import asyncio
import getpass
import inspect
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.cli.limits_text import BAR_CELLS, gauge

GUIDE = Path(__file__).parents[2] / "docs" / "tenants.md"


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Answer]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return run


@pytest.fixture
def holdfast(call: Command, database_url: str) -> Command:
    """Calls the command on a fresh database."""
    return lambda *arguments: call("--database", database_url, *arguments)


def jobs_of(database_url: str, tenant: str, *, queued: int = 0, running: int, queue: str = "default") -> list[str]:
    """Enqueues jobs and claims as many as shall run; their ids, oldest first."""

    async def make() -> list[str]:
        hf = Holdfast(database_url)

        @hf.task(queue=queue)
        async def work() -> None: ...

        made = await hf.enqueue_many([work.options(tenant=tenant).job() for _ in range(queued + running)])
        claim = await hf.store.job_claim(worker="w", machine=None, queues=[queue], tasks=["work"], limit=running)
        assert len(claim.jobs) == running
        await hf.aclose()
        return [job.id for job in made]

    return asyncio.run(make())


# -- tenants ---------------------------------------------------------------------------------------------------------


def test_what_was_set_is_what_is_shown(holdfast: Command) -> None:
    """A plan gives the numbers, a tenant's own ones go before them, and `plan` takes those back."""
    on_plan = holdfast("tenants", "set", "acme", "--plan", "starter", "--json").json
    own = holdfast("tenants", "set", "acme", "--limit", "7", "--queue-depth", "9", "--json").json
    one_back = holdfast("tenants", "set", "acme", "--limit", "plan", "--json").json
    shown = holdfast("tenants", "show", "acme", "--json").json
    assert [(t["plan"], t["limit"], t["queue_depth"]) for t in (on_plan, own, one_back)] == [
        ("starter", 3, 10_000),
        ("starter", 7, 9),
        ("starter", 3, 9),
    ]
    assert shown["tenant"] == one_back


def test_a_tenant_that_nobody_set_is_on_the_free_plan(holdfast: Command) -> None:
    """It can be shown, and is not listed."""
    shown = holdfast("tenants", "show", "new", "--json").json["tenant"]
    assert (shown["plan"], shown["limit"], shown["running"]) == ("free", 1, 0)
    assert holdfast("tenants", "list", "--json").json == {"tenants": [], "next_cursor": None}
    assert "plan free" in holdfast("tenants", "list").err


def test_tenants_are_listed_page_by_page(holdfast: Command) -> None:
    """The cursor of one page leads to the next, until there is none."""
    for tenant in ("c", "a", "b"):
        holdfast("tenants", "set", tenant, "--plan", "pro")
    first = holdfast("tenants", "list", "--limit", "2", "--json").json
    second = holdfast("tenants", "list", "--limit", "2", "--cursor", first["next_cursor"], "--json").json
    assert [tenant["id"] for tenant in first["tenants"] + second["tenants"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None


def test_people_see_what_is_used_of_a_limit_as_a_bar(holdfast: Command, database_url: str) -> None:
    """Running and queued jobs each stand against their limit, without colour in a pipe."""
    holdfast("tenants", "set", "acme", "--limit", "2", "--queue-depth", "4")
    jobs_of(database_url, "acme", queued=2, running=1)
    listed, shown = holdfast("tenants", "list").out, holdfast("tenants", "show", "acme").out
    assert "█████░░░░░ 1/2" in listed
    assert re.search(r"running +█████░░░░░ 1/2\nqueued +█████░░░░░ 2/4\nwhy +Tenant acme has 2 queued", shown)
    assert "\x1b" not in listed + shown


@pytest.mark.parametrize(
    ("used", "most", "filled"), [(0, 10, 0), (0, 0, 10), (1, 1000, 1), (5, 10, 5), (999, 1000, 9), (10, 10, 10), (12, 10, 10)]
)
def test_a_bar_is_full_or_empty_only_where_the_tenant_is(used: int, most: int, filled: int) -> None:
    """Rounding never hides the last free slot nor the first used one."""
    assert gauge(used, most).split()[0] == "█" * filled + "░" * (BAR_CELLS - filled)


def test_a_pause_names_who_paused(holdfast: Command) -> None:
    """For tenants as for queues: whoever is named, else the one who is logged in; and resuming ends it."""
    for group in ("tenants", "queues"):
        assert holdfast(group, "pause", "x", "--by", "ann", "--json").json["paused_by"] == "ann"
        assert " ago by ann" in holdfast(group, "list").out
        resumed = holdfast(group, "resume", "x", "--json").json
        assert (resumed["paused_at"], resumed["paused_by"]) == (None, None)
        assert holdfast(group, "pause", "x", "--json").json["paused_by"] == getpass.getuser()


def test_every_change_is_on_record_with_its_author(holdfast: Command, database_url: str, store_kind: str) -> None:
    """Setting, pausing and resuming write events that say who did it."""
    for group in ("tenants", "queues"):
        holdfast(group, "set", "x", "--limit", "3", "--by", "ann")
        holdfast(group, "pause", "x", "--by", "ben")
        holdfast(group, "resume", "x", "--by", "cy")

    async def read() -> list[tuple[str, str]]:
        hf = Holdfast(database_url)
        table = {"sqlite": "holdfast_events", "postgres": "holdfast.events"}[store_kind]
        async with hf.transaction() as tx:
            rows = await tx.fetch(f"SELECT type, actor FROM {table} ORDER BY id")
        await hf.aclose()
        return [(row["type"], row["actor"]) for row in rows]

    assert asyncio.run(read()) == [
        (f"{what}.{event}", by)
        for what in ("tenant", "queue")
        for event, by in (("changed", "ann"), ("paused", "ben"), ("resumed", "cy"))
    ]


# -- plans and queues ------------------------------------------------------------------------------------------------


def test_a_plan_that_is_changed_changes_for_its_tenants(holdfast: Command) -> None:
    """A new plan is listed and can be chosen; its tenants follow its numbers."""
    holdfast("plans", "set", "team", "--running", "20", "--queue-depth", "500")
    holdfast("tenants", "set", "acme", "--plan", "team")
    changed = holdfast("plans", "set", "team", "--running", "30", "--queue-depth", "600", "--weight", "3", "--json").json
    assert changed == {"name": "team", "max_running": 30, "queue_depth": 600, "weight": 3}
    assert changed in holdfast("plans", "list", "--json").json["plans"]
    assert re.search(r"^team +30 +600 +3 *$", holdfast("plans", "list").out, re.MULTILINE)
    assert holdfast("tenants", "show", "acme", "--json").json["tenant"]["limit"] == 30


def test_the_queues_tell_how_they_are_doing(holdfast: Command, database_url: str) -> None:
    """For people and for programs; of one tenant only, if asked."""
    jobs_of(database_url, "acme", queued=2, running=1, queue="mail")
    out = holdfast("queues", "stats").out
    assert "queued 2" in out and "running 1" in out
    assert re.search(r"^mail +2 ", out, re.MULTILINE)
    found = holdfast("queues", "stats", "--json").json
    assert (found["counts"]["queued"], found["queues"]["mail"]["load"]["running"]) == (2, 1)
    assert holdfast("queues", "stats", "--tenant", "nobody", "--json").json["queues"] == {}


def test_a_queues_limit_comes_and_goes(holdfast: Command, database_url: str) -> None:
    """What runs is shown against the limit; `none` takes it away."""
    assert "No queue was set" in holdfast("queues", "list").err
    assert holdfast("queues", "set", "mail", "--limit", "5", "--json").json["limit"] == 5
    jobs_of(database_url, "acme", running=1, queue="mail")
    assert "██░░░░░░░░ 1/5" in holdfast("queues", "list").out
    assert holdfast("queues", "set", "mail", "--limit", "none", "--json").json["limit"] is None
    assert re.search(r"^mail +no limit *$", holdfast("queues", "list").out, re.MULTILINE)


# -- why -------------------------------------------------------------------------------------------------------------


def test_why_names_what_holds_a_job_and_its_tenant(holdfast: Command, database_url: str) -> None:
    """The limit and the job that uses it up, as a sentence and for programs."""
    running, waiting = jobs_of(database_url, "acme", queued=1, running=1)
    job, tenant = holdfast("jobs", "why", waiting, "--json").json, holdfast("tenants", "why", "acme", "--json").json
    assert (job["code"], job["details"]["limit"], job["details"]["jobs"]) == ("tenant_limit", 1, [running])
    assert tenant["code"] == "tenant_limit"
    assert holdfast("jobs", "why", waiting).out == f"{job['sentence']}\n"
    assert holdfast("tenants", "why", "acme").out == f"{tenant['sentence']}\n"


def test_why_of_a_job_that_is_not_there_exits_with_3(holdfast: Command) -> None:
    """Like every other command on a job."""
    for job_id in ("00000000-0000-7000-8000-000000000000", "nonsense"):
        assert holdfast("jobs", "why", job_id).code == 3


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        "tenants set acme",
        "tenants set acme --limit -1",
        "tenants set acme --limit many",
        "tenants set acme --limit none",
        "tenants set acme --limit 2147483648",
        "tenants set acme --plan gold",
        "tenants set '' --plan pro",
        "tenants pause acme --by ''",
        "tenants show ''",
        f"tenants why {'x' * 201}",
        "tenants list --limit 0",
        "plans set team --running 1",
        "plans set team --running -1 --queue-depth 1",
        "plans set team --running 1 --queue-depth 1 --weight 0",
        "queues set mail",
        "queues set mail --limit plan",
        "queues resume ''",
    ],
)
def test_what_makes_no_sense_exits_with_2_and_changes_nothing(holdfast: Command, arguments: str) -> None:
    """One line says what is wrong."""
    before = [holdfast(group, "list", "--json").json for group in ("tenants", "plans", "queues")]
    answer = holdfast(*shlex.split(arguments))
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert [holdfast(group, "list", "--json").json for group in ("tenants", "plans", "queues")] == before


def test_a_plan_that_is_not_there_is_answered_with_those_that_are(holdfast: Command) -> None:
    """The sentence helps to go on, and is JSON where JSON was asked for."""
    answer = holdfast("tenants", "set", "acme", "--plan", "gold", "--json")
    error = json.loads(answer.err)["error"]
    assert error["code"] == "option_invalid"
    assert "free, pro, starter" in error["message"]


def test_a_database_that_is_not_migrated_exits_with_5(call: Command) -> None:
    """Each of the groups says which command helps."""
    for group in ("tenants", "plans", "queues"):
        answer = call("--database", "sqlite:///new.db", group, "list")
        assert answer.code == 5
        assert "holdfast migrate" in answer.err


# -- the guide -------------------------------------------------------------------------------------------------------


def test_the_guide_does_what_it_says(call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snippets run in their order, and every command answers as printed there (… stands for anything)."""
    program: dict[str, Any] = {"__name__": "guide"}
    with asyncio.Runner() as runner:
        for language, text in re.findall(r"^```(python|console)\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S):
            if language == "python":
                runner.run(_run(text, program))
                continue
            for command, expected in _commands(text):
                if command[0] == "export":
                    monkeypatch.setenv(*command[1].split("=", 1))
                    continue
                answer = call(*command[1:])
                printed = "\n".join(line.rstrip() for line in answer.out.splitlines())
                assert answer.code == 0, answer.err
                assert re.fullmatch(re.escape(expected).replace("…", ".*"), printed), f"{command}\n{printed}"
        runner.run(program["hf"].aclose())


async def _run(text: str, program: dict[str, Any]) -> None:
    done = eval(compile(text, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), program)
    if inspect.isawaitable(done):
        await done


def _commands(text: str) -> Iterator[tuple[list[str], str]]:
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        yield shlex.split(command), expected.rstrip("\n")
