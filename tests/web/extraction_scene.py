"""A dashboard that an extraction application has joined, and the table of its pages: who gets which."""

from __future__ import annotations

from typing import Any

import httpx

from holdfast import Holdfast
from holdfast.extraction.sealing import Vault
from tests.support.extraction_pages import registry
from tests.support.extractions import Staged
from tests.web.scene import Scene
from tests.web.test_dashboard_pages import ABSENT, READ, Row, _absent_from, _from

SOURCE = "https://github.com/acme/shop.git"
CONNECT = {"id": "shop", "source": SOURCE, "branch": "main", "path": "web"}
SHOP = {"id": "shop"}
TOKEN = "glpat-verysecret"
TABLE: dict[str, Row] = {
    "GET /extraction": Row(READ, ABSENT),
    "GET /extraction/project": Row(READ, ABSENT),
    "GET /extraction/rows": Row(READ, ABSENT),
    "GET /extraction/runs": Row(READ, ABSENT),
    "GET /extraction/settings": Row(READ, ABSENT),
    "POST /extraction/connect": Row((403, 303, 303, 303, 303), (403, 404, 404, 404, 303), {**CONNECT, "id": "new-{no}"}),
    "POST /extraction/start": Row(_from("member"), _absent_from("member"), SHOP),
    "POST /extraction/cancel": Row(_from("member"), _absent_from("member"), SHOP),
    "POST /extraction/retry": Row(_from("member"), _absent_from("member"), SHOP),
    "POST /extraction/disconnect": Row(_from("admin"), _absent_from("admin"), SHOP),
    "GET /integrations": Row(_from("admin"), _absent_from("admin")),
    "POST /integrations/add": Row(_from("admin", 303), _absent_from("admin", 303), {"provider": "gitlab", "token": TOKEN}),
    "POST /integrations/token": Row(_from("admin", 303), _absent_from("admin", 303), {"id": "{integration}", "token": TOKEN}),
    "POST /integrations/remove": Row(_from("admin"), _absent_from("admin"), {"id": "{integration}"}),
}


class Shown(Scene):
    """A dashboard with an extraction application whose results a test lays out."""

    def __init__(self, hf: Holdfast, **parts: Any) -> None:
        self.staged = Staged(hf, **{"registry": registry, "vault": Vault([b"k" * 32]), **parts})
        super().__init__(hf)

    async def page(self, path: str, who: str = "acme viewer", **query: str) -> httpx.Response:
        answer = await self.get(who, path, params={"id": "shop", **query})
        assert answer.status_code == 200, answer.text
        return answer

    async def send(self, who: str, where: str, /, **form: str) -> httpx.Response:
        return await self.call(who, "POST", where, data=form)

    async def extract(self, laid: dict[str, Any]) -> None:
        self.staged.laid = laid
        await self.staged.connect()
        await self.work()

    async def actor(self, who: str) -> str:
        answer = await self.get(who, "/api/session")
        actor: str = answer.json()["actor"]
        return actor
