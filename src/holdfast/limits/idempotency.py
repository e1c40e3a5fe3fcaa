"""Do a request once: the same key again gets the first answer, without the work being done again.

Whoever comes first reserves the key with a short lease, which is extended while he works; if he dies, the next one takes over.
With `tx=` the reservation is part of the caller's transaction: key, work and answer are there together, or none of them.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import secrets
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast import codec
from holdfast.errors import (
    HoldfastError,
    IdempotencyInProgress,
    IdempotencyKeyInvalid,
    IdempotencyKeyReused,
    InvalidOption,
    StorageError,
)
from holdfast.settings import Settings
from holdfast.store.protocol import Store
from holdfast.tx import Caller, Rows, caller_of

KEY_CHARS_MAX = 255
RESPONSE_BYTES_MAX = 1024 * 1024
RESERVE_TRIES = 3
EXTENSIONS_PER_LEASE = 3

T = TypeVar("T")
Key = str | Callable[..., str | None] | None
Question = tuple[str, tuple[Any, ...]]
"""A shared statement and its arguments."""
Conversation = Generator[Question, Rows, None]
"""What is asked of the database, told apart from who carries it there: we, or the caller's connection."""


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def settings(self) -> Settings: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class Idempotency:
    """`hf.idempotent`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def __call__(
        self,
        key: Key,
        *,
        scope: str | Sequence[str | None] | None = None,
        body: Any = None,
        tenant: str | None = None,
        tx: Any = None,
        required: bool = False,
    ) -> Once:
        """For `async with`, `with`, and as a decorator.

        `scope` keeps equal keys of different routes or callers apart. `body` is what the request says: the same key with
        another body is refused. Without a key the work is simply done, unless one is `required`. As a decorator, `key` may be
        a function of the arguments.
        """
        return Once(self._platform, key, scope, body, tenant, tx, required)


class Once:
    """One request under its key. `replayed`: it was done before, `response` is the answer; else do it and `store()` one."""

    def __init__(
        self,
        platform: Platform,
        key: Key,
        scope: str | Sequence[str | None] | None,
        body: Any,
        tenant: str | None,
        tx: Any,
        required: bool,
    ) -> None:
        self.replayed = False
        self.response: Any = None
        self._platform = platform
        self._given = (key, scope, body, tenant, tx, required)
        self._caller: Caller | None = None
        self._id: str | None = None
        self._fingerprint = ""
        self._token = secrets.token_hex(16)
        self._stored: str | None = None
        self._extending: asyncio.Task[None] | None = None

    def store(self, response: Any) -> None:
        """The answer to be given again, as JSON. It is written when the block ends well; a block that stores none leaves no
        trace, so that the next caller does the work."""
        try:
            data = codec.encode(response)
        except codec.NotJson as error:
            raise InvalidOption(f"the response {error}; it is kept, so it must be plain data") from error
        if len(data) > RESPONSE_BYTES_MAX:
            raise InvalidOption(
                f"the response takes {len(data)} bytes and {RESPONSE_BYTES_MAX} are kept; answer with a reference instead"
            )
        self.response, self._stored = response, data.decode()

    # -- async -----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Once:
        if self._open():
            await self._talk(self._reserve())
            if self._caller is None and not self.replayed:
                self._extending = asyncio.create_task(self._extend(), name="holdfast idempotency lease")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._extending is not None:
            self._extending.cancel()
        if self._is_mine() and self._caller is not None:
            await self._leave(error)
        elif self._is_mine():
            # Shielded: a client that hangs up cancels us, and the key should not be left to its lease for that.
            await asyncio.shield(self._leave(error))

    async def _leave(self, error: BaseException | None) -> None:
        if error is None:
            await self._talk(self._finish())
            return
        # The body's own error is the one to tell; and a transaction that has failed takes no more statements.
        with suppress(Exception):
            await self._talk(self._release())

    async def _talk(self, conversation: Conversation) -> None:
        with suppress(StopIteration):
            statement, args = next(conversation)
            while True:
                statement, args = conversation.send(await self._ask(statement, args))

    async def _ask(self, statement: str, args: tuple[Any, ...]) -> Rows:
        store = self._platform.store
        if self._caller is not None:
            return await self._caller.run_async(store.shared_statement(statement, *args))
        return [tuple(row.values()) for row in await store.shared(statement, *args)]

    async def _extend(self) -> None:
        """As long as we live and work. Losing the key shows when the answer is stored."""
        lease = self._platform.settings.idempotency_lease
        while True:
            await asyncio.sleep(lease / EXTENSIONS_PER_LEASE)
            with suppress(StorageError):
                if not await self._ask("idempotency_extend", (self._id, self._token, lease)):
                    return

    # -- sync ------------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Once:
        tx = self._given[4]
        if tx is None:
            return self._platform.call_sync(self.__aenter__())
        if self._open():
            self._talk_here(self._reserve())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._caller is None:
            self._platform.call_sync(self.__aexit__(kind, error, trace))
        elif self._is_mine() and error is None:
            self._talk_here(self._finish())
        elif self._is_mine():
            with suppress(Exception):
                self._talk_here(self._release())

    def _talk_here(self, conversation: Conversation) -> None:
        """On the caller's connection, in the caller's thread."""
        assert self._caller is not None
        with suppress(StopIteration):
            statement, args = next(conversation)
            while True:
                asked = self._platform.store.shared_statement(statement, *args)
                statement, args = conversation.send(self._caller.run(asked))

    # -- what is said ----------------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        """Whether there is a key at all."""
        key, scope, body, tenant, tx, required = self._given
        self._id, self.replayed, self._stored = None, False, None
        if tx is not None:
            self._caller = caller_of(tx)
            if self._caller.kind != self._platform.store.name:
                raise InvalidOption(f"tx is a connection to {self._caller.kind}, not to {self._platform.store.name}.")
        if key is None:
            if required:
                raise IdempotencyKeyInvalid(
                    "This request needs the header Idempotency-Key: a text that is new for each request."
                )
            return False
        if callable(key) or scope is None:
            raise InvalidOption("hf.idempotent: give scope= and a key that is text; only the decorator finds them by itself.")
        self._id = _digest([tenant, scope, _checked_key(key)])
        self._fingerprint = hashlib.sha256(body).hexdigest() if isinstance(body, bytes) else _digest(body)
        return True

    def _is_mine(self) -> bool:
        return self._id is not None and not self.replayed

    def _reserve(self) -> Conversation:
        settings = self._platform.settings
        lease, kept = settings.idempotency_lease, settings.idempotency_kept
        for _ in range(RESERVE_TRIES):
            tenant = self._given[3]
            mine = yield "idempotency_reserve", (self._id, tenant, self._fingerprint, self._token, lease, max(kept, lease))
            if mine:
                return
            known = yield "idempotency_get", (self._id,)
            if known:  # else its holder gave it up this very moment
                self._take_over(*known[0])
                return
        raise _in_progress()

    def _take_over(self, fingerprint: str, response: str | None) -> None:
        if fingerprint != self._fingerprint:
            raise IdempotencyKeyReused(
                "This Idempotency-Key came with another request before; send the same request again, or use a new key."
            )
        if response is None:
            raise _in_progress()
        self.replayed, self.response = True, codec.decode(response)

    def _finish(self) -> Conversation:
        if self._stored is None:
            yield from self._release()
        elif not (yield "idempotency_store", (self._id, self._token, self._stored)):
            raise HoldfastError(
                "This request took longer than its lease without a sign of life, and another one was let in under the same "
                "Idempotency-Key; look at what both have done."
            )

    def _release(self) -> Conversation:
        yield "idempotency_release", (self._id, self._token)

    # -- decorator -------------------------------------------------------------------------------------------------------

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function's answer is kept under its key; by default its scope is its name and its body the arguments."""
        if codec.is_async(fn):

            @functools.wraps(fn)
            async def done_once(*args: Any, **kwargs: Any) -> Any:
                async with self._for_call(fn, args, kwargs) as once:
                    if not once.replayed:
                        once.store(await fn(*args, **kwargs))
                    return once.response

            return done_once

        @functools.wraps(fn)
        def done_once_sync(*args: Any, **kwargs: Any) -> Any:
            with self._for_call(fn, args, kwargs) as once:
                if not once.replayed:
                    once.store(fn(*args, **kwargs))
                return once.response

        return done_once_sync

    def _for_call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Once:
        key, scope, body, tenant, tx, required = self._given
        if callable(key):
            key = key(*args, **kwargs)
        if scope is None:
            scope = f"{fn.__module__}.{fn.__qualname__}"
        if body is None:
            bound = inspect.signature(fn).bind(*args, **kwargs)
            bound.apply_defaults()
            body = dict(bound.arguments)
        return Once(self._platform, key, scope, body, tenant, tx, required)


def _checked_key(key: object) -> str:
    try:
        return str(codec.text(KEY_CHARS_MAX)(key))
    except ValueError as wrong:
        raise IdempotencyKeyInvalid(f"An Idempotency-Key must be {wrong}.") from None


def _digest(value: Any) -> str:
    try:
        plain = codec.decode(codec.encode(value))
        return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()
    except codec.NotJson as error:
        raise InvalidOption(f"hf.idempotent: what tells requests apart {error}; give scope= and body= as plain data") from error


def _in_progress() -> IdempotencyInProgress:
    return IdempotencyInProgress("The same request is being done right now; send it again in a moment to get its answer.")
