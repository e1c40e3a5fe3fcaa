"""The log of a run: pages, files, and live."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.job import LogLine
from holdfast.store.protocol import Claimed, JobFilter, LogBatch
from tests.support.waiting import until
from tests.web.scene import Scene


class Watcher:
    """Reads an SSE stream straight from the application; httpx's own transport would wait for its end."""

    def __init__(self, scene: Scene, who: str, path: str, **headers: str) -> None:
        self._scene, self._who = scene, who
        self._path, _, self._query = path.partition("?")
        self._headers = headers
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._left = asyncio.Event()
        self.text = ""
        self.start: dict[str, Any] = {}

    async def run(self) -> None:
        key = await self._scene.key(self._who)
        headers = [(b"authorization", f"Bearer {key}".encode())]
        headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in self._headers.items()]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http"}
        scope |= {"path": self._path, "raw_path": self._path.encode(), "query_string": self._query.encode(), "root_path": ""}
        scope |= {"headers": headers, "client": ("127.0.0.1", 1), "server": ("testserver", 80)}
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await self._left.wait()
                return {"type": "http.disconnect"}
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.start = message
            else:
                self.text += message["body"].decode()

        await self._scene.app(scope, receive, send)

    def leave(self) -> None:
        self._left.set()

    @property
    def events(self) -> list[dict[str, str]]:
        blocks = [block for block in self.text.split("\n\n")[:-1] if not block.startswith((":", "retry:"))]
        return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]

    @property
    def messages(self) -> list[str]:
        return [json.loads(event["data"])["message"] for event in self.events if "event" not in event]

    @property
    def end(self) -> dict[str, Any] | None:
        return next((json.loads(event["data"]) for event in self.events if event.get("event") == "end"), None)


@asynccontextmanager
async def watching(scene: Scene, who: str, path: str, **headers: str) -> AsyncIterator[Watcher]:
    watcher = Watcher(scene, who, path, **headers)
    task = asyncio.create_task(watcher.run())
    try:
        await until(lambda: "retry:" in watcher.text or task.done())
        yield watcher
    finally:
        watcher.leave()
        await asyncio.wait_for(task, 40)


async def start(scene: Scene, **job: Any) -> Claimed:
    """A job that this test runs itself."""
    await scene.enqueue(**job)
    claim = await scene.hf.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["add"], limit=1)
    return claim.jobs[0]


async def say(scene: Scene, run: Claimed, *messages: str, first: int = 1) -> None:
    lines = [LogLine(run_id=run.run_id, no=no, level="info", message=said) for no, said in enumerate(messages, first)]
    assert await scene.hf.store.log_append_if_leased([LogBatch(run.id, run.run_id, lines)])


async def finish(scene: Scene, run: Claimed) -> None:
    from holdfast.store.protocol import Completion

    assert await scene.hf.store.job_complete_if_leased([Completion(run.id, run.run_id, "null")])


async def test_a_page_of_lines_leads_to_the_next(scene: Scene) -> None:
    """By number."""
    run = await start(scene)
    await say(scene, run, "one", "two", "three")
    base = f"/api/jobs/{run.id}/runs/1/logs"
    first = (await scene.get("acme viewer", f"{base}?limit=2")).json()
    rest = (await scene.get("acme viewer", f"{base}?limit=2&after={first['next_after']}")).json()
    assert [line["message"] for line in (*first["items"], *rest["items"])] == ["one", "two", "three"]
    assert rest["next_after"] is None


async def test_a_run_that_will_never_be_has_no_stream(scene: Scene) -> None:
    """The next run of a job that waits can be followed, one after the end of the job cannot."""
    waiting = await scene.enqueue()
    async with watching(scene, "acme viewer", f"/api/jobs/{waiting}/runs/1/logs/stream") as watcher:
        await until(lambda: "retry:" in watcher.text)
    await scene.work()
    for no in (2, 3):
        answer = await scene.get("acme viewer", f"/api/jobs/{waiting}/runs/{no}/logs/stream")
        assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")


async def test_a_log_can_be_taken_home(scene: Scene) -> None:
    """As NDJSON and as text, where a line stays one line whatever is in it."""
    run = await start(scene)
    await say(scene, run, "one", "two\nlines \x1b[31mred")
    base = f"/api/jobs/{run.id}/runs/1/logs"
    ndjson = await scene.get("acme viewer", f"{base}?format=ndjson")
    assert [json.loads(line)["message"] for line in ndjson.text.splitlines()] == ["one", "two\nlines \x1b[31mred"]
    assert ndjson.headers["content-disposition"] == f'attachment; filename="{run.id}-1.ndjson"'
    text = await scene.get("acme viewer", f"{base}?format=text")
    assert [line.split(" ", 3)[3] for line in text.text.splitlines()] == ["one", r"two\nlines \x1b[31mred"]


async def test_a_run_that_never_was_is_404(scene: Scene) -> None:
    """Also its stream, unless it is the one that comes next."""
    job_id = await scene.enqueue()
    for path in ("runs/1/logs", "runs/2/logs/stream", "runs/9/logs"):
        assert (await scene.get("acme viewer", f"/api/jobs/{job_id}/{path}")).status_code == 404


