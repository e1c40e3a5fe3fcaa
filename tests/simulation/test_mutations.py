"""The simulation finds what it is there to find: with a guard taken away, some seed tells of it."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.simulate import simulate

SEEDS_MAX = 2000


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_planted_bug_is_found(mutation: Mutation) -> None:
    """Within 2,000 seeds; and the one that tells of it has nothing to tell once the guard is back."""
    with mutation.plant():
        found = next((told for seed in range(SEEDS_MAX) if (told := simulate(seed)).wrong), None)
    assert found is not None, f"nobody missed {mutation.name}"
    assert found.wrong is not None
    assert mutation.found_as in found.wrong
    assert simulate(found.seed).wrong is None
