"""/api/jobs: enqueue, look, cancel and retry, as callers meet them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.job import State
from holdfast.store.protocol import JobFilter
from tests.web.scene import Scene


async def test_enqueue_answers_202_with_the_address_of_the_job(scene: Scene) -> None:
    """And the job says who enqueued it, for which tenant."""
    answer = await scene.post("acme member", "/api/jobs", {"task": "add", "args": {"a": 1, "b": 2}, "tags": ["x"]})
    job = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/api/jobs/{job['id']}")
    found = (await scene.get("acme admin", answer.headers["location"])).json()
    assert (found["tenant"], found["args"], found["tags"], found["state"]) == ("acme", {"a": 1, "b": 2}, ["x"], "queued")
    assert found["enqueued_by"].startswith("key:")


async def test_a_job_shows_its_result_and_runs(scene: Scene) -> None:
    """Once a worker has done it."""
    job_id = await scene.enqueue()
    await scene.work()
    job = (await scene.get("acme viewer", f"/api/jobs/{job_id}")).json()
    assert (job["status"], job["result"], [run["outcome"] for run in job["runs"]]) == ("completed", 1, ["completed"])


@pytest.mark.case("P2", "queue-5")
async def test_a_list_shows_the_callers_tenant_only(scene: Scene) -> None:
    """Payload from admins on, machine and worker too; the service sees all tenants, or the one it names."""
    mine, foreign = await scene.enqueue(), await scene.enqueue("other member")
    await scene.work()
    seen = {role: (await scene.get(f"acme {role}", "/api/jobs")).json()["items"] for role in ("viewer", "member", "admin")}
    assert {role: [job["id"] for job in jobs] for role, jobs in seen.items()} == {role: [mine] for role in seen}
    assert [seen[role][0]["args"] for role in seen] == [None, None, {"a": 1}]
    assert [seen[role][0]["locked_by"] is None for role in seen] == [True, True, False]
    everybodys = (await scene.get("service", "/api/jobs")).json()["items"]
    assert [job["id"] for job in everybodys] == [foreign, mine]
    assert [job["id"] for job in (await scene.get("service", "/api/jobs?tenant=acme")).json()["items"]] == [mine]
    assert (await scene.get("acme owner", "/api/jobs?tenant=other")).status_code == 404


async def test_pages_follow_each_other_without_gap_or_repetition(scene: Scene) -> None:
    """`next_cursor` leads to the next page, and is null on the last."""
    ids = [await scene.enqueue() for _ in range(5)]
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = (await scene.get("acme viewer", f"/api/jobs?limit=2{cursor and '&cursor=' + cursor}")).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
    assert seen == ids[::-1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=completed", [0]),
        ("state=queued", [2, 1]),
        ("task=erase", [1]),
        ("tag=red", [2]),
        ("project=web", [2]),
        ("queue=no", []),
    ],
)
async def test_a_list_can_be_filtered(scene: Scene, query: str, expected: list[int]) -> None:
    """By state, queue, task, project and tag."""
    done = await scene.enqueue()
    await scene.work()
    ids = [
        done,
        await scene.enqueue("acme admin", "erase", args={"what": "x"}),
        await scene.enqueue(project="web", tags=["red"]),
    ]
    found = (await scene.get("acme viewer", f"/api/jobs?{query}")).json()["items"]
    assert [job["id"] for job in found] == [ids[number] for number in expected]


async def test_only_exposed_tasks_can_be_enqueued_by_a_tenant(scene: Scene) -> None:
    """Others are not there for it; the service may enqueue any task for any tenant."""
    assert (await scene.post("acme owner", "/api/jobs", {"task": "internal"})).json()["code"] == "task_unknown"
    assert (await scene.post("acme member", "/api/jobs", {"task": "erase", "args": {"what": "x"}})).status_code == 403
    answer = await scene.post("service", "/api/jobs", {"task": "internal", "tenant": "acme"})
    assert (answer.status_code, answer.json()["tenant"]) == (202, "acme")


async def test_nobody_enqueues_for_another_tenant_or_into_a_queue_of_his_choice(scene: Scene) -> None:
    """404 and 403, and nothing is queued."""
    assert (
        await scene.post("acme owner", "/api/jobs", {"task": "add", "args": {"a": 1}, "tenant": "other"})
    ).status_code == 404
    assert (await scene.post("acme owner", "/api/jobs", {"task": "add", "args": {"a": 1}, "queue": "vip"})).status_code == 403
    assert (await scene.hf.store.job_counts())["queued"] == 0


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"task": "add", "args": {"a": "one"}}, "args_invalid", "a"),
        ({"task": "add"}, "args_invalid", "a"),
        ({"task": "add", "args": {"a": 1, "self": 2}}, "args_invalid", "self"),
        ({"task": "nothing"}, "task_unknown", "nothing"),
        ({"task": "add", "args": {"a": 1}, "delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "option_invalid", "delay"),
        ({"task": "add", "args": {"a": 1}, "colour": "red"}, "request_invalid", "colour"),
        ({"task": "add", "args": {"a": 1}, "priority": 2**40}, "request_invalid", "priority"),
        ({"task": "add", "args": []}, "request_invalid", "args"),
        ({}, "request_invalid", "task"),
    ],
)
async def test_what_is_wrong_with_a_job_is_told_and_nothing_is_queued(
    scene: Scene, body: dict[str, Any], code: str, says: str
) -> None:
    """422 with a code and a sentence that names the culprit."""
    answer = await scene.post("acme member", "/api/jobs", body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, code)
    assert says in problem["detail"]
    assert await scene.hf.store.job_count(JobFilter(), 10) == 0


async def test_a_full_queue_is_429(scene: Scene) -> None:
    """The tenant has as many waiting as it may have."""
    await scene.hf.tenants.set("acme", queue_depth=1)
    await scene.enqueue()
    answer = await scene.post("acme member", "/api/jobs", {"task": "add", "args": {"a": 1}})
    assert (answer.status_code, answer.json()["code"]) == (429, "queue_full")


async def test_a_unique_key_meets_the_job_that_is_there(scene: Scene) -> None:
    """Answered as created false, or as 409 that names it."""
    first = await scene.enqueue(unique="k")
    again = await scene.post("acme member", "/api/jobs", {"task": "add", "args": {"a": 1}, "unique": "k"})
    assert (again.json()["id"], again.json()["created"]) == (first, False)
    refused = await scene.post(
        "acme member", "/api/jobs", {"task": "add", "args": {"a": 1}, "unique": "k", "on_duplicate": "raise"}
    )
    assert (refused.status_code, refused.json()["code"], refused.json()["job_id"]) == (409, "duplicate_job", first)


@pytest.mark.case("queue-6")
async def test_delete_cancels_a_queued_job_at_once(scene: Scene) -> None:
    """204; a second time 409, and 409 for a completed one."""
    job_id = await scene.enqueue()
    assert (await scene.call("acme member", "DELETE", f"/api/jobs/{job_id}")).status_code == 204
    again = await scene.call("acme member", "DELETE", f"/api/jobs/{job_id}")
    assert (again.status_code, again.json()["code"]) == (409, "already_cancelled")
    done = await scene.enqueue()
    await scene.work()
    late = await scene.post("acme member", f"/api/jobs/{done}/cancel")
    assert (late.status_code, late.json()["code"]) == (409, "already_completed")


async def test_a_running_job_is_cancelling_until_it_stops(scene: Scene) -> None:
    """202 both ways of asking, and the record says who."""
    first, second = await scene.enqueue(), await scene.enqueue()
    await scene.hf.tenants.set("acme", plan="pro")
    await scene.hf.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["add"], limit=2)
    deleted = await scene.call("acme member", "DELETE", f"/api/jobs/{first}")
    posted = await scene.post("acme member", f"/api/jobs/{second}/cancel")
    assert [(answer.status_code, answer.json()["status"]) for answer in (deleted, posted)] == [(202, "cancelling")] * 2
    assert posted.json()["cancel_requested_by"].startswith("key:")


@pytest.mark.case("L19")
async def test_retry_queues_a_failed_job_again(scene: Scene) -> None:
    """202 at attempt 0; 409 while it is queued."""
    job_id = await scene.enqueue(args={"a": -1})
    await scene.work()
    answer = await scene.post("acme member", f"/api/jobs/{job_id}/retry")
    assert (answer.status_code, answer.json()["state"], answer.json()["attempt"]) == (202, "queued", 0)
    assert (await scene.post("acme member", f"/api/jobs/{job_id}/retry")).json()["code"] == "job_queued"


@pytest.mark.case("P4")
async def test_a_viewer_cannot_cancel(scene: Scene) -> None:
    """403, by either way and in bulk, and the job stays."""
    job_id = await scene.enqueue()
    for method, path, body in (
        ("DELETE", f"/api/jobs/{job_id}", None),
        ("POST", f"/api/jobs/{job_id}/cancel", None),
        ("POST", "/api/jobs/cancel", {"where": {}, "confirm": 1}),
    ):
        answer = await scene.call("acme viewer", method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await scene.hf.get(job_id)).state is State.QUEUED


@pytest.mark.case("P3")
@pytest.mark.parametrize("role", ["viewer", "owner"])
async def test_another_tenants_job_is_not_there(scene: Scene, role: str) -> None:
    """404 for get, cancel, retry, why, runs, events, logs, downloads and streams, before anything is sent; it is unchanged."""
    job_id = await scene.enqueue()
    await scene.work()
    waiting = await scene.enqueue()
    await scene.key(f"other {role}")
    base = f"/api/jobs/{job_id}"
    paths = [base, f"{base}/why", f"{base}/runs", f"{base}/events", f"{base}/runs/1/logs", f"{base}/runs/1/logs?format=text"]
    paths += [f"{base}/runs/1/logs?format=ndjson", f"{base}/runs/1/logs/stream", f"/api/jobs/{waiting}/runs/1/logs/stream"]
    calls = [("GET", path) for path in paths]
    if role != "viewer":
        calls += [("DELETE", f"/api/jobs/{waiting}"), ("POST", f"/api/jobs/{waiting}/cancel"), ("POST", f"{base}/retry")]
    answers = {f"{method} {path}": await scene.call(f"other {role}", method, path) for method, path in calls}
    assert {call: (answer.status_code, answer.json()["code"]) for call, answer in answers.items()} == dict.fromkeys(
        answers, (404, "job_not_found")
    )
    assert (await scene.hf.get(waiting)).state is State.QUEUED


async def test_why_tells_members_nothing_of_workers(scene: Scene) -> None:
    """Admins read its name."""
    job_id = await scene.enqueue()
    await scene.hf.store.job_claim(worker="worker-7", machine=None, queues=["default"], tasks=["add"], limit=1)
    told = {role: (await scene.get(f"acme {role}", f"/api/jobs/{job_id}/why")).text for role in ("member", "admin")}
    assert ["worker-7" in told[role] for role in ("member", "admin")] == [False, True]


async def test_why_tells_tenants_nothing_of_who_paused_a_queue(scene: Scene) -> None:
    """The service's own names are not theirs to know."""
    job_id = await scene.enqueue()
    await scene.hf.queues.pause("default", by="key:of-the-operator")
    told = {who: (await scene.get(who, f"/api/jobs/{job_id}/why")).text for who in ("acme owner", "service")}
    assert ["key:of-the-operator" in told[who] for who in ("acme owner", "service")] == [False, True]
    assert '"sentence":"Queue default is paused since ' in told["acme owner"]