async def test_a_stream_carries_lines_as_they_are_written_and_says_its_end(scene: Scene) -> None:
    """Numbered, from the first one on, with the headers that proxies need."""
    run = await start(scene)
    await say(scene, run, "one")
    async with watching(scene, "acme viewer", f"/api/jobs/{run.id}/runs/1/logs/stream") as watcher:
        await until(lambda: watcher.messages == ["one"])
        await say(scene, run, "two", first=2)
        await finish(scene, run)
        await until(lambda: watcher.end)
    headers = dict(watcher.start["headers"])
    assert (headers[b"content-type"], headers[b"x-accel-buffering"]) == (b"text/event-stream; charset=utf-8", b"no")
    assert watcher.text.startswith("retry: ")
    assert ([event.get("id") for event in watcher.events], watcher.end) == (["1", "2", None], {"reason": "ended"})


@pytest.mark.parametrize("header", [True, False])
async def test_a_reader_who_comes_back_misses_no_line_and_sees_none_twice(scene: Scene, header: bool) -> None:
    """By `Last-Event-ID`, as browsers do it, or by `?after=`."""
    run = await start(scene)
    await say(scene, run, "one", "two", "three")
    await finish(scene, run)
    path = f"/api/jobs/{run.id}/runs/1/logs/stream"
    how: dict[str, Any] = {"path": path, "last_event_id": "1"} if header else {"path": f"{path}?after=1"}
    async with watching(scene, "acme viewer", **how) as watcher:
        await until(lambda: watcher.end)
    assert watcher.messages == ["two", "three"]


async def test_a_waiting_jobs_first_run_can_be_watched_from_the_beginning(scene: Scene) -> None:
    """So that a page can open the stream right after it enqueued."""
    job_id = await scene.enqueue()
    async with watching(scene, "acme viewer", f"/api/jobs/{job_id}/runs/1/logs/stream") as watcher:
        await scene.work()
        await until(lambda: watcher.end)
    assert watcher.messages == ["adding", "done"]


@pytest.mark.case("P8")
async def test_who_loses_access_stops_receiving(hf: Holdfast) -> None:
    """The stream says so and ends, within the time between two checks."""
    scene = Scene(Holdfast(hf.settings.database_url, stream_check=0.05))
    run = await start(scene)
    made = await scene.hf.keys.create(tenant="acme", role="viewer")
    scene._keys["acme leaver"] = made.secret
    async with watching(scene, "acme leaver", f"/api/jobs/{run.id}/runs/1/logs/stream") as watcher:
        await say(scene, run, "for members")
        await until(lambda: watcher.messages == ["for members"])
        await scene.hf.keys.revoke(made.key.id)
        await until(lambda: watcher.end)
        await say(scene, run, "not for him", first=2)
    assert (watcher.end, watcher.messages) == ({"reason": "access_ended"}, ["for members"])
    await scene.hf.aclose()


async def test_streams_end_when_the_server_stops(scene: Scene) -> None:
    """Without an end event: the client is meant to come back, to another server."""
    run = await start(scene)
    async with watching(scene, "acme viewer", f"/api/jobs/{run.id}/runs/1/logs/stream") as watcher:
        scene.app.state.web.stopping.set()
        await until(lambda: not scene.app.state.web.streams)
    assert watcher.end is None


async def test_a_reader_who_leaves_is_forgotten(scene: Scene) -> None:
    """Nothing goes on for him."""
    run = await start(scene)
    async with watching(scene, "acme viewer", f"/api/jobs/{run.id}/runs/1/logs/stream"):
        assert sum(scene.app.state.web.streams.values()) == 1
    assert not scene.app.state.web.streams


async def test_one_caller_cannot_open_streams_without_end(scene: Scene) -> None:
    """429 beyond a hundred."""
    run = await start(scene)
    caller = (await scene.get("acme viewer", "/api/session")).json()["actor"]
    scene.app.state.web.streams[caller] = 100
    answer = await scene.get("acme viewer", f"/api/jobs/{run.id}/runs/1/logs/stream")
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_streams")


async def test_the_stream_of_jobs_tells_what_becomes_of_them(scene: Scene) -> None:
    """Of the caller's tenant only, with the state as people read it."""
    async with watching(scene, "acme viewer", "/api/jobs/stream") as watcher:
        foreign = await scene.enqueue("other member")
        job_id = await scene.enqueue()
        await until(lambda: [json.loads(event["data"])["status"] for event in watcher.events] == ["queued"])
        await scene.work()
        await until(lambda: json.loads(watcher.events[-1]["data"])["status"] == "completed")
    assert {json.loads(event["data"])["id"] for event in watcher.events} == {job_id}
    assert await scene.hf.store.job_count(JobFilter(tenant="other"), 10) == 1 and foreign


async def test_the_stream_of_jobs_resumes_where_it_was_left(scene: Scene) -> None:
    """What changed in between comes first; what was told is not told again."""
    async with watching(scene, "acme viewer", "/api/jobs/stream") as watcher:
        await scene.enqueue()
        await until(lambda: watcher.events)
    last = watcher.events[-1]["id"]
    missed = await scene.enqueue()
    async with watching(scene, "acme viewer", "/api/jobs/stream", last_event_id=last) as again:
        await until(lambda: again.events)
    assert [json.loads(event["data"])["id"] for event in again.events] == [missed]


async def test_who_leaves_in_the_middle_of_a_batch_is_told_of_all_of_it_again(scene: Scene) -> None:
    """Jobs that changed in one moment share it: only the last one of them has a number to come back with."""
    await scene.hf.tenants.set("acme", limit=10)
    async with watching(scene, "acme viewer", "/api/jobs/stream") as watcher:
        await scene.hf.enqueue_many([scene.hf.tasks["add"].options(tenant="acme").job(n) for n in range(3)])
        await until(lambda: len(watcher.events) == 3)
    assert ["id" in event for event in watcher.events] == [False, False, True]
