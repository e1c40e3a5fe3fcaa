"""What is wrong with an installation, and what to do about it. Looks only; changes nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import importlib.util
import os
import platform
import re
import time
from datetime import UTC, datetime, timedelta

from holdfast import sealing
from holdfast.app import Holdfast
from holdfast.database_url import parse_database_url
from holdfast.doctor_check import Check
from holdfast.doctor_postgres import examine_postgres
from holdfast.errors import HoldfastError, StorageError
from holdfast.job import State
from holdfast.prune import RETENTION
from holdfast.settings import Settings
from holdfast.store.protocol import JobFilter
from holdfast.version import VERSION

SLOW_SECONDS = 0.1
CLOCK_SECONDS_MAX = 5.0
SEEN_SECONDS = 60.0
UNSERVED_SECONDS = 60.0
NOTIFY_SECONDS = 2.0
PAGE = 200
PAGES_MAX = 10
PROVIDER_SECONDS = 20.0
COUNT_MAX = 100_000
OTHER_VARIABLES = {"HOLDFAST_APP", "HOLDFAST_MACHINE_ID"}
"""Read elsewhere than in the settings."""


async def examine(hf: Holdfast) -> list[Check]:
    """All that can be looked at, in the order in which it should be mended."""
    checks = [Check("version", "ok", f"Holdfast {VERSION} on Python {platform.python_version()}"), *settings_checks(hf)]
    shown = parse_database_url(hf.settings.database_url).safe
    try:
        version = await hf.store.schema_version()
    except StorageError as error:
        name = "schema" if error.code != "storage_unavailable" else "database"
        return [*checks, Check(name, "error", str(error), _advice(error, shown))]
    began = time.monotonic()
    await hf.store.schema_version()  # again: the first one also had to connect
    checks += [_latency(shown, time.monotonic() - began), Check("schema", "ok", f"version {version}")]
    offset = await hf.store.clock_offset()
    checks.append(_clock(offset))
    now = datetime.now(UTC) - timedelta(seconds=offset)
    for check in (_engine, _listening):
        checks.append(await check(hf))
    if hf.store.name == "postgres":
        checks += await examine_postgres(hf)
    checks += [await _workers(hf, now), await _unserved(hf), await _leases(hf, now)]
    if hf.machines.configured:
        checks.append(await _machines(hf))
    checks += [await _schedules(hf), await _retention(hf, now), await _sizes(hf), *await _encryption(hf)]
    return checks


def _advice(error: StorageError, shown: str) -> str:
    return {
        "not_migrated": "run `holdfast migrate`",
        "schema_too_new": "upgrade the holdfast package",
        "not_our_database": "name another database",
    }.get(error.code, f"check that {shown} is right and that the database runs")


def _latency(shown: str, seconds: float) -> Check:
    message = f"{shown} answers in {seconds * 1000:.1f} ms"
    if seconds < SLOW_SECONDS:
        return Check("database", "ok", message)
    return Check("database", "warning", message, "move the workers nearer to the database: each claim waits for it")


def _clock(offset: float) -> Check:
    message = f"this host is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} the database"
    if abs(offset) < CLOCK_SECONDS_MAX:
        return Check("clock", "ok", message)
    return Check("clock", "warning", message, "set this host's clock: leases are safe, but times in logs mislead")


# -- the database's own kind -----------------------------------------------------------------------------------------


async def _engine(hf: Holdfast) -> Check:
    async with hf.transaction() as tx:
        if hf.store.name == "sqlite":
            (version,) = (await tx.fetch("SELECT sqlite_version() AS v"))[0].values()
            (mode,) = (await tx.fetch("PRAGMA journal_mode"))[0].values()
            if mode in ("wal", "memory"):
                return Check("engine", "ok", f"SQLite {version}, journal {mode}")
            return Check("engine", "error", f"SQLite journal is {mode}", "put the file on a local disk, so that WAL works")
        (version,) = (await tx.fetch("SHOW server_version"))[0].values()
        (number,) = (await tx.fetch("SELECT current_setting('server_version_num')::int AS n"))[0].values()
    pooler = ", behind a pooler (no statement is prepared)" if hf.store.pooled else ""
    if number >= 150_000:
        return Check("engine", "ok", f"PostgreSQL {version}{pooler}")
    return Check("engine", "warning", f"PostgreSQL {version} is older than what is tested", "use PostgreSQL 15 or newer")


async def _listening(hf: Holdfast) -> Check:
    """Sends a notification to itself: behind a transaction pooler LISTEN succeeds, but nothing ever arrives."""
    if hf.store.name == "sqlite":
        return Check("wake-ups", "ok", "by watching the file")
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake(what: str) -> None:
        if what == "doctor":
            loop.call_soon_threadsafe(heard.set)

    stop = await hf.store.listen(wake)
    try:
        async with hf.transaction() as tx:
            await tx.execute("SELECT pg_notify('holdfast', 'doctor')")
        async with asyncio.timeout(NOTIFY_SECONDS):
            await heard.wait()
    except TimeoutError:
        return Check(
            "wake-ups",
            "warning",
            "notifications do not arrive, so jobs start by polling",
            "set HOLDFAST_LISTEN_URL to an address past the transaction pooler, or accept up to a second of delay",
        )
    finally:
        await stop()
    return Check("wake-ups", "ok", "LISTEN and NOTIFY work")


# -- what is going on --------------------------------------------------------------------------------------------------


async def _workers(hf: Holdfast, now: datetime) -> Check:
    limit = now - timedelta(seconds=SEEN_SECONDS)
    seen = [row for row in await hf.workers() if row.last_seen_at and row.last_seen_at > limit]
    if not seen and hf.machines.configured:
        return Check("workers", "ok", "none now; machines bring them when there is work")
    if not seen:
        return Check("workers", "warning", "none seen in the last minute", "start one with `holdfast worker`")
    slots = sum(row.concurrency for row in seen)
    running = sum(row.running for row in seen)
    return Check("workers", "ok", f"{len(seen)} seen in the last minute, {running} jobs running in {slots} slots")


async def _unserved(hf: Holdfast) -> Check:
    found = await hf.store.job_unserved(UNSERVED_SECONDS, 5)
    if not found:
        return Check("unserved jobs", "ok", "none")
    names = ", ".join(f"{count} of {task} in queue {queue}" for queue, task, count in found)
    advice = "start a worker for that queue whose app has that task, or give the task its old name as an alias"
    return Check("unserved jobs", "error", f"no live worker knows: {names}", advice)


async def _machines(hf: Holdfast) -> Check:
    """The provider is asked for its list, and nothing else."""
    name = hf.settings.machine_provider
    try:
        async with asyncio.timeout(PROVIDER_SECONDS):
            found = await hf.machines.list()
    except (HoldfastError, TimeoutError) as error:
        advice = "check its token and settings; until then jobs wait for workers that are started by hand"
        return Check("machines", "error", f"{name}: {error or 'no answer'}", advice)
    up = sum(machine.up_seconds is not None for machine in found)
    return Check("machines", "ok", f"{name}: {len(found)} known, {up} up, at most {hf.settings.machine_max}")


async def _leases(hf: Holdfast, now: datetime) -> Check:
    """A lease that has just expired is the reaper's next business; one that expired long ago has no reaper."""
    limit = now - timedelta(seconds=hf.settings.reaper_interval + 10)
    cursor: str | None = None
    stuck = 0
    for _ in range(PAGES_MAX):
        page = await hf.store.job_list(JobFilter(state=State.RUNNING), cursor=cursor, limit=PAGE)
        stuck += sum(1 for job in page if job.lease_expires_at and job.lease_expires_at < limit)
        if len(page) < PAGE:
            break
        cursor = page[-1].id
    if not stuck:
        return Check("leases", "ok", "none expired and left")
    return Check(
        "leases",
        "error",
        f"{stuck} running jobs lost their worker and nobody rescues them",
        "run `holdfast reaper` or a worker",
    )


