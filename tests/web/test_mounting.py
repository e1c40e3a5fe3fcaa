"""The API inside a host application, under a prefix."""

from __future__ import annotations

from typing import Any

import django
import httpx
import pytest
from django.conf import settings as django_settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse
from django.urls import path
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import Holdfast
from holdfast.web.access import Caller, Role
from tests.web.scene import add_tasks

urlpatterns = [path("", lambda request: HttpResponse("host"))]


def in_fastapi(api: Any) -> Any:
    host = FastAPI()
    host.mount("/jobs", api)
    return host


def in_starlette(api: Any) -> Any:
    return Starlette(routes=[Mount("/inner", routes=[Mount("/jobs", api)])])


def in_django(api: Any) -> Any:
    """As Django's own page on ASGI does it: the project's asgi.py tells the two apart."""
    if not django_settings.configured:
        django_settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
        django.setup()
    host = get_asgi_application()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/jobs/"):
            await api({**scope, "root_path": "/jobs"}, receive, send)
        else:
            await host(scope, receive, send)

    return application


@pytest.mark.parametrize(
    ("mount", "prefix"),
    [(in_fastapi, "/jobs"), (in_starlette, "/inner/jobs"), (in_django, "/jobs")],
    ids=["fastapi", "starlette", "django"],
)
async def test_the_api_works_under_any_prefix(sqlite_url: str, mount: Any, prefix: str) -> None:
    """Its links begin with the prefix, with the host's own login and without a lifespan of its own."""
    hf = Holdfast(sqlite_url)
    add_tasks(hf)
    host = mount(hf.asgi(authenticate=lambda request: Caller("acme", Role.ADMIN, "user:ana")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://host") as client:
        made = await client.post(f"{prefix}/api/jobs", json={"task": "add", "args": {"a": 1}})
        assert (made.status_code, made.headers["location"]) == (202, f"{prefix}/api/jobs/{made.json()['id']}")
        found = await client.get(made.headers["location"])
        assert found.json()["enqueued_by"] == "user:ana"
        assert (await client.get(f"{prefix}/healthz")).status_code == 200
        missing = await client.get(f"{prefix}/api/nothing")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    await hf.aclose()
