"""Jobs that wait in a Redis list move into the queue: none lost, none twice. Against a real Redis."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio

from holdfast import Holdfast
from holdfast.adopt.redis_import import Imported, RedisImport, Shape
from holdfast.adopt.shim import queue_function
from holdfast.errors import ConfigError, InvalidArguments, QueueFull, StorageUnavailable
from tests.support.processes import Processes
from tests.support.redis_server import RedisServer
from tests.support.waiting import until

LIST = "extraction-jobs"


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.remove()


@pytest.fixture
async def there(redis_server: RedisServer) -> AsyncIterator[Any]:
    """An empty Redis."""
    client = redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
def app(hf: Holdfast) -> Holdfast:
    @hf.task(name="extract")
    async def extract(project_id: str, number: int = 0) -> None: ...

    return hf


def importing(app: Holdfast, server: RedisServer, **shape: Any) -> RedisImport:
    return RedisImport(app, server.url, LIST, Shape("extract", **shape))


async def fill(there: Any, count: int, *more: str) -> None:
    await there.rpush(LIST, *(json.dumps({"project_id": f"p{n}", "number": n}) for n in range(count)), *more)


async def stored(app: Holdfast) -> list[tuple[str, int]]:
    table = "holdfast_jobs" if app.store.name == "sqlite" else "holdfast.jobs"
    async with app.transaction() as tx:
        rows = await tx.fetch(f"SELECT args FROM {table} ORDER BY id")
    return [(args["project_id"], args.get("number", 0)) for args in (json.loads(row["args"]) for row in rows)]


async def test_every_element_becomes_one_job_in_its_order(app: Holdfast, there: Any, redis_server: RedisServer) -> None:
    """Two that are alike are two jobs; afterwards both lists are empty, and another import finds nothing."""
    await fill(there, 150, json.dumps({"project_id": "p0", "number": 0}))
    report = await importing(app, redis_server).run()
    assert report == Imported(enqueued=151, dead_list=report.dead_list)
    assert await stored(app) == [(f"p{n}", n) for n in (*range(150), 0)]
    assert await there.keys() == []
    assert (await importing(app, redis_server).run()).enqueued == 0


async def test_what_can_be_no_job_goes_to_the_dead_list_as_it_was(app: Holdfast, there: Any, redis_server: RedisServer) -> None:
    """Bad JSON, no object, wrong arguments: counted and kept, and the others go on."""
    bad = ["{nope", '"text"', '{"project_id": 5}', '{"project_id": "p", "unknown": 1}']
    await fill(there, 2, *bad)
    work = importing(app, redis_server)
    report = await work.run()
    assert (report.enqueued, report.dead) == (2, 4)
    assert await there.lrange(work.dead_list, 0, -1) == bad


async def test_fields_are_mapped_to_arguments_and_to_whose_job_it_is(
    app: Holdfast, there: Any, redis_server: RedisServer
) -> None:
    """Also a field inside a field; what is not mapped is not passed on."""
    element = {"repo": {"name": "r1"}, "organization_id": 7, "enqueued_at": "long ago", "project": "p9"}
    await there.rpush(LIST, json.dumps(element), json.dumps({"repo": {}}), json.dumps({**element, "organization_id": None}))
    report = await importing(
        app, redis_server, arguments={"project_id": "repo.name"}, tenant="organization_id", project="project"
    ).run()
    assert (report.enqueued, report.dead) == (1, 2)
    (job,) = await app.jobs()
    assert (job.tenant, job.project, job.args) == ("7", "p9", {"project_id": "r1"})


class Killed(BaseException):
    """As if the process had ended right there."""


@pytest.mark.parametrize("point", ["before the enqueue", "after the enqueue"])
async def test_killed_at_the_worst_moment_nothing_is_lost_or_doubled(
    app: Holdfast, there: Any, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The next import finds what was under way, and knows what had become a job."""
    await fill(there, 250)
    real = RedisImport._enqueue
    calls = 0

    async def dying(self: RedisImport, good: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2 and point == "before the enqueue":
            raise Killed
        await real(self, good)
        if calls == 2:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(RedisImport, "_enqueue", dying)
        await importing(app, redis_server).run()
    report = await importing(app, redis_server).run()
    assert report.already_there == (100 if point == "after the enqueue" else 0)
    assert Counter(await stored(app)) == Counter((f"p{n}", n) for n in range(250))
    assert await there.keys() == []


async def test_two_imports_that_share_what_is_under_way_enqueue_it_once(
    app: Holdfast, there: Any, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that starts while another has elements in hand takes them too, and the id decides."""
    await fill(there, 100)
    real = RedisImport._enqueue

    async def slow(self: RedisImport, good: Any) -> None:
        monkeypatch.setattr(RedisImport, "_enqueue", real)
        other = await importing(app, redis_server).run()
        assert other.enqueued == 100
        await real(self, good)

    monkeypatch.setattr(RedisImport, "_enqueue", slow)
    report = await importing(app, redis_server).run()
    assert (report.enqueued, report.already_there) == (0, 100)
    assert len(await stored(app)) == 100


async def test_a_killed_command_goes_on_where_it_was(
    hf: Holdfast, there: Any, redis_server: RedisServer, database_url: str, processes: Processes
) -> None:
    """SIGKILL in the middle of a real process; the next one goes to the end: every element is one job."""
    total = 6_000
    await fill(there, total)
    command = ["-m", "holdfast", "--app", "tests.apps.importing:hf", "import", "redis", "--list", LIST, "--task", "extract"]
    env = {"HOLDFAST_DATABASE_URL": database_url, "REDIS_URL": redis_server.url}
    process = processes.python(*command, env=env)

    async def in_the_middle() -> bool:
        assert process.returncode is None, process.output
        return await there.llen(LIST) < total

    await until(in_the_middle)
    process.kill()
    last = processes.python(*command, "--json", env=env)
    assert await last.exited(timeout=60) == 0, last.output
    assert Counter(await stored(hf)) == Counter((f"p{n}", n) for n in range(total))
    assert await there.keys() == []


async def test_a_full_queue_stops_the_import_and_loses_nothing(app: Holdfast, there: Any, redis_server: RedisServer) -> None:
    """What was refused is still under way; once there is room, the next import goes on."""
    await app.tenants.set("acme", queue_depth=150)
    await there.rpush(LIST, *(json.dumps({"project_id": f"p{n}", "org": "acme"}) for n in range(250)))
    shape = {"arguments": {"project_id": "project_id"}, "tenant": "org"}
    with pytest.raises(QueueFull):
        await importing(app, redis_server, **shape).run()
    await app.tenants.set("acme", queue_depth=1000)
    fresh = Holdfast(app.settings.database_url)
    try:
        fresh.tasks = app.tasks
        for task in fresh.tasks.values():
            task.app = fresh
        await importing(fresh, redis_server, **shape).run()
        assert len(await stored(fresh)) == 250
    finally:
        await fresh.aclose()


async def test_a_redis_that_is_away_and_a_wrong_url_are_clear_errors(app: Holdfast) -> None:
    """With what to do."""
    with pytest.raises(StorageUnavailable, match="Redis cannot be used"):
        await RedisImport(app, "redis://127.0.0.1:1/0", LIST, Shape("extract")).run()
    with pytest.raises(ConfigError, match="no Redis URL"):
        RedisImport(app, "http://nowhere", LIST, Shape("extract"))


async def test_the_old_function_enqueues_instead(app: Holdfast) -> None:
    """Its shape stays; what only says whose job it is becomes the tenant."""
    queue_extraction_job = queue_function(
        app,
        "extract",
        "project_id",
        "organization_id",
        "repo",
        tenant="organization_id",
        project="project_id",
        renamed={"repo": "number"},
    )
    first = await queue_extraction_job("p1", "o1", 3)
    second = await queue_extraction_job("p2", organization_id="o1", number=4)
    assert [(job.tenant, (await app.get(job.id)).args) for job in (first, second)] == [
        ("o1", {"project_id": "p1", "number": 3}),
        ("o1", {"project_id": "p2", "number": 4}),
    ]
    for wrong in (
        lambda: queue_extraction_job("p", "o", 1, 2),
        lambda: queue_extraction_job("p", project_id="q"),
        lambda: queue_extraction_job("p", colour="red"),
    ):
        with pytest.raises(InvalidArguments):
            await wrong()
    assert len(await app.jobs()) == 2