# -- by the clock, and how much there is -----------------------------------------------------------------------------


async def _schedules(hf: Holdfast) -> Check:
    found = [one for one in await hf.schedules.list(limit=PAGE) if one.task is not None]
    bad = [one for one in found if one.error and not one.paused_at]
    more = "at least " if len(found) >= PAGE - 1 else ""
    if not bad:
        return Check("schedules", "ok", f"{more}{len(found)}, all keep their ticks" if found else "none")
    first = f"{bad[0].name}{f' of {bad[0].tenant}' if bad[0].tenant else ''}: {bad[0].error}"
    advice = "mend or remove it; `holdfast schedules list` shows them all"
    return Check("schedules", "error", f"{len(bad)} of {more}{len(found)} made no job at their last tick: {first}", advice)


async def _retention(hf: Holdfast, now: datetime) -> Check:
    known = await hf.schedules.get(RETENTION)
    gone = sum(count for count in (known.result or {}).values() if isinstance(count, int))
    last = "has not run yet" if known.last_at is None else f"last ran at {known.last_at:%Y-%m-%d %H:%M} UTC, {gone} rows went"
    if known.paused_at is not None:
        resume = f"`holdfast schedules resume {RETENTION}` ends that"
        return Check("retention", "warning", f"is paused, so that nothing is ever deleted; it {last}", resume)
    if known.next_at < now - timedelta(days=1) and known.last_at is not None:
        return Check("retention", "warning", f"nobody deletes what is old: it {last}", "run a worker, or `holdfast reaper`")
    return Check("retention", "ok", last)


