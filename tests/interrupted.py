"""One run to its end, and the same one saved in the middle and gone on with: how many tests of exactness begin."""

from contextlib import contextmanager


@contextmanager
def straight_and_resumed(make, folder, *, steps=0, rounds=0):
    """(the trainer that was not stopped, the one that went on from what it saved after so many steps or rounds)."""
    with make() as straight:
        for _ in range(rounds):
            straight.round()
        while straight.steps < steps:
            straight.round()
        straight.save(folder)
        saved = straight.steps
        for _ in straight:
            pass
        assert straight.updates > 0
        with make() as resumed:
            resumed.load(folder)
            assert 0 < resumed.steps == saved < straight.steps
            for _ in resumed:
                pass
            assert resumed.steps == straight.steps
            assert resumed.players.weights_sha256() == straight.players.weights_sha256()
            yield straight, resumed
