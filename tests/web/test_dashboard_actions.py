"""What is done by the dashboard: asked first, with number and filter; done once confirmed; written down with who did it."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx

from holdfast.job import State
from tests.web.scene import Scene


def said(answer: httpx.Response) -> str:
    """The page as a reader sees it, without its tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", answer.text)))


def fields_of(answer: httpx.Response) -> dict[str, str]:
    """What the question's own form would send."""
    question = answer.text[answer.text.index('id="question"') : answer.text.index("</section>")]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', question)
    return {html.unescape(name): html.unescape(value) for name, value in found}


async def confirm(scene: Scene, who: str, path: str, question: httpx.Response) -> httpx.Response:
    assert question.status_code == 200, question.text
    return await scene.call(who, "POST", path, data=fields_of(question))


async def events_of(scene: Scene, **where: Any) -> list[tuple[str, str | None]]:
    return [(event.type, event.actor) for event in await scene.hf.events(**where)]


async def test_a_failed_job_is_retried_from_its_page(scene: Scene) -> None:
    """The page offers it, the question names the job, and the audit trail knows who it was."""
    job_id = await scene.enqueue(args={"a": -1})
    await scene.work()
    page = await scene.get("acme member", f"/jobs/{job_id}")
    assert "negative" in said(page)
    assert f'action="/jobs/{job_id}/retry"' in page.text
    question = await scene.call("acme member", "POST", f"/jobs/{job_id}/retry")
    assert "Retry 1 job?" in said(question)
    assert job_id in said(question)
    assert (await scene.hf.get(job_id)).state is State.FAILED, "asking does nothing"
    done = await confirm(scene, "acme member", f"/jobs/{job_id}/retry", question)
    assert (done.status_code, done.headers["location"]) == (303, f"/jobs/{job_id}?done=retried")
    assert "Queued again." in said(await scene.get("acme member", done.headers["location"]))
    assert (await scene.hf.get(job_id)).state is State.QUEUED
    key = await scene.get("acme member", "/api/session")
    assert ("job.retried", key.json()["actor"]) in await events_of(scene, job_id=job_id)


async def test_dead_letters_are_replayed_one_by_one_or_together(scene: Scene) -> None:
    """The page says what the word means, the question uses it, and it is a retry."""
    first, second = [await scene.enqueue(args={"a": -1}) for _ in range(2)]
    await scene.work()
    page = await scene.get("acme member", "/dead")
    assert "Replay queues one again with the same arguments, as Retry does on its own page." in said(page)
    assert page.text.count('name="as" value="replay"') == 2
    assert ">Replay</button>" not in (await scene.get("acme viewer", "/dead")).text
    question = await scene.call("acme member", "POST", f"/jobs/{first}/retry", data={"as": "replay"})
    assert "Replay 1 job?" in said(question)
    assert (await confirm(scene, "acme member", f"/jobs/{first}/retry", question)).status_code == 303
    form = {"verb": "replay", "scope": "filter", "state": "failed", "back": "/dead"}
    question = await scene.call("acme member", "POST", "/jobs/act", data=form)
    assert "Replay 1 job?" in said(question) and "failed jobs of organization acme" in said(question)
    await confirm(scene, "acme member", "/jobs/act", question)
    assert [(await scene.hf.get(job_id)).state for job_id in (first, second)] == [State.QUEUED] * 2
    assert [kind for kind, actor in await events_of(scene, limit=50) if actor].count("job.retried") == 2


async def test_a_queued_job_is_cancelled_from_its_page(scene: Scene) -> None:
    """And what has ended is refused with the reason, as a page."""
    job_id = await scene.enqueue()
    path = f"/jobs/{job_id}/cancel"
    question = await scene.call("acme member", "POST", path)
    assert (await confirm(scene, "acme member", path, question)).status_code == 303
    assert (await scene.hf.get(job_id)).state is State.CANCELLED
    again = await confirm(scene, "acme member", path, question)
    assert again.status_code == 409
    assert "cancelled" in said(again)


