"""What the routers of an application on top of Holdfast are made of: the same guard, roles, pages and problems as our own.

A router, or a function that makes one when the API is served, is given to `hf.extend(name, routers=[…])`; its paths are below
/api. Everything here is public.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request

from holdfast.errors import NotFound
from holdfast.web.access import Act, Caller, Role, may, require
from holdfast.web.api.asked import CursorQuery, LimitQuery
from holdfast.web.idempotent import once_in_transaction
from holdfast.web.models import Cursor, Name, Taken
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, link, once_by_itself, reply, scope

__all__ = [
    "Act",
    "Caller",
    "CallerDep",
    "Cursor",
    "CursorQuery",
    "HoldfastDep",
    "LimitQuery",
    "Name",
    "OrganizationDep",
    "Role",
    "Taken",
    "answers",
    "guarded_router",
    "link",
    "may",
    "once_by_itself",
    "once_in_transaction",
    "reply",
    "require",
]

NAME_CHARS_MAX = 200


async def _organization(request: Request, org: Annotated[str, Path(max_length=NAME_CHARS_MAX)]) -> str:
    """The organization of the path, for those who belong to it and for the service role; for others it is not there."""
    if not org.isprintable():
        raise NotFound("There is no such organization.")
    caller: Caller = request.state.caller
    return scope(caller, org) or org


OrganizationDep = Annotated[str, Depends(_organization)]
"""Of a path with `{org}`: the tenant that goes into every query."""
