"""Enrichment: what registries know comes in a job of its own, and what they do not answer stays pending."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.extraction import registry
from holdfast.extraction.registry import DepsDev
from tests.support.deps_dev import FakeDepsDev
from tests.support.extractions import Staged, components


@pytest.fixture
def deps_dev() -> Iterator[FakeDepsDev]:
    served = FakeDepsDev()
    yield served
    served.close()


async def test_each_ecosystem_is_asked_for_by_the_name_its_users_write(deps_dev: FakeDepsDev) -> None:
    """Slashes and signs are part of a name, not of the path."""
    purls = [
        "pkg:npm/%40scope/name@1.0.0",
        "pkg:pypi/requests@2.31.0",
        "pkg:golang/github.com/gin-gonic/gin@v1.9.0",
        "pkg:cargo/serde@1.0.0",
        "pkg:maven/org.slf4j/slf4j-api@2.0.0",
    ]
    found = await DepsDev(deps_dev.url)(purls)
    assert set(found) == set(purls)
    assert sorted(deps_dev.asked) == [
        "/v3/systems/cargo/packages/serde/versions/1.0.0",
        "/v3/systems/go/packages/github.com%2Fgin-gonic%2Fgin/versions/v1.9.0",
        "/v3/systems/maven/packages/org.slf4j%3Aslf4j-api/versions/2.0.0",
        "/v3/systems/npm/packages/%40scope%2Fname/versions/1.0.0",
        "/v3/systems/pypi/packages/requests/versions/2.31.0",
    ]
    assert found["pkg:cargo/serde@1.0.0"] == {
        "licenses": ["MIT"],
        "published_at": "2021-02-20T15:42:16Z",
        "newest": True,
        "deprecated": False,
        "source": "https://github.com/a/b",
    }


async def test_what_nobody_knows_is_known_to_be_unknown(deps_dev: FakeDepsDev) -> None:
    """It is not asked for again; what has no version or no such service is not asked for at all."""
    purls = ["pkg:npm/unknown@1.0.0", "pkg:npm/no-version", "pkg:deb/debian/curl@7.0", "nonsense"]
    assert await DepsDev(deps_dev.url)(purls) == {purl: {} for purl in purls}
    assert len(deps_dev.asked) == 1


async def test_what_is_not_answered_is_left_out_and_a_dead_service_is_let_be(
    deps_dev: FakeDepsDev, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors, nonsense and silence of one package do not cost the others; a hundred failures are not waited for."""
    deps_dev.moods = {"broken": "503", "odd": "garbage", "slow": "hang", "limited": "429"}
    purls = [f"pkg:npm/{name}@1.0.0" for name in ("good", "broken", "odd", "limited")]
    assert list(await DepsDev(deps_dev.url)(purls)) == ["pkg:npm/good@1.0.0"]
    deps_dev.moods, deps_dev.asked = {"*": "503"}, []
    assert await DepsDev(deps_dev.url)([f"pkg:npm/p{number}@1.0.0" for number in range(100)]) == {}
    assert len(deps_dev.asked) < 30
    assert await DepsDev("http://127.0.0.1:9")(purls) == {}
    deps_dev.moods = {"slow": "hang"}
    monkeypatch.setattr(registry, "TIMEOUT_SECONDS", 0.2)
    assert await DepsDev(deps_dev.url)(["pkg:npm/slow@1.0.0"]) == {}


@pytest.mark.case("D31")
async def test_enrichment_is_tried_three_times_and_again_with_the_next_extraction(
    hf_at: Holdfast, clock: ManualClock, deps_dev: FakeDepsDev
) -> None:
    """What was answered is kept at once; the rest is pending, and the extraction is ready all the same."""
    deps_dev.moods = {"b": "503"}
    staged = Staged(hf_at, registry=DepsDev(deps_dev.url))
    staged.laid = {"dependencies": components("a", "b")}
    await hf_at.migrate()
    await staged.connect()
    for _ in range(5):
        await staged.work()
        clock.advance(1000)
    told = await staged.extraction.summary("acme", "shop")
    assert (told.repository.status, told.pending_enrichment) == ("ready", 1)
    assert [path.split("/")[5] for path in deps_dev.asked] in (["a", "b", "b", "b"], ["b", "a", "b", "b"])
    (job,) = [one for one in await hf_at.jobs() if one.task == "extraction_enrich"]
    assert (job.attempt, job.status, job.tenant) == (3, "failed", "acme")

    deps_dev.moods = {}
    await staged.extract()
    assert (await staged.extraction.summary("acme", "shop")).pending_enrichment == 0
    page = await staged.extraction.page("acme", "shop", "dependencies")
    assert [one["enrichment"]["licenses"] for one in page.items] == [["MIT"], ["MIT"]]