async def test_bulk_by_filter_names_number_and_filter(scene: Scene) -> None:
    """Only what matches is retried; a number that is no longer right is asked about again."""
    failing = [await scene.enqueue(args={"a": -1}, tags=["nightly"]) for _ in range(3)]
    other = await scene.enqueue(args={"a": -1})
    await scene.work()
    form = {"verb": "retry", "scope": "filter", "state": "failed", "tag": "nightly", "back": "/dead?tag=nightly"}
    question = await scene.call("acme member", "POST", "/jobs/act", data=form)
    assert "Retry 3 jobs?" in said(question)
    assert "failed jobs of organization acme with the tag nightly" in said(question)
    await scene.hf.retry(failing[0])
    outdated = await confirm(scene, "acme member", "/jobs/act", question)
    assert "It was 3 when you were asked, and is 2 now: nothing was done yet." in said(outdated)
    done = await confirm(scene, "acme member", "/jobs/act", outdated)
    assert done.headers["location"] == "/dead?tag=nightly&done=retried&n=2"
    assert "2 jobs: queued again." in said(await scene.get("acme member", done.headers["location"]))
    assert {(await scene.hf.get(job_id)).state for job_id in failing} == {State.QUEUED}
    assert (await scene.hf.get(other)).state is State.FAILED


async def test_bulk_by_selection_acts_on_what_is_ticked(scene: Scene) -> None:
    """What another organization's form would tick is left alone, as is what no longer allows it."""
    mine = [await scene.enqueue() for _ in range(3)]
    foreign = await scene.enqueue("other member")
    await scene.hf.cancel(mine[2])
    form: Any = {"verb": "cancel", "id": [*mine, foreign, "nonsense"]}
    question = await scene.call("acme member", "POST", "/jobs/act", data=form)
    assert "Cancel 3 jobs?" in said(question)
    assert "3 × add" in said(question)
    done = await scene.call("acme member", "POST", "/jobs/act", data={**form, "confirm": "3"})
    assert done.headers["location"] == "/jobs?done=cancelled&n=2"
    assert [(await scene.hf.get(job_id)).state for job_id in (*mine, foreign)] == [State.CANCELLED] * 3 + [State.QUEUED]
    nothing = await scene.call("acme member", "POST", "/jobs/act", data={"verb": "cancel"})
    assert nothing.status_code == 422
    assert "No job is ticked" in said(nothing)


async def test_pauses_and_limits_are_changed_and_written_down(scene: Scene) -> None:
    """Of a queue and of an organization, by those who may."""
    steps = [
        ("service", "/queues/pause", {"queue": "mail"}, "queue.paused"),
        ("service", "/queues/resume", {"queue": "mail"}, "queue.resumed"),
        ("service", "/queues/limit", {"queue": "mail", "limit": "7"}, "queue.changed"),
        ("acme admin", "/organization/pause", {}, "tenant.paused"),
        ("acme admin", "/organization/resume", {}, "tenant.resumed"),
        ("service", "/organization/limits?tenant=acme", {"plan": "pro", "limit": "4"}, "tenant.changed"),
    ]
    for who, path, form, _event in steps:
        question = await scene.call(who, "POST", path, data=form)
        done = await confirm(scene, who, path, question)
        assert done.status_code == 303, f"{path}: {said(done)}"
    assert (await scene.hf.queues.get("mail")).limit == 7
    tenant = await scene.hf.tenants.get("acme")
    assert (tenant.plan, tenant.limit, tenant.paused_at) == ("pro", 4, None)
    written = [kind for kind, actor in await events_of(scene, limit=50) if actor]
    assert written[::-1] == [event for *_, event in steps]
    page = said(await scene.get("service", "/events"))
    assert all(event in page for *_, event in steps)


