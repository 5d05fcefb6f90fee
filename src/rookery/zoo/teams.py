"""Tasks of teams: matrix games and probes, MPE, foraging, warehouses (extra `marl`), SMAX (extra `smax`).

In matrix games everything is tried at random to the end, so that what is learnt tells what the mixer can say, not what
was found. The arguments of all envs are stated: returns of MPE's forks are not comparable.
"""

from __future__ import annotations

from typing import Any

from rookery.zoo.common import falling, scaled_rewards


def _matrix(game: str, algo: str, steps: int) -> dict[str, Any]:
    members = {"team": {"members": ["a", "b"], "reward": "mean"}}  # both are paid the whole entry
    return {
        "algo": {"name": algo, "gamma": 0.99, "lr": 5e-4, "target_every": 100, "epsilon": 1.0},
        "env": {"id": f"rookery/{game}-v0", "api": "parallel", "teams": members, "num": 8},
        "store": {"capacity": 10_000, "batch_size": 64, "min_fill": 256, "updates_per_step": 0.25},
        "train": {"max_steps": steps},
        "eval": {"every_steps": 1_000, "episodes": 5},
        "learning": {"mode": "eager"},
    }


TWO_STEP_QMIX, TWO_STEP_VDN = (_matrix("TwoStep", algo, 10_000) for algo in ("qmix", "vdn"))
CLIMBING_QMIX, CLIMBING_VDN = (_matrix("Climbing", algo, 20_000) for algo in ("qmix", "vdn"))
PENALTY_QMIX, PENALTY_VDN = (_matrix("Penalty", algo, 20_000) for algo in ("qmix", "vdn"))

# With local_ratio 0 everybody is paid the same: the team's mean is the return of one agent.
_SPREAD = {
    "id": "mpe2:simple_spread_v3",
    "api": "parallel",
    "kwargs": {"N": 3, "local_ratio": 0.0, "max_cycles": 25, "continuous_actions": False},
    "teams": {"team": {"members": ["agent_*"], "reward": "mean"}},
}
# Foraging and warehouses call their time limit an end of the task: they get one that they never reach, ours truncates.
_GRID = {"api": "tuple", "teams": {"team": {"members": ["agent_*"], "reward": "sum"}}}
_FORAGING = _GRID | {  # all food together is worth 1
    "id": "lbforaging:Foraging-8x8-2p-2f-coop-v3",
    "kwargs": {"max_episode_steps": 51},
    "max_episode_steps": 50,
}
_WAREHOUSE = _GRID | {  # 1 for every shelf that is brought
    "id": "rware:rware-tiny-2ag-v2",
    "kwargs": {"max_steps": None},
    "max_episode_steps": 500,
}
_SMAX_3M = {  # a victory is worth 2; all are paid alike
    "id": "rookery/SMAX-v0",
    "api": "parallel",
    "kwargs": {"scenario": "3m", "max_steps": 100},
    "teams": {"team": {"members": ["ally_*"], "reward": "mean"}},
}


