"""A trained policy in a plain gymnasium loop.

python examples/load_policy.py
"""

from __future__ import annotations

import gymnasium

from rookery import Experiment, load_policy


def main() -> None:
    result = Experiment("cartpole-ppo", overrides=["train.max_steps=8192", "eval.every_steps=4096"]).train()
    policy = load_policy(result.folder, "best")  # or "last", or a number of steps

    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=1)
    total, over = 0.0, False
    while not over:
        action = policy(obs).action  # greedy; greedy=False acts as in training
        obs, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
    print(f"one episode in a plain loop: {total:.0f}")


if __name__ == "__main__":
    main()
