"""Clips with subtitles in three stages, each with a deadline of its own: cut the clip, transcribe it, burn the text in.

A stage's deadline is its expected time times the SLA factor of its queue: clip 6, asr 12, burnin 8, or CLIP_SLA_FACTOR,
ASR_SLA_FACTOR and BURNIN_SLA_FACTOR.

    holdfast --app examples.media.app:hf worker --queues clip,asr,burnin
"""

from __future__ import annotations

import os
from pathlib import Path

import httpx

from holdfast import Abort, Holdfast, RetryLater, current

ASR = os.environ.get("ASR_URL", "http://127.0.0.1:9004")
FOLDER = Path(os.environ.get("MEDIA_FOLDER", "media"))

hf = Holdfast()  # HOLDFAST_DATABASE_URL


@hf.task(queue="clip", expected=20)
async def clip(video: str, start: int, end: int) -> None:
    source, target = FOLDER / video, FOLDER / f"{current().job_id}.clip"
    if not 0 <= start < end:
        raise Abort(f"{start} to {end} is no part of a video", code="clip_invalid")
    current().progress(None, "cutting")
    _write(target, source.read_bytes()[start:end])  # your ffmpeg, by holdfast.pipeline.run_tool
    await _next(transcribe, target.name)


@hf.task(queue="asr", expected=60, max_attempts=5, backoff=(1, 10, 60))
async def transcribe(clip_name: str) -> None:
    current().progress(None, "listening")
    async with httpx.AsyncClient(timeout=None) as client:  # the deadline of the stage is the limit
        answer = await client.post(f"{ASR}/transcribe", content=(FOLDER / clip_name).read_bytes())
    if answer.status_code == 429:
        raise RetryLater(float(answer.headers.get("retry-after", 10)), "no free GPU", code="asr_busy")
    answer.raise_for_status()
    await _next(burn_in, clip_name, answer.json()["text"])


@hf.task(queue="burnin", expected=30)
async def burn_in(clip_name: str, text: str) -> str:
    current().progress(None, "burning in")
    target = FOLDER / clip_name.replace(".clip", ".final")
    _write(target, (FOLDER / clip_name).read_bytes() + f"\n[{text}]".encode())
    return target.name


async def _next(task: object, *args: str) -> None:
    """The next stage begins if and only if this one is done: both are one transaction."""
    run = current()
    async with hf.transaction() as tx:
        options = task.options(tenant=run.tenant, tags=["media"], meta={"before": run.job_id}, tx=tx)  # type: ignore[attr-defined]
        await options.enqueue(*args)
        await run.complete(tx=tx)


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: a run that dies leaves nothing that looks finished."""
    part = path.with_suffix(f"{path.suffix}.part")
    part.write_bytes(data)
    part.replace(path)
