"""A database full of jobs with a dashboard in front of it, for the metric `pages`. Made by SQL: a minute for a million."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from bench.places import Place
from holdfast import Holdfast
from holdfast.web.access import RULES, Act, Role
from holdfast.web.dashboard.views import GROUPS
from tests.support.extraction_pages import extracted_twice, registry
from tests.support.extractions import Staged

SMALL = 1_000
OTHERS = 200
WEEKS = 3
AT_ONCE = 100_000
"""A statement may not take longer than a minute, on a busy machine either."""

# Of a thousand jobs: up to where they are of which tenant, and in which state. The few are spread so that pages of acme and
# of all are as full as with many: else the ratio would be one of rows on the page.
_FEW = {"acme": 300, "giant": 600, "running": 150, "queued": 330, "failed": 510, "cancelled": 690, "seconds": 3600}
_MANY = {"acme": 5, "giant": 255, "running": 1, "queued": 6, "failed": 26, "cancelled": 46, "seconds": WEEKS * 7 * 86_400}

# Every tenth has the tag that is looked for. Of the few also all that failed of giant, which are 54: its dead letters with
# this tag fill a page in both.
_SOME = {"few": "i % 10 = 1 OR (tenant = 'giant' AND state = 'failed')", "many": "i % 10 = 1"}

_NUMBERS = {
    "postgres": "SELECT i FROM generate_series(CAST({first} AS bigint), {last}) AS numbers (i)",
    "sqlite": """WITH RECURSIVE numbers (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM numbers WHERE i < {last})
                 SELECT i FROM numbers""",
}
# Times are seconds here, and what the store makes of them in the outermost SELECT. Two multiplications spread tenants and
# states independently of each other and of time.
_SPREAD = """
    SELECT i, i * 2654435761 % 4294967296 / 4294968 AS whose, i * 2246822519 % 4294967296 / 4294968 AS how,
           {now} - {seconds} * (1 - i / (1.0 * {rows})) AS at FROM ({numbers}) AS n"""
_PARTS = """
    SELECT i, at,
           CASE WHEN whose < {acme} THEN 'acme' WHEN whose < {giant} THEN 'giant' ELSE 't' || (i % {others}) END AS tenant,
           CASE WHEN how < {running} THEN 'running' WHEN how < {queued} THEN 'queued' WHEN how < {failed} THEN 'failed'
                WHEN how < {cancelled} THEN 'cancelled' ELSE 'completed' END AS state,
           whose < {acme} AND i % 3 = 0 AS is_delivery FROM ({spread}) AS s"""
_COLUMNS = """
    id, run_id, queue, task, state, tenant, project, run_at, run_no, attempt, max_attempts, lease_seconds, timeout_seconds,
    locked_by, lease_expires_at, error_code, error_message, created_at, started_at, finished_at, updated_at, tags, args,
    batch"""
_VALUES = """
    {id}, {id}, CASE i % 4 WHEN 0 THEN 'mail' WHEN 1 THEN 'reports' ELSE 'default' END,
    CASE WHEN is_delivery THEN 'holdfast:deliver' WHEN i % 2 = 0 THEN 'noop' ELSE 'import_' || (i % 20) END, state, tenant,
    CASE WHEN is_delivery THEN '{webhook}' WHEN i % 5 = 0 THEN 'web' END, {at}, 1,
    CASE state WHEN 'queued' THEN 0 ELSE 1 END, 3, 300, 14400,
    CASE state WHEN 'running' THEN 'bench' END, CASE state WHEN 'running' THEN {ahead} END,
    CASE state WHEN 'failed' THEN 'bad_row' END, CASE state WHEN 'failed' THEN 'row ' || i || ' has no price' END, {at},
    CASE WHEN state <> 'queued' THEN {at} END, CASE WHEN state NOT IN ('queued', 'running') THEN {end} END, {at}, {tags},
    '{{"number": 1, "message": "m", "type": "job.completed"}}', CASE WHEN i % 10 = 0 THEN 'batch-' || (i / 1000) END"""
_STORES = {
    "postgres": {
        "now": "extract(epoch FROM now())",
        "at": "to_timestamp(at)",
        "end": "to_timestamp(at + 2)",
        "ahead": "now() + interval '1 day'",
        "tags": "CASE WHEN {some} THEN ARRAY['some', 'more'] WHEN i % 10 = 2 THEN ARRAY['other'] END",
        "id": "CAST(lpad(to_hex(CAST(at * 1000 AS bigint)), 12, '0') || '70008000' || lpad(to_hex(i), 12, '0') AS uuid)",
    },
    "sqlite": {
        "now": "CAST(strftime('%s', 'now') AS REAL)",
        "at": "at",
        "end": "at + 2",
        "ahead": "at + 1e8",
        "tags": """CASE WHEN {some} THEN '["some", "more"]' WHEN i % 10 = 2 THEN '["other"]' END""",
        "id": "printf('%08x-%04x-7000-8000-%012x', CAST(at * 1000 AS INTEGER) >> 16, CAST(at * 1000 AS INTEGER) & 65535, i)",
    },
}
_BESIDE = (
    """INSERT INTO {holdfast}events (job_id, tenant, type, actor, at)
       SELECT id, tenant, 'job_failed', 'worker', finished_at FROM {holdfast}jobs WHERE state IN ('failed', 'cancelled')""",
    """INSERT INTO {holdfast}logs (run_id, no, job_id, tenant, level, message, created_at)
       SELECT run_id, n.i, id, tenant, 'info', 'line ' || n.i || ' of what this job said', created_at
       FROM {holdfast}jobs CROSS JOIN (SELECT 1 AS i UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5) AS n
       WHERE state IN ('failed', 'running') OR batch = 'batch-0'""",
    """INSERT INTO {holdfast}tenants (id, plan, updated_at) SELECT 't' || i, 'pro', {time} FROM ({others}) AS n""",
    """INSERT INTO {holdfast}tallies (minute, queue, name, label, n)
       SELECT m.i, q.queue, k.name, k.label, 5 FROM ({minutes}) AS m CROSS JOIN
         (SELECT 'default' AS queue UNION SELECT 'mail' UNION SELECT 'reports') AS q CROSS JOIN ({kinds}) AS k""",
    """INSERT INTO {holdfast}tallies (minute, queue, name, label, n)
       SELECT h.i, 'all', k.name, k.label, 5 FROM ({hours}) AS h CROSS JOIN ({kinds}) AS k""",
)
_KINDS = """
    SELECT 'completed' AS name, '' AS label UNION SELECT 'failed', '' UNION SELECT 'wait', '|0.1' UNION SELECT 'wait', '|1.0'
    UNION SELECT 'wait', '|sum' UNION SELECT 'run', '|0.5' UNION SELECT 'run', '|5.0' UNION SELECT 'run', '|sum'"""
_NEWEST = """
    SELECT {id} FROM {holdfast}jobs WHERE tenant = 'acme' AND state = '{state}' AND task <> 'holdfast:deliver'
    ORDER BY id DESC LIMIT 1"""


class Scene:
    """One database and its dashboard."""

    def __init__(self, hf: Holdfast, seconds: float, names: dict[str, str], keys: dict[str, str]) -> None:
        self.hf, self.seconds, self._names, self._keys = hf, seconds, names, keys
        self._asgi = hf.asgi()

    @property
    def pages(self) -> dict[str, list[str]]:
        """The path of every page, with those among `owner` and `service` who may see it."""
        joined = [group for extension in self.hf.extensions.values() for group in extension.pages]
        routes = [route for group in [*GROUPS, *joined] for route in group.routes if route.method == "GET"]
        roles = (Role.OWNER, Role.SERVICE)
        return {route.path: [role.word for role in roles if role >= RULES[Act[route.act.upper()]]] for route in routes}

    async def fetch(self, who: str, path: str, query: dict[str, str], form: dict[str, str] | None = None) -> None:
        """As a server would call the application; what is no page, or a redirect to one, is an error of this metric."""
        path = path.format(**self._names)
        body = b"" if form is None else urlencode(form).encode()
        headers = {"host": "bench", "authorization": f"Bearer {self._keys[who]}", "accept": "text/html"}
        if form is not None:
            headers |= {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(body))}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET" if form is None else "POST",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": urlencode(query).encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1), "server": ("bench", 80), "state": {},
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._asgi(scope, receive, send)
        if sent[0]["status"] not in (200, 303):
            content = b"".join(message.get("body", b"") for message in sent[1:])
            raise RuntimeError(
                f"{path} {query} answered {sent[0]['status']} to {who}; what it needs belongs into NEEDED of "
                f"bench/metrics/pages.py. {content[:2000]!r}"
            )

    def forget(self) -> None:
        """What the dashboard remembers for a few seconds."""
        self._asgi.state.dashboard.memory.forget(None)

    async def settle(self) -> None:
        """What the dashboard counts in the background, for whoever looks next."""
        await self._asgi.state.dashboard.memory.settled()

    async def close(self) -> None:
        await self.hf.aclose()


async def laid(place: Place, rows: int) -> Scene:
    """A dashboard over so many jobs, at rest."""
    began = time.monotonic()
    url = await place.fresh()
    hf = Holdfast(url, api_rate=0)
    staged = Staged(hf, registry=registry)
    await hf.migrate()
    for tenant in ("acme", "giant"):
        await hf.tenants.set(tenant, plan="pro")
        await hf.members.add(tenant, "ana", "owner")
    await hf.projects.create("acme", "web")
    await extracted_twice(staged)
    task = hf.task(name="noop")(_noop)
    await hf.schedules.set("nightly", task, "0 3 * * *", tenant="acme")
    webhook = (await hf.webhooks.set("acme", "https://example.com/hooks")).webhook.id
    names = {"webhook": webhook} | await _fill(hf, rows, webhook)
    keys = {tenant: (await hf.keys.create(tenant=tenant, role="owner")).secret for tenant in ("acme", "giant")}
    keys["operator"] = (await hf.keys.create(tenant=None, role="service")).secret
    await hf.aclose()
    await place.settle(url)
    seconds = time.monotonic() - began
    again = Holdfast(url, api_rate=0)
    Staged(again, registry=registry)
    again.task(name="noop")(_noop)
    return Scene(again, seconds, names, keys)


async def _noop() -> None:
    return None


async def _fill(hf: Holdfast, rows: int, webhook: str) -> dict[str, str]:
    """Answers with the ids of some jobs, by state."""
    store = hf.store.name
    holdfast = "holdfast." if store == "postgres" else "holdfast_"
    for first in range(1, rows + 1, AT_ONCE):
        parts = _parts(store, rows, first)
        said = {name: _STORES[store][name] for name in ("id", "at", "end", "ahead", "tags")}
        said["tags"] = said["tags"].format(some=_SOME["few" if rows <= SMALL else "many"])
        values = _VALUES.format(**said, webhook=webhook)
        async with hf.transaction() as tx:
            await tx.execute(f"INSERT INTO {holdfast}jobs ({_COLUMNS}) SELECT {values} FROM ({parts}) AS p")
    beside = {
        "holdfast": holdfast,
        "time": "now()" if store == "postgres" else _STORES[store]["now"],
        "others": _NUMBERS[store].format(first=1, last=OTHERS),
        "minutes": f"SELECT {time.time() // 60:.0f} - i AS i FROM ({_NUMBERS[store].format(first=1, last=59)}) AS n",
        "hours": f"SELECT i - {time.time() // 3600:.0f} AS i FROM ({_NUMBERS[store].format(first=1, last=167)}) AS n",
        "kinds": _KINDS,
    }
    found = {}
    async with hf.transaction() as tx:
        for statement in _BESIDE:
            await tx.execute(statement.format(**beside))
        for state in ("completed", "failed", "queued"):
            asked = _NEWEST.format(holdfast=holdfast, state=state, id="CAST(id AS text) AS id")
            found[state] = (await tx.fetch(asked))[0]["id"]
    return found


def _parts(store: str, rows: int, first: int) -> str:
    numbers = _NUMBERS[store].format(first=first, last=min(rows, first + AT_ONCE - 1))
    spread = {**(_FEW if rows <= SMALL else _MANY), "rows": rows, "others": OTHERS, "now": _STORES[store]["now"]}
    return _PARTS.format(**spread, spread=_SPREAD.format(**spread, numbers=numbers))
