"""Money that a run spends is booked once, whatever the database answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast import Holdfast, current
from holdfast.errors import StorageError, StorageUnavailable
from holdfast.store.protocol import Transaction
from tests.cases.steps import drain


class Failing:
    """In place of `hf.transaction`: the first one fails so, before or after its commit."""

    def __init__(self, hf: Holdfast, error: StorageError, *, committed: bool) -> None:
        self._transaction = hf.transaction
        self._error, self._committed = error, committed
        self.begun = 0
        hf.transaction = self.transaction  # type: ignore[method-assign]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        self.begun += 1
        fails = self.begun == 1
        async with self._transaction() as tx:
            yield tx
            if fails and not self._committed:
                raise self._error
        if fails:
            raise self._error


@pytest.mark.parametrize("error", [StorageUnavailable("The answer got lost."), StorageError("A deadlock was detected.")])
@pytest.mark.parametrize("committed", [True, False])
async def test_money_counts_once_whatever_the_database_answers(hf: Holdfast, error: StorageError, committed: bool) -> None:
    """It is written again after every error, and not booked twice where only the answer of the commit got lost."""

    @hf.task
    async def work() -> None:
        await current().spend(5, "ai")

    await work.options(tenant="acme").enqueue()
    failing = Failing(hf, error, committed=committed)
    await drain(hf)
    assert (await hf.budgets.get("acme", "ai")).spent == 5 and failing.begun == 2
    assert [run["spent"] for run in await hf.budgets.runs("acme", "ai")] == [5]
