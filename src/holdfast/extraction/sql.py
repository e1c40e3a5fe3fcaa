"""The application's named statements, on whichever database it works with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast import Holdfast

NAME = "extraction"


class Statements:
    """`await ask("repository_lock", …)` inside one transaction; columns that end in `_at` are times."""

    def __init__(self, hf: Holdfast, tx: Any) -> None:
        self.tx = tx
        self._extension = hf.extensions[NAME]

    async def __call__(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        found = await self.tx.fetch(self._extension.statement(self.tx.store_kind, statement), *args)
        return [{name: _moment(name, value) for name, value in row.items()} for row in found]

    async def note(self, tenant: str, kind: str, by: str | None, **data: Any) -> None:
        """One line of the audit trail, in the transaction of the change that it tells of."""
        await self.tx.shared("audit_write", tenant, kind, by, msgspec.json.encode(data).decode())


def _moment(name: str, value: Any) -> Any:
    return datetime.fromtimestamp(value, UTC) if name.endswith("_at") and isinstance(value, float) else value
