"""Several players in one collector: their rows equal a slow loop over the raw env, whoever sits where."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from envs.multi_rollouts import Ledger, seen
from rookery.acting.actor import Actor, Message
from rookery.acting.rules import EpsilonGreedy
from rookery.core.chunk import Chunk
from rookery.core.rng import Streams
from rookery.core.spec import Leaf
from rookery.data.config import ReplayConfig
from rookery.data.replay.store import ReplayStore
from rookery.envs import EnvConfig, make_multi
from rookery.envs.tasks import games
from rookery.run.collect.chunks import decided
from rookery.run.collect.collector import Collector
from rookery.run.collect.rows import Rows
from rookery.run.collect.seats import Seats

GAMES = {
    "parallel": (games.Pairing, {"left": {"a": 1.0}, "right": {"b": 1.0}}),
    "turns": (games.Verdicts, {"first": {"a": 1.0}, "second": {"b": 1.0}}),
    "shared": (games.Verdicts, {"first": {"a": 1.0}, "second": {"a": 1.0}}),
    "leaving": (games.Visitors, {"early": {"a": 1.0}, "steady": {"b": 1.0}, "late": {"a": 1.0}}),
    "redrawn": (games.Visitors, {"early": {"a": 1.0, "b": 1.0}, "steady": {"b": 3.0, "a": 1.0}, "late": {"b": 1.0}}),
    "redrawn turns": (games.Verdicts, {"first": {"a": 1.0, "b": 2.0}, "second": {"a": 1.0, "b": 2.0}}),
    "dict": (games.Shifts, {"day": {"a": 1.0}, "night": {"b": 1.0, "a": 1.0}}),
}
APIS = {games.Pairing: "parallel", games.Visitors: "parallel", games.Verdicts: "turns", games.Shifts: "dict"}
MEMORY = {"seen": Leaf("box", (), np.dtype(np.float32))}
PHASE = {"a": 0.0, "b": 1.0}


def choice(player, obs, actions):
    """The players disagree in about half of the observations."""
    obs = torch.as_tensor(np.asarray(obs), dtype=torch.float32)
    score = torch.sin(obs @ torch.arange(3.0, 3.0 + obs.shape[-1]) * 5 + PHASE[player])
    return (score > 0).long() * (actions - 1)


def actor(player, actions, memory=None, epsilon=0.0):
    def outputs(s, obs, state, first):
        q = torch.nn.functional.one_hot(choice(player, obs, actions), actions).float()
        return {"q": q}, state if state is None else {"seen": state["seen"] + 1}

    made = Actor(outputs, EpsilonGreedy(), None, "cpu", memory)
    made.load(Message(version=4, knobs={"epsilon": epsilon}))
    return made


def collector(name, num=2, seed=0, **more):
    game, chances = GAMES[name]
    config = EnvConfig(id=f"rookery.envs.tasks.games:{game.__name__}", api=APIS[game])
    streams = Streams(seed)
    env = make_multi(config, count=num, purpose="train", streams=streams)
    seats = Seats(chances, num, streams.numpy("seats"))
    players = {
        p: actor(p, env.action_spaces[seats.agents(p)[0]].n, **more)
        for p in dict.fromkeys(p for weights in chances.values() for p in weights)
    }
    rows = {p: Rows(actor, streams.numpy(f"act/{p}"), env, seats.agents(p)) for p, actor in players.items()}
    return Collector(env, rows, seats=seats, index=3)


def rows_of(it, collected):
    """(agent, env) → [(t, player, obs, action, reward, terminated, truncated, successor,
    first)] of valid rows, by time."""
    found = {}
    for player, chunk in collected.items():
        rows, length = chunk.rows, len(chunk.rows["reward"])
        finals = {tuple(at): obs for at, obs in zip(chunk.final_at.tolist(), chunk.final_obs)}
        for agent, block in it.rows[player].blocks.items():
            for i in range(it.env.num):
                b = block.start + i
                valid = [t for t in range(length) if rows["valid"][t, b]]
                for t, after in zip(valid, [*valid[1:], None]):
                    ended = bool(rows["terminated"][t, b] or rows["truncated"][t, b])
                    assert ended == ((t, b) in finals)
                    below = rows["obs"][t + 1, b] if t + 1 < length else chunk.last_obs[b]
                    if not ended:  # the row below, hole or not, and the next valid row agree on the successor
                        later = chunk.last_obs[b] if after is None else rows["obs"][after, b]
                        assert below.tolist() == later.tolist()
                    successor = finals.get((t, b), below)
                    numbers = [rows[k][t, b].item() for k in ("action", "reward", "terminated", "truncated")]
                    row = (t, player, seen(rows["obs"][t, b]), *numbers, seen(successor), bool(rows["first"][t, b]))
                    found.setdefault((agent, i), []).append(row)
    return {key: sorted(rows) for key, rows in found.items()}


def episodes_of(rows):
    """The rows of one agent in one env, cut after its ends."""
    parts = [[]]
    for row in rows:
        parts[-1].append(row)
        if row[5] or row[6]:
            parts.append([])
    return parts[:-1]


def reference(game, seed, seats):
    """The rows of each agent in one episode of the raw env, played by hand."""
    env, api = game(), APIS[game]
    book = Ledger(env.possible_agents)
    pick = lambda agent, obs: int(choice(seats[agent], obs, env.action_space(agent).n))  # noqa: E731
    if api == "turns":
        env.reset(seed=seed)
        while env.agents:
            agent = env.agent_selection
            obs, reward, terminated, truncated, _ = env.last()
            book.earns(agent, reward)
            book.closes(agent, obs, terminated, truncated)
            action = None if terminated or truncated else pick(agent, obs)
            if action is not None:
                book.acts(agent, obs, action)
            env.step(action)
        return book
    obs, _ = env.reset(seed=seed)
    there, over, last = list(obs), False, {}
    while there and not over:
        given = {agent: pick(agent, obs[agent]) for agent in there}
        for agent in there:
            book.acts(agent, obs[agent], given[agent])
        last |= obs
        obs, reward, terminated, truncated, _ = env.step(given)
        over = terminated.get("__all__", False)
        for agent in env.possible_agents:
            book.earns(agent, reward.get(agent, 0.0))
            ends = terminated.get(agent, over), truncated.get(agent, False)
            if agent in obs or any(ends):
                book.closes(agent, obs.get(agent, last.get(agent)), *ends)
        there = [a for a in obs if not (terminated.get(a, False) or truncated.get(a, False))]
    return book


@pytest.mark.parametrize("num", [1, 3])
@pytest.mark.parametrize("name", GAMES)
def test_rows_of_every_player_equal_a_slow_loop_over_the_raw_env(name, num):
    it = collector(name, num)
    collected = it.collect(150)
    assert collected.steps == 150 * num
    assert all(chunk.version == 4 and chunk.collector == 3 for chunk in collected.values())
    rows, game, compared = rows_of(it, collected), GAMES[name][0], 0
    for end in collected.episodes:
        book = reference(game, Streams(0).seed_of("train", 0, end.env, end.episode), end.info["seats"])
        for agent, expected in book.rows.items():
            got = episodes_of(rows[agent, end.env])[end.episode]
            assert {row[1] for row in got} == {end.info["seats"][agent]}
            assert [row[2:8] for row in got] == [
                (r.obs, r.action, r.reward, r.terminated, r.truncated, r.successor) for r in expected
            ]
            assert [row[8] for row in got] == [True] + [False] * (len(got) - 1)
            compared += len(got)
        assert end.info["returns"] == book.returns
    assert compared > 100 * num


@pytest.mark.slow
def test_a_seating_is_drawn_once_per_agent_and_episode_in_the_given_proportion():
    ends = collector("redrawn", 4, seed=5).collect(episodes=400).episodes
    share = {agent: sum(end.info["seats"][agent] == "b" for end in ends) / 400 for agent in ("early", "steady", "late")}
    assert abs(share["early"] - 1 / 2) < 0.1  # four standard deviations
    assert abs(share["steady"] - 3 / 4) < 0.09
    assert share["late"] == 1.0


@pytest.mark.parametrize("name", GAMES)
def test_chunks_join_without_a_seam_and_limits_are_exact(name):
    whole = rows_of(collector(name), collector(name).collect(60))
    it, start, found = collector(name), 0, {}
    for n in (7, 1, 12, 40):
        for key, rows in rows_of(it, it.collect(n)).items():
            found.setdefault(key, []).extend((t + start, *row) for t, *row in rows)
        start += n
    assert found == whole
    it = collector(name, num=3)
    for steps in (1, 5, 7):
        assert it.collect(steps=steps).steps == steps
    for count in (1, 2, 5):
        assert len(it.collect(episodes=count).episodes) == count


@pytest.mark.parametrize("name", GAMES)
def test_envs_that_were_not_stepped_go_on_where_they_were(name):
    """With a limit the envs take different numbers of steps, but each goes through the same rows."""
    it, found = collector(name, 3), {}
    for _ in range(150):
        for key, rows in rows_of(it, it.collect(steps=1)).items():
            found.setdefault(key, []).extend(row[1:] for row in rows)
    agent = next(iter(GAMES[name][1]))
    plain = rows_of(it := collector(name, 3), it.collect(150))
    if "redrawn" not in name and name != "dict":  # the order of draws depends on which env ends first
        assert found[agent, 0] == [row[1:] for row in plain[agent, 0]][: len(found[agent, 0])]
    assert len(found[agent, 0]) > 30


@pytest.mark.parametrize("name", GAMES)
def test_a_restored_collector_goes_on_bit_for_bit(name):
    a, b = (collector(name, 3, memory=MEMORY, epsilon=0.5) for _ in range(2))
    a.collect(17)
    b.restore(a.state())
    b.seats.rng.bit_generator.state = a.seats.rng.bit_generator.state
    for player, rows in b.rows.items():
        rows.rng.bit_generator.state = a.rows[player].rng.bit_generator.state
    one, two = a.collect(40), b.collect(40)
    assert rows_of(a, one) == rows_of(b, two)
    for player in one:
        assert np.array_equal(one[player].rows["state"]["seen"], two[player].rows["state"]["seen"])


@pytest.mark.parametrize("limits", [{}, {"steps": 1}])
@pytest.mark.parametrize("name", GAMES)
def test_a_memory_is_that_of_the_decisions_before_in_the_same_episode(name, limits):
    """The state counts the decisions, so that of a row is the number of complete rows before it in its episode."""
    it = collector(name, 2, memory=MEMORY)
    counts = {}
    for _ in range(1 if not limits else 60):
        for player, chunk in it.collect(60 if not limits else None, **limits).items():
            rows = chunk.rows
            for t, b in np.argwhere(rows["valid"]).tolist():
                number = 0 if rows["first"][t, b] else counts[player, b]
                assert rows["state"]["seen"][t, b] == number
                counts[player, b] = number + 1
    assert max(counts.values()) >= 3


def test_a_players_random_numbers_do_not_depend_on_who_else_is_there():
    one, two = collector("parallel", epsilon=1.0), collector("parallel", epsilon=1.0)
    two.rows["b"].rng.random(100)
    a, b = one.collect(50), two.collect(50)
    assert np.array_equal(a["a"].rows["action"], b["a"].rows["action"])
    assert not np.array_equal(a["b"].rows["action"], b["b"].rows["action"])


def test_rows_without_any_decision_are_left_out_for_a_replay():
    valid = np.array([[0, 0], [1, 0], [0, 0], [1, 1]], bool)
    ended = np.array([[0, 0], [0, 0], [0, 0], [0, 1]], bool)
    rows = {"obs": np.array([[1, 5], [1, 5], [2, 5], [2, 5]]), "valid": valid, "truncated": ended}
    chunk = Chunk(rows, np.array([3, 0]), np.array([9]), np.array([[3, 1]]), version=2, collector=1, waits=True)
    kept = decided(chunk)
    assert kept.rows["obs"].tolist() == [[1, 5], [2, 5]]  # the successor of 1 is still 2, in the row below
    assert kept.final_at.tolist() == [[1, 1]]
    assert (kept.version, kept.collector, kept.final_obs.tolist(), kept.last_obs.tolist()) == (2, 1, [9], [3, 0])
    assert decided(replace(chunk, rows={"valid": np.zeros((2, 2), bool)})) is None
    assert decided(kept) is kept


def test_every_row_that_a_replay_gives_out_is_one_of_the_raw_envs_decisions():
    """Through the store too: (obs, action, reward, successor) of the drawn transitions of both players,
    with and without idle rows."""
    it = collector("redrawn turns", 3)
    it.index = 0
    spec, streams = it.env.obs_spec["first"], Streams(1)
    leaf = it.env.action_spec["first"]
    stores = {
        name: ReplayStore(
            ReplayConfig(min_fill=32, batch_size=32),
            spec,
            leaf,
            columns=6,
            gamma=0.9,
            n_step=1,
            rng=streams.numpy(name),
        )
        for name in it.rows
    }
    known, late = {name: set() for name in stores}, Counter()
    for rows in (1, 2, 3, 1) * 40:
        collected = it.collect(rows)
        for part in rows_of(it, collected).values():
            for _, player, obs, action, reward, _, _, successor, _ in part:
                known[player].add((obs, action, reward, successor))
        for name, chunk in collected.items():
            if (dense := decided(chunk)) is not None:
                stores[name].add(dense)
                late[name] += len(chunk.rows["valid"]) - len(dense.rows["valid"])
    for name, store in stores.items():
        for _ in range(10):
            b, _ = store.sample()
            fields = zip(b["obs"].numpy(), b["action"].tolist(), b["reward"].tolist(), b["next_obs"].numpy())
            assert {(seen(o), a, r, seen(n)) for o, a, r, n in fields} <= known[name]
    assert late.total() > 0
