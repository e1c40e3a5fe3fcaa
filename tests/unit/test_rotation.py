"""When a worker goes round the tenants, when it looks at a few of them only, and when it waits."""

from __future__ import annotations

from holdfast.claim import BUSY_SECONDS, HINTS_MAX, HOPS_MAX, Rotation
from holdfast.store.protocol import HOPS, Claim, Claimed, Turn

ASKED_FOR = 10


def turn(cursor: str | None = "m", queue: str = "mail", **what: bool) -> Turn:
    return Turn(queue, cursor, **{"around": False, "busy": False, **what})


ALL_ROUND = turn(around=True, wrapped=True)


def jobs(count: int) -> list[Claimed]:
    return [Claimed("id", "run", 1, "task", "{}", 1, 3, "mail", "acme", None, 300.0, None, 0.0)] * count


def ask(rotation: Rotation, *turns: Turn, found: int = 0, due: float | None = None) -> float | None:
    """Ask and be answered; in how many seconds to ask again."""
    hops, _ = rotation.next_question()
    return rotation.answered(Claim(jobs(found), due, list(turns)), ASKED_FOR, hops)


def dry() -> Rotation:
    """A worker that has gone all round and taken all it could."""
    rotation = Rotation(["mail"])
    assert ask(rotation, ALL_ROUND) is None
    return rotation


def test_after_a_full_claim_it_asks_again_at_once_and_goes_on_from_there() -> None:
    """There is probably more."""
    rotation = Rotation(["mail"])
    assert ask(rotation, turn("k"), found=ASKED_FOR) == 0.0
    assert rotation.cursors == {"mail": "k"}
    assert rotation.next_question() == (HOPS, [])


def test_once_all_round_it_waits_and_looks_nowhere_by_itself() -> None:
    """Nothing can be had before something changes."""
    assert dry().next_question() == (0, [])


def test_a_way_that_found_nothing_gets_longer_steps() -> None:
    """So that thousands of tenants at their limit are passed in a few questions, each of them bounded."""
    rotation = Rotation(["mail"])
    steps = []
    for _ in range(6):
        steps.append(rotation.next_question()[0])
        assert rotation.answered(Claim([], None, [turn()]), ASKED_FOR, steps[-1]) == 0.0
    assert steps == [HOPS, 2 * HOPS, 4 * HOPS, HOPS_MAX, HOPS_MAX, HOPS_MAX]


def test_a_way_of_many_steps_ends_where_the_end_of_the_names_was_passed() -> None:
    """From the beginning once; from somewhere in the middle a second time. Otherwise the worker would ask for ever."""
    rotation = Rotation(["mail"])
    assert ask(rotation, turn("m")) == 0.0
    assert ask(rotation, turn("b", wrapped=True)) is None
    rotation.look_everywhere()
    assert ask(rotation, turn("z")) == 0.0
    assert ask(rotation, turn("a", wrapped=True)) == 0.0
    assert ask(rotation, turn("z")) == 0.0
    assert ask(rotation, turn("a", wrapped=True)) is None


def test_all_queues_must_have_been_gone_round() -> None:
    """One that is done early waits for the others."""
    rotation = Rotation(["mail", "pdf"])
    done, going = turn(around=True, wrapped=True), turn(queue="pdf")
    assert ask(rotation, done, going) == 0.0
    assert ask(rotation, done, turn(queue="pdf", around=True, wrapped=True)) is None


def test_a_named_tenant_is_looked_at_alone() -> None:
    """Nobody else can have changed; a hint is given once."""
    rotation = dry()
    rotation.look_at("acme")
    assert rotation.next_question() == (0, ["acme"])
    assert rotation.answered(Claim([], None, [turn()]), ASKED_FOR, 0) is None
    assert rotation.next_question() == (0, [])


def test_too_many_names_start_a_new_way_round() -> None:
    """One way is cheaper then."""
    rotation = dry()
    for number in range(HINTS_MAX + 1):
        rotation.look_at(f"tenant-{number}")
    assert rotation.next_question() == (HOPS, [])


def test_a_name_that_comes_while_a_question_is_on_its_way_is_kept_for_the_next() -> None:
    """The answer may have been made before that job was there."""
    rotation = Rotation(["mail"])
    hops, _ = rotation.next_question()
    rotation.look_at("acme")
    assert rotation.answered(Claim([], None, [ALL_ROUND]), ASKED_FOR, hops) == 0.0
    assert rotation.next_question() == (0, ["acme"])


def test_news_that_come_while_a_question_is_on_its_way_start_a_new_way() -> None:
    """The same for what names nobody, on the way round or while looking at hints."""
    rotation = Rotation(["mail"])
    hops, _ = rotation.next_question()
    rotation.look_everywhere()
    assert rotation.answered(Claim([], None, [ALL_ROUND]), ASKED_FOR, hops) == 0.0
    assert rotation.next_question() == (HOPS, [])
    assert rotation.answered(Claim([], None, [ALL_ROUND]), ASKED_FOR, HOPS) is None

    rotation.look_at("acme")
    hops, _ = rotation.next_question()
    rotation.look_everywhere()
    assert rotation.answered(Claim([], None, [turn()]), ASKED_FOR, hops) == 0.0
    assert rotation.next_question() == (HOPS, [])


def test_where_somebody_was_in_the_way_it_comes_back_soon_and_looks_everywhere() -> None:
    """Also at those that were named: their names are not remembered."""
    rotation = dry()
    rotation.look_at("acme")
    assert ask(rotation, turn(busy=True)) == BUSY_SECONDS
    rotation.look_at("other")
    assert rotation.next_question()[0] == HOPS


def test_jobs_that_fell_due_beside_the_way_are_looked_for() -> None:
    """The claim that made them claimable did not come to them."""
    rotation = dry()
    assert ask(rotation, turn(), due=0.0) == BUSY_SECONDS
    assert rotation.next_question()[0] == HOPS


def test_work_that_a_limit_holds_back_is_remembered_until_the_next_way() -> None:
    """A worker then looks again by itself: places that free elsewhere are not always told."""
    rotation = Rotation(["mail"])
    ask(rotation, turn("m", held=True))
    ask(rotation, turn("b", wrapped=True))
    assert rotation.held
    rotation.look_everywhere()
    ask(rotation, ALL_ROUND)
    assert not rotation.held


def test_a_lost_question_is_asked_anew() -> None:
    """Its hints went with it."""
    rotation = dry()
    rotation.look_at("acme")
    rotation.next_question()
    rotation.unanswered()
    assert rotation.next_question() == (HOPS, [])


def test_a_job_that_ended_makes_room_for_its_tenant() -> None:
    """Jobs without a tenant have no limit, so their end changes nothing."""
    rotation = dry()
    assert not rotation.freed("mail", None)
    assert rotation.freed("mail", "acme")
    assert rotation.next_question() == (0, ["acme"])


def test_a_job_that_ended_in_a_full_queue_makes_room_for_whoever_is_next() -> None:
    """The place belongs to the queue."""
    rotation = Rotation(["mail"])
    assert ask(rotation, turn(around=True, wrapped=True, full=True)) is None
    assert rotation.freed("mail", None)
    assert rotation.next_question() == (HOPS, [])
