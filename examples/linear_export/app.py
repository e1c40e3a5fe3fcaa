"""A bulk export as one job, each issue once; then updates in both directions: webhooks in, webhooks out.

HOLDFAST_WEBHOOKS=true holdfast --app examples.linear_export.app:hf worker
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import httpx

from holdfast import Holdfast, RetryLater, current, step

TRACKER = os.environ.get("TRACKER_URL", "http://127.0.0.1:9003")
TRACKER_SECRET = os.environ.get("TRACKER_WEBHOOK_SECRET", "whsec_ZXhhbXBsZSBzZWNyZXQgb2YgMzIgYnl0ZXMhISEh")
TABLE = """CREATE TABLE IF NOT EXISTS exported_issues (
    tenant text NOT NULL, issue text NOT NULL, remote text NOT NULL, state text NOT NULL, PRIMARY KEY (tenant, issue))"""

hf = Holdfast(webhooks=True)  # HOLDFAST_DATABASE_URL; its workers deliver webhooks too


async def set_up() -> None:
    await hf.migrate()
    async with hf.transaction() as tx:
        await tx.execute(TABLE)


# -- 1. the export: one job, N issues, progress; no issue is made twice ---------------------------------------------------


@hf.task(queue="export", rate="linear_export", on_rate_limited="wait", max_attempts=20, backoff=(1, 5, 30, 120), timeout=3600)
async def export(issues: list[dict[str, str]], notify: list[str]) -> dict[str, int]:
    run = current()
    tenant = run.tenant or "nobody"
    async with httpx.AsyncClient(timeout=20) as client:
        for number, issue in enumerate(issues):
            run.check_cancelled()
            # Remembered issue by issue: an attempt after a failure goes on with the first that is missing.
            remote = await step(f"issue {issue['id']}", partial(create, client), issue)
            await keep(tenant, issue["id"], remote)
            run.progress((number + 1) / len(issues), f"{number + 1} of {len(issues)} issues")
    async with hf.transaction() as tx:
        # The end of the job, the message to the tenant's webhooks and everybody's notification: all of it, or none.
        await hf.outbox.send(tenant, "export.completed", {"job": run.job_id, "issues": len(issues)}, tx=tx)
        await hf.enqueue_many([notify_user.options(tenant=tenant).job(user, len(issues)) for user in notify], tx=tx)
        await run.complete({"exported": len(issues)}, tx=tx)
    return {"exported": len(issues)}


async def create(client: httpx.AsyncClient, issue: dict[str, str]) -> str:
    """The same key at every attempt: a tracker that has made the issue, and whose answer was lost, does not make another."""
    key = f"{current().idempotency_token}-{issue['id']}"
    answer = await client.post(f"{TRACKER}/issues", json=issue, headers={"Idempotency-Key": key})
    if answer.status_code == 429:
        raise RetryLater(float(answer.headers.get("retry-after", 10)), "the tracker wants a pause", code="tracker_busy")
    answer.raise_for_status()
    return str(answer.json()["id"])


async def keep(tenant: str, issue: str, remote: str) -> None:
    async with hf.transaction() as tx:
        await tx.execute(
            "INSERT INTO exported_issues (tenant, issue, remote, state) VALUES ($1, $2, $3, 'open') "
            "ON CONFLICT (tenant, issue) DO NOTHING",
            tenant, issue, remote,
        )  # fmt: skip


@hf.task(queue="notify")
async def notify_user(user: str, issues: int) -> None:
    current().log.info(f"{issues} issues were exported", to=user)  # your mailer


# -- 2. updates: the tracker's webhooks come in, ours go out, in order per issue ------------------------------------------


@hf.task(queue="export")
async def on_tracker_event(type: str, body: dict[str, Any]) -> None:
    if type != "issue.updated":
        return
    async with hf.transaction() as tx:
        found = await tx.fetch(
            "UPDATE exported_issues SET state = $2 WHERE remote = $1 RETURNING tenant, issue",
            body["data"]["id"],
            body["data"]["state"],
        )
        for row in found:
            data = {"issue": row["issue"], "state": body["data"]["state"]}
            await hf.outbox.send(row["tenant"], "issue.updated", data, key=row["issue"], tx=tx)
        await current().complete(tx=tx)


# POST /api/webhooks/in/linear of `holdfast server` takes them: signed, once each, a job before it is answered.
hf.inbound("linear", secret=TRACKER_SECRET, task=on_tracker_event)
