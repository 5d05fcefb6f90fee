"""Players that a callback lets learn, or not, in the middle of a run."""

from rookery import Callback, Trainer, load_config
from run.test_ties import TIED


class Alternates(Callback):
    """After every round only one of the two learns, in turn."""

    def round_end(self, progress):
        k = progress.steps // 64
        progress.train("a", k % 2 == 0)
        progress.train("b", k % 2 == 1)


def test_a_callback_says_who_learns_and_a_resumed_run_goes_on_so(tmp_path):
    tree = {**TIED, "players": {"a": {}, "b": {}}, "train": {"max_steps": 640}}
    tree["log"] = {"sinks": [], "every_steps": 64}

    def make():
        return Trainer(load_config(tree=tree), callbacks=[Alternates()])

    with make() as straight, make() as resumed:
        for progress in straight:
            if progress.steps == 256:
                straight.save(tmp_path)
        updates = {name: player.learner.updates for name, player in straight.players.items()}
        assert updates == {"a": 5 * 16, "b": 6 * 16}  # both learn in the first of ten rounds, then b, a, b, …
        resumed.load(tmp_path)
        assert [player.rests for player in resumed.players.values()] == [False, True]
        for _ in resumed:
            pass
        assert resumed.players.weights_sha256() == straight.players.weights_sha256()