async def test_a_schedule_is_run_now_paused_and_resumed(scene: Scene) -> None:
    """By an admin of its organization; the page tells when next, and what became of the last."""
    await scene.hf.schedules.set("nightly", scene.hf.task_named("add"), "0 3 * * *", tenant="acme", args={"a": 1})
    form = {"schedule": "nightly"}
    for verb, place in (("run", "/jobs/"), ("pause", "/schedules?done=paused"), ("resume", "/schedules?done=resumed")):
        path = f"/schedules/{verb}"
        done = await confirm(scene, "acme admin", path, await scene.call("acme admin", "POST", path, data=form))
        assert done.headers["location"].startswith(place)
    await scene.work()
    page = said(await scene.get("acme viewer", "/schedules"))
    assert "nightly" in page and "0 3 * * *" in page and "completed" in page and "Run now" not in page


async def test_budgets_and_breakers_are_set(scene: Scene) -> None:
    """By the service role, asked first, and shown to those who may see them."""
    for path, form in (
        ("/budgets/cap?tenant=acme", {"kind": "ai", "amount": "49.50"}),
        ("/breakers/open", {"service": "payments", "reason": "vendor outage"}),
    ):
        done = await confirm(scene, "service", path, await scene.call("service", "POST", path, data=form))
        assert done.status_code == 303, said(done)
    assert (await scene.hf.budgets.get("acme", "ai")).cents == 4950
    assert "ai 0.00 / 49.50" in said(await scene.get("acme viewer", "/budgets"))
    assert "payments open: jobs wait" in said(await scene.get("service", "/breakers"))
    path, form = "/breakers/close", {"service": "payments"}
    await confirm(scene, "service", path, await scene.call("service", "POST", path, data=form))
    assert "payments closed: well" in said(await scene.get("service", "/breakers"))
    wrong = await scene.call("service", "POST", "/budgets/cap?tenant=acme", data={"kind": "ai", "amount": "much"})
    assert wrong.status_code == 422


async def test_keys_and_members_are_managed(scene: Scene) -> None:
    """A new key is shown once; nobody makes one above his own role; the last owner stays."""
    made = await scene.call("acme admin", "POST", "/keys/make", data={"role": "member", "expires": "30d", "name": "deploy"})
    secret = re.search(r"hf_[A-Za-z0-9_-]{43}", made.text)
    assert secret is not None
    assert (await scene.hf.keys.valid(secret[0])) is not None
    later = await scene.get("acme admin", "/keys")
    assert "deploy" in later.text
    assert secret[0] not in later.text
    above = await scene.call("acme admin", "POST", "/keys/make", data={"role": "owner", "expires": ""})
    assert above.status_code == 403
    await scene.call("acme owner", "POST", "/members/add", data={"user": "ana", "role": "owner"})
    path, form = "/members/remove", {"user": "ana"}
    last = await confirm(scene, "acme owner", path, await scene.call("acme owner", "POST", path, data=form))
    assert last.status_code == 409
    assert "last owner" in said(last)


async def test_a_wrong_number_is_said_and_changes_nothing(scene: Scene) -> None:
    """A limit that is none, a state that is none, a cursor that is none: a sentence, and the frame around it."""
    for path, form in (
        ("/queues/limit", {"queue": "mail", "limit": "many", "confirm": "1"}),
        ("/organization/limits?tenant=acme", {"plan": "gold", "confirm": "1"}),
        ("/jobs/act", {"verb": "explode", "confirm": "1"}),
    ):
        answer = await scene.call("service", "POST", path, data=form)
        assert answer.status_code == 422
        assert "Holdfast" in answer.text
    for path in ("/jobs?state=odd", "/jobs?last=9y", "/jobs?cursor=x", "/events?cursor=x"):
        assert (await scene.get("service", path)).status_code == 422
    assert {kind for kind, _ in await events_of(scene, limit=50)} == {"key.created"}
