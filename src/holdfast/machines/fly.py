"""Fly Machines. Pool machines stop and are started again; burst machines remove themselves when their worker exits.

What is particular about this API, and decides how it is used here:
- Nothing makes a create idempotent but the machine's name: a name that is taken (409) tells that it was done already.
- A machine that has just exited reads `stopped` while its host still cleans up, and refuses to start (412): it is asked
  again. A full host or region is something else, and another machine or region may work.
- The list may be stale or, on a bad day, empty. It is never the only reason to believe that there is no machine.
- `start` takes no body, and no field limits a machine's life: the worker, the database and the orchestrator do.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.errors import ConfigError
from holdfast.machines.calls import Answer, Calls, Pace, Sleep, need_httpx, time_of
from holdfast.machines.fly_options import FlyOptions, FlySettings, fly_options
from holdfast.machines.protocol import (
    Kind,
    Machine,
    MachineState,
    NoCapacity,
    ProviderDenied,
    ProviderDown,
    ProviderError,
    QuotaReached,
    StartRefused,
)
from holdfast.redact import REDACTED

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("holdfast.machines.fly")

PUBLIC_API = "https://api.machines.dev/v1"
POOL_LABEL = "holdfast_pool"
"""In a machine's metadata: made by us, and for which pool."""
_CALLS = Pace(per_second=1, burst=3)
_READS = Pace(per_second=5, burst=10)
_STILL_ACTIVE_TRIES = 30
_STOP_SECONDS = 300
_SECRET_CHARS_MIN = 8
_WEDGED_AFTER = timedelta(minutes=5)

STATES = {
    "created": MachineState.STOPPED,
    "stopped": MachineState.STOPPED,
    "suspended": MachineState.STOPPED,
    "failed": MachineState.STOPPED,  # may start; if it does not, that is one refusal
    "creating": MachineState.STARTING,
    "starting": MachineState.STARTING,
    "restarting": MachineState.STARTING,
    "started": MachineState.RUNNING,
    "stopping": MachineState.STOPPING,
    "suspending": MachineState.STOPPING,
    "destroying": MachineState.STOPPING,
    "destroyed": MachineState.GONE,
    "replaced": MachineState.GONE,
    "migrated": MachineState.GONE,
}
"""All others (`updating`, `replacing`, `launch_failed`, what Fly adds tomorrow) are unknown."""


def from_settings(settings: FlySettings) -> FlyProvider:
    if not settings.fly_api_token or not settings.fly_app:
        missing = "FLY_API_TOKEN" if not settings.fly_api_token else "FLY_EXTRACTION_APP"
        raise ConfigError(f"the machine provider fly needs a token and the name of an app: set {missing}.")
    return FlyProvider(fly_options(settings, settings.fly_app), settings.fly_api_token, base_url=settings.fly_api_url)


