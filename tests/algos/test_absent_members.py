"""Members of a team that are not present: what they see and do changes no bit of what is learnt."""

import pytest

from algos import test_collaq, test_coma, test_maddpg
from algos.team_batches import absent_changed, same_after
from algos.test_updates import learner

CASES = test_coma.CASES | test_maddpg.CASES | test_collaq.CASES


@pytest.mark.parametrize("name", CASES)
def test_whoever_is_absent_changes_nothing(name):
    make, batch_of = CASES[name]
    batch = batch_of(0)
    assert same_after(make, (batch, absent_changed(batch)), learner)
