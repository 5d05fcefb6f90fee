"""Runs of the algorithms of continuous actions and of discrete SAC that are killed and resumed."""

_REPLAY = ["store.min_fill=100", "store.batch_size=32"]
_WALK = ["--env=same.counting:CountingContinuous-v0", *_REPLAY, "algo.warmup=100"]
CONTINUOUS = {
    "td3": ["--algo=td3", *_WALK, "train.max_steps=1500",
        "algo.noise={kind: linear, start: 0.3, end: 0.1, steps: null}"],
    "ddpg-drift": [  # the noise of the running episodes must be resumed, too
        "--algo=ddpg",
        *_WALK,
        "env.num=2",
        "algo.noise_kind=ornstein_uhlenbeck",
        "store.priority={alpha: 0.6}",
        "train.max_steps=2000",
    ],
    "sac-discrete": ["--algo=sac-discrete", "--env=same.counting:Counting-v0", *_REPLAY, "train.max_steps=1500"],
    "redq": ["--algo=redq", *_WALK, "algo.critics=3", "algo.policy_every=4", "store.updates_per_step=2",
        "train.max_steps=1000"],
    "tqc": ["--algo=tqc", *_WALK, "algo.noise_memory=0.8", "algo.critics=2", "algo.quantiles=5", "algo.n_step=2",
        "train.max_steps=1200"],
    "crossq": ["--algo=crossq", *_WALK, "algo.renorm_warmup=300", "train.max_steps=1500"],
}  # fmt: skip
