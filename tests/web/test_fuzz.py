"""Whatever is sent to whichever route by whomever: no 5xx, no status or body that is not documented.

`make fuzz-api` sends more, on both databases.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from holdfast import Holdfast
from tests.web.scene import ROLES, Scene

EXAMPLES = int(os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "4"))
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
DOCUMENT = "/api/openapi.json"


class Things:
    """What is there to be met: a generated id alone would find nothing."""

    def __init__(self, scene: Scene) -> None:
        hf = scene.hf
        self._ids = [hf.call_sync(hf.enqueue("add", {"a": number}, tenant="acme")).id for number in range(20)]
        hf.run_worker_sync(exit_when_idle=0.0)
        self._ids += [hf.call_sync(hf.enqueue("wait", {}, tenant="acme")).id for _ in range(20)]
        self._keys = [hf.call_sync(hf.keys.create(tenant="acme", role="viewer")).key.id for _ in range(5)]
        hf.call_sync(hf.members.add("acme", "u1", role="viewer"))
        hf.call_sync(hf.projects.create("acme", "web"))
        self._webhook = hf.webhooks.set_sync("acme", "https://example.com/").webhook.id
        self._delivery = hf.call_sync(hf.webhooks.test(self._webhook)).id

    def known(self, name: str, number: int, made_up: Any) -> Any:
        """An id that is there, where we know one of this kind."""
        there: dict[str, list[Any]] = {"job_id": self._ids, "key_id": self._keys, "tenant": ["acme"], "run_no": [1]}
        there |= {"user_id": ["u1"], "project_id": ["web"], "name": ["default"], "source": ["github"]}
        there |= {"webhook_id": [self._webhook], "delivery_id": [self._delivery]}
        found = there.get(name, [made_up])
        return found[number % len(found)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ["nobody", *ROLES])
def test_nothing_that_is_sent_breaks_the_api(fuzz_url: str, role: str) -> None:
    """As each role and as nobody; valid and invalid, with ids that are there and ids that are not."""
    hf = Holdfast(fuzz_url, api_rate=0)
    scene = Scene(hf)
    things = Things(scene)
    key = hf.call_sync(scene.key(role if role in ("nobody", "service") else f"acme {role}"))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    schema = schemathesis.openapi.from_asgi(DOCUMENT, scene.app)
    try:
        for operation in (found.ok() for found in schema.get_all_operations()):
            stopping = scene.app.state.web.stopping
            (stopping.set if operation.path.endswith("/stream") else stopping.clear)()  # a stream then ends at once
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                _send(operation, mode, headers, things)
    finally:
        hf.close()


def _send(operation: Any, mode: GenerationMode, headers: dict[str, str], things: Things) -> None:
    @seed(1)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans(), number=st.integers(0, 1000))
    def send(case: Any, known: bool, number: int) -> None:
        if known and mode is GenerationMode.POSITIVE:
            case.path_parameters = {
                name: things.known(name, number, made_up) for name, made_up in (case.path_parameters or {}).items()
            }
        case.call_and_validate(headers=headers, checks=CHECKS)

    try:
        send()
    except Unsatisfiable:
        if mode is GenerationMode.POSITIVE:
            raise  # else there is nothing about this route that could be wrong
