"""Schedules: one job per tick whatever the number of processes, over clock changes, crashes and long nights."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import ConfigError, Conflict, InvalidArguments, InvalidOption, NotFound, UnknownTask
from holdfast.processes.scheduler import LOOK_SECONDS, REST_SECONDS, STRANGE_SECONDS, Scheduler
from tests.support.waiting import until

START = datetime(2030, 1, 1, tzinfo=UTC)


def with_report(hf: Holdfast) -> Any:
    @hf.task
    async def report(kind: str = "daily") -> str:
        return kind

    return report


async def jobs_of(hf: Holdfast, **where: Any) -> list[Any]:
    return list(reversed(await hf.jobs(limit=200, **where)))


async def kept(hf: Holdfast, clock: ManualClock, *moments: datetime) -> None:
    """Two schedulers look at each of these moments, at the same time."""
    for moment in moments:
        clock.advance((moment - clock.now()).total_seconds())
        await asyncio.gather(Scheduler(hf).one_pass(), Scheduler(hf).one_pass())


@pytest.mark.case("C37")
async def test_two_schedulers_make_one_job_per_tick(hf_at: Holdfast, clock: ManualClock) -> None:
    """Ten minutes of a schedule by the minute, eight schedulers at once at every tick: ten jobs, in the order of the ticks."""
    with_report(hf_at)
    made = await hf_at.schedules.set("minutely", "report", "* * * * *")
    assert made.next_at == START + timedelta(minutes=1)
    for _ in range(10):
        clock.advance(60)
        await asyncio.gather(*(Scheduler(hf_at).one_pass() for _ in range(8)))
    jobs = await jobs_of(hf_at)
    assert [job.run_at for job in jobs] == [START + timedelta(minutes=minute) for minute in range(1, 11)]
    assert {job.enqueued_by for job in jobs} == {"schedule:minutely"}


@pytest.mark.parametrize(
    ("day", "ticks"),
    [
        ("2030-03-31", ["2030-03-30T01:30", "2030-03-31T01:00", "2030-04-01T00:30"]),
        ("2030-10-27", ["2030-10-26T00:30", "2030-10-27T00:30", "2030-10-28T01:30"]),
    ],
)
async def test_two_schedulers_over_a_change_of_clocks_make_exactly_the_right_jobs(
    hf_at: Holdfast, clock: ManualClock, day: str, ticks: list[str]
) -> None:
    """A job at 02:30 in Paris: right after the gap in spring, once in the repeated hour in autumn, one on the days around.
    An hourly one beside it runs once in every hour that passes."""
    with_report(hf_at)
    noon_before = datetime.fromisoformat(f"{day}T12:00+00:00") - timedelta(days=2)
    clock.advance((noon_before - clock.now()).total_seconds())
    await hf_at.schedules.set("nightly", "report", "30 2 * * *", tz="Europe/Paris")
    await hf_at.schedules.set("hourly", "report", "15 * * * *", tz="Europe/Paris", args={"kind": "hourly"})
    await kept(hf_at, clock, *(noon_before + timedelta(minutes=15 * step) for step in range(1, 4 * 72 + 1)))
    made = await jobs_of(hf_at)
    nightly = [job.run_at for job in made if job.enqueued_by == "schedule:nightly"]
    assert nightly == [datetime.fromisoformat(f"{tick}+00:00") for tick in ticks]
    hourly = [job.run_at for job in made if job.enqueued_by == "schedule:hourly"]
    assert hourly == [noon_before + timedelta(minutes=15, hours=hour) for hour in range(72)]


@pytest.mark.parametrize(("missed", "jobs"), [("skip", 0), ("once", 1)])
async def test_ticks_that_nobody_kept_are_skipped_or_caught_up_once(
    hf_at: Holdfast, clock: ManualClock, missed: Any, jobs: int
) -> None:
    """Five hours without a scheduler: no job, or one; then it goes on with the tick that lies ahead."""
    with_report(hf_at)
    await hf_at.schedules.set("hourly", "report", "0 * * * *", missed=missed)
    clock.advance(hours=5, minutes=30)
    await kept(hf_at, clock, clock.now())
    assert len(await jobs_of(hf_at)) == jobs
    assert (await hf_at.schedules.get("hourly")).next_at == START + timedelta(hours=6)
    await kept(hf_at, clock, START + timedelta(hours=6))
    assert len(await jobs_of(hf_at)) == jobs + 1


async def test_a_restored_backup_fires_nothing_of_the_past(hf_at: Holdfast, clock: ManualClock) -> None:
    """A database that wakes up two weeks later makes no job, not even for schedules that catch up."""
    with_report(hf_at)
    await hf_at.schedules.set("minutely", "report", 60)
    await hf_at.schedules.set("careful", "report", "0 * * * *", missed="once")
    clock.advance(days=14, seconds=30)
    await kept(hf_at, clock, clock.now())
    assert await jobs_of(hf_at) == []
    assert all(one.next_at > clock.now() for one in await hf_at.schedules.list() if one.task)


async def test_a_scheduler_that_dies_between_its_steps_loses_and_doubles_nothing(
    hf_at: Holdfast, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has moved the schedule on and enqueued the job, and dies before the commit: the next one makes that job."""
    with_report(hf_at)
    await hf_at.schedules.set("hourly", "report", "0 * * * *")
    clock.advance(hours=1)

    async def dies(specs: Any, tx: Any) -> Any:
        await type(hf_at).enqueue_jobs(hf_at, specs, tx)
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(hf_at, "enqueue_jobs", dies)
        with pytest.raises(asyncio.CancelledError):
            await Scheduler(hf_at).one_pass()
    assert await jobs_of(hf_at) == []
    await kept(hf_at, clock, clock.now())
    assert len(await jobs_of(hf_at)) == 1


