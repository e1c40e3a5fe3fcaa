"""What the API says of itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from holdfast import Holdfast
from tests.web.scene import Scene

Operations = dict[str, dict[str, Any]]


def operations(hf: Holdfast) -> Operations:
    """`GET /api/jobs` -> what is said of it."""
    paths = Scene(hf).app.openapi()["paths"]
    return {f"{method.upper()} {path}": said for path, methods in paths.items() for method, said in methods.items()}


def test_every_route_says_what_it_does_and_answers(sqlite_url: str) -> None:
    """A summary, and for every success a body that has a schema, or none at all."""
    silent = []
    for call, said in operations(Holdfast(sqlite_url)).items():
        answers = {status: answer for status, answer in said["responses"].items() if status < "400"}
        bodies = [content for answer in answers.values() for content in answer.get("content", {}).values()]
        empty = [status for status in answers if status == "204"]
        if not said.get("summary") or not answers or not (empty or (bodies and all(body.get("schema") for body in bodies))):
            silent.append(call)
    assert silent == []


def test_every_error_is_documented_as_a_problem(sqlite_url: str) -> None:
    """One form for all of them."""
    strange = [
        f"{call} {status}"
        for call, said in operations(Holdfast(sqlite_url)).items()
        for status, answer in said["responses"].items()
        if status >= "400" and list(answer["content"]) != ["application/problem+json"]
    ]
    assert strange == []


def test_whoever_must_be_known_is_told_how(sqlite_url: str) -> None:
    """Every route that can answer 401 to a stranger names the ways in, or has a door of its own."""
    open_doors = {call for call, said in operations(Holdfast(sqlite_url)).items() if not said.get("security")}
    assert open_doors == {
        "GET /healthz",
        "GET /readyz",
        "POST /api/session",
        "DELETE /api/session",
        "POST /api/internal/recovery",
        "POST /api/internal/recovery/extraction-jobs",
        "POST /api/webhooks/in/{source}",
    }


def test_what_is_created_may_carry_an_idempotency_key(sqlite_url: str) -> None:
    """Every POST and PATCH of a caller."""
    without = [
        call
        for call, said in operations(Holdfast(sqlite_url)).items()
        if call.startswith(("POST", "PATCH"))
        and said.get("security")
        and "Idempotency-Key" not in [parameter["name"] for parameter in said.get("parameters", ())]
    ]
    assert without == []


async def test_an_extensions_routes_are_served_below_the_api(sqlite_url: str) -> None:
    """And documented with the rest."""
    router = APIRouter()

    @router.get("/weather", summary="The weather")
    async def weather() -> dict[str, str]:
        return {"sky": "blue"}

    hf = Holdfast(sqlite_url)
    hf.extend("weather", routers=[router])
    scene = Scene(hf)
    assert (await scene.get("nobody", "/api/weather")).json() == {"sky": "blue"}
    assert "/api/weather" in (await scene.get("nobody", "/api/openapi.json")).json()["paths"]
    await hf.aclose()
