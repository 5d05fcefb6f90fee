"""Where peers live: each library in a venv of its own under $ROOKERY_PEERS (else the user's cache
folder), installed on first use.

All are installed with our constraints, so that every contender computes with the same torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Library:
    """What a peer's venv holds."""

    packages: tuple[str, ...]  # with the versions that the peer's script was tried with
    module: str  # whose __version__ is reported
    always: bool = True  # part of every run; otherwise only with --all-peers
    alone: tuple[str, ...] = ()  # installed without what they ask for, as that cannot be had with our torch


# DI-engine asks for setuptools <= 66.1.1 and torch for >= 77.0.3: here is what it imports,
# within the bounds that it sets.
DI_ENGINE = """
    torch numpy<2 gym==0.25.1 gymnasium DI-treetensor==0.5.0 DI-toolkit==0.3.0 cloudpickle easydict einops enum-tools
    flask<=2.0.3 hickle==5.0.3 matplotlib mpire pynng pyyaml redis requests tabulate tensorboardX trueskill URLObject
    wandb<=0.19.0 werkzeug<=2.0.3
"""
LIBRARIES = {
    "sb3": Library(("stable-baselines3==2.9.2", "ale-py", "opencv-python-headless"), "stable_baselines3"),
    "tianshou": Library(("tianshou==2.0.1",), "tianshou"),
    "torchrl": Library(("torchrl==0.14.1", "gymnasium"), "torchrl", always=False),
    "benchmarl": Library(
        ("benchmarl==1.5.2", "torchrl==0.11.1", "pettingzoo==1.27.0", "mpe2==1.1.1", "lbforaging==2.0.0"), "benchmarl"
    ),
    "rllib": Library(("ray[rllib]==2.60.0", "torch"), "ray", always=False),
    "diengine": Library(
        tuple(DI_ENGINE.split()),
        "ding",
        always=False,
        alone=("DI-engine==0.5.3",),
    ),
}


def folder_of(name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("ROOKERY_PEERS", cache / "rookery" / "peers")) / name


def python_of(name: str) -> Path:
    """The interpreter with this library, installed on first use; ours for "rookery" and "single"."""
    if name not in LIBRARIES:
        return Path(sys.executable)
    folder = folder_of(name)
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        library = LIBRARIES[name]
        print(f"installing {' '.join(library.alone + library.packages)} into {folder} …", flush=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *library.packages], check=True)
        if library.alone:
            subprocess.run([*pip, "--no-deps", *library.alone], check=True)
        check_torch(python, name)
        (folder / "installed").touch()
    return python


def check_torch(python: Path, name: str) -> None:
    """A peer that pulled another torch would be compared with a different library."""
    theirs, ours = version(python, "torch"), version(Path(sys.executable), "torch")
    if theirs.split("+")[0] != ours.split("+")[0]:
        raise SystemExit(
            f"{name} came with torch {theirs}, ours is {ours}: the comparison would measure torch, not {name}. "
            f"Install torch=={ours} into {folder_of(name)} and touch {folder_of(name) / 'installed'}, or leave "
            f"{name} out."
        )


def version(python: Path, module: str) -> str:
    code = f"import {module}; print({module}.__version__)"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"
