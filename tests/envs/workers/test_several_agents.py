"""Envs with several agents in worker processes: data as in this process, and no fault of theirs stops the run."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from rookery.core.errors import ConfigError, EnvError, UsageError
from rookery.core.rng import Streams
from rookery.core.tree import flatten
from rookery.envs import EnvConfig, make_multi
from rookery.envs.multi.engine import Agents
from rookery.envs.tasks.games import Pairing, Shifts, Verdicts
from rookery.envs.workers.parent import Workers
from selection import matrix_but

pytestmark = pytest.mark.slow
GAMES = {
    "pairing": ("rookery/Pairing-v0", "parallel"),
    "visitors": ("rookery/Visitors-v0", "parallel"),
    "verdicts": ("rookery/Verdicts-v0", "turns"),
    "shifts": ("rookery/Shifts-v0", "dict"),
}
games = pytest.mark.parametrize("game", GAMES)
STARTS, ONCE = ("fork", "spawn", "forkserver"), (("pairing", "spawn"), ("pairing", "forkserver"))


def made(game, num=5, processes=2, start="fork", purpose="train", **config):
    """In worker processes; with processes=0 in this one."""
    env_id, api = GAMES.get(game, (game, None))
    workers = {"mode": "subprocess", "processes": processes, "start": start} if processes else {}
    config = {"id": env_id, "api": api, "workers": workers, "faults": {"backoff_seconds": 0}} | config
    return make_multi(EnvConfig(**config), count=num, purpose=purpose, streams=Streams(3))


def actions(env, rng):
    """Every agent draws for every env, so that draws do not depend on whose turn it is."""
    drawn = {agent: rng.integers(0, 2, env.num) for agent in env.agents}
    return {agent: drawn[agent] for agent, acting in env.acting.items() if acting.any()}


def told(env, out):
    """All that a step says."""
    by_agent = {
        agent: (
            *(getattr(step, key).tolist() for key in ("reward", "terminated", "truncated", "valid")),
            [(i, flatten(obs)[""].tolist()) for i, obs in step.final],
            (list(step.cut), step.marked, step.ended),
            env.acting[agent].tolist(),
            env.obs[agent].tolist(),
        )
        for agent, step in out.agents.items()
    }
    ends = [(e.env, e.episode, e.seed, e.length, e.total, e.terminated, e.truncated, e.info) for e in out.ended]
    return by_agent, ends, None if out.stepped is None else out.stepped.tolist(), env.everyone


def rolled(env, rows, seed=0, reset=True, limits=lambda k: (None, None)):
    rng, seen = np.random.default_rng(seed), []
    if reset:
        env.reset()
    for k in range(rows):
        seen.append(told(env, env.step(actions(env, rng), *limits(k))))
    return seen


@pytest.mark.parametrize(
    ("game", "start"), matrix_but([(g, s) for g in GAMES for s in STARTS], *((g, "fork") for g in GAMES), *ONCE)
)
def test_the_data_are_those_of_one_process_however_workers_are_started(game, start):
    env, alone = made(game, start=start), made(game, processes=0)
    try:
        assert (type(env), isinstance(alone, Agents)) == (Workers, True)
        assert rolled(env, 60) == rolled(alone, 60)
        assert (len(env.pids), os.getpid() in env.pids, env.exactness) == (2, False, "exact")
    finally:
        env.close()


@games
@pytest.mark.parametrize("limit", [(3, None), (None, 1), (4, 2), (0, None), (1, 1)])
def test_limits_are_those_of_one_process(game, limit):
    env, alone = made(game), made(game, processes=0)
    try:
        assert rolled(env, 40, limits=lambda k: limit) == rolled(alone, 40, limits=lambda k: limit)
    finally:
        env.close()


@games
def test_state_moves_between_workers_and_one_process(game):
    a, b, c = made(game), made(game, processes=0), made(game, processes=3)
    try:
        rolled(a, 7)
        b.restore(a.state())
        c.restore(b.state())
        assert a.exactness == b.exactness == c.exactness == "exact"
        assert not c.renewed.any()
        assert rolled(a, 20, 1, reset=False) == rolled(b, 20, 1, reset=False) == rolled(c, 20, 1, reset=False)
    finally:
        a.close(), c.close()


def test_wrong_actions_are_told_before_anybody_is_stepped():
    env = made("verdicts", num=2)
    try:
        with pytest.raises(UsageError, match="before reset"):
            env.step({})
        env.reset()
        for action, text in (
            ({}, "no action of 'first', who must act"),
            ({"second": np.zeros(2, int)}, "not its turn in any env"),
            ({"first": np.zeros(3, int)}, r"shape \(3,\), expected \(2,\)"),
            ({"frist": np.zeros(2, int)}, "Did you mean 'first'"),
        ):
            with pytest.raises(UsageError, match=text):
                env.step(action)
        assert rolled(env, 5) == rolled(made("verdicts", num=2, processes=0), 5)
    finally:
        env.close()


class Paid(Pairing):
    """Pays what it is told, and says in whose process."""

    wage = 1.0

    def set_wage(self, wage):
        self.wage = wage
        return os.getpid()

    def step(self, actions):
        obs, reward, terminated, truncated, _ = super().step(actions)
        infos = {agent: {"pid": os.getpid()} for agent in reward}
        return obs, dict.fromkeys(reward, self.wage), terminated, truncated, infos


class Faulty:
    """Does `what` once in its life at the step `when` of env 1 (a file tells that it happened), or always."""

    def __init__(self, what="", when=2, index=0, mark=""):
        super().__init__()
        self.what, self.when, self.index, self.mark = what, when, index, Path(mark)

    def step(self, actions):
        if self.index == 1 and self.time == self.when and (self.what.endswith("always") or not self.mark.exists()):
            self.mark.touch()
            if self.what.startswith("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what.startswith("hang"):
                time.sleep(1000)
            raise ValueError("the gripper is stuck")
        return super().step(actions)


class FaultyPairing(Faulty, Pairing):
    pass


class FaultyVerdicts(Faulty, Verdicts):
    pass


class FaultyShifts(Faulty, Shifts):
    pass


HERE = "envs.workers.test_several_agents:"
FAULTY = {"FaultyPairing": "parallel", "FaultyVerdicts": "turns", "FaultyShifts": "dict"}
faulty = pytest.mark.parametrize("game", FAULTY)


def failing(game, what, mark, faults=None, num=4, when=2, **more):
    kwargs = {"what": what, "when": when, "mark": str(mark / "mark")}
    given = {"backoff_seconds": 0} | (faults or {})
    return made(HERE + game, num, api=FAULTY[game], kwargs=kwargs, faults=given, **more)


def test_calls_reach_every_env_and_are_told_again_to_a_new_worker():
    env = made(HERE + "Paid", num=4, api="parallel")
    try:
        env.reset()
        assert set(env.call("set_wage", 7.0)) == set(env.pids)
        assert env.call("rounds") == [5] * 4
        assert env.method("set_wage")(3.0) == os.getpid()
        os.kill(env.pids[0], signal.SIGKILL)
        env.wants_infos = True
        rolled(env, 1, reset=False)
        out = env.step({agent: np.zeros(4, int) for agent in env.agents})
        assert out.agents["left"].reward.tolist() == [7.0] * 4
        assert [info["pid"] for info in out.agents["right"].infos] == [env.pids[0]] * 2 + [env.pids[1]] * 2
        assert env.summary(out).infos[3] == {agent: {"pid": env.pids[1]} for agent in env.agents}
    finally:
        env.close()


@games
def test_a_worker_that_is_killed_is_renewed_and_its_unfinished_episodes_are_dropped(game):
    env, alone = made(game, num=4), made(game, num=4, processes=0)
    try:
        rolled(env, 2), rolled(alone, 2)
        pids, rng = env.pids, np.random.default_rng(0)
        os.kill(pids[0], signal.SIGKILL)
        action = actions(alone, rng)
        out, theirs = env.step(action), alone.step(action)
        assert out.stepped.tolist() == [False, False, True, True]
        fresh = made(game, num=2, processes=0)
        fresh.begin([1, 1])  # the next episodes, with their own seeds
        for agent, step in out.agents.items():
            assert (step.cut, step.marked) == ([0, 1], True)
            for key in ("valid", "reward", "terminated", "truncated"):
                assert getattr(step, key).tolist() == [0, 0, *getattr(theirs.agents[agent], key)[2:].tolist()]
            assert env.acting[agent].tolist() == [*fresh.acting[agent].tolist(), *alone.acting[agent][2:].tolist()]
            assert (env.obs[agent][:2] == fresh.obs[agent])[fresh.acting[agent]].all()
        assert env.pids[1] == pids[1]
        assert env.pids[0] != pids[0]
        assert env.renewals == 2
        assert "SIGKILL" in env.exactness
        assert "envs 0 to 1" in env.exactness
        assert all(part[2] is None for part in rolled(env, 20, reset=False))
    finally:
        env.close()


def test_a_worker_that_is_lost_between_two_steps_changes_nobodys_turn_before_the_next_one():
    env = made("verdicts", num=2, processes=1)
    try:
        env.reset()
        env.step({"first": np.zeros(2, int)})
        os.kill(env.pids[0], signal.SIGKILL)
        env.state()
        assert env.acting["second"].tolist() == [True, True]  # as whoever acts next believes
        out = env.step({"second": np.zeros(2, int)})
        assert (out.stepped.tolist(), out.agents["second"].cut) == ([False, False], [0, 1])
        assert env.acting["first"].tolist() == [True, True]
        assert env.step({"first": np.zeros(2, int)}).stepped is None
    finally:
        env.close()


@faulty
def test_a_worker_that_hangs_is_killed_at_its_deadline(game, tmp_path):
    env = failing(game, "hang", tmp_path, {"step_seconds": 0.3, "reset_seconds": 5.0})
    try:
        started = time.monotonic()
        seen = rolled(env, 10)
        assert 0.3 < time.monotonic() - started < 30
        assert "env 1 of worker 0" in env.exactness
        assert "step 3: step has not returned for 0.3 s" in env.exactness
        for agent in env.agents:
            assert [row[0][agent][5][0] for row in seen].count([0, 1]) == 1
        assert env.renewals == 2
    finally:
        env.close()


@faulty
def test_a_worker_that_always_dies_is_given_up_and_the_others_go_on(game, tmp_path, caplog):
    env = failing(game, "kill always", tmp_path, {"renewals": 2}, when=1)
    try:
        seen = rolled(env, 30)
        assert [row[2] for row in seen[-20:]] == [[False, False, True, True]] * 20
        assert (env.given_up, len(env.pids)) == (2, 1)
        assert caplog.text.count("given up") == 1
        again = made(HERE + game, 4, processes=0, api=FAULTY[game])
        again.restore(env.state())  # a resumed run tries again
        assert again.renewed.tolist() == [True, True, False, False]
        assert rolled(again, 5, reset=False)
    finally:
        env.close()


def test_no_env_left_ends_the_run_with_the_cause(tmp_path):
    env = failing("FaultyPairing", "kill always", tmp_path, {"renewals": 1}, num=2, when=1, processes=1)
    try:
        with pytest.raises(EnvError, match=r"SIGKILL .*2 times in a row .*No env is left") as caught:
            rolled(env, 30)
        assert caught.value.exit_code == 3
    finally:
        env.close()


@faulty
def test_an_error_of_an_env_has_the_place_and_the_traceback_of_its_process(game, tmp_path):
    env = failing(game, "raise", tmp_path)
    try:
        with pytest.raises(EnvError, match=r"env 1 of worker 0 .*episode 0.*step 3: step failed") as caught:
            rolled(env, 10)
        assert 'raise ValueError("the gripper is stuck")' in str(caught.value)
    finally:
        env.close()


class Rotten(Pairing):
    """Every third episode of every env holds NaN at its second step."""

    def reset(self, seed=None, options=None):
        self.bad = seed % 3 == 0
        return super().reset(seed)

    def step(self, actions):
        obs, *rest = super().step(actions)
        return {a: x * (np.nan if self.bad and self.time == 2 else 1.0) for a, x in obs.items()}, *rest


@pytest.mark.parametrize("limit", [(None, None), (3, None), (None, 1), (4, 2)])
def test_episodes_with_nan_are_dropped_there_as_in_one_process(limit):
    config = {"api": "parallel", "on_bad": "drop"}
    env, alone = made(HERE + "Rotten", **config), made(HERE + "Rotten", processes=0, **config)
    try:
        mine, theirs = (rolled(each, 60, limits=lambda k: limit) for each in (env, alone))
        assert mine == theirs
        assert any(row[0]["left"][5][0] for row in mine)
        assert env.renewals == 0
        assert "The episode was dropped" in env.exactness
    finally:
        env.close()


def test_nothing_is_left_after_closing_nor_when_the_parent_is_killed():
    env = made("verdicts")
    pids = env.pids
    env.reset()
    env.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        before = made("verdicts")
        before.reset()
        os.write(writer, " ".join(map(str, before.pids)).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    orphans = [int(pid) for pid in os.read(reader, 100).split()]
    os.waitpid(child, 0)
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in orphans) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(orphans) == 2
    assert not any(_alive(pid) for pid in orphans)


def _alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_async_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match=r"env.workers=async is for envs with one agent, .*env.workers=subprocess"):
        made("verdicts", workers={"mode": "async"})


def test_evaluation_envs_are_not_given_up(tmp_path):
    env = failing("FaultyPairing", "kill always", tmp_path, {"renewals": 1}, when=1, purpose="eval")
    try:
        with pytest.raises(EnvError, match="2 times in a row"):
            rolled(env, 30)
    finally:
        env.close()


def test_every_dropped_episode_is_logged_also_from_a_worker(caplog):
    env = made(HERE + "Rotten", api="parallel", on_bad="drop")
    try:
        cuts = sum(len(row[0]["left"][5][0]) for row in rolled(env, 40))
        assert caplog.text.count("The episode was dropped") == cuts > 5
    finally:
        env.close()
