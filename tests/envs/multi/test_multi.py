"""Envs with several agents: every row belongs to the agent that earned it, whatever the API."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from envs.multi_rollouts import Recorder, dict_episode, parallel_episode, reference, turns_episode
from rookery.core.rng import Streams
from rookery.core.tree import flatten, unflatten
from rookery.envs.multi.engine import DictAgents, ParallelAgents, TurnAgents
from rookery.envs.multi.table import Table
from rookery.envs.tasks.games import Pairing, Shifts, Verdicts, Visitors


def tictactoe():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return pytest.importorskip("pettingzoo.classic.tictactoe_v3").env()


GAMES = {  # name → (engine, how to make an env, the slow loop)
    "pairing": (ParallelAgents, Pairing, parallel_episode),
    "visitors": (ParallelAgents, Visitors, parallel_episode),
    "verdicts": (TurnAgents, Verdicts, turns_episode),
    "odd verdicts": (TurnAgents, lambda: Verdicts(moves=5), turns_episode),
    "tictactoe": (TurnAgents, tictactoe, turns_episode),
    "shifts": (DictAgents, Shifts, dict_episode),
}
games = pytest.mark.parametrize("name", GAMES)


def by_stream(i, episode):
    return Streams(5).seed_of("train", 0, i, episode)


def engine(name, num, **kwargs):
    kind, make, _ = GAMES[name]
    return kind([make() for _ in range(num)], by_stream, name=name, **kwargs)


@games
@pytest.mark.parametrize("num", [1, 3])
def test_rows_returns_and_successors_of_every_agent_equal_the_slow_loop(name, num):
    env = engine(name, num)
    env.reset()
    recorder = Recorder(env)
    for _ in range(400):
        recorder.step()
    _, make, loop = GAMES[name]
    for i in range(num):
        episodes = len(recorder.ends[i])
        assert episodes >= 40
        rows, ends = reference(loop, make(), lambda e, i=i: by_stream(i, e), np.random.default_rng((0, i)), episodes)
        assert recorder.ends[i] == ends
        for agent in env.agents:
            found = [(e, row) for e, row in recorder.rows[agent][i] if e < episodes]
            assert found == rows[agent]
            assert len(found) >= 40


@games
def test_a_restored_env_goes_on_bit_for_bit(name):
    straight = Recorder(engine(name, 3))
    straight.env.reset()
    for steps in (37, 3, 5):  # the second and third time from the middle of other episodes
        for _ in range(steps):
            straight.step()
        saved = straight.env.state()
        again = Recorder(engine(name, 3))
        again.env.restore(saved_and_loaded(saved))
        assert again.env.exactness == "exact"
        for agent in straight.env.agents:
            assert again.env.acting[agent].tolist() == straight.env.acting[agent].tolist()
            now, then = flatten(again.env.obs[agent]), flatten(straight.env.obs[agent])
            assert all(np.array_equal(now[path], then[path]) for path in then)  # stale rows too
        again.rng = [np.random.default_rng((9, i)) for i in range(3)]
        straight.rng = [np.random.default_rng((9, i)) for i in range(3)]
        again.held = {agent: list(held) for agent, held in straight.held.items()}
        before = {agent: [len(own) for own in rows] for agent, rows in straight.rows.items()}
        ended = [len(own) for own in straight.ends]
        for _ in range(40):
            straight.step()
            again.step()
        for agent, rows in straight.rows.items():
            assert again.rows[agent] == [own[n:] for own, n in zip(rows, before[agent])]
        assert again.ends == [own[n:] for own, n in zip(straight.ends, ended)]
        assert all(again.ends)


def saved_and_loaded(state):
    """Through arrays and JSON, as a checkpoint does it."""
    flat = flatten(state)
    arrays = {path: leaf for path, leaf in flat.items() if isinstance(leaf, np.ndarray)}
    return unflatten({**arrays, **json.loads(json.dumps({k: v for k, v in flat.items() if k not in arrays}))})


@games
def test_state_changes_nothing_and_is_a_copy(name):
    env = engine(name, 2)
    recorder = Recorder(env)
    env.reset()
    for _ in range(3):
        recorder.step()
    saved = env.state()
    kept = json.dumps(saved, default=lambda array: array.tolist())
    for _ in range(20):
        recorder.step()
    assert json.dumps(saved, default=lambda array: array.tolist()) == kept


@games
def test_steps_and_episodes_limit_what_is_stepped_and_change_no_trajectory(name):
    limited, free = Recorder(engine(name, 3)), Recorder(engine(name, 3))
    limited.env.reset()
    free.env.reset()
    for k in range(240):
        steps = k % 4
        lengths = [(table.episode, table.length) for table in limited.env._tables]
        given = limited.actions(count=steps)
        out = limited.step(given, steps=steps)
        for step in out.agents.values():
            assert not step.valid[steps:].any()
        moved = [a != (table.episode, table.length) for a, table in zip(lengths, limited.env._tables)]
        assert moved == [True] * steps + [False] * (3 - steps)
        free.step()
    for agent in limited.env.agents:
        for i, share in enumerate((0.75, 0.5, 0.25)):  # env i is stepped when k % 4 > i
            own = limited.rows[agent][i]
            assert own == free.rows[agent][i][: len(own)]
            assert len(own) >= share * 0.2 * len(free.rows[agent][i])


@games
def test_no_more_than_the_allowed_episodes_end_in_one_step(name):
    recorder = Recorder(engine(name, 3))
    recorder.env.reset()
    seen = 0
    for _ in range(100):
        state = [(table.episode, table.length) for table in recorder.env._tables]
        generators = [rng.bit_generator.state for rng in recorder.rng]
        out = recorder.step(episodes=1)
        seen += len(out.ended)
        assert len(out.ended) <= 1
        for i, table in enumerate(recorder.env._tables):
            if (table.episode, table.length) == state[i]:
                assert out.ended
                assert i > out.ended[0].env
                recorder.rng[i].bit_generator.state = generators[i]
    assert seen >= 10


def test_each_env_and_episode_has_its_own_seed_and_reset_begins_again():
    env = engine("visitors", 2)
    env.reset()
    first = {agent: obs.copy() for agent, obs in env.obs.items()}
    recorder = Recorder(env)
    for _ in range(30):
        recorder.step()
    for i in range(2):
        assert [end[1] for end in recorder.ends[i]] == [by_stream(i, e) for e in range(len(recorder.ends[i]))]
    env.reset()
    assert all(np.array_equal(first[agent][env.acting[agent]], env.obs[agent][env.acting[agent]]) for agent in first)
    assert env.acting["late"].tolist() == [False, False]


def verdicts_by_hand(moves, answers):
    """(env, MultiSteps as plain numbers) of one episode with answers right (1) or wrong (0)."""
    env = TurnAgents([Verdicts(moves)], by_stream)
    env.reset()
    told = []
    for right in answers:
        agent = next(a for a in env.agents if env.acting[a][0])
        bit = int(env.obs[agent][0, 0] > 0)
        out = env.step({agent: np.array([bit if right else 1 - bit])})
        told.append({a: (float(s.reward[0]), bool(s.terminated[0])) for a, s in out.agents.items() if s.valid[0]})
    return env, told, out


def test_credit_for_what_an_agent_did_goes_to_that_agent_although_it_is_paid_in_the_turn_of_the_other():
    # first: right, wrong; second: wrong, right. A verdict is paid in the next move, which is the other's.
    _, told, out = verdicts_by_hand(4, [1, 0, 0, 1])
    assert told == [
        {},  # second has not acted yet, so it has no row; first waits
        {"first": (1.0, False)},
        {"second": (-1.0, False)},
        {"first": (-1.0, True), "second": (1.0, True)},  # both end with the last move
    ]
    assert out.ended[0].info["returns"] == {"first": 0.0, "second": 0.0}
    assert out.ended[0].info["lengths"] == {"first": 2, "second": 2}
    assert (out.ended[0].length, out.ended[0].total) == (4, 0.0)


def test_every_row_of_verdicts_says_whether_its_own_answer_was_right():
    recorder = Recorder(engine("verdicts", 3))
    recorder.env.reset()
    for _ in range(300):
        recorder.step()
    for rows in recorder.rows.values():
        for _, row in (row for own in rows for row in own):
            bit = int(row.obs[0][0] > 0)
            assert row.reward == (1.0 if row.action == bit else -1.0)


def right_answer(name, agent, obs):
    if name == "pairing":
        return int(obs[2] > 0) if agent == "left" else 2 * int(obs[1] > 0)
    return int(obs[0] > 0)


@pytest.mark.parametrize("name", ["pairing", "verdicts", "odd verdicts", "visitors", "shifts"])
def test_right_answers_reach_the_optimum_of_the_game(name):
    env = engine(name, 1)
    env.reset()
    returns = {agent: [] for agent in env.agents}
    for _ in range(2000):
        given = {a: np.array([right_answer(name, a, env.obs[a][0])]) for a, acting in env.acting.items() if acting[0]}
        for end in env.step(given).ended:
            for agent, value in end.info["returns"].items():
                returns[agent].append(value)
    for agent, best in env.envs[0].optimum.items():
        spread = name == "visitors" and agent != "steady"  # how long they stay is drawn from 2, 3, 4
        assert np.mean(returns[agent]) == pytest.approx(best, abs=0.25 if spread else 0)


def test_what_is_received_before_the_first_action_is_in_the_return_and_in_no_row():
    env = engine("shifts", 1)
    env.reset()
    night = []
    for _ in range(8):
        given = {a: np.array([int(env.obs[a][0, 0] > 0)]) for a, acting in env.acting.items() if acting[0]}
        out = env.step(given)
        step = out.agents["night"]
        night += [(float(step.reward[0]), bool(step.terminated[0]))] if step.valid[0] else []
    # 3 · 0.5 before it was asked; then rows of three steps and, cut by __all__, of two
    assert night == [(3.0, False), (2.0, True)]
    assert out.ended[0].info["returns"] == {"day": 8.0, "night": 6.5}
    assert out.ended[0].info["unsaid"] == []  # __all__ speaks for everybody


def test_the_time_limit_cuts_everybody_who_waits_and_keeps_what_they_earned():
    env = TurnAgents([Verdicts(moves=9)], by_stream, max_episode_steps=3)
    env.reset()
    rows = {agent: [] for agent in env.agents}
    for _ in range(3):
        agent = next(a for a in env.agents if env.acting[a][0])
        out = env.step({agent: np.array([int(env.obs[agent][0, 0] > 0)])})
        for name, step in out.agents.items():
            if step.valid[0]:
                rows[name].append((float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0])))
                assert len(step.final) == int(step.truncated[0])
    # the third move pays second; the verdict on first's own third move was never paid
    assert rows == {"first": [(1.0, False, False), (0.0, False, True)], "second": [(1.0, False, True)]}
    assert (out.ended[0].length, out.ended[0].truncated, out.ended[0].terminated) == (3, True, False)
    assert out.ended[0].info["returns"] == {"first": 1.0, "second": 1.0}
    assert out.ended[0].info["unsaid"] == []
    assert env.acting["first"][0]
    assert env.state()["envs"]["0"]["episode"] == 1


def test_masks_of_pettingzoo_are_under_the_key_that_masks_have_here():
    from rookery.core.spec import MASK, without_mask

    env = engine("tictactoe", 2)
    env.reset()
    assert env.obs_spec["player_1"][MASK].shape == (9,)
    assert without_mask(env.obs_spec["player_1"]).shape == (3, 3, 2)
    env.step({"player_1": np.array([4, 0])})
    mask = env.obs["player_2"][MASK]
    assert mask.tolist() == [[1, 1, 1, 1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1, 1]]


def test_a_won_game_of_pettingzoo_ends_both_rows_at_once():
    env = engine("tictactoe", 1)
    env.reset()
    for move in (0, 3, 1, 4):  # player_1 fills the first column, player_2 the second
        agent = next(a for a in env.agents if env.acting[a][0])
        env.step({agent: np.array([move])})
    out = env.step({"player_1": np.array([2])})
    assert {a: (float(s.reward[0]), bool(s.terminated[0])) for a, s in out.agents.items()} == {
        "player_1": (1.0, True),
        "player_2": (-1.0, True),
    }
    board = out.agents["player_2"].final[0][1]["observation"]
    assert board[..., 1].tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert (out.ended[0].length, out.ended[0].info["lengths"]) == (5, {"player_1": 3, "player_2": 2})


def test_an_illegal_move_costs_the_one_who_made_it():
    env = engine("tictactoe", 1)
    env.reset()
    env.step({"player_1": np.array([0])})
    out = env.step({"player_2": np.array([0])})
    assert {a: float(s.reward[0]) for a, s in out.agents.items()} == {"player_1": 0.0, "player_2": -1.0}
    assert all(step.terminated[0] for step in out.agents.values())


class Walkers(Pairing):
    """Rewards that differ, also of kinds other than float, and episodes of differing lengths."""

    def step(self, actions):
        obs, reward, terminated, truncated, infos = super().step(actions)
        kinds = (float, np.float64, np.float32, np.array)
        reward = {agent: kinds[len(agent) % 4](value + 0.25 * len(agent)) for agent, value in reward.items()}
        return obs, reward, terminated, truncated, infos


def test_the_short_way_of_a_plain_step_gives_what_the_long_way_gives(monkeypatch):
    """Everybody acts, is paid and acts again: most steps go the short way, and nobody can tell."""

    def played(long):
        taken, short = [], Table._go_on

        def go_on(self, step):
            taken.append(self.index)
            if not long:
                return short(self, step)
            for agent, seat in self.seats.items():
                self.owner.out.agents[agent].hole(self.index)
                self.owner.acting[agent][self.index] = False
                seat.waiting, seat.earned = True, 0.0
            return self._settle(step)

        monkeypatch.setattr(Table, "_go_on", go_on)
        env, rng, rows = (
            ParallelAgents([Walkers() for _ in range(3)], by_stream, name="walkers"),
            np.random.default_rng(0),
            [],
        )
        env.reset()
        for _ in range(40):
            out = env.step({agent: rng.integers(0, 2, 3) for agent in env.agents})
            steps = out.agents.values()
            rows += [np.concatenate([step.reward, step.valid, step.terminated, step.truncated]) for step in steps]
            rows += [np.array(env.obs[agent], np.float64).reshape(-1) for agent in env.agents]
            rows += [np.array([end.total, end.length, end.env]) for end in out.ended]
            rows += [env.acting[agent].copy() for agent in env.agents]
        monkeypatch.setattr(Table, "_go_on", short)
        return rows, taken

    (one, taken), (other, _) = played(long=False), played(long=True)
    assert 60 < len(taken) < 120, "some steps end an episode, most do not"
    assert len(one) == len(other)
    assert all(np.array_equal(a, b) for a, b in zip(one, other))
