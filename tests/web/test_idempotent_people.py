"""Keys, members and projects under an Idempotency-Key: what is made, its key and the answer are kept together, or none is."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import InvalidOption
from holdfast.web import idempotent
from tests.web.scene import Scene

MADE: dict[str, dict[str, Any]] = {
    "/api/keys": {"role": "viewer", "name": "ci"},
    "/api/members": {"user_id": "ana"},
    "/api/projects": {"id": "web"},
}
KEY = {"Idempotency-Key": "k"}


async def count(hf: Holdfast, path: str) -> int:
    table = path.rpartition("/")[2]
    where = " WHERE name = 'ci'" if table == "keys" else ""
    async with hf.transaction() as tx:
        rows = await tx.fetch(f"SELECT 1 FROM {'holdfast_' if hf.store.name == 'sqlite' else 'holdfast.'}{table}{where}")
    return len(rows)


@pytest.mark.case("requests-2")
@pytest.mark.parametrize("path", MADE)
async def test_a_crash_before_the_answer_is_kept_leaves_nothing_made(
    scene: Scene, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same request again then does the work, instead of meeting what the first one had left."""

    async def crash(*_: Any) -> Any:
        raise OSError("the process is gone")

    with monkeypatch.context() as broken:
        broken.setattr(idempotent, "_kept", crash)
        assert (await scene.post("acme owner", path, MADE[path], headers=KEY)).status_code == 500
    assert await count(scene.hf, path) == 0
    assert (await scene.post("acme owner", path, MADE[path], headers=KEY)).status_code == 201
    assert await count(scene.hf, path) == 1


@pytest.mark.parametrize("path", MADE)
async def test_the_same_request_makes_one_thing_and_gets_the_same_answer(scene: Scene, path: str) -> None:
    """A key's secret is shown once; somebody else's request with the same key is not answered with it."""
    first, again = [await scene.post("acme owner", path, MADE[path], headers=KEY) for _ in range(2)]
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    expected = first.json() | ({"secret": None} if "secret" in first.json() else {})
    assert (again.json(), again.headers["location"]) == (expected, first.headers["location"])
    other = await scene.post("other owner", path, MADE[path], headers=KEY)
    assert (other.status_code, other.json()["tenant"]) == (201, "other")


async def test_a_callers_transaction_that_rolls_back_leaves_nothing(hf: Holdfast) -> None:
    """Key, member and project are part of it; a connection of another kind is refused."""
    with pytest.raises(ZeroDivisionError):
        async with hf.transaction() as tx:
            await hf.keys.create(tenant="acme", name="ci", tx=tx)
            await hf.members.add("acme", "ana", tx=tx)
            await hf.projects.create("acme", "web", tx=tx)
            raise ZeroDivisionError
    assert [await count(hf, path) for path in MADE] == [0, 0, 0]
    with pytest.raises(InvalidOption, match=r"hf\.transaction"):
        await hf.projects.create("acme", "web", tx=object())  # type: ignore[arg-type]
