"""The task that delivers one message to one endpoint: checked address, signed body, and what each answer means."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Any

from holdfast.context import current
from holdfast.errors import Abort, RetryLater, Snooze, TargetRefused
from holdfast.people.common import note
from holdfast.redact import redact
from holdfast.task import Task, make_task
from holdfast.version import VERSION
from holdfast.webhooks.common import DELIVER, QUEUE, Platform
from holdfast.webhooks.sealing import unseal
from holdfast.webhooks.signing import headers_of
from holdfast.webhooks.targets import Target, resolve

BACKOFF = (5.0, 60, 300, 900, 1800, 3600, 3600, 7200, 14_400, 28_800, 43_200, 57_600, 86_400)
"""After each failed try; almost three days in all."""
ATTEMPTS = len(BACKOFF) + 1
SECONDS_MAX = 20.0
CONNECT_SECONDS = 5.0
ANSWER_BYTES = 2048
"""Of an answer, kept; no more of it is read."""
RETRY_AFTER_MAX = 86_400.0
ENDPOINT_WAIT_MAX = 300.0
"""An endpoint that fails is tried again by one message at a time, at most this long after; the others wait with it."""
DISABLE_AFTER_SECONDS = 2 * 86_400.0
DISABLE_AFTER_FAILURES = 10
GONE = 410


class DeliveryFailed(Exception):
    """One try failed; the next one comes later."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Gone(DeliveryFailed):
    """The receiver says that it wants no more."""


def delivery_task(app: Any) -> Task[..., Any]:
    """Belongs to the app that it is made for."""

    async def deliver(webhook: str, tenant: str, message: str, type: str, body: str) -> dict[str, Any]:
        return await _deliver(app, webhook, message, body)

    return make_task(
        app, deliver, name=DELIVER, queue=QUEUE, max_attempts=ATTEMPTS, backoff=BACKOFF, timeout=60, noun="delivery", capture=()
    )


async def _deliver(platform: Platform, webhook: str, message: str, body: str) -> dict[str, Any]:
    rows = await platform.store.shared("webhook_for_delivery", webhook)
    if not rows:
        raise Abort("The webhook was removed.", code="webhook_removed")
    row = rows[0]
    if row["disabled_at"] is not None:
        raise Abort(f"The webhook is disabled: {row['disabled_reason']}", code="webhook_disabled")
    if row["wait_seconds"] is not None and row["wait_seconds"] > 0:
        raise Snooze(row["wait_seconds"] + random.random())
    keys = platform.settings.encryption_keys
    signing = [unseal(stored, keys, webhook) for stored in (row["secret"], row["old_secret"]) if stored]
    data = body.encode()
    headers = headers_of(signing, message, int(row["now_at"].timestamp()), data)
    try:
        answer = await _post(platform, row["url"], headers, data)
    except TargetRefused as refused:
        await _failed(platform, row, str(refused))
        raise Abort(str(refused), code=refused.code) from None
    except DeliveryFailed as failed:
        await _failed(platform, row, str(failed), failed.retry_after or 0.0, gone=isinstance(failed, Gone))
        if isinstance(failed, Gone):
            raise Abort(str(failed), code="webhook_gone") from None
        delay = _backoff(current().attempt) if failed.retry_after is None else failed.retry_after
        raise RetryLater(delay, str(failed), code="webhook_failed") from None
    if row["failures"] and await platform.store.shared("webhook_recovered", webhook):
        await platform.store.shared("delivery_hasten", webhook)
    return answer


async def _post(platform: Platform, url: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    import httpx

    started = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS_MAX):
            targets = await resolve(url, platform.settings.webhook_networks)
            # trust_env: a proxy of the environment would connect to wherever it likes, past the check.
            timeout = httpx.Timeout(SECONDS_MAX, connect=CONNECT_SECONDS)
            async with httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False) as client:
                status, retry_after, text = await _first_that_connects(client, targets, headers, body)
    except TimeoutError:
        raise DeliveryFailed(f"No answer within {SECONDS_MAX:g} s.") from None
    except (httpx.HTTPError, OSError) as error:
        raise DeliveryFailed(f"The call failed: {type(error).__name__}: {redact(str(error))[:200]}") from None
    told = f"HTTP {status}: {text[:300]}" if text else f"HTTP {status}"
    if 200 <= status < 300:
        return {"status": status, "answer": text, "seconds": round(time.monotonic() - started, 3)}
    if status == GONE:
        raise Gone(told)
    if 300 <= status < 400:
        raise DeliveryFailed(f"HTTP {status}: redirects are not followed; give the final address.")
    raise DeliveryFailed(told, _seconds_of(retry_after) if status in (429, 503) else None)


async def _first_that_connects(
    client: Any, targets: list[Target], headers: dict[str, str], body: bytes
) -> tuple[int, str | None, str]:
    import httpx

    *others, last = targets
    for target in others:
        with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
            return await _call(client, target, headers, body)
    return await _call(client, last, headers, body)


async def _call(client: Any, target: Target, headers: dict[str, str], body: bytes) -> tuple[int, str | None, str]:
    said = {
        **headers,
        "host": target.host,
        "content-type": "application/json",
        "user-agent": f"holdfast/{VERSION}",
        "accept-encoding": "identity",  # what unpacks to gigabytes is not unpacked
    }
    request = client.build_request("POST", target.url, content=body, headers=said, extensions={"sni_hostname": target.name})
    answer = await client.send(request, stream=True)
    try:
        kept = b""
        async for part in answer.aiter_raw(ANSWER_BYTES):
            kept += part
            if len(kept) >= ANSWER_BYTES:
                break
    finally:
        await answer.aclose()
    text = redact(kept[:ANSWER_BYTES].decode(errors="replace").replace("\0", ""))
    return answer.status_code, answer.headers.get("retry-after"), text


async def _failed(
    platform: Platform, row: dict[str, Any], reason: str, retry_after: float = 0.0, *, gone: bool = False
) -> None:
    """Note it on the endpoint; disable one that has failed for too long, or says that it is gone."""
    wait = max(retry_after, min(ENDPOINT_WAIT_MAX, 2.0 ** min(row["failures"], 16)))
    async with platform.transaction() as tx:
        noted = await tx.shared("webhook_failed", row["id"], wait, reason[:500])
        if not noted:
            return
        failures, seconds = noted[0]["failures"], noted[0]["failing_seconds"]
        if gone or (failures >= DISABLE_AFTER_FAILURES and seconds >= DISABLE_AFTER_SECONDS):
            why = (
                "it answered 410 Gone"
                if gone
                else f"{failures} tries in a row failed over {seconds / 86_400:.1f} days: {reason}"
            )
            if await tx.shared("webhook_disable", row["id"], None, why[:500]):
                await note(tx, row["tenant"], "webhook.disabled", None, webhook=row["id"], reason=why[:500])


def _backoff(attempt: int) -> float:
    return BACKOFF[min(attempt, len(BACKOFF)) - 1] * (0.9 + 0.2 * random.random())


def _seconds_of(retry_after: str | None) -> float | None:
    """A number of seconds, or a date; None where it is neither."""
    from email.utils import parsedate_to_datetime

    if retry_after is None:
        return None
    try:
        seconds = (
            float(retry_after)
            if retry_after.strip().isdigit()
            else parsedate_to_datetime(retry_after).timestamp() - time.time()
        )
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(1.0, seconds), RETRY_AFTER_MAX)
