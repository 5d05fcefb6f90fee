"""The runs that are killed and resumed, by the tests and by bench/chaos.py."""

from same.continuous_cases import CONTINUOUS

COMMON = [
    "log.every_steps=200",
    "log.sinks=[jsonl]",
    "eval.every_steps=500",
    "eval.episodes=2",
    "eval.num=2",
    "checkpoint.every_steps=150",
    "model.hidden=[16,16]",
    "algo.lr={kind: linear, start: 1e-3, end: 0, steps: null}",  # a knob that moves until the last round
]
DQN = [
    "--algo=dqn",
    "--env=same.counting:Counting-v0",
    "env.num=2",
    "store.min_fill=100",
    "store.batch_size=32",
    "store.capacity=1000",
]
CASES = {
    "dqn": [
        *DQN,
        "algo.n_step=3",
        "algo.dueling=true",
        "train.max_steps=3000",
        "algo.epsilon={kind: linear, start: 1, end: 0.1, steps: 2000}",
    ],
    "dqn-per": [
        *DQN,
        "store.priority={alpha: 0.7}",  # β is annealed over the whole run
        "store.max_reuse=40",
        "train.max_steps=2000",
        "algo.epsilon={kind: linear, start: 1, end: 0.1, steps: 1500}",
    ],
    "ppo": [
        "--algo=ppo",
        "--env=same.counting:Counting-v0",
        "env.num=4",
        "algo.rollout=16",
        "train.max_steps=6000",
        "model.normalise_obs=true",
    ],
    "sac": [
        "--algo=sac",
        "--env=same.counting:CountingContinuous-v0",
        "store.min_fill=100",
        "store.batch_size=32",
        "algo.warmup=100",
        "train.max_steps=1500",
    ],
    "dqn-her": [
        "--algo=dqn",
        "--env=same.counting:CountingBits-v0",
        "env.num=2",
        "store.min_fill=100",
        "store.batch_size=32",
        "store.capacity=1000",
        "store.hindsight={strategy: future, k: 4}",
        "train.max_steps=2500",
    ],
    "dqn-native": [
        "cartpole-dqn",
        "env.engine=native",
        "env.num=2",
        "store.min_fill=100",
        "store.batch_size=32",
        "store.capacity=1000",
        "train.max_steps=2000",
    ],
    "dqn-stack": [*DQN, "env.stack=3", "train.max_steps=2000"],
    "r2d2": [
        "--algo=r2d2",
        "--env=same.counting:Counting-v0",
        "env.num=2",
        "store.min_fill=100",
        "store.batch_size=16",
        "store.capacity=1000",
        "store.updates_per_step=0.25",
        "algo.sequence=4",
        "algo.overlap=2",
        "algo.burn_in=2",
        "store.priority={alpha: 0.9, beta: 0.6}",
        "model.core={kind: gru, size: 8}",
        "train.max_steps=2000",
    ],
    "ppo-lstm": [
        "--algo=ppo",
        "--env=same.counting:Counting-v0",
        "env.num=4",
        "algo.rollout=16",
        "algo.sequence=8",
        "model.core={kind: lstm, size: 8}",
        "train.max_steps=3000",
    ],
    "two-players": [
        "--algo=dqn",  # of the one; the other says its own
        "--env=same.pairing:CountingPairing",
        "env.api=parallel",
        "env.num=3",
        "store.min_fill=100",
        "store.batch_size=32",
        "store.capacity=1000",
        "players={thinker: {}, doer: {algo: {name: ppo, rollout: 16}}, guest: {train: false}}",
        "seats={left: {thinker: 3, guest: 1}, right: doer}",  # drawn anew for every episode
        "train.max_steps=2000",
    ],
}
CASES |= CONTINUOUS
NATIVE = ("dqn-native",)  # a numba engine writes no file of its steps
COMPILED = ("dqn", "ppo", "sac", "r2d2")  # run in both modes; the others eagerly, for a build takes its time
