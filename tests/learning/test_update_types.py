"""The types that an editor completes in an update are the words that an update has."""

from rookery import UpdateState
from rookery.learning.update_words import Eager, Traced

LEARNERS = {"execute", "drawn", "commit"}  # the learner's own


def words_of(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_an_editor_completes_exactly_the_words_of_an_update() -> None:
    told = words_of(UpdateState)
    assert told == {"minimise", "follow", "normal", "uniform", "knob"}
    for kind in (Eager, Traced):
        assert words_of(kind) - LEARNERS == told - {"knob"}  # an attribute, made with the words
