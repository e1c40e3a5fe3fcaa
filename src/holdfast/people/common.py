"""What keys, members and projects have in common: names that can be stored, pages, and a line in the audit trail."""

from __future__ import annotations

import reprlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast import codec
from holdfast.errors import InvalidOption
from holdfast.roles import MEMBER_ROLES, Role
from holdfast.store.protocol import Store, Transaction

T = TypeVar("T")

NAME_CHARS_MAX = 200
LIST_MAX = 200
_name = codec.text(NAME_CHARS_MAX)


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


def checked_name(what: str, value: object) -> str:
    try:
        return str(_name(value))
    except ValueError as wrong:
        raise InvalidOption(f"{what} must be {wrong}, not {reprlib.repr(value)}.") from None


def checked_name_or_none(what: str, value: object) -> str | None:
    return None if value is None else checked_name(what, value)


def checked_limit(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= LIST_MAX:
        raise InvalidOption(f"limit must lie between 1 and {LIST_MAX}, not {reprlib.repr(limit)}.")
    return limit


def member_role(role: object) -> Role:
    found = role if isinstance(role, Role) else MEMBER_ROLES.get(role) if isinstance(role, str) else None
    if found is None or found is Role.SERVICE:
        raise InvalidOption(
            f"There is no role {reprlib.repr(role)} in an organization; the roles are {', '.join(MEMBER_ROLES)}."
        )
    return found


@asynccontextmanager
async def within(platform: Platform, tx: Transaction | None) -> AsyncIterator[Transaction]:
    """The caller's transaction, which he commits; without one, a transaction of our own."""
    if tx is None:
        async with platform.transaction() as own:
            yield own
    elif hasattr(tx, "shared"):
        yield tx
    else:
        raise InvalidOption(f"tx must be what hf.transaction() gives, not {type(tx).__name__}.")


async def note(tx: Transaction, tenant: str | None, kind: str, by: str | None, **data: Any) -> None:
    """One event, in the transaction of the change that it tells of."""
    await tx.shared("audit_write", tenant, kind, by, msgspec.json.encode(data).decode())
