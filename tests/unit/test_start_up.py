"""What a program that uses Holdfast imports without asking for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_program_that_only_enqueues_imports_no_worker(tmp_path: Path) -> None:
    """Nor recovery, and nothing of adopted tables: every start of a web server pays for what `import holdfast` brings."""
    unused = {
        *("holdfast.adopt", "holdfast.processes.worker", "holdfast.processes.scheduler", "holdfast.run", "holdfast.reap"),
        *("holdfast.prune", "holdfast.outbox", "holdfast.webhooks", "holdfast.people.keys", "holdfast.why"),
        *("zoneinfo", "tomllib"),
    }
    probe = (
        "import sys, holdfast; hf = holdfast.Holdfast('sqlite:///enqueues.db'); "
        "hf.task(name='mail')(lambda: 1); hf.migrate_sync(); hf.call_sync(hf.enqueue('mail')); hf.close(); "
        f"print(sorted({unused} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout == "[]\n", done.stderr
