"""Whether a soak is called flat, what it records, and what it draws."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tools.pages import placed
from tools.process_stats import taken_by, taken_by_process
from tools.soak_chart import PANELS, chart
from tools.soak_samples import Book, Sample, verdicts


def samples(**last: float) -> list[Sample]:
    """Forty that are alike, but for what the last ten say."""
    names = {name for group in PANELS.values() for name in group}
    return [{"seconds": 10.0 * number, **dict.fromkeys(names, 50.0), **(last if number >= 30 else {})} for number in range(40)]


def test_what_stays_as_it_is_is_flat() -> None:
    """Every figure that has a bound is judged."""
    found = verdicts(samples())
    assert found and all(one.flat for one in found)


@pytest.mark.parametrize(
    ("name", "value"),
    [("worker_1_rss_mb", 65.0), ("server_files", 70.0), ("worker_2_threads", 70.0), ("dead_rows", 9000.0), ("p50_ms", 200.0)],
)
def test_what_grows_is_told(name: str, value: float) -> None:
    """That figure, and no other."""
    assert [one.name for one in verdicts(samples(**{name: value})) if not one.flat] == [name]


def test_a_single_peak_is_no_growth() -> None:
    """The median of a quarter counts: the machine may have something else to do for a moment."""
    seen = samples()
    seen[35]["p99_ms"] = 9000.0
    assert all(one.flat for one in verdicts(seen))


def test_too_few_samples_are_refused() -> None:
    """A quarter of three is nothing."""
    with pytest.raises(ValueError, match="at least four samples"):
        verdicts(samples()[:3])


def test_each_sample_is_on_disk_at_once(tmp_path: Path) -> None:
    """With the names of the columns above them."""
    book = Book(tmp_path / "soak.csv")
    for sample in samples()[:3]:
        book.add(sample)
    with (tmp_path / "soak.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["seconds"]) for row in rows] == [0, 10, 20] and rows[0]["p50_ms"] == "50"


def test_the_picture_has_a_line_for_every_figure() -> None:
    """And is a picture: text of strangers stays text."""
    picture = ElementTree.fromstring(chart(samples(), "5 < 6 & so on"))
    lines = picture.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(list(lines)) == sum(len(names) for names in PANELS.values())
    assert "5 < 6 & so on" in "".join(picture.itertext())


def test_a_group_of_processes_is_counted_together() -> None:
    """Memory, files and threads of a process started for this; and nothing once it is gone."""
    code = "import sys; hoard = bytearray(30 * 2**20); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        taken = taken_by(process.pid)
        assert taken.rss_mb > 30 and taken.files >= 3 and taken.threads == 1
    assert taken_by(process.pid).files == 0
    assert taken_by_process(os.getpid()).cpu_seconds > 0


def test_figures_are_written_between_their_marks() -> None:
    """And a page without the marks is left alone."""
    page = "a\n<!-- soak: written by its tool with --report -->\nold\n<!-- end of soak -->\nz"
    assert "\n\nnew\n\n" in placed(page, "soak", "new") and "old" not in placed(page, "soak", "new")
    with pytest.raises(ValueError, match="has no"):
        placed(page, "chaos", "new")
