"""The part of a Kubernetes API that Jobs need, on loopback. Every object that is sent is checked against the published models.

State moves when somebody looks at the list of pods: a new Job gets a pod, the pod runs; a Job that is being deleted goes.
"""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime
from typing import Any

from tests.support.fake_http import FakeServer, Reply, Request
from tests.support.kubernetes_models import differences, model, problems

NAMESPACE = "jobs"
TOKEN = "a-service-account-token-of-the-fake-cluster"


def status(code: int, reason: str, message: str) -> Reply:
    """How Kubernetes says no."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}
    return Reply(code, body, {"audit-id": "audit-1"})


UNAUTHORIZED = status(401, "Unauthorized", "Unauthorized")
FORBIDDEN = status(403, "Forbidden", 'jobs.batch is forbidden: User "x" cannot create resource "jobs"')
QUOTA = status(403, "Forbidden", 'jobs.batch "w" is forbidden: exceeded quota: small, requested: count/jobs.batch=1')
INVALID = status(422, "Invalid", 'Job.batch "W" is invalid: metadata.name: must be a lowercase RFC 1123 subdomain')
UNAVAILABLE = status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
TOO_MANY = Reply(429, status(429, "TooManyRequests", "too many requests").body, {"Retry-After": "1"})

_JOBS = re.compile(rf"/apis/batch/v1/namespaces/{NAMESPACE}/jobs(/(?P<name>[^/]+))?")
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class FakeKubernetes(FakeServer):
    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.token = TOKEN
        super().__init__()

    # -- what a test does behind the API's back --------------------------------------------------------------------------

    def finish(self, name: str, *, condition: str = "Complete", reason: str = "") -> None:
        """Its worker ended, or its deadline has come."""
        end = {"type": condition, "status": "True"} | ({"reason": reason} if reason else {})
        self.jobs[name]["status"] = {"conditions": [end]}
        self.pods.pop(name, None)

    # -- the API ---------------------------------------------------------------------------------------------------------

    def reply(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return UNAUTHORIZED
        if request.path == _PODS:
            return self._pods(request)
        route = _JOBS.fullmatch(request.path)
        if route is None:
            return status(404, "NotFound", "the server could not find the requested resource")
        name = route["name"]
        if name is None:
            return self._create(request.body) if request.method == "POST" else self._list(self.jobs, request)
        if name not in self.jobs:
            return status(404, "NotFound", f'jobs.batch "{name}" not found')
        if request.method == "DELETE":
            return self._delete(name, request.body)
        if request.method == "PATCH":
            self._wrong("PATCH", [] if "merge-patch" in request.headers["content-type"] else ["not a merge patch"])
            self.jobs[name]["spec"] |= request.body["spec"]
        return Reply(200, copy.deepcopy(self.jobs[name]))

    def _create(self, job: dict[str, Any]) -> Reply:
        name = job["metadata"]["name"]
        if self._wrong("Job", problems(job)) or not _NAME.fullmatch(name):
            return INVALID
        if name in self.jobs:
            return status(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        made = copy.deepcopy(job)
        made["metadata"] |= {"uid": f"uid-{len(self.requests)}", "creationTimestamp": _moment()}
        made["status"] = {}
        self.jobs[name] = made
        return Reply(201, copy.deepcopy(made))

    def _delete(self, name: str, options: dict[str, Any]) -> Reply:
        self._wrong("DeleteOptions", list(differences(options, model("meta_v1", "DeleteOptions"), "DeleteOptions")))
        job = self.jobs[name]
        wanted = options.get("preconditions", {}).get("uid", job["metadata"]["uid"])
        if wanted != job["metadata"]["uid"]:
            return status(409, "Conflict", "the UID in the precondition does not match")
        if options.get("propagationPolicy") == "Foreground" and name in self.pods:
            job["metadata"]["deletionTimestamp"] = _moment()
        else:
            del self.jobs[name]
        return Reply(200, {"kind": "Status", "status": "Success"})

    def _pods(self, request: Request) -> Reply:
        if request.method == "DELETE":
            for name in [name for name, pod in self.pods.items() if _selected(pod, request)]:
                del self.pods[name]
            return Reply(200, {"kind": "PodList", "items": []})
        for name, job in list(self.jobs.items()):
            self._move(name, job)
        return self._list(self.pods, request)

    def _move(self, name: str, job: dict[str, Any]) -> None:
        if job["metadata"].get("deletionTimestamp"):
            del self.jobs[name]
            self.pods.pop(name, None)
        elif job["spec"].get("suspend"):
            self.pods.pop(name, None)
        elif name in self.pods and self.pods[name]["status"] == {"phase": "Pending"}:
            self.pods[name]["status"] = {"phase": "Running"}
            job["status"] |= {"ready": 1}
        elif name not in self.pods and not job["status"].get("conditions"):
            labels = {**job["spec"]["template"]["metadata"]["labels"], "job-name": name}
            self.pods[name] = {"metadata": {"name": f"{name}-x", "labels": labels}, "status": {"phase": "Pending"}}
            job["status"] = {"active": 1, "startTime": _moment()}

    def _list(self, things: dict[str, dict[str, Any]], request: Request) -> Reply:
        return Reply(200, {"kind": "List", "items": [copy.deepcopy(one) for one in things.values() if _selected(one, request)]})

    def _wrong(self, what: str, told: list[str]) -> list[str]:
        self.violations += [f"{what}: {one}" for one in told]
        return told


def _selected(thing: dict[str, Any], request: Request) -> bool:
    pairs = [pair.split("=", 1) for pair in request.query.get("labelSelector", "").split(",") if pair]
    return all(thing["metadata"].get("labels", {}).get(key) == value for key, value in pairs)


def _moment() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