async def test_bulk_counts_first_and_acts_only_with_the_count(scene: Scene) -> None:
    """Of the caller's own jobs only."""
    ids = [await scene.enqueue() for _ in range(3)]
    foreign = await scene.enqueue("other member")
    asked = await scene.post("acme member", "/api/jobs/cancel", {"where": {"task": "add"}})
    assert asked.json() == {"count": 3, "capped": False, "done": 0, "skipped": 0}
    wrong = await scene.post("acme member", "/api/jobs/cancel", {"where": {"task": "add"}, "confirm": 4})
    assert wrong.json()["done"] == 0
    done = await scene.post("acme member", "/api/jobs/cancel", {"where": {"task": "add"}, "confirm": 3})
    assert done.json() == {"count": 3, "capped": False, "done": 3, "skipped": 0}
    assert [(await scene.hf.get(job_id)).state for job_id in (*ids, foreign)] == [*[State.CANCELLED] * 3, State.QUEUED]
    again = await scene.post("acme member", "/api/jobs/retry", {"where": {"state": "cancelled"}, "confirm": 3})
    assert again.json()["done"] == 3


async def test_the_dead_are_listed_and_replayed_by_filter(scene: Scene) -> None:
    """With what they were asked to do, for admins."""
    job_id = await scene.enqueue(args={"a": -1})
    await scene.work()
    (dead,) = (await scene.get("acme admin", "/api/dead")).json()["items"]
    assert (dead["id"], dead["error_code"], dead["args"]) == (job_id, "negative", {"a": -1})
    assert (await scene.get("other admin", "/api/dead")).json()["items"] == []
    replayed = await scene.post("acme member", "/api/jobs/retry", {"where": {"state": "failed"}, "confirm": 1})
    assert replayed.json()["done"] == 1


