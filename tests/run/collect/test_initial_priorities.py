"""`store.priority.initial=actor`: new steps enter with the TD error that their actor saw, worked out
again from the true successors."""

import copy

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery import ConfigError, Trainer, load_config
from rookery.acting.actor import Actor, Message
from rookery.acting.initial_priority import Judge
from rookery.acting.rules import EpsilonGreedy
from rookery.core.chunk import Chunk
from rookery.core.spec import Leaf
from rookery.core.tree import tree_map
from rookery.equations.value import rescale, unscale

GAMMA = 0.5


def by_hand(s, obs, state, first):
    """Q(s, 0) = s and Q(s, 1) = 2 − s."""
    x = obs[:, 0]
    return {"q": torch.stack([x, 2 - x], -1)}, None


def test_the_error_of_a_row_is_that_of_its_own_successor():
    """Column 0: 3 → 5 → 1 | terminated. Column 1: 0 → 4 → truncated at −6, then 7 is acted on next."""
    actor = Actor(by_hand, EpsilonGreedy(), None)
    judge = Judge(actor, GAMMA)
    obs = np.array([[[3.0], [0.0]], [[5.0], [4.0]], [[1.0], [4.0]]], np.float32)
    actor.load(Message(0, {"epsilon": 0.0}))
    told = [actor.act(row, np.random.default_rng(0)) for row in obs]
    rows = {key: np.stack([out[key] for out in told]) for key in told[0]}
    assert rows["action"].tolist() == [[0, 1], [0, 0], [0, 0]]
    rows["reward"] = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 10.0]], np.float32)
    rows["terminated"] = np.array([[False, False], [False, False], [True, False]])
    rows["priority"] = np.zeros((3, 2), np.float32)
    judge.begin()
    judge.ended(
        2, obs[2], [(0, np.array([99.0], np.float32)), (1, np.array([-6.0], np.float32))], rows["terminated"][2]
    )
    judge.fill(rows, np.array([[8.0], [7.0]], np.float32))
    # 1 + ½·5 − 3, 1 + ½·1 − 5, 1 − 1        1 + ½·4 − 2, 1 + ½·4 − 4, 10 + ½·8 − 4: the best of −6 is 8
    assert rows["priority"].tolist() == [[0.5, 1.0], [3.5, 1.0], [0.0, 10.0]]


def remembering(s, obs, state, first):
    """Q(h, 0) = h and Q(h, 1) = 2 − h of the sum h of all that was seen."""
    total = state["sum"] + obs[:, 0]
    return {"q": torch.stack([total, 2 - total], -1)}, {"sum": total}


def test_an_actor_with_memory_knows_what_it_has_seen_before_the_successor():
    """Column 0 sees 1, 2, 3, then 4. Column 1 sees 2, 4, is cut at −8, begins again with 5 and sees 1."""
    actor = Actor(remembering, EpsilonGreedy(), None, memory={"sum": Leaf("box", (), np.dtype(np.float32))})
    judge = Judge(actor, GAMMA)
    actor.load(Message(0, {"epsilon": 0.0}))
    obs = np.array([[[1.0], [2.0]], [[2.0], [4.0]], [[3.0], [5.0]]], np.float32)
    no, told = np.zeros(2, bool), []
    judge.begin()
    for t, first in enumerate(([True, True], [False, False], [False, True])):
        told.append(actor.act(obs[t], np.random.default_rng(0), np.array(first)))
        if t == 1:
            judge.ended(t, obs[t], [(1, np.array([-8.0], np.float32))], no)
    rows = {key: np.stack([out[key] for out in told]) for key in told[0] if key != "state"}
    rows |= {"reward": np.ones((3, 2), np.float32), "terminated": np.zeros((3, 2), bool)}
    rows["priority"] = np.zeros((3, 2), np.float32)
    before = actor.memory.now["sum"].tolist()
    judge.fill(rows, np.array([[4.0], [1.0]], np.float32))
    # sums 1, 3, 6, then 10: 1 + ½·3 − 1, 1 + ½·6 − 3, 1 + ½·10 − 6
    # sums 2, 6, cut at −2, whose best is 4; then 5 and 6: 1 + ½·6 − 2, 1 + ½·4 − 6, 1 + ½·6 − 5
    assert rows["priority"].tolist() == [[1.5, 2.0], [1.0, 3.0], [0.0, 1.0]]
    assert actor.memory.now["sum"].tolist() == before  # it has only looked ahead


