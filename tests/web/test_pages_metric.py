"""The benchmark of pages asks for what is there: a page that it cannot fetch is noticed here, and not at the next release."""

from __future__ import annotations

from bench.metrics.pages import asked_of
from bench.metrics.pages_scene import SMALL, laid
from bench.places import SqlitePlace


async def test_every_page_can_be_measured() -> None:
    """Every page that the dashboard has, with its filters, answers to those who may see it; none is left out."""
    place = SqlitePlace()
    await place.open()
    try:
        scene = await laid(place, SMALL)
        asked = list(asked_of(scene))
        for one in asked:
            await scene.fetch(one.who, one.path, one.query, one.form)
        bare = {one.path.replace("{webhook}", "{webhook_id}").replace("{failed}", "{job_id}") for one in asked}
        assert set(scene.pages) <= bare
        await scene.close()
    finally:
        await place.close()
