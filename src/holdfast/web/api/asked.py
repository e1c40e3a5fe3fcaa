"""What requests about an organization's own things have in common: which one, and which page of the list."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from holdfast.errors import InvalidOption
from holdfast.web.access import Caller
from holdfast.web.routing import scope

TenantQuery = Annotated[
    str | None, Query(min_length=1, max_length=200, description="For the service role; others mean their own.")
]
CursorQuery = Annotated[str | None, Query(min_length=1, max_length=200, description="`next_cursor` of the page before.")]
LimitQuery = Annotated[int, Query(ge=1, le=200, description="How many at the most.")]


def tenant_named(caller: Caller, asked: str | None) -> str:
    tenant = scope(caller, asked)
    if tenant is None:
        raise InvalidOption("The service role works across organizations: name the one that is meant with ?tenant=.")
    return tenant
