"""Uploading: reports go to a folder or to S3-compatible storage, whole or not at all."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import current
from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.model import Report
from holdfast.extraction.report import encoded, results_of, sarif_of
from holdfast.extraction.steps.s3 import Bucket, UploadFailed
from holdfast.pipeline import Done, StepFailed, StepUnavailable

TITLE = "Upload"
TRIES = 3
PAUSE_SECONDS = 1.0


async def upload(context: ExtractionContext) -> Done:
    context.reports["results.json"] = encoded(results_of(context))
    context.reports["results.sarif"] = encoded(sarif_of(context))
    storage = context.options.storage
    if storage is None:
        raise StepUnavailable("Upload skipped (no storage is set)")
    stored: list[Report] = []
    try:
        bucket = Bucket.named(storage) if storage.startswith("s3://") else None
        for name, content in context.reports.items():
            key = f"{context.project.id}/{current().job_id}/{name}"
            if bucket is None:
                await asyncio.to_thread(_write, Path(storage) / key, content)
            else:
                await _put(bucket, key, content)
            location = f"{storage.rstrip('/')}/{key}"
            stored.append(Report(name=name, location=location, media_type="application/json", bytes=len(content)))
    except (OSError, UploadFailed) as error:
        raise StepFailed(f"Upload failed: {error}", code="uploading_failed") from error
    if context.keeper is not None:
        await context.keeper.save_scan("reports", stored)
    return Done("Reports uploaded successfully", reports=len(context.reports))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    beside.write_bytes(content)
    os.replace(beside, path)


async def _put(bucket: Bucket, key: str, content: bytes) -> None:
    for left in reversed(range(TRIES)):
        try:
            return await asyncio.to_thread(bucket.put, key, content)
        except UploadFailed as error:
            if not left or not error.may_pass:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
