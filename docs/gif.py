"""One episode of a trained policy as a small GIF, for the first screen of the README.

python docs/gif.py RUN docs/images/lander.gif [--seed 3]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
from PIL import Image

from rookery import Batch, load_policy
from rookery.run.experiment.reader import RunReader

EVERY, WIDTH, COLOURS, HOLD = 3, 320, 64, 12  # one picture per so many steps; pixels; palette; pictures of the end


def frames(run: Path, seed: int) -> list[np.ndarray]:
    """Pictures of one greedy episode."""
    policy, env = load_policy(run, "last"), gym.make(RunReader(run).config["env"]["id"], render_mode="rgb_array")
    obs, _ = env.reset(seed=seed)
    pictures, over, total = [env.render()], False, 0.0
    while not over:
        obs, reward, terminated, truncated, _ = env.step(policy(Batch(obs=obs[None])).action[0])
        total, over = total + float(reward), terminated or truncated
        pictures.append(env.render())
    sys.stdout.write(f"seed {seed}: {len(pictures) - 1} steps, return {total:.1f}\n")
    return [*pictures[::EVERY], *[pictures[-1]] * HOLD]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    pictures = [Image.fromarray(picture) for picture in frames(words.run, words.seed)]
    size = (WIDTH, round(WIDTH * pictures[0].height / pictures[0].width))
    small = [picture.resize(size, Image.Resampling.LANCZOS) for picture in pictures]
    palette = small[len(small) // 2].quantize(COLOURS)
    reduced = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in small]
    reduced[0].save(words.out, save_all=True, append_images=reduced[1:], duration=60, loop=0, optimize=True)
    sys.stdout.write(f"{words.out}: {len(reduced)} pictures, {words.out.stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    main()