async def test_events_are_told_by_tenant_and_by_job(scene: Scene) -> None:
    """The organization's to its admins, a job's to all who see it; page by page."""
    job_id = await scene.enqueue()
    await scene.call("acme member", "DELETE", f"/api/jobs/{job_id}")
    of_job = (await scene.get("acme viewer", f"/api/jobs/{job_id}/events")).json()["items"]
    assert [event["type"] for event in of_job] == ["job.cancelled"]
    page = (await scene.get("acme admin", "/api/events?limit=1")).json()
    older = (await scene.get("acme admin", f"/api/events?limit=200&cursor={page['next_cursor']}")).json()
    assert {event["tenant"] for event in (*page["items"], *older["items"])} == {"acme"}
    assert page["items"][0]["id"] > older["items"][0]["id"]
    assert (await scene.get("acme member", "/api/events")).status_code == 403


async def test_a_tenant_reads_its_limits_and_only_the_service_sets_them(scene: Scene) -> None:
    """Nobody raises his own plan."""
    assert (await scene.get("acme viewer", "/api/tenants/acme")).json()["plan"] == "free"
    assert (await scene.call("acme owner", "PUT", "/api/tenants/acme/limits", json={"plan": "pro"})).status_code == 403
    answer = await scene.call("service", "PUT", "/api/tenants/acme/limits", json={"plan": "pro", "limit": 7})
    assert (answer.json()["plan"], answer.json()["limit"]) == ("pro", 7)
    back = await scene.call("service", "PUT", "/api/tenants/acme/limits", json={"limit": None})
    assert (back.json()["plan"], back.json()["limit"]) == ("pro", 10)
    unknown = await scene.call("service", "PUT", "/api/tenants/acme/limits", json={"plan": "gold"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "option_invalid")


async def test_pauses_are_for_those_whom_they_concern(scene: Scene) -> None:
    """An admin pauses his organization; queues are shared, so only the service pauses them."""
    assert (await scene.post("acme admin", "/api/tenants/acme/pause")).json()["paused_at"] is not None
    assert (await scene.post("acme admin", "/api/tenants/acme/resume")).json()["paused_at"] is None
    assert (await scene.post("acme owner", "/api/queues/default/pause")).status_code == 403
    assert (await scene.post("service", "/api/queues/default/pause")).json()["paused_at"] is not None
    await scene.enqueue()
    (queue,) = (await scene.get("acme viewer", "/api/queues")).json()["items"]
    assert (queue["name"], queue["paused_at"] is not None, queue["paused_by"], queue["waiting"]) == ("default", True, None, 1)


async def test_numbers_are_of_the_callers_own_jobs(scene: Scene) -> None:
    """Also those of queues."""
    await scene.enqueue()
    await scene.enqueue("other member")
    stats = (await scene.get("acme viewer", "/api/stats")).json()
    assert (stats["counts"]["queued"], stats["queues"]["default"]["load"]["waiting"]) == (1, 1)
    assert (await scene.get("service", "/api/stats")).json()["counts"]["queued"] == 2


async def test_an_argument_may_be_called_self(hf: Holdfast) -> None:
    """By name, an argument can have any name that a parameter can have."""

    @hf.task
    async def odd(self: int) -> int:
        return self

    job = await hf.enqueue("odd", {"self": 3})
    await hf.run_worker(exit_when_idle=0.0)
    assert await job.result() == 3
