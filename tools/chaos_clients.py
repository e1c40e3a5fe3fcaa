"""Who asks for work during a campaign of chaos, and remembers what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import httpx

from holdfast.errors import JobConflict, StorageUnavailable
from holdfast.task import JobSpec
from tests.processes.scene import Scene
from tools.chaos_capacity import LIMITS

HTTP_SECONDS = 10.0
TASKS_BY_WEIGHT = {
    "work": 60,
    "work_until_cancelled": 20,
    "work_at_third_attempt": 10,
    "work_in_thread": 10,
    "work_and_log": 5,
    "work_with_memory": 5,
    "always_fail": 5,
    "work_isolated": 1,
}


class Client:
    """Enqueues and cancels through everything that happens, and remembers what it was told."""

    def __init__(self, name: str, scene: Scene, rng: random.Random) -> None:
        self._name = name
        self._scene = scene
        self._rng = rng
        self.acknowledged: list[str] = []
        self.refused = 0

    async def run_until(self, end: float) -> None:
        while time.monotonic() < end:
            try:
                jobs = await self._scene.hf.enqueue_many([self._some_job() for _ in range(self._rng.randint(1, 10))])
                self.acknowledged += [job.id for job in jobs]
                if self._rng.random() < 0.3:
                    await self._cancel_one()
            except StorageUnavailable:
                self.refused += 1
            await asyncio.sleep(self._rng.uniform(0, 0.2))

    def _some_job(self) -> JobSpec[Any]:
        rng, options = self._rng, dict[str, Any]()
        if rng.random() < 0.2:
            options["order"] = f"{self._name}:{rng.randrange(5)}"
        if rng.random() < 0.1:
            options["unique"] = f"key {rng.randrange(20)}"
        if rng.random() < 0.1:
            options["delay"] = rng.uniform(0, 2)
        if rng.random() < 0.3:
            options["tenant"] = rng.choice(list(LIMITS))
        if rng.random() < 0.2:
            options["priority"] = rng.randint(-5, 5)
        (name,) = rng.choices(list(TASKS_BY_WEIGHT), list(TASKS_BY_WEIGHT.values()))
        job: JobSpec[Any] = getattr(self._scene.tasks, name).options(**options).job(self._scene.folder, rng.uniform(0, 0.1))
        return job

    async def _cancel_one(self) -> None:
        with contextlib.suppress(JobConflict):
            await self._scene.hf.cancel(self._rng.choice(self.acknowledged[-50:]), by=self._name)


class HttpClient:
    """Enqueues by the server of the day, over HTTP, and counts a job only where the answer says so."""

    def __init__(self, address: Callable[[], str], key: str, folder: str, rng: random.Random) -> None:
        self._address = address
        self._key = key
        self._folder = folder
        self._rng = rng
        self.acknowledged: list[str] = []
        self.refused = 0

    async def run_until(self, end: float) -> None:
        headers = {"Authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(headers=headers, timeout=HTTP_SECONDS) as client:
            while time.monotonic() < end:
                await asyncio.sleep(self._rng.uniform(0, 0.3))
                body = {"task": "work", "args": {"folder": self._folder, "seconds": self._rng.uniform(0, 0.1)}}
                try:
                    answer = await client.post(f"{self._address()}/api/jobs", json=body)
                except (httpx.HTTPError, LookupError):  # no server right now
                    self.refused += 1
                    continue
                if answer.status_code == 202:
                    self.acknowledged.append(answer.json()["id"])
                else:
                    self.refused += 1
