"""Pictures of the dashboard's main pages, in both themes, into docs/images: a server with seeded data, and a browser.

A page that this version does not have is left out, and named.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from holdfast import Abort, Holdfast, current
from tests.support.extraction_pages import extracted_twice, registry
from tests.support.extractions import Staged
from tests.support.served import Served
from tools.browser import MISSING, find_browser

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
PAGES = (
    ("overview", "/"),
    ("jobs", "/jobs"),
    ("dead-letters", "/dead"),
    ("queues", "/queues"),
    ("organization", "/organization"),
    ("job-failed", "/jobs/{failed}"),
    ("job-running", "/jobs/{running}"),
    ("repositories", "/extraction"),
    ("extraction", "/extraction/project?id=shop"),
    ("vulnerabilities", "/extraction/rows?id=shop&kind=vulnerabilities"),
)
"""Name of the picture, and its address below the server's; `{failed}` and the like are ids of the seeded jobs."""
THEMES = ("light", "dark")
VIEWPORT = {"width": 1280, "height": 1000}


def add_tasks(hf: Holdfast) -> None:
    @hf.task(name="import_prices", max_attempts=1)
    async def import_prices(file: str, broken: bool = False, forever: bool = False) -> int:
        log = current().log
        log.info(f"downloading {file}", step="download")
        log.success("downloaded 4.2 MB", step="download", duration_ms=await _work(0.3), bytes=4_404_019)
        log.info("reading 48,112 rows", step="parse")
        log.warning("row 1,204: empty price, using 0", step="parse", row=1204, column="price")
        log.warning('row 1,377: unknown currency "XX", row left out', step="parse", row=1377, currency="XX")
        spent = await _work(0.5)
        if forever:
            await asyncio.Event().wait()
        if broken:
            log.error("row 2,910: 'sku' is missing", step="parse", duration_ms=spent, row=2910, columns=["name", "price"])
            raise Abort("row 2,910: 'sku' is missing", code="bad_row")
        log.success("read 48,112 rows", step="parse", duration_ms=spent)
        log.success("imported 48,111 rows", step="write", duration_ms=await _work(0.2))
        return 48_111

    @hf.task(name="send_invoice", queue="mail")
    async def send_invoice(number: int) -> None:
        current().log.success(f"invoice {number} sent", duration_ms=await _work(0.05))


async def _work(seconds: float) -> float:
    """Takes its time; answers how much, in milliseconds."""
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    return (time.perf_counter() - began) * 1000


async def seed(hf: Holdfast) -> dict[str, str]:
    """Jobs that have ended, each in its own way, and one that runs; their ids by name."""
    task = hf.tasks["import_prices"].options(tenant="acme")
    ids = {}
    for month in ("january", "february", "march"):
        ids["completed"] = (await task.enqueue(f"{month}.csv")).id
    for number in range(2041, 2053):
        await hf.tasks["send_invoice"].options(tenant="acme").enqueue(number)
    ids["failed"] = (await task.enqueue("april.csv", broken=True)).id
    await hf.run_worker(exit_when_idle=0.0)
    ids["running"] = (await task.enqueue("may.csv", forever=True)).id
    await hf.tasks["send_invoice"].options(tenant="acme", delay=3600).enqueue(2053)
    return ids


def take(browser: Browser, base: str, key: str, ids: dict[str, str], theme: str) -> None:
    context = browser.new_context(base_url=base, color_scheme=theme, viewport=VIEWPORT, device_scale_factor=1.5)  # type: ignore[arg-type]
    context.request.post("/api/session", data={"key": key})
    page = context.new_page()
    for name, path in PAGES:
        answer = page.goto(path.format(**ids), wait_until="load")
        if answer is None or not answer.ok or "html" not in answer.headers.get("content-type", ""):
            print(f"  {path} is no page of this version: left out")
            continue
        if page.locator("log-view").count():
            page.locator("log-view[data-ready]").wait_for()
        page.screenshot(path=IMAGES / f"{name}-{theme}.png")
        print(f"  docs/images/{name}-{theme}.png")
    context.close()


def main() -> int:
    executable = find_browser()
    if executable is None:
        print(MISSING)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        served = Served(f"sqlite:///{folder}/holdfast.db", joined=lambda hf: Staged(hf, registry=registry), api_rate=0)
        try:
            add_tasks(served.hf)
            served.run(extracted_twice(served.application))
            ids = served.run(seed(served.hf))
            served.start(served.hf.run_worker())
            browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
            for theme in THEMES:
                take(browser, served.base, served.key(), ids, theme)
            browser.close()
        finally:
            served.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
