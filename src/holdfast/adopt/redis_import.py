"""Jobs that wait in a Redis list become jobs of Holdfast: none lost, none twice, wherever it is killed.

An element is moved, in one step of Redis, to a list of elements under way, with an id of its own in front. That id is written
in the transaction that enqueues the job, and only then is the element taken off the list. Whoever finds an element under way,
after a crash or beside another import, tries the same again, and the id decides.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from holdfast import codec
from holdfast.adopt.setup import prepare
from holdfast.errors import ConfigError, HoldfastError, InvalidArguments, InvalidJob, StorageUnavailable
from holdfast.ids import new_run_id
from holdfast.redact import redact
from holdfast.store.protocol import Store, Transaction
from holdfast.task import JobSpec, Task

log = logging.getLogger("holdfast")

BATCH = 100
SHOWN_CHARS = 200
KEPT_SECONDS = 90 * 86_400.0
"""How long an id is remembered: an import that was stopped must go on before."""

_TAKE = """
local taken = {}
for n = 2, #ARGV do
  local element = redis.call(ARGV[1], KEYS[1])
  if not element then break end
  local under_way = ARGV[n] .. ' ' .. element
  redis.call('RPUSH', KEYS[2], under_way)
  taken[#taken + 1] = under_way
end
return taken
"""
_BURY = """
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 1 then redis.call('RPUSH', KEYS[2], ARGV[2]) end
return 1
"""


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def task_named(self, name: str) -> Task[..., Any]: ...

    async def enqueue_many(self, jobs: Sequence[JobSpec[Any]], *, tx: Any = None) -> list[Any]: ...


class Imported(msgspec.Struct):
    enqueued: int = 0
    already_there: int = 0
    """Had become jobs before an earlier import was stopped, or by another that ran beside this one."""
    dead: int = 0
    """Could not become jobs; they are in the dead list as they were."""
    dead_list: str = ""


class Shape(msgspec.Struct, frozen=True):
    """How an element becomes a job."""

    task: str
    arguments: Mapping[str, str] = {}
    """Argument -> field (`repo.url` is a field inside a field). Empty: the element itself is the arguments, by name."""
    tenant: str | None = None
    """The field that names the tenant; and below the project."""
    project: str | None = None


class RedisImport:
    def __init__(self, platform: Platform, url: str, name: str, shape: Shape, *, from_right: bool = False) -> None:
        """`from_right`: for lists that are filled with LPUSH and emptied with RPOP; else the other way round."""
        self._platform = platform
        self._shape = shape
        self._task = platform.task_named(shape.task)
        self._list = name
        # A hash tag keeps all three on one node of a cluster.
        tag = name if "{" in name else f"{{{name}}}"
        self._under_way, self.dead_list = f"{tag}:holdfast:under-way", f"{tag}:holdfast:dead"
        self._pop = "RPOP" if from_right else "LPOP"
        self._redis = _connect(url)
        self.report = Imported(dead_list=self.dead_list)

    async def run(self) -> Imported:
        """Until the list is empty. What it has done so far is in `report`, also when it ends by an error."""
        redis_error = _redis().RedisError
        await prepare(self._platform.store)
        await self._platform.store.shared("adopt_import_prune", -KEPT_SECONDS)
        try:
            await self._go_on()
            while taken := await self._take():
                await self._handle(taken)
        except redis_error as error:
            raise StorageUnavailable(f"Redis cannot be used ({redact(str(error))[:SHOWN_CHARS]}); check its URL.") from error
        finally:
            await self._redis.aclose()
        return self.report

    async def _go_on(self) -> None:
        """What an earlier import left under way, or another one has in hand right now."""
        left = await self._redis.lrange(self._under_way, 0, -1)
        for start in range(0, len(left), BATCH):
            await self._handle(left[start : start + BATCH])

    async def _take(self) -> list[bytes]:
        ids = [new_run_id() for _ in range(BATCH)]
        taken: list[bytes] = await self._redis.eval(_TAKE, 2, self._list, self._under_way, self._pop, *ids)
        return taken

    async def _handle(self, elements: Sequence[bytes]) -> None:
        good: dict[bytes, JobSpec[Any]] = {}
        for element in elements:
            raw = element.partition(b" ")[2]
            try:
                good[element] = self._spec(raw)
            except InvalidJob as error:
                log.warning("An element of %s is none for %s: %s", self._list, self._shape.task, redact(str(error)))
                await self._redis.eval(_BURY, 2, self._under_way, self.dead_list, element, raw)
                self.report.dead += 1
        if not good:
            return
        await self._enqueue(good)
        async with self._redis.pipeline(transaction=False) as pipeline:
            for element in good:
                pipeline.lrem(self._under_way, 1, element)
            await pipeline.execute()

    async def _enqueue(self, good: Mapping[bytes, JobSpec[Any]]) -> None:
        async with self._platform.transaction() as tx:
            new = []
            for element in sorted(good):  # in one order everywhere, so that two imports cannot wait for each other
                element_id = element.partition(b" ")[0].decode()
                if await tx.shared("adopt_import", element_id, self._list):
                    new.append(element)
            fresh = set(new)
            await self._platform.enqueue_many([spec for element, spec in good.items() if element in fresh], tx=tx)
        self.report.enqueued += len(new)
        self.report.already_there += len(good) - len(new)

    def _spec(self, raw: bytes) -> JobSpec[Any]:
        try:
            fields = codec.decode(raw)
        except codec.NotJson as error:
            raise InvalidArguments(f"it {error}.") from None
        if not isinstance(fields, dict):
            raise InvalidArguments("it is no JSON object.")
        shape = self._shape
        arguments = {name: _field(fields, path) for name, path in shape.arguments.items()} or fields
        options: dict[str, Any] = {
            option: _name(fields, path)
            for option, path in (("tenant", shape.tenant), ("project", shape.project))
            if path is not None
        }
        bound = self._task.options(**options)
        return JobSpec(bound.task, bound.task.bind_arguments((), arguments), bound.job_options)


def _field(fields: dict[str, Any], path: str) -> Any:
    found: Any = fields
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            raise InvalidArguments(f"it has no field {path!r}.")
        found = found[key]
    return found


def _name(fields: dict[str, Any], path: str) -> str:
    found = _field(fields, path)
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise InvalidArguments(f"its field {path!r} is neither a text nor a number.")
    return str(found)


def _redis() -> Any:
    try:
        import redis.asyncio as redis
    except ModuleNotFoundError as error:
        raise ConfigError("An import from Redis needs one more package: pip install 'holdfast[redis]'.") from error
    return redis


def _connect(url: str) -> Any:
    try:
        return _redis().Redis.from_url(url)
    except HoldfastError:
        raise
    except Exception as error:
        raise ConfigError("This is no Redis URL: use redis://host:6379/0 or rediss://user:password@host:6379/0.") from error
