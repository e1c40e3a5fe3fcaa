"""Work that is handed over, and not waited for, where it interrupts itself."""

from __future__ import annotations

import sys
import threading

from holdfast import handover, ids
from holdfast.handover import Handover
from holdfast.ids import new_job_id
from holdfast.runlog.output import LineSplitter
from tests.support.interrupts import MOST, Interrupting, ends


def test_what_interrupts_its_own_thread_is_done_after_what_it_interrupts() -> None:
    """Nothing is lost, and no piece of work begins inside another."""
    done: list[str] = []
    depth: list[int] = [0]

    def work(item: str) -> None:
        depth.append(depth[-1] + 1)
        done.append(item)
        depth.append(depth[-1] - 1)

    given = Handover(work)
    hook = Interrupting(handover.__file__, lambda: given.give("inner"))
    assert ends(hook, lambda: [given.give(str(number)) for number in range(20)])
    assert [item for item in done if item != "inner"] == [str(number) for number in range(20)]
    assert done.count("inner") == hook.acted == MOST and max(depth) == 1


def test_threads_that_give_at_once_take_turns() -> None:
    """Each item is done once, and each thread's in order."""
    done: list[tuple[int, int]] = []
    given: Handover[tuple[int, int]] = Handover(done.append)
    threads = [threading.Thread(target=lambda n=number: [given.give((n, item)) for item in range(500)]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [[item for thread, item in done if thread == number] for number in range(4)] == [list(range(500))] * 4


def test_output_that_comes_while_output_is_cut_into_lines_becomes_lines_too() -> None:
    """A finalizer that prints may run in the thread that is at it."""
    lines: list[str] = []
    splitter = LineSplitter(lines.append)
    hook = Interrupting(sys.modules[LineSplitter.__module__].__file__ or "", lambda: splitter.feed("inner\n"))
    assert ends(hook, lambda: [splitter.feed(f"{number}\n") for number in range(20)])
    assert [line for line in lines if line != "inner"] == [str(number) for number in range(20)]
    assert lines.count("inner") == hook.acted == MOST


def test_a_job_id_that_is_made_while_another_one_is_made_is_another_one() -> None:
    """A finalizer or a signal handler may enqueue."""
    inner: list[str] = []
    outer: list[str] = []
    assert ends(
        Interrupting(ids.__file__, lambda: inner.append(new_job_id())), lambda: [outer.append(new_job_id()) for _ in range(20)]
    )
    assert inner and len({*inner, *outer}) == len(inner) + len(outer) and outer == sorted(outer)