def test_rescaled_values_are_judged_on_their_scale():
    """h(x) = √(x + 1) − 1 for x ≥ 0 and ε → 0."""
    actor = Actor(by_hand, EpsilonGreedy(), None)
    judge = Judge(actor, GAMMA, 1e-6)
    actor.load(Message(0, {"epsilon": 0.0}))
    told = actor.act(np.array([[3.0]], np.float32), np.random.default_rng(0))
    rows = {key: value[None] for key, value in told.items()}
    rows |= {"reward": np.full((1, 1), 13.5, np.float32), "terminated": np.zeros((1, 1), bool)}
    rows["priority"] = np.zeros((1, 1), np.float32)
    judge.begin()
    judge.fill(rows, np.array([[1.0]], np.float32))
    # the best of 1 is 1 = h(3): 13.5 + ½·3 = 15, h(15) = 3, and Q(3, 0) = 3
    assert rows["priority"][0, 0] == pytest.approx(0.0, abs=1e-4)


class Walk(gymnasium.Env):
    """Random places; some episodes end, some are cut."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def step(self, action):
        ends = self.np_random.random()
        return self.look(), float(self.np_random.normal()), ends < 0.1, 0.1 <= ends < 0.3, {}

    def look(self):
        return self.np_random.normal(size=2).astype(np.float32)


class Breaking(Walk):
    """Now and then it gives NaN, and its episode is dropped."""

    def step(self, action):
        obs, *rest = super().step(action)
        return (obs * np.nan if self.np_random.random() < 0.15 else obs), *rest


class Closing(Walk):
    closed = 0

    def close(self):
        Closing.closed += 1


SINGLE = {
    "env": {"num": 3},
    "algo": {"name": "dqn", "gamma": 0.9, "epsilon": 0.4, "target_every": 10},
    "model": {"hidden": [8]},
    "store": {"min_fill": 60, "batch_size": 8, "capacity": 300, "priority": {"initial": "actor", "alpha": 1.0}},
    "train": {"max_steps": 400},
    "eval": {"every_steps": 0, "at_end": False},
    "learning": {"mode": "eager"},
}
PLAYERS = {
    **SINGLE,
    "env": {"id": "rookery.envs.tasks.games:Visitors", "api": "parallel", "num": 2},
    "players": {"one": {}, "other": {}},
    "seats": {"early": {"one": 1, "other": 1}, "steady": "one", "late": "other"},
}
TURNS = {
    **PLAYERS,
    "env": {"id": "rookery.envs.tasks.games:Verdicts", "api": "turns", "num": 2},
    "seats": {"first": {"one": 1, "other": 1}, "second": {"one": 2, "other": 1}},
}
SEQUENCES = {
    **SINGLE,
    "algo": {"name": "r2d2", "gamma": 0.9, "epsilon": 0.4, "sequence": 4, "overlap": 2, "burn_in": 2, "eta": 0.75},
    "model": {"hidden": [8], "core": {"kind": "gru", "size": 4}},
}
RECURRENT = {key: SEQUENCES[key] for key in ("algo", "model")}
WITH_MEMORY = {
    "sequences": (SEQUENCES, Walk, ["algo.rollout=5"]),
    "dropped episodes": (SEQUENCES, Breaking, ["env.on_bad=drop", "algo.rollout=5"]),
    "busy envs": (
        SEQUENCES,
        Walk,
        ["env.workers.mode=async", "env.workers.processes=3", "algo.rollout=5", "store.min_fill=300"],
    ),
    "leaving and coming": ({**PLAYERS, **RECURRENT}, None, ["algo.rollout=7"]),
    "turns without updates": ({**TURNS, **RECURRENT}, None, ["store.min_fill=300", "algo.rollout=7"]),
}
CASES = {
    "sequences": (SEQUENCES, Walk, ["algo.rollout=5"]),
    "one step a round": (SINGLE, Walk, []),
    "several steps a round": (SINGLE, Walk, ["algo.rollout=7"]),
    "stacked frames": (SINGLE, Walk, ["env.stack=3", "algo.rollout=4"]),
    "noisy": (SINGLE, Walk, ["algo.noisy=true", "algo.rollout=3"]),
    "leaving and coming": (PLAYERS, None, []),
    "turns": (TURNS, None, []),
    # in turns a row is complete long after it was acted on, by weights that can be compared
    # only if they have not changed
    "turns without updates": (TURNS, None, ["store.min_fill=250"]),
}


def trainer(name):
    tree, env, overrides = CASES[name]
    return Trainer(load_config(tree=tree, overrides=overrides), env=env)


def test_the_priority_of_a_sequence_is_made_of_the_errors_of_its_steps():
    """η max + (1 − η) mean of what the actor said of the learnt rows, however many chunks they came in."""
    run, said, compared = trainer("sequences"), {}, 0
    store = run.store
    ring, real = store._ring, store.add

    def add(chunk):
        rows = chunk.rows["priority"].copy()
        real(chunk)
        slots = (int(ring.lanes[0][2]) - len(rows) + np.arange(len(rows))) % ring.slots
        said.update(zip((slots[:, None] * ring.columns + np.arange(ring.columns)).ravel().tolist(), rows.ravel()))

    store.add = add
    store.ready = lambda: False  # what updates say later is another matter
    for _ in range(40):  # beyond the capacity
        run.round()
        reader, leaves = store._reader, store._prioritised.priorities.leaves
        for start in np.flatnonzero(leaves):
            reader.index[:] = start
            reader.read()
            learnt = [said[at] for at, ok in zip(reader._at[2:, 0].tolist(), reader._marks["valid"][2:, 0]) if ok]
            wanted = 0.75 * max(learnt) + 0.25 * sum(learnt) / len(learnt)
            assert leaves[start] == pytest.approx(wanted + 1e-6, abs=1e-5)
            compared += 1
    assert compared > 1000


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("turns", "sequences")])
def test_the_priority_of_every_new_step_is_the_error_of_what_the_replay_gives_out(name, monkeypatch):
    run = trainer(name)
    compared = 0
    for player in run.players.values():
        monkeypatch.setattr(player.store, "add", Compared(player, player.store.add).add)
    for _ in range(60):
        run.round()
    for player in run.players.values():
        compared += player.store.add.__self__.compared
        assert (player.learner.updates > 0) == (name != "turns without updates")
    assert compared > 100


class Compared:
    """Looks at every chunk before it is stored: reads its rows back, and computes their errors with torch."""

    def __init__(self, player, add):
        self.player, self.real, self.compared = player, add, 0

    def add(self, chunk: Chunk):
        chunk = copy.deepcopy(chunk)
        self.real(chunk)
        ring, reader = self.player.store._ring, self.player.store._reader
        lane, valid = ring.lanes[chunk.collector], chunk.rows["valid"]
        slots = (int(lane[2]) - len(valid) + np.arange(len(valid))) % ring.slots
        address = (slots[:, None] * ring.columns + np.arange(ring.columns))[valid]
        kept, mass = reader.index.copy(), self.player.store._prioritised.priorities.leaves[address]
        for one, found, given in zip(address, mass, chunk.rows["priority"][valid]):
            reader.index[:] = one
            reader.read()
            batch = {key: value.clone() for key, value in self.player.store._batch.items()}
            s = self.player.learner.eager
            target = batch["reward"][0] + batch["discount"][0] * s.q(batch["next_obs"])[0].max()
            wanted = float((target - s.q(batch["obs"])[0, batch["action"][0]]).abs())
            assert given == pytest.approx(wanted, abs=1e-4)
            assert found == pytest.approx(wanted + 1e-6, abs=1e-4)
            self.compared += 1
        reader.index[:] = kept


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "busy envs" else name for name in WITH_MEMORY]
)
def test_the_error_of_a_step_with_memory_is_that_of_the_state_it_began_with(name, monkeypatch):
    tree, env, overrides = WITH_MEMORY[name]
    with Trainer(load_config(tree=tree, overrides=overrides), env=env) as run:
        for player in run.players.values():
            monkeypatch.setattr(player.store, "add", Remembered(player, player.store.add).add)
        for _ in range(20):
            run.round()
        looks = [player.store.add.__self__ for player in run.players.values()]
    assert sum(look.compared for look in looks) > 100
    assert name == "sequences" or sum(look.holes for look in looks) > 0


class Remembered:
    """Computes the error of every new row with torch, from its recorded state and its successor in the ring."""

    def __init__(self, player, add):
        self.player, self.real, self.compared, self.holes = player, add, 0, 0

    def add(self, chunk: Chunk):
        chunk = copy.deepcopy(chunk)
        self.real(chunk)
        ring, reader, valid = self.player.store._ring, self.player.store._reader, chunk.rows["valid"]
        slots = (int(ring.lanes[chunk.collector][2]) - len(valid) + np.arange(len(valid))) % ring.slots
        self.holes += int((~valid).sum())
        for t, i in np.argwhere(valid):
            reader.index[:] = slots[t] * ring.columns + i
            reader.read()
            row = {key: torch.from_numpy(x[2, :1].copy()) for key, x in reader.arrays.items() if key != "state"}
            state = tree_map(lambda x: torch.from_numpy(x[t, i : i + 1]), chunk.rows["state"])  # noqa: B023
            q, after = self.player.learner.eager.q.step(row["obs"], state)
            value = unscale(self.player.learner.eager.q.step(row["next_obs"], after)[0].amax(-1), 1e-3)
            y = rescale(row["reward"] + 0.9 * ~row["terminated"] * value, 1e-3)
            wanted = float((y - q[0, row["action"]]).abs())
            assert chunk.rows["priority"][t, i] == pytest.approx(wanted, abs=1e-5)
            self.compared += 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["several steps a round", "turns", "sequences"])
def test_a_run_with_them_is_resumed_exactly(name, tmp_path):
    with trainer(name) as straight:
        for _ in straight:
            pass
    with trainer(name) as first:
        while first.steps < 201:
            first.round()
        first.save(tmp_path)
    with trainer(name) as second:
        second.load(tmp_path)
        for _ in second:
            pass
    assert second.players.weights_sha256() == straight.players.weights_sha256()


@pytest.mark.slow
def test_they_change_what_is_learnt_from():
    sums = []
    for initial in ("max", "actor"):
        with Trainer(load_config(tree=SINGLE, overrides=[f"store.priority.initial={initial}"]), env=Walk) as run:
            for _ in run:
                pass
        sums.append(run.learner.weights_sha256())
    assert sums[0] != sums[1]


@pytest.mark.parametrize("algo", ["sac-discrete", "sac"])
def test_an_algorithm_that_does_not_know_them_is_refused(algo):
    env = {"id": "Pendulum-v1"} if algo == "sac" else {}
    tree = {**SINGLE, "env": env, "algo": {"name": algo}, "train": {"max_steps": 5000}}
    tree["store"] = {"capacity": 5000, "priority": {"initial": "actor"}}
    with pytest.raises(
        ConfigError, match=r"store\.priority\.initial=actor needs an algorithm .* Set store\.priority\.initial=max"
    ):
        Trainer(load_config(tree=tree), env=Closing if algo == "sac-discrete" else None)
    assert algo == "sac" or Closing.closed == 1