async def test_a_paused_schedule_makes_no_job_and_resumes_with_the_next_tick(hf_at: Holdfast, clock: ManualClock) -> None:
    """What fell into the pause is not made up for; pausing twice is a conflict that says so."""
    with_report(hf_at)
    await hf_at.schedules.set("hourly", "report", "0 * * * *", missed="once", tenant="acme")
    paused = await hf_at.schedules.pause("hourly", tenant="acme", by="ana")
    assert (paused.paused_at, paused.paused_by) == (START, "ana")
    with pytest.raises(Conflict, match="is paused already"):
        await hf_at.schedules.pause("hourly", tenant="acme")
    clock.advance(hours=3, minutes=10)
    await kept(hf_at, clock, clock.now())
    assert (await hf_at.schedules.resume("hourly", tenant="acme", by="ana")).next_at == START + timedelta(hours=4)
    await kept(hf_at, clock, START + timedelta(hours=4))
    assert [job.tenant for job in await jobs_of(hf_at)] == ["acme"]
    events = [event.type for event in await hf_at.events(tenant="acme")]
    assert events == ["schedule.resumed", "schedule.paused", "schedule.set"]


async def test_run_now_makes_a_job_at_once_and_leaves_the_ticks_alone(hf_at: Holdfast, clock: ManualClock) -> None:
    """The job is the last one of the schedule, and its end is shown there."""
    with_report(hf_at)
    await hf_at.schedules.set("daily", "report", "0 8 * * *", args={"kind": "weekly"})
    job = await hf_at.schedules.run_now("daily", by="ana")
    assert job is not None
    await hf_at.run_worker(exit_when_idle=0.0)
    shown = await hf_at.schedules.get("daily")
    assert (shown.last_job_id, shown.last_state, shown.last_at) == (job.id, "completed", START)
    assert shown.next_at == START + timedelta(hours=8)
    assert (await hf_at.get(job.id)).output == "weekly"
    assert (await hf_at.get(job.id)).enqueued_by == "ana"


async def test_one_schedule_that_cannot_be_kept_says_why_and_stops_no_other(
    database_url: str, hf_at: Holdfast, clock: ManualClock
) -> None:
    """An unknown task, arguments that no longer fit, a full queue: each shows its reason, the good one between them runs."""
    before = Holdfast(database_url, clock=clock)

    @before.task(name="gone")
    async def gone() -> None: ...

    @before.task(name="report")
    async def old_report(colour: str) -> None: ...

    await before.tenants.set("tiny", queue_depth=0)
    await before.schedules.set("a-gone", "gone", "0 * * * *")
    await before.schedules.set("b-unfit", "report", "0 * * * *", args={"colour": "red"})
    with_report(hf_at)
    await hf_at.schedules.set("c-full", "report", "0 * * * *", tenant="tiny")
    await hf_at.schedules.set("d-good", "report", "0 * * * *")
    await before.aclose()
    clock.advance(hours=1)
    await kept(hf_at, clock, clock.now(), clock.now() + timedelta(seconds=STRANGE_SECONDS + 1))
    errors = {one.name: (one.error or "").partition(":")[0] for one in await hf_at.schedules.list() if one.task}
    assert errors == {"a-gone": "task_unknown", "b-unfit": "args_invalid", "c-full": "queue_full", "d-good": ""}
    assert [job.enqueued_by for job in await jobs_of(hf_at)] == ["schedule:d-good"]
    failed = [event.data["schedule"] for event in await hf_at.events() if event.type == "schedule.failed"]
    assert sorted(failed) == ["a-gone", "b-unfit", "c-full"]
    assert all(one.next_at > clock.now() for one in await hf_at.schedules.list() if one.task)