class FlyProvider:
    """`token` is a deploy token of the app; it is in no log and no error."""

    name = "fly"

    def __init__(
        self,
        options: FlyOptions,
        token: str,
        *,
        base_url: str | None = None,
        timeout: float = 30.0,
        sleep: Sleep = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        need_httpx("fly")
        if not token.strip():
            raise ConfigError("the Fly token is empty: make one with `fly tokens create deploy` and set FLY_API_TOKEN.")
        if not options.regions:
            raise ConfigError("no Fly region is set: name at least one, for example iad.")
        self._options = options
        self._now = now
        self._machines_path = f"/apps/{options.app}/machines"
        self._known: set[str] = set()
        """Machines that are there as far as we know: a list that lacks one is checked."""
        secrets = [part for part in re.split(r"[\s,]+", token) if len(part) >= _SECRET_CHARS_MIN] or [token]
        header = f"FlyV1 {token.removeprefix('FlyV1 ')}" if token.startswith(("FlyV1 ", "fm1", "fm2_")) else f"Bearer {token}"

        def clean(text: str) -> str:
            for secret in secrets:
                text = text.replace(secret, REDACTED)
            return text

        def client() -> httpx.AsyncClient:
            import httpx

            return httpx.AsyncClient(base_url=base_url or PUBLIC_API, headers={"Authorization": header}, timeout=timeout)

        self._calls = Calls(
            "fly",
            client,
            clean=clean,
            request_id_header="fly-request-id",
            sleep=sleep,
            now=monotonic,
        )

    async def aclose(self) -> None:
        await self._calls.aclose()

    # -- the verbs -----------------------------------------------------------------------------------------------------

    async def list(self) -> list[Machine]:
        raw = await self._listed()
        machines = {machine.id: machine for one in raw if self._is_ours(one) for machine in [self._machine(one)]}
        for machine_id in self._known - machines.keys():
            one = await self._get(machine_id)
            if one is not None:
                machines[machine_id] = self._machine(one)
        there = [machine for machine in machines.values() if machine.state is not MachineState.GONE]
        self._known = {machine.id for machine in there}
        return there

    async def create(self, name: str, kind: Kind) -> Machine:
        refusal: ProviderError | None = None
        config = self._config(kind, await self._image())
        for region in self._options.regions:
            try:
                machine = await self._create_in(region, name, config)
            except (NoCapacity, QuotaReached) as error:
                level = logging.ERROR if isinstance(error, QuotaReached) else logging.WARNING
                log.log(level, "fly: no machine in %s: %s", region, error)
                refusal = error
            else:
                self._known.add(machine.id)
                return machine
        assert refusal is not None  # there is at least one region
        raise refusal

    async def start(self, machine_id: str) -> None:
        for tries_left in reversed(range(_STILL_ACTIVE_TRIES)):
            answer = await self._machine_call("POST", machine_id, "start")
            if answer.ok:
                return
            if answer.status != 412 or _is_capacity(answer):
                self._refuse(answer, f"start of {machine_id}", machine=True)
            # `still active` after an idle exit, or not ready yet: the same machine will start in a moment.
            found = await self._get(machine_id)
            state = STATES.get(found["state"], MachineState.UNKNOWN) if found else MachineState.GONE
            if state in (MachineState.RUNNING, MachineState.STARTING):
                return
            if state is MachineState.GONE or not tries_left:
                self._refuse(answer, f"start of {machine_id}", machine=True)
            await self._calls.sleep(1.0)

    async def stop(self, machine_id: str) -> None:
        body = {"signal": "SIGTERM", "timeout": f"{_STOP_SECONDS}s"}  # a number would mean nanoseconds
        answer = await self._machine_call("POST", machine_id, "stop", body=body)
        if answer.ok or answer.status == 404:
            return
        if answer.status == 412:
            found = await self._get(machine_id)
            if found is None or STATES.get(found["state"]) not in (MachineState.RUNNING, MachineState.STARTING):
                return
        self._refuse(answer, f"stop of {machine_id}")

    async def destroy(self, machine_id: str) -> None:
        answer = await self._machine_call("DELETE", machine_id, params={"force": "true"})
        if not answer.ok and answer.status != 404:
            found = await self._get(machine_id)
            if found is not None and STATES.get(found["state"]) is not MachineState.GONE:
                self._refuse(answer, f"removal of {machine_id}")
        self._known.discard(machine_id)

    # -- one request each ----------------------------------------------------------------------------------------------

    async def _listed(self) -> Sequence[dict[str, Any]]:
        app = self._options.app
        answer = await self._calls.send("GET", self._machines_path, pace=("list", app, _CALLS))
        if not answer.ok or not isinstance(answer.body, list):
            self._refuse(answer, f"list of machines of {app}")
        if not answer.body:
            about = await self._calls.send("GET", f"/apps/{app}", pace=("app", app, _CALLS))
            count = about.body.get("machine_count") if about.ok and isinstance(about.body, dict) else None
            if count:
                raise ProviderDown(
                    f"fly lists no machine of {app} but counts {count}: such a list is not believed; it is read again later.",
                    request_id=answer.request_id,
                )
        return [one for one in answer.body if isinstance(one, dict) and isinstance(one.get("id"), str)]

    async def _get(self, machine_id: str) -> dict[str, Any] | None:
        """None: there never was such a machine."""
        answer = await self._machine_call("GET", machine_id, pace=_READS)
        if answer.status == 404:
            return None
        if not answer.ok or not isinstance(answer.body, dict):
            self._refuse(answer, f"look at {machine_id}")
        return {"state": "", **answer.body}

    async def _machine_call(
        self,
        method: str,
        machine_id: str,
        action: str = "",
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        pace: Pace = _CALLS,
    ) -> Answer:
        path = f"{self._machines_path}/{machine_id}" + (f"/{action}" if action else "")
        return await self._calls.send(method, path, params=params, body=body, pace=(action or method, machine_id, pace))

    async def _create_in(self, region: str, name: str, config: dict[str, Any]) -> Machine:
        body = {"name": name, "region": region, "config": config}
        for _ in range(2):
            pace = ("create", self._options.app, _CALLS)
            answer = await self._calls.send("POST", self._machines_path, body=body, pace=pace)
            if answer.ok and isinstance(answer.body, dict) and isinstance(answer.body.get("id"), str):
                return self._machine(answer.body)
            if answer.status != 409 or "already exists" not in answer.words:
                self._refuse(answer, f"machine {name} in {region}")
            adopted = await self._named(name, answer)
            if adopted is not None:
                log.info("fly: machine %s is there already: %s", name, adopted.id)
                return adopted
        self._refuse(answer, f"machine {name} in {region}")

    async def _named(self, name: str, answer: Answer) -> Machine | None:
        """The machine that has the name; None when it is on its way out, so that the name is free in a moment."""
        match = re.search(r"machine ID (\w+)", answer.words)
        found = await self._get(match[1]) if match else None
        if found is None or found.get("name") != name:
            found = next((one for one in await self._listed() if one.get("name") == name), None)
        if found is None:
            return None
        if not self._is_ours(found):
            raise ProviderError(f"fly: {name} is a machine of somebody else in this app: use another pool name.")
        machine = self._machine(found)
        return None if machine.state is MachineState.GONE else machine

    async def _image(self) -> str:
        if self._options.image:
            return self._options.image
        pool = [one for one in await self._listed() if self._is_ours(one) and _config_of(one).get("image")]
        if not pool:
            app = self._options.app
            raise ProviderError(f"no machine of {app} shows which image to run: `fly deploy` one, or set the image.")
        newest = max(pool, key=lambda one: str(one.get("created_at", "")))
        return str(_config_of(newest)["image"])

    def _config(self, kind: Kind, image: str) -> dict[str, Any]:
        options = self._options
        config: dict[str, Any] = {
            "image": image,
            "auto_destroy": kind == "burst",
            "restart": {"policy": "no"},  # left away it would be on-failure: ten boots of a worker that cannot work
            "guest": {"cpu_kind": options.cpu_kind, "cpus": options.cpus, "memory_mb": options.memory_mb},
            "stop_config": {"signal": "SIGTERM", "timeout": f"{_STOP_SECONDS}s"},
            "metadata": {POOL_LABEL: options.pool},
        }
        if options.env:
            config["env"] = dict(options.env)
        if options.command:
            config["init"] = {"cmd": [*options.command]}
        return config

    # -- what Fly says, in our words -----------------------------------------------------------------------------------

    def _is_ours(self, one: Mapping[str, Any]) -> bool:
        metadata = _config_of(one).get("metadata") or {}
        if POOL_LABEL in metadata:
            return bool(metadata[POOL_LABEL] == self._options.pool)
        return bool(metadata.get("fly_process_group") == self._options.process_group)

    def _machine(self, one: Mapping[str, Any]) -> Machine:
        config = _config_of(one)
        said = str(one.get("state", ""))
        state = STATES.get(said, MachineState.UNKNOWN)
        created_at = time_of(one.get("created_at"))
        if said == "created" and POOL_LABEL in (config.get("metadata") or {}):
            # Made by us, and we launch what we make: it fetches its image. For hours is not on its way any more.
            state = MachineState.STARTING if self._is_recent(created_at) else MachineState.STOPPED
        elif state is MachineState.STARTING and not self._is_recent(time_of(one.get("updated_at")) or created_at):
            state = MachineState.UNKNOWN
        return Machine(
            id=str(one["id"]),
            name=str(one.get("name", "")),
            state=state,
            kind="burst" if config.get("auto_destroy") else "pool",
            region=one.get("region"),
            created_at=created_at,
            started_at=_started_at(one),
            reachable=one.get("host_status", "ok") == "ok",
            said=said,
        )

    def _is_recent(self, at: datetime | None) -> bool:
        return at is None or self._now() - at < _WEDGED_AFTER

    def _refuse(self, answer: Answer, what: str, *, machine: bool = False) -> NoReturn:
        """Raise what a refusal means: who reacts differently gets a different error."""
        app, said = self._options.app, f"{answer.status} {answer.words}".strip()
        words = answer.words.lower()
        kind: type[ProviderError] = StartRefused if machine else ProviderError
        hint = ""
        if answer.status in (403, 422) and re.search(r"quota|limit", words):
            kind, hint = QuotaReached, " Ask Fly for a higher limit, or lower the maximum."
        elif answer.status in (401, 403):
            kind, hint = ProviderDenied, f" Check FLY_API_TOKEN: `fly tokens create deploy --app {app}`."
        elif _is_capacity(answer):
            kind = NoCapacity
        raise kind(f"fly refused the {what}: {said}.{hint}", request_id=answer.request_id)


def _is_capacity(answer: Answer) -> bool:
    words = answer.words.lower()
    return "capacity" in answer.code or "could not reserve resource" in words or "no capacity" in words


def _config_of(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """While a host is out of reach only a part of it is known."""
    return one.get("config") or one.get("incomplete_config") or {}


def _started_at(one: Mapping[str, Any]) -> datetime | None:
    stamps = [event.get("timestamp") for event in one.get("events") or [] if event.get("type") == "start"]
    last = max((stamp for stamp in stamps if isinstance(stamp, int | float)), default=None)
    return None if last is None else datetime.fromtimestamp(last / 1000, UTC)
