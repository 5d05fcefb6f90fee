"""Runs of the algorithms of teams that are killed and resumed."""

_VISITS = ["--env=rookery/Visitors-v0", "env.api=parallel", "env.num=2"]  # members leave early and come late
_REPLAY = ["store.min_fill=100", "store.batch_size=32", "store.capacity=1000"]
_WHISPER = ["--env=rookery/Whisper-v0", "env.api=parallel", "env.kwargs={continuous: true}", "env.num=2", *_REPLAY]
_MEMORY = ["algo.sequence=4", "algo.overlap=2", "algo.burn_in=2", "model.core={kind: gru, size: 8}"]
TEAMS = {
    "vdn": ["--algo=vdn", *_VISITS, *_REPLAY, "algo.n_step=2", "train.max_steps=1000"],
    "vdn-stack": ["--algo=vdn", *_VISITS, *_REPLAY, "env.stack=3", "model.normalise_obs=true", "train.max_steps=1000"],
    "qmix": ["--algo=qmix", *_VISITS, *_REPLAY, *_MEMORY, "algo.embed=4", "algo.hyper=8",
        "store.priority={alpha: 0.9, beta: 0.6}", "store.updates_per_step=0.25", "train.max_steps=1000"],
    "mappo": ["--algo=ppo", "--env=rookery/Verdicts-v0", "env.api=turns", "env.num=2", "env.ids=true",
        "algo.rollout=16", "algo.critic=world", "algo.normalise_value=true", "model.normalise_obs=true",
        "train.max_steps=1000"],
    "coma-stack": ["--algo=coma", *_VISITS, "algo.rollout=16", "env.stack=2", "model.normalise_obs=true",
        "train.max_steps=1000"],
    "coma": ["--algo=coma", *_VISITS, "algo.rollout=16", "algo.target_every=3", "model.core={kind: gru, size: 8}",
        "train.max_steps=2000"],
    "maddpg": ["--algo=maddpg", *_WHISPER, "algo.warmup=100", "store.priority={alpha: 0.6}", "algo.n_step=2",
        "train.max_steps=1000"],
    "maddpg-own": ["--algo=maddpg", *_VISITS, *_REPLAY, "env.teams={all: {members: '*', reward: own}}", "algo.n_step=2",
        "train.max_steps=1000"],
    "maddpg-choices": ["--algo=maddpg", *_VISITS, *_REPLAY, "train.max_steps=1000"],  # draws inside the update
    "atoc": ["--algo=atoc", *_WHISPER, "algo.warmup=100", "algo.channel=4", "train.max_steps=800"],
    "collaq": ["--algo=collaq", *_VISITS, *_REPLAY, "algo.attention=4", "algo.embed=4", "algo.hyper=8",
        *_MEMORY, "store.updates_per_step=0.25", "train.max_steps=1000"],
}  # fmt: skip
