"""A Fly Machines API on loopback, made from what is known of the real one. It checks every request against its description.

State moves when somebody looks: a machine that was made is `created` and boots with the next look, one that was asked to
stop is `stopping` and then `stopped`. `lag` keeps new machines out of the list for so many lists, as the real one may.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema

from tests.support.fake_http import FakeServer, Reply, Request

DESCRIPTION = Path(__file__).parents[1] / "fixtures" / "fly" / "machines-openapi.json"
TOKEN = "fm2_a-deploy-token-of-the-fake-app"
APP = "scans"

STILL_ACTIVE = Reply(412, {"error": "failed_precondition: machine still active, refusing to start"})
NOT_READY = Reply(412, {"error": "failed_precondition: unable to start machine from current state: 'created'"})
HOST_FULL = Reply(
    409,
    {"error": "could not reserve resource for machine: insufficient memory available to fulfill request on the current host"},
)
REGION_FULL = Reply(422, {"error": "no room in this region", "status": "insufficient_capacity"})
NO_CAPACITY = Reply(400, {"error": "no capacity in region"})
VOLUME_FULL = Reply(412, {"error": "no host has room for the volume", "status": "volume_placement_capacity"})
QUOTA = Reply(403, {"error": "organization would use 131072 MB, over the allowed quota"})
MACHINE_LIMIT = Reply(422, {"error": "your organization has reached its machine limit"})
BAD_TOKEN = Reply(401, {"error": "Authenticate: token validation error"})
FORBIDDEN = Reply(403, {"error": "unauthorized"})
LEASED = Reply(409, {"status": "error", "message": "machine ID 1 lease currently held by deploy@example.org"})
BAD_NAME = Reply(422, {"error": "name must be lower case"})
RATE_LIMIT = Reply(429, {"error": "rate limit exceeded"})
NOT_ROUTED = Reply(404, "404 page not found\n", {"Content-Type": "text/plain"})
BROKEN = Reply(500, {"error": "internal"})
PROXY_PAGE = Reply(502, "<html>bad gateway</html>", {"Content-Type": "text/html"})

_RATES = {"GET machine": (5.0, 10.0)}
_RATE = (1.0, 3.0)
_ROUTE = re.compile(r"/v1/apps/(?P<app>[^/]+)(?P<machines>/machines(/(?P<id>[^/]+)(/(?P<action>\w+))?)?)?")


class FakeFly(FakeServer):
    def __init__(self, now: Callable[[], float]) -> None:
        self.machines: dict[str, dict[str, Any]] = {}
        self.lag = 0
        self.empty_lists = 0
        """The next lists are empty, whatever is there: the bad day of the real one."""
        self.still_active = 0
        """A machine that exits refuses so many starts."""
        self._hidden: dict[str, int] = {}
        self._reaping: dict[str, int] = {}
        self._now = now
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}
        self._check = _Description(json.loads(DESCRIPTION.read_text()))
        super().__init__()

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    # -- what a test does behind the API's back --------------------------------------------------------------------------

    def add(self, *, state: str = "stopped", **fields: Any) -> str:
        """A machine that `fly deploy` has made."""
        config = {"image": "registry.fly.io/scans:v1", "metadata": {"fly_process_group": "worker"}}
        return self._new({"config": config, **fields}, state)

    def exit(self, machine_id: str) -> None:
        """Its worker ends by itself."""
        self._end(self.machines[machine_id])

    # -- the API ---------------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply | None:
        if wrong := self._check.request(request):
            self.violations.append(f"{request.line}: {wrong}")
        reply = super().answer(request)
        number = f"req-{len(self.requests)}"
        return reply and reply._replace(headers={**reply.headers, "fly-request-id": number})

    def reply(self, request: Request) -> Reply:
        route = _ROUTE.fullmatch(request.path)
        if route is None:
            return NOT_ROUTED
        if request.headers.get("authorization") != f"FlyV1 {TOKEN}":
            return BAD_TOKEN
        if wrong := self._check.request(request):
            return Reply(400, {"error": f"invalid_argument: {wrong}"})
        action = (
            route["action"] or f"{request.method} {'machine' if route['id'] else 'machines' if route['machines'] else 'app'}"
        )
        if not self._allowed(action, route["id"] or route["app"]):
            return RATE_LIMIT
        if not route["machines"]:
            return Reply(200, {"name": APP, "machine_count": len(self._there())})
        if route["id"]:
            return self._one(request, route["id"], route["action"] or request.method)
        return self._create(request.body) if request.method == "POST" else self._list()

    def _list(self) -> Reply:
        if self.empty_lists:
            self.empty_lists -= 1
            return Reply(200, [])
        shown = []
        for machine in self._there():
            if self._hidden.get(machine["id"], 0) > 0:
                self._hidden[machine["id"]] -= 1
            else:
                shown.append(self._look(machine))
        return Reply(200, [machine for machine in shown if machine["state"] != "destroyed"])

    def _create(self, body: dict[str, Any]) -> Reply:
        if not body.get("config", {}).get("image"):
            return Reply(400, {"error": "invalid_argument: config.image is required"})
        if body["config"].get("guest", {}).get("memory_mb", 256) % 256:
            return Reply(400, {"error": "invalid_argument: memory_mb must be a multiple of 256"})
        for machine in self._there():
            if machine["name"] == body.get("name"):
                taken = f'machine ID {machine["id"]} already exists with name "{machine["name"]}"'
                return Reply(409, {"error": f"already_exists: unique machine name violation, {taken}", "status": "name_taken"})
        machine_id = self._new(body, "created")
        self._hidden[machine_id] = self.lag
        return Reply(200, copy.deepcopy(self.machines[machine_id]))

    def _one(self, request: Request, machine_id: str, action: str) -> Reply:
        machine = self.machines.get(machine_id)
        if machine is None:
            return Reply(404, {"error": "machine not found"})
        if action == "GET":
            return Reply(200, self._look(machine))
        if action == "DELETE":
            machine["state"] = "destroyed"
            return Reply(200, {"ok": True})
        if action == "stop":
            if machine["state"] in ("started", "starting"):
                machine["state"] = "stopping"
            return Reply(200, {"ok": True})
        return self._start(machine)

    def _start(self, machine: dict[str, Any]) -> Reply:
        if self._reaping.get(machine["id"], 0) > 0:
            self._reaping[machine["id"]] -= 1
            return STILL_ACTIVE
        if machine["state"] not in ("created", "stopped", "suspended"):
            return Reply(
                412, {"error": f"failed_precondition: unable to start machine from current state: '{machine['state']}'"}
            )
        before, machine["state"] = machine["state"], "starting"
        return Reply(200, {"previous_state": before, "migrated": False, "new_host": ""})

    # -- state -----------------------------------------------------------------------------------------------------------

    def _new(self, body: dict[str, Any], state: str) -> str:
        machine_id = f"{0xE784 + len(self.machines):x}c3b9"
        moment = datetime.now(UTC).isoformat()
        self.machines[machine_id] = {
            "region": "iad",
            "name": f"name-{machine_id}",
            "created_at": moment,
            "updated_at": moment,
            "host_status": "ok",
            "events": [],
            **body,
            "id": machine_id,
            "state": state,
        }
        return machine_id

    def _there(self) -> list[dict[str, Any]]:
        return [machine for machine in self.machines.values() if machine["state"] != "destroyed"]

    def _look(self, machine: dict[str, Any]) -> dict[str, Any]:
        """What it is now; afterwards it moves on."""
        seen = copy.deepcopy(machine)
        launched = "holdfast_pool" in (machine["config"] or {}).get("metadata", {})
        if machine["state"] == "starting" or (machine["state"] == "created" and launched):
            stamp = int(datetime.now(UTC).timestamp() * 1000)
            machine["state"] = "started"
            machine["events"] = [{"type": "start", "status": "started", "timestamp": stamp}]
        elif machine["state"] == "stopping":
            self._end(machine)
        return seen

    def _end(self, machine: dict[str, Any]) -> None:
        machine["state"] = "destroyed" if machine["config"].get("auto_destroy") else "stopped"
        self._reaping[machine["id"]] = self.still_active

    def _allowed(self, action: str, thing: str) -> bool:
        per_second, burst = _RATES.get(action, _RATE)
        level, at = self._buckets.get((action, thing), (burst, self._now()))
        level = min(burst, level + (self._now() - at) * per_second)
        enough = level >= 1 - 1e-9
        self._buckets[action, thing] = (level - 1 if enough else level, self._now())
        return enough


class _Description:
    """The OpenAPI file, more strictly than it says: a field that it does not know is wrong."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        for schema in document["components"]["schemas"].values():
            if "properties" in schema:
                schema.setdefault("additionalProperties", False)
        self._paths = {
            re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(f"/v1{path}"))): operations
            for path, operations in document["paths"].items()
        }

    def request(self, request: Request) -> str | None:
        operations: dict[str, Any] = next(
            (found for pattern, found in self._paths.items() if pattern.fullmatch(request.path)), {}
        )
        operation = operations.get(request.method.lower())
        if operation is None:
            return "no such operation"
        known = {one["name"]: one["schema"] for one in operation.get("parameters", []) if one["in"] == "query"}
        for name, value in request.query.items():
            if name not in known:
                return f"no such parameter: {name}"
            if known[name].get("type") == "boolean" and value not in ("true", "false"):
                return f"{name} is not true or false: {value}"
        described = operation.get("requestBody")
        if request.body is None:
            return "the body is missing" if described and described.get("required") else None
        if described is None:
            return "takes no body"
        schema = {**described["content"]["application/json"]["schema"], "components": self._document["components"]}
        errors = jsonschema.Draft4Validator(schema).iter_errors(request.body)
        return next((f"{one.json_path}: {one.message}" for one in errors), None)
