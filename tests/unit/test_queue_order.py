"""In which order a worker's claims look at its queues."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.claim import QueueOrder, check_queues
from holdfast.errors import InvalidOption


def test_without_weights_the_first_queue_always_comes_first() -> None:
    """A list is a strict order."""
    order = QueueOrder(["mail", "reports", "mail"])
    assert [order.next() for _ in range(3)] == [["mail", "reports"]] * 3


def test_with_weights_each_queue_is_first_as_often_as_its_weight_says() -> None:
    """Over one round of claims the shares are exact."""
    order = QueueOrder({"mail": 5, "reports": 2, "rest": 1})
    assert Counter(order.next()[0] for _ in range(16)) == {"mail": 10, "reports": 4, "rest": 2}


def test_with_weights_no_claim_leaves_a_queue_out() -> None:
    """A worker never idles while one of its queues has work."""
    order = QueueOrder({"mail": 100, "reports": 1})
    assert all(sorted(order.next()) == ["mail", "reports"] for _ in range(50))


def test_with_weights_a_light_queue_is_not_first_several_times_in_a_row() -> None:
    """The turns of the heavy one are spread, not bunched."""
    order = QueueOrder({"mail": 2, "reports": 1})
    assert [order.next()[0] for _ in range(6)] == ["mail", "reports", "mail", "mail", "reports", "mail"]


@pytest.mark.parametrize("weight", [0, -1, 1.5, "3", 1001, None])
def test_a_weight_that_is_no_small_whole_number_is_refused(weight: object) -> None:
    """It would make the order meaningless."""
    with pytest.raises(InvalidOption, match="weight of queue mail"):
        check_queues({"mail": weight})  # type: ignore[dict-item]
