"""A replay as a JSON head and flat arrays, in a safetensors file or a pickle between processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from rookery.core.errors import CheckpointError
from rookery.core.spec import Leaf
from rookery.core.tree import Tree, flatten, tree_map, unflatten
from rookery.data.replay.ring import Ring

FORMAT = "rookery-replay-1"


def pack(ring: Ring) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(what describes the ring, its arrays); empty arrays are left out, as the file format knows none."""
    state = ring.state(in_pieces=False)
    numbers = {name: state.pop(name) for name in ("version", "slots")}
    arrays = {key: np.ascontiguousarray(value) for key, value in flatten(state).items() if value.size}
    return {"fields": tree_map(_leaf_to_json, ring.fields), "columns": ring.columns, **numbers}, arrays


def unpack(head: dict[str, Any], arrays: dict[str, np.ndarray]) -> Ring:
    """The ring that was packed."""
    ring = Ring(_fields_from_json(head["fields"]), head["columns"], head["slots"] - 1)
    ring.restore({**unflatten(arrays), "version": head["version"], "slots": head["slots"]})
    return ring


def write(path: str | Path, head: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """One safetensors file, complete or not there."""
    from safetensors.numpy import save_file

    temporary = Path(f"{path}.{os.getpid()}.tmp")
    save_file(arrays, temporary, metadata={"format": FORMAT, "head": json.dumps(head)})
    os.replace(temporary, path)


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(head, arrays) of a file that `write` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            meta = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as a replay: {error}. Was it written by Replay.save?") from error
    if meta.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {meta.get('format')!r}, expected {FORMAT!r}. Was it written by Replay.save?"
        )
    return json.loads(meta["head"]), arrays


def _leaf_to_json(leaf: Leaf) -> list[Any]:
    return [leaf.kind, list(leaf.shape), leaf.dtype.str, list(leaf.sizes), leaf.start]


def _fields_from_json(tree: Any) -> Tree:
    if isinstance(tree, dict):
        return {key: _fields_from_json(value) for key, value in tree.items()}
    kind, shape, dtype, sizes, start = tree
    return Leaf(kind, tuple(shape), np.dtype(dtype), tuple(sizes), start)
