"""Calls to an AI model as jobs: limited per user and organization, budgeted, paid for once, durable, polled by the page.

uvicorn examples.ai_intake.app:api
holdfast --app examples.ai_intake.app:hf worker
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel, Field

from holdfast import Abort, Holdfast, RetryLater, current, step
from holdfast.web.problems import handle_errors
from holdfast.web.ratelimit import rate_limit

MODEL = os.environ.get("MODEL_URL", "http://127.0.0.1:9002")
CENTS_MAX = 10
"""What one job may cost: so much of the month is set aside while it runs, so that many at once cannot overshoot."""
LABELS = ("bug", "feature", "question")

hf = Holdfast()  # HOLDFAST_DATABASE_URL
# `ai_intake` is there from the start: 30 per user-hour and 200 per org-hour, or RL_AI_INTAKE_USER_PER_HOUR and …ORG….


# -- the jobs ------------------------------------------------------------------------------------------------------------


async def ask_model(prompt: str) -> str:
    """One call that costs money. What can pass is tried again; what cannot fails at once."""
    async with httpx.AsyncClient(timeout=20) as client:
        answer = await client.post(
            f"{MODEL}/complete", json={"prompt": prompt}, headers={"Idempotency-Key": current().idempotency_token}
        )
    if answer.status_code in (429, 503):
        raise RetryLater(float(answer.headers.get("retry-after", 10)), "the model is busy", code="model_busy")
    if 400 <= answer.status_code < 500:
        raise Abort(f"the model refused: {answer.text[:200]}", code="model_refused")
    answer.raise_for_status()
    said = answer.json()
    await current().spend(said["cents"], "ai")
    current().log.info("the model answered", step="model", cents=said["cents"])
    return str(said["text"])


@hf.task(queue="ai", budget="ai", budget_max=CENTS_MAX, max_attempts=5, backoff=(1, 5, 30, 120), timeout=60)
async def classify(title: str, text: str) -> dict[str, str]:
    current().progress(0.1, "asking the model")
    # A step is remembered: an attempt after this one neither asks nor pays again.
    said = await step("classify", ask_model, f"Which of {', '.join(LABELS)} is this issue?\n{title}\n\n{text}")
    label = said.strip().lower()
    return {"label": label if label in LABELS else "question", "said": said}


@hf.task(queue="ai", budget="ai", budget_max=CENTS_MAX, max_attempts=5, backoff=(1, 5, 30, 120), timeout=60)
async def close_cycle(name: str, done: list[str], left: list[str]) -> str:
    return await step("close", ask_model, f"Sum up the cycle {name}. Done: {'; '.join(done)}. Left over: {'; '.join(left)}.")


@hf.task(queue="ai", budget="ai", budget_max=CENTS_MAX, max_attempts=5, backoff=(1, 5, 30, 120), timeout=60)
async def summarize_run(run_id: str) -> str:
    lines = await hf.logs(run_id, newest=True, limit=200)
    return await step("summary", ask_model, "What went wrong here?\n" + "\n".join(line.message for line in lines))


# -- the page ------------------------------------------------------------------------------------------------------------


def who(request: Request) -> dict[str, str | None]:
    """Your own login says this; headers stand in for it here."""
    return {"user": request.headers["x-user"], "tenant": request.headers["x-org"]}


Who = Annotated[dict[str, str], Depends(who)]


class Issue(BaseModel):
    title: str = Field(min_length=1, max_length=200)
    text: str = Field("", max_length=20_000)


class Cycle(BaseModel):
    name: str = Field(min_length=1, max_length=200)
    done: list[str] = []
    left: list[str] = []


@asynccontextmanager
async def life(app: FastAPI) -> AsyncIterator[None]:
    await hf.migrate()
    yield
    await hf.aclose()


api = FastAPI(lifespan=life)
handle_errors(api)
limited = [Depends(rate_limit(hf, "ai_intake", who))]  # 429 with Retry-After and X-RateLimit-*


@api.post("/issues", status_code=202, dependencies=limited)
async def intake(issue: Issue, caller: Who) -> dict[str, str]:
    job = await classify.options(tenant=caller["tenant"], actor=caller["user"]).enqueue(issue.title, issue.text)
    return {"job": job.id}


@api.post("/cycles/close", status_code=202, dependencies=limited)
async def cycle_close(cycle: Cycle, caller: Who) -> dict[str, str]:
    asked = close_cycle.options(tenant=caller["tenant"], actor=caller["user"], unique=f"cycle:{cycle.name}")
    return {"job": (await asked.enqueue(cycle.name, cycle.done, cycle.left)).id}


@api.post("/runs/{run_id}/summary", status_code=202, dependencies=limited)
async def run_summary(run_id: str, caller: Who) -> dict[str, str]:
    job = await summarize_run.options(tenant=caller["tenant"], actor=caller["user"], unique=f"run:{run_id}").enqueue(run_id)
    return {"job": job.id}


@api.get("/results/{job_id}")
async def poll(job_id: str, caller: Who) -> dict[str, Any]:
    """What the page asks every second or two, until `status` is completed, failed or cancelled."""
    job = await hf.get(job_id, tenant=caller["tenant"])  # another organization's job is not there: 404
    return {"status": job.status, "stage": job.stage, "result": job.output, "error": job.error_message}
