"""A training loop of your own: DQN with Collector, ReplayStore and Learner, without Trainer and without a run folder.

python examples/own_loop.py
"""

from __future__ import annotations

from rookery import Actor, Collector, Learner, Message, ReplayStore, Streams, envs
from rookery.algos.dqn import DQN, DQNConfig
from rookery.data import ReplayConfig
from rookery.nets import ModelConfig
from rookery.run.evaluate import evaluate


def main(total: int = 3_000) -> float:
    streams = Streams(seed=0)  # every random number of the run comes from here
    task = envs.EnvConfig(id="CartPole-v1")
    env = envs.make(task, count=2, purpose="train", streams=streams)
    config = DQNConfig(epsilon={"kind": "linear", "start": 1.0, "end": 0.05, "steps": total // 2})
    algo = DQN(config, env.obs_spec, env.action_spec, ModelConfig(hidden=(64, 64)))
    learner = Learner(algo, streams)
    specs = env.obs_spec, env.action_spec
    sizes = ReplayConfig(capacity=10_000, min_fill=500, updates_per_step=0.5)
    store = ReplayStore(
        sizes, *specs, columns=env.num, gamma=config.gamma, n_step=config.n_step, rng=streams.numpy("store")
    )
    actor = Actor(algo.outputs, algo.rule(), learner.eager)  # reads the learner's live weights
    collector = Collector(env, actor, streams.numpy("act"))

    steps = episodes = 0
    while steps < total:
        knobs = {name: schedule.resolved(total).at(steps) for name, schedule in algo.knobs().items()}
        learner.set_knobs(knobs)
        actor.load(Message(learner.updates, knobs))
        chunk = collector.collect(rows=1)["main"]  # [T = 1, B = 2]; one chunk per player
        store.add(chunk)
        steps, episodes = steps + chunk.steps, episodes + len(chunk.episodes)
        while store.ready():
            batch, keys = store.sample()
            update, *_ = learner.step(batch)
            store.feedback(keys, update.arrays)

    judge = envs.make(task, count=5, purpose="eval", streams=streams)
    result = evaluate(Collector(judge, actor, greedy=True), episodes=10)
    print(f"{steps} steps, {episodes} episodes, {learner.updates} updates, loss {update.metrics['q/loss']:.3f}")
    print(f"greedy return {result.mean:.1f} ± {result.std:.1f}")
    env.close()
    judge.close()
    return result.mean


if __name__ == "__main__":
    main()