async def test_a_tick_waits_a_minute_for_a_program_that_knows_its_task(
    database_url: str, hf_at: Holdfast, clock: ManualClock
) -> None:
    """Two applications on one database: the one that does not know the task leaves the tick to the other."""
    with_report(hf_at)
    await hf_at.schedules.set("hourly", "report", "0 * * * *")
    other = Holdfast(database_url, clock=clock)

    @other.task
    async def something_else() -> None: ...

    clock.advance(hours=1, seconds=5)
    await Scheduler(other).one_pass()
    assert (await hf_at.schedules.get("hourly")).next_at == START + timedelta(hours=1)
    await Scheduler(hf_at).one_pass()
    assert len(await jobs_of(hf_at)) == 1
    await other.aclose()


async def test_a_schedule_in_code_is_kept_by_programs_that_have_it(
    database_url: str, hf_at: Holdfast, clock: ManualClock
) -> None:
    """`@hf.every` makes the task too; a program without those lines, though it knows the task, does not keep it going."""

    @hf_at.every("0 8 * * mon-fri", tz="Europe/Paris")
    async def report() -> None: ...

    await hf_at.schedules.declare_all()
    shown = await hf_at.schedules.get("report")
    assert (shown.declared, shown.next_at) == (True, START + timedelta(hours=7))  # a Tuesday
    clock.advance(hours=7)
    without = Holdfast(database_url, clock=clock)
    without.task(report.fn)
    await Scheduler(without).one_pass()
    assert await jobs_of(hf_at) == []
    await kept(hf_at, clock, clock.now())
    assert len(await jobs_of(hf_at)) == 1
    await without.aclose()


async def test_code_that_is_started_again_does_not_put_its_tick_off(
    database_url: str, hf_at: Holdfast, clock: ManualClock
) -> None:
    """An interval keeps its tick over restarts; changed in code, it gets a new one. One statement where nothing changed."""
    for seconds in (3600.0, 3600.0, 1800.0):
        program = Holdfast(database_url, clock=clock)

        @program.every(seconds, name="tick")
        async def report() -> None: ...

        await program.schedules.declare_all()
        clock.advance(minutes=10)
        await program.aclose()
    shown = await hf_at.schedules.get("tick")
    assert (shown.seconds, shown.next_at) == (1800.0, START + timedelta(minutes=20 + 30))


async def test_a_schedule_set_again_with_the_same_times_keeps_its_tick(hf_at: Holdfast, clock: ManualClock) -> None:
    """A program that sets its schedules at each start must not put them off for ever; new times count at once."""
    with_report(hf_at)
    await hf_at.schedules.set("tick", "report", 3600)
    clock.advance(minutes=30)
    again = await hf_at.schedules.set("tick", "report", 3600, args={"kind": "new"})
    assert (again.next_at, again.args) == (START + timedelta(hours=1), {"kind": "new"})
    changed = await hf_at.schedules.set("tick", "report", 600)
    assert changed.next_at == START + timedelta(minutes=40)


async def test_schedules_of_two_tenants_may_have_the_same_name(hf_at: Holdfast) -> None:
    """Each is found, listed and removed by itself."""
    with_report(hf_at)
    for tenant in (None, "acme", "zeta"):
        await hf_at.schedules.set("tick", "report", 60, tenant=tenant)
    assert [one.tenant for one in await hf_at.schedules.list(tenant="acme")] == ["acme"]
    await hf_at.schedules.remove("tick", tenant="acme")
    with pytest.raises(NotFound):
        await hf_at.schedules.get("tick", tenant="acme")
    pages, cursor = [], ("", "")
    while page := await hf_at.schedules.list(cursor=cursor, limit=1):
        pages += page
        cursor = (page[-1].tenant or "", page[-1].name)
    assert [(one.tenant, one.name) for one in pages] == [(None, "holdfast.retention"), (None, "tick"), ("zeta", "tick")]