async def _encryption(hf: Holdfast) -> list[Check]:
    """Of the newest jobs: whether what is sealed could be opened here. Nothing where nobody seals."""
    keys, jobs = hf.settings.encryption_keys, await hf.jobs(limit=PAGE)
    sealed = [text for job in jobs for text in map(sealing.sealed_text, (job.args, job.output)) if text is not None]
    closed = [text for text in sealed if not (keys and sealing.vault_of(keys).knows(text))]
    if closed:
        names = ", ".join(sorted({text.partition(":")[0][:8] for text in closed}))
        told = f"{len(closed)} of {len(sealed)} sealed values cannot be opened here; they need the key {names}"
        return [Check("encryption", "error", told, "add it behind the others in HOLDFAST_ENCRYPTION_KEYS")]
    if not keys:
        return []
    if importlib.util.find_spec("cryptography") is None:
        return [Check("encryption", "error", "the package cryptography is missing", "pip install 'holdfast[encryption]'")]
    return [Check("encryption", "ok", f"{len(keys)} keys, the first one seals")]


async def _sizes(hf: Holdfast) -> Check:
    (counts,) = await hf.store.shared("size_counts", COUNT_MAX)
    async with hf.transaction() as tx:
        if hf.store.name == "sqlite":
            (pages,) = (await tx.fetch("PRAGMA page_count"))[0].values()
            (size,) = (await tx.fetch("PRAGMA page_size"))[0].values()
            size *= pages
        else:
            ours = "SELECT oid FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r'"
            (size,) = (await tx.fetch(f"SELECT sum(pg_total_relation_size(oid))::bigint AS n FROM ({ours}) AS t"))[0].values()
    told = (f"{count:,}{'+' if count >= COUNT_MAX else ''} {name.replace('_', ' ')}" for name, count in counts.items() if count)
    return Check("sizes", "ok", f"{size / 1e6:,.1f} MB: {', '.join(told) or 'empty'}")


# -- settings ----------------------------------------------------------------------------------------------------------


def settings_checks(hf: Holdfast) -> list[Check]:
    doubts = [*_odd_values(hf.settings), *_odd_variables()]
    return doubts or [Check("settings", "ok", "nothing odd")]


def _odd_values(settings: Settings) -> list[Check]:
    doubts = []
    if settings.heartbeat > settings.lease / 2:
        message = f"a heartbeat each {settings.heartbeat:g} s leaves no second chance within a lease of {settings.lease:g} s"
        doubts.append(Check("settings", "warning", message, f"set heartbeat to {settings.lease / 3:.3g} or less"))
    if settings.poll_busy > settings.poll_idle:
        message = f"poll_busy ({settings.poll_busy:g} s) is longer than poll_idle ({settings.poll_idle:g} s)"
        doubts.append(Check("settings", "warning", message, "swap them"))
    if settings.backoff_base > settings.backoff_max:
        message = f"backoff_base ({settings.backoff_base:g} s) is longer than backoff_max ({settings.backoff_max:g} s)"
        doubts.append(Check("settings", "warning", message, "raise backoff_max"))
    if parse_database_url(settings.database_url).path == ":memory:":
        message = "the database lives in memory: other processes cannot see it, and its jobs die with this one"
        doubts.append(Check("settings", "warning", message, "name a file: sqlite:///jobs.db"))
    return doubts


def _odd_variables() -> list[Check]:
    """A misspelt variable is silently ignored everywhere else."""
    rules = (field.metadata.get("rule") for field in dataclasses.fields(Settings))
    known = {name for rule in rules if rule for name in rule.env if name.startswith("HOLDFAST_")} | OTHER_VARIABLES
    doubts = []
    for name in sorted(os.environ):
        if not name.startswith("HOLDFAST_") or name in known or re.fullmatch(r"HOLDFAST_(\w+_SLA_FACTOR|TEST_\w+)", name):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        advice = f"did you mean {near[0]}?" if near else "remove it"
        doubts.append(Check("settings", "warning", f"{name} is set but means nothing", advice))
    return doubts


def app_check(error: HoldfastError | None, name: str | None, tasks: int) -> Check:
    """Whether the app with the tasks can be used; the caller has tried."""
    if error is not None:
        return Check("app", "error", str(error), "mend it, or name another with --app module:hf")
    if name is None:
        return Check("app", "warning", "none found", "name it with --app module:hf to check its tasks too")
    if not tasks:
        return Check("app", "error", f"{name} has no tasks", "import the modules that define them")
    return Check("app", "ok", f"{name} has {tasks} tasks")