def _mixing(algo: str, env: dict[str, Any], steps: int, gamma: float = 0.99) -> dict[str, Any]:
    # A constant rate, hard targets, one step, 128 units and twice the updates let values of spread run off above 0
    # (one seed); which of the five it was is not known, they were changed together.
    return {
        "algo": {
            "name": algo,
            "gamma": gamma,
            "lr": falling(5e-4),
            "n_step": 3,
            "target_every": 1,
            "tau": 0.01,
            "epsilon": {"kind": "linear", "start": 1.0, "end": 0.05, "steps": steps // 4},
        },
        "env": env | {"num": 16},
        "store": {"capacity": 200_000, "batch_size": 128, "min_fill": 2_000, "updates_per_step": 0.125},
        "train": {"max_steps": steps},
        "eval": {"every_steps": steps // 20, "episodes": 20},
    }


SPREAD_QMIX, SPREAD_VDN = (_mixing(algo, _SPREAD, 200_000, gamma=0.95) for algo in ("qmix", "vdn"))


def _foraging(algo: str) -> dict[str, Any]:
    """Rewards are rare, so priorities find them again; with γ = 0.99 a step in the wrong direction costs 1 % of the
    value, less than the error of the network, and the greedy policy walked in circles (0.1 at 500k steps). Where
    targets follow slowly QMIX ran off on one of two seeds: its mixer multiplies by numbers made from coordinates."""
    tree = _mixing(algo, _FORAGING, 700_000, gamma=0.95)
    tree["algo"] |= {"n_step": 5, "lr": {"kind": "linear", "start": 5e-4, "end": 1e-4, "steps": None}}
    tree["algo"] |= {"target_every": 200, "tau": 1.0}
    tree["algo"]["epsilon"] |= {"steps": 300_000}
    tree["store"] |= {"capacity": 500_000, "priority": {"alpha": 0.6}}
    return tree | {"model": {"hidden": [128, 128]}}


LBF_QMIX, LBF_VDN = (_foraging(algo) for algo in ("qmix", "vdn"))
RWARE_QMIX, RWARE_VDN = (_mixing(algo, _WAREHOUSE, 2_000_000) for algo in ("qmix", "vdn"))
SMAX_3M_QMIX, SMAX_3M_VDN = (_mixing(algo, _SMAX_3M, 500_000) for algo in ("qmix", "vdn"))


def _probe(game: str, algo: dict[str, Any], steps: int, envs: int, hidden: int, **kwargs: Any) -> dict[str, Any]:
    env = {"id": f"rookery/{game}-v0", "api": "parallel", "kwargs": kwargs, "num": envs}
    return {
        "algo": algo,
        "env": env | {"teams": {"team": {"members": ["*"], "reward": "mean"}}},
        "model": {"hidden": [hidden]},
        "train": {"max_steps": steps},
        "eval": {"every_steps": steps // 4, "episodes": 40, "num": 8},
        "learning": {"mode": "eager"},
    }


_SMALL = {"store": {"capacity": 4_000, "min_fill": 64, "batch_size": 64, "updates_per_step": 0.5}}
_CRITICS = {"lr": 0.01, "policy_lr": 0.005, "tau": 0.05, "noise": 0.3, "warmup": 100}
_COMA = {"name": "coma", "lr": 0.01, "critic_lr": 0.03, "optimiser": "adam", "rollout": 8, "target_every": 10}
_COLLAQ = {"name": "collaq", "attention": 8, "lr": 0.01, "target_every": 20, "epsilon": 1.0, "embed": 8, "hyper": 16}
CREDIT_COMA = _probe("Credit", {**_COMA, "entropy_bonus": 0.1, "shared": False}, 6_400, 8, 16)
SUMMING_MADDPG = _SMALL | _probe("Summing", {"name": "maddpg", **_CRITICS}, 1_600, 2, 32)
WHISPER_ATOC = _SMALL | _probe("Whisper", {"name": "atoc", "channel": 8, **_CRITICS}, 800, 2, 32, continuous=True)
WHISPER_COLLAQ = _SMALL | _probe("Whisper", _COLLAQ, 1_200, 2, 16, continuous=False)

# The same envs without teams: one network, but each agent by itself, told who it is. Returns are summed over agents.
_ALONE = {key: value for key, value in _SPREAD.items() if key != "teams"}
_FORAGING_ALONE = {key: value for key, value in _FORAGING.items() if key != "teams"}
_MAPPO = {"name": "ppo", "critic": "world", "normalise_value": True, "max_grad_norm": 10.0}


def _central(env: dict[str, Any], steps: int, envs: int, **algo: Any) -> dict[str, Any]:
    return {
        "algo": _MAPPO | algo,
        "env": env | {"num": envs, "ids": True},
        "train": {"max_steps": steps},
        "eval": {"every_steps": steps // 10, "episodes": 20},
    }


_SPREAD_PPO = {"gamma": 0.95, "lr": 7e-4, "rollout": 25, "epochs": 10, "minibatches": 1, "entropy_bonus": 0.01}
SPREAD_MAPPO = _central(_ALONE, 500_000, 64, **_SPREAD_PPO)
SPREAD_IPPO = _central(_ALONE, 500_000, 64, **_SPREAD_PPO, critic="own")
SPREAD_IDQN = _mixing("dqn", _ALONE | {"ids": True}, 200_000, gamma=0.95)
# Nothing is paid in 99 of 100 random episodes. Advantages of such rollouts are noise: normalised, they led the policy
# away before it had found anything (seed 100); as they are, and rewards times 10, it found everything. The last policy
# is played greedily, so nothing pays for being unsure in the end.
LBF_MAPPO = _central(
    _FORAGING_ALONE | {"train_wrappers": scaled_rewards(10.0)},
    2_000_000,  # 0.86 at 1.2M (one seed): everything was found by then, but greedy agents still blocked each other
    64,
    gamma=0.98,
    lr={"kind": "linear", "start": 7e-4, "end": 1e-4, "steps": None},
    rollout=50,
    epochs=6,
    minibatches=4,
    entropy_bonus={"kind": "linear", "start": 0.01, "end": 0.0, "steps": 500_000},
    normalise_advantage=False,
) | {"model": {"hidden": [128, 128], "normalise_obs": True}}


def _particles(game: str) -> dict[str, Any]:
    return {"id": f"mpe2:{game}", "api": "parallel", "kwargs": {"max_cycles": 25, "continuous_actions": False}}


def _sides(game: str, seats: dict[str, str], steps: int) -> dict[str, Any]:
    """A particle world whose agents differ: a network for each side, whose critics see everything."""
    tree = _central(_particles(game), steps, 64, **_SPREAD_PPO)
    return tree | {"players": {player: {} for player in dict.fromkeys(seats.values())}, "seats": seats}


_HUNTERS = {f"adversary_{k}": "hunter" for k in range(3)}
SPEAKER_MAPPO = _sides("simple_speaker_listener_v4", {"speaker_0": "speaker", "listener_0": "listener"}, 1_000_000)
ADVERSARY_MAPPO = _sides(
    "simple_adversary_v3", {"adversary_0": "adversary", "agent_0": "agent", "agent_1": "agent"}, 500_000
)
TAG_MAPPO = _sides("simple_tag_v3", _HUNTERS | {"agent_0": "runner"}, 500_000)
SPEAKER_MADDPG = {
    "algo": {"name": "maddpg", "gamma": 0.95, "lr": 1e-3, "policy_lr": 5e-4, "tau": 0.01},
    "env": _particles("simple_speaker_listener_v4")
    | {"teams": {"team": {"members": ["*"], "reward": "mean"}}, "num": 16},
    "store": {"capacity": 200_000, "batch_size": 256, "min_fill": 2_000, "updates_per_step": 0.0625},
    "train": {"max_steps": 1_000_000},
    "eval": {"every_steps": 100_000, "episodes": 20},
}


def _alone(game: str, algo: dict[str, Any]) -> dict[str, Any]:
    """A matrix game without a team: two networks that know nothing of each other, or one critic that sees both."""
    together = algo.get("critic") == "world"
    tree = _matrix(game, "dqn", 20_000)
    tree["env"] = {key: value for key, value in tree["env"].items() if key != "teams"}
    players = {} if together else {"players": {"a": {}, "b": {}}, "seats": {"a": "a", "b": "b"}}
    if algo["name"] == "ppo":
        tree |= {"algo": algo | {"rollout": 16, "entropy_bonus": 0.01}}
        tree["env"]["ids"] = True
        del tree["store"]
    return tree | players


CLIMBING_MAPPO, PENALTY_MAPPO = (_alone(game, _MAPPO) for game in ("Climbing", "Penalty"))
CLIMBING_IPPO, PENALTY_IPPO = (_alone(game, {"name": "ppo"}) for game in ("Climbing", "Penalty"))
CLIMBING_IDQN, PENALTY_IDQN = (_alone(game, {"name": "dqn"}) for game in ("Climbing", "Penalty"))