async def test_bad_schedules_are_refused_and_nothing_is_written(hf_at: Holdfast) -> None:
    """Typed errors for a wrong task, arguments, times, names; the table is as before."""
    with_report(hf_at)
    refused = [
        (UnknownTask, ("x", "nope", 60), {}),
        (InvalidArguments, ("x", "report", 60), {"args": {"kind": 7}}),
        (InvalidOption, ("x", "report", "nonsense"), {}),
        (InvalidOption, ("x", "report", 60), {"tz": "Mars/Base"}),
        (InvalidOption, ("x", "report", 60), {"missed": "always"}),
        (InvalidOption, ("holdfast.mine", "report", 60), {}),
        (InvalidOption, ("", "report", 60), {}),
        (InvalidOption, ("a\x00b", "report", 60), {}),
        (InvalidOption, ("x", "report", 60), {"tenant": ""}),
    ]
    for error, args, options in refused:
        with pytest.raises(error):
            await hf_at.schedules.set(*args, **options)
    with pytest.raises(ConfigError, match="Two schedules"):
        hf_at.every(60)(hf_at.every(60)(hf_at.tasks["report"]))
    with pytest.raises(ConfigError, match="no cron"):
        hf_at.every("x")
    assert [one.name for one in await hf_at.schedules.list()] == ["holdfast.retention"]


async def test_a_running_worker_keeps_a_schedule_that_is_set_meanwhile(hf: Holdfast) -> None:
    """On the database's own clock, without a reaper or server: jobs come within seconds, and run."""
    report = with_report(hf)
    working = asyncio.create_task(hf.run_worker(reap=False))
    await until(hf.workers, timeout=30)
    await hf.schedules.set("tick", report, 1)

    async def done() -> bool:
        return len(await hf.jobs(state="completed")) >= 2

    await until(done, timeout=60)
    await hf.schedules.pause("tick")
    await hf.aclose()
    await working


async def test_a_program_without_schedules_asks_one_small_question_and_rests(
    hf_at: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement, then minutes of sleep; with a schedule, until its tick and never longer than a minute."""
    with_report(hf_at)
    asked: list[str] = []
    shared = hf_at.store.shared

    async def counted(statement: str, *args: Any) -> Any:
        asked.append(statement)
        return await shared(statement, *args)

    monkeypatch.setattr(hf_at.store, "shared", counted)
    assert await Scheduler(hf_at).one_pass() == REST_SECONDS
    assert asked == ["agenda_look"]
    await hf_at.schedules.set("tick", "report", 30)
    await hf_at.schedules.set("later", "report", 3000)
    assert await Scheduler(hf_at).one_pass() == pytest.approx(30)
    await hf_at.schedules.remove("tick")
    assert await Scheduler(hf_at).one_pass() == LOOK_SECONDS
    assert asked == ["agenda_look"] * 3


def test_sync_programs_have_the_same_verbs(database_url: str) -> None:
    """Set, look, pause, resume, run and remove without asyncio."""
    hf = Holdfast(database_url)
    with_report(hf)
    hf.schedules.set_sync("tick", "report", 3600, tenant="acme")
    assert hf.schedules.pause_sync("tick", tenant="acme").paused_at is not None
    assert hf.schedules.resume_sync("tick", tenant="acme").paused_at is None
    job = hf.schedules.run_now_sync("tick", tenant="acme")
    assert job is not None and hf.schedules.get_sync("tick", tenant="acme").last_job_id == job.id
    assert [one.name for one in hf.schedules.list_sync(tenant="acme")] == ["tick"]
    hf.schedules.remove_sync("tick", tenant="acme")
    assert hf.schedules.list_sync(tenant="acme") == []
    hf.close()


async def test_a_schedule_has_no_control_characters_in_its_name(hf: Holdfast) -> None:
    """Names stand in logs and in terminals."""

    @hf.task
    async def work() -> None: ...

    for name in ("a\x1b[2J", "a\nb", "a\u202eb"):
        with pytest.raises(InvalidOption, match="without control characters"):
            await hf.schedules.set(name, work, 60)
        with pytest.raises(ConfigError, match="without control characters"):
            hf.every(60, name=name)(work)
    assert (
        await hf.schedules.set("jeden\u00a0Tag · 毎日\u3000👩\u200d💻", work, 60)
    ).name == "jeden\u00a0Tag · 毎日\u3000👩\u200d💻"
