"""A state tree and the files it is kept in: one safetensors file per component, and `state.json` for the rest.

A component is a top-level entry, or a part of a player: `players.main.learner.safetensors`.

A state tree is a nested dict with string keys; its leaves are numpy arrays, torch tensors and JSON values (also inside
lists). Every leaf comes back with its own type and the same bits. In `state.json` an array is a reference `{"$array":
[file, name, kind]}`, an array in pieces (`Segments`) is `{"$segments": {dtype, shape, rows, files}}` with one file per
piece, a float that JSON cannot write is `{"$float": "nan"}`, and a key of the caller's that starts with `$` gets a
second one. Nothing is ever pickled, and reading trusts nothing: file names are plain names of regular files, sizes are
bounded, every reference is checked.

The safetensors files are written here and not by the library because it can neither hash while it writes nor write
arrays that are not contiguous without a second copy of the whole file. They are read by the library.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from rookery.core.errors import CheckpointError
from rookery.core.segments import Segments
from rookery.run.checkpoints.durable import FileInfo, NewFiles, check_name, open_plain, parse_json, read_file
from rookery.run.checkpoints.links import Earlier

STATE = "state.json"
SUFFIX = ".safetensors"
MAX_JSON_BYTES = 1 << 26
MAX_HEADER_BYTES = 1 << 26

PLAYERS = "players"
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}(\.[A-Za-z0-9_-]{1,64}){0,2}")
_TAGS = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip
PIECE = "rows"  # name of the one array in the file of a piece
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_KINDS = ("numpy", "scalar", "torch", "torch.bfloat16")


class Unencodable(CheckpointError):
    """A state that no file can hold: a mistake in somebody's `state()`, not in the disk."""


@dataclass(slots=True)
class Encoded:
    """A state tree taken apart, not yet written; arrays are referred to, not copied."""

    text: bytes = b""
    files: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    pieces: dict[str, tuple[Segments, int]] = field(default_factory=dict)  # file → piece of an array
    linked: dict[str, FileInfo] = field(default_factory=dict)  # pieces that an earlier checkpoint has

    @property
    def bytes(self) -> int:
        """About what the files that are not linked need."""
        rest = [segments.piece(number) for name, (segments, number) in self.pieces.items() if name not in self.linked]
        arrays = [array for arrays in self.files.values() for array in arrays.values()]
        return len(self.text) + sum(array.nbytes + 128 for array in [*arrays, *rest])

    def bytes_beside(self, earlier: Earlier) -> int:
        """About what they need if these files can be linked to."""
        pieces = [part.piece(number) for part, number in self.pieces.values() if part.sha256(number) in earlier]
        return self.bytes - sum(piece.nbytes for piece in pieces)

    def write(self, files: NewFiles, earlier: Earlier | None = None) -> dict[str, FileInfo]:
        """All files of the state; pieces that an earlier checkpoint has are linked to."""
        if earlier is not None:
            self.linked = self._link(files, earlier)
        infos = {name: files.write(name, _safetensors(name, arrays)) for name, arrays in self.files.items()}
        for name, (segments, number) in self.pieces.items():
            if name not in self.linked:
                infos[name] = files.write(name, _safetensors(name, {PIECE: segments.piece(number)}))
                segments.know(number, infos[name].sha256)
        return infos | self.linked | {STATE: files.write(STATE, [self.text])}

    def _link(self, files: NewFiles, earlier: Earlier) -> dict[str, FileInfo]:
        hashes = {name: segments.sha256(number) for name, (segments, number) in self.pieces.items()}
        infos = {name: earlier.link(sha256, files.folder / name) for name, sha256 in hashes.items() if sha256}
        return {name: info for name, info in infos.items() if info is not None}


def write_state(folder: Path, state: dict[str, Any]) -> dict[str, FileInfo]:
    """Write a state tree into an existing folder, durably; returns what was written, for `read_state`."""
    with NewFiles(folder) as files:
        return encode(state).write(files)


def encode(state: dict[str, Any]) -> Encoded:
    """Take a state tree apart; a leaf that cannot be kept is a CheckpointError that names its path."""
    encoded = Encoded()
    tree = {_escape(key, ""): _entry(encoded, key, value) for key, value in state.items()}
    encoded.text = json.dumps(tree, allow_nan=False, separators=(",", ":")).encode("ascii")
    return encoded


def _entry(encoded: Encoded, key: str, value: Any) -> Any:
    """A top-level entry; below `players` every part of a player has a file of its own."""
    if key != PLAYERS or not isinstance(value, dict) or not all(isinstance(part, dict) for part in value.values()):
        return _Component(encoded, key).encode(value, key)
    return {
        _escape(name, key): {
            _escape(part, f"{key}/{name}"): _Component(encoded, f"{key}.{name}.{part}").encode(
                inner, f"{key}/{name}/{part}"
            )
            for part, inner in player.items()
        }
        for name, player in value.items()
    }


class _Component:
    """Encodes one entry, whose arrays share one file."""

    def __init__(self, encoded: Encoded, name: str):
        taken = {file.lower() for file in encoded.files}
        plain = isinstance(name, str) and _COMPONENT.fullmatch(name) and (name + SUFFIX).lower() not in taken
        self._stem = name if plain else f"part.{len(encoded.files)}"
        self._file = self._stem + SUFFIX
        self._files, self._pieces = encoded.files, encoded.pieces
        self._cut = 0  # arrays in pieces so far

    def encode(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {_escape(key, path): self.encode(item, f"{path}/{key}") for key, item in value.items()}
        if isinstance(value, np.generic):
            return self._array(np.asarray(value), "scalar", path)
        if isinstance(value, np.ndarray):
            return self._array(value, "numpy", path)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, Segments):
            return self._segments(value, path)
        return self._json(value, path)

    def _json(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is str:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if kind is list:
            return [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
        raise Unencodable(
            f"state '{path}' is a {kind.__module__}.{kind.__qualname__}; a state may hold dicts with "
            f"string keys, numpy "
            "arrays, torch tensors and JSON values (None, bool, int, float, str, list). Convert it in state()."
        )

    def _tensor(self, tensor: torch.Tensor, path: str) -> Any:
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise Unencodable(f"state '{path}' is a tensor of layout {tensor.layout}; only dense tensors can be kept.")
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
        if tensor.dtype == torch.bfloat16:
            return self._array(tensor.view(torch.int16).numpy(), "torch.bfloat16", path)
        if str(tensor.dtype).removeprefix("torch.") not in _TAGS:
            raise Unencodable(f"state '{path}' is a tensor of {tensor.dtype}, which safetensors cannot keep.")
        return self._array(tensor.numpy(), "torch", path)

    def _segments(self, value: Segments, path: str) -> dict[str, Any]:
        _check_dtype(value.dtype, path)
        names = [f"{self._stem}.{self._cut}.{number:05d}{SUFFIX}" for number in range(len(value))]
        self._pieces.update((name, (value, number)) for number, name in enumerate(names))
        self._cut += 1
        shape = {"dtype": value.dtype.name, "shape": list(value.shape), "rows": value.rows}
        return {"$segments": shape | {"files": names}}

    def _array(self, array: np.ndarray, kind: str, path: str) -> dict[str, list[str]]:
        _check_dtype(array.dtype, path)
        arrays = self._files.setdefault(self._file, {})
        name = path
        while name in arrays or name == "__metadata__":  # {"a/b": x} beside {"a": {"b": y}}; a word of the format
            name += "#"
        arrays[name] = array
        return {"$array": [self._file, name, kind]}


def _check_dtype(dtype: np.dtype, path: str) -> None:
    if dtype.name not in _TAGS:
        raise Unencodable(f"state '{path}' is an array of dtype {dtype}; known: {', '.join(_TAGS)}.")


def _escape(key: Any, path: str) -> str:
    if type(key) is not str:
        raise Unencodable(f"state '{path}' has the key {key!r}; keys must be strings.")
    return "$" + key if key.startswith("$") else key


def _safetensors(file: str, arrays: dict[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file, array by array, without a copy of those that are contiguous."""
    header: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _TAGS[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)  # the format aligns the data
    if len(text) > MAX_HEADER_BYTES:
        raise Unencodable(f"{file} would hold {len(arrays)} arrays; join small arrays in state().")
    yield len(text).to_bytes(8, "little") + text
    for array in arrays.values():
        dense = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        yield dense.reshape(-1).view(np.uint8).data


Part = Callable[[dict[str, Any]], dict[str, Any]]  # what is wanted of a state tree, as state.json has it


def weights_of(tree: dict[str, Any]) -> dict[str, Any]:
    """What acting needs: the learners, the units of their rewards, and the numbers of the run."""
    players = tree.get(PLAYERS, {})
    kept = ("learner", "rewards")
    learners = {
        name: {part: player[part] for part in kept if part in player}
        for name, player in players.items()
        if "learner" in player
    }
    rest = {key: tree[key] for key in ("run", "learner") if key in tree}  # formats before 3 have one learner here
    return rest | ({PLAYERS: learners} if learners else {})


def read_state(folder: Path, names: Mapping[str, FileInfo] | Iterable[str], part: Part | None = None) -> dict[str, Any]:
    """The state tree kept in these files of the folder; the caller has compared their hashes. Arrays in pieces are
    read when they are copied."""
    read = _Reading(folder, names if isinstance(names, Mapping) else dict.fromkeys(names), {})
    with _referring(folder):
        return {_unescape(key): read.decode(value) for key, value in _read_tree(folder, part).items()}


def files_of(folder: Path, part: Part) -> set[str]:
    """The files that a part of the state refers to."""
    with _referring(folder):
        return {STATE, *_references(_read_tree(folder, part))}


def _read_tree(folder: Path, part: Part | None) -> dict[str, Any]:
    tree = parse_json(read_file(folder / STATE, MAX_JSON_BYTES), folder / STATE)
    if not isinstance(tree, dict):
        raise CheckpointError(f"{folder / STATE} does not hold a state tree.")
    return tree if part is None else part(tree)


@contextmanager
def _referring(folder: Path) -> Iterator[None]:
    try:
        yield
    except (LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / STATE} has a reference that leads nowhere: {error}.") from error


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and "$array" in value:
        yield value["$array"][0]
    elif isinstance(value, dict) and "$segments" in value:
        yield from value["$segments"]["files"]
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _references(inner)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    check_name(path.name)
    with os.fdopen(open_plain(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = int.from_bytes(file.read(8), "little")
    if size < 8 or header > min(MAX_HEADER_BYTES, size - 8):
        raise CheckpointError(f"{path} claims a header of {header} bytes; this is not a file Rookery wrote.")
    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}.") from error


class _Saved(Segments):
    """An array in the files of its pieces, each of which is read when it is asked for."""

    def __init__(self, folder: Path, infos: Mapping[str, FileInfo | None], reference: dict[str, Any]):
        dtype, shape, rows, names = (reference[key] for key in ("dtype", "shape", "rows", "files"))
        if dtype not in _TAGS or not all(type(n) is int and n >= 0 for n in [*shape, rows]) or not shape or not rows:
            raise ValueError(f"array of {dtype!r} {shape!r} in pieces of {rows!r} rows")
        self.array, self.shape, self.dtype, self.rows, self.known = None, tuple(shape), np.dtype(dtype), rows, {}
        if len(names) != len(self):
            raise ValueError(f"{len(names)} files for {len(self)} pieces")
        self._paths = [folder / name for name in names]
        for number, name in enumerate(names):
            if (info := infos[name]) is not None:
                self.know(number, info.sha256)

    def piece(self, number: int) -> np.ndarray:
        (start, stop), path = self.bounds(number), self._paths[number]
        array = _read_arrays(path).get(PIECE)
        if array is None or array.dtype != self.dtype or array.shape != (stop - start, *self.shape[1:]):
            raise CheckpointError(
                f"{path} does not hold {self.dtype} {(stop - start, *self.shape[1:])} under '{PIECE}'."
            )
        return array


@dataclass(frozen=True, slots=True)
class _Reading:
    """What references in state.json may lead to."""

    folder: Path
    infos: Mapping[str, FileInfo | None]
    arrays: dict[str, dict[str, np.ndarray]]  # of the files that were read so far

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$float" in value:
            return _FLOATS[value["$float"]]
        if "$array" in value:
            return self._array(*value["$array"])
        if "$segments" in value:
            return _Saved(self.folder, self.infos, value["$segments"])
        return {_unescape(key): self.decode(item) for key, item in value.items()}

    def _array(self, file: str, name: str, kind: str) -> Any:
        if file not in self.arrays and file in self.infos:
            self.arrays[file] = _read_arrays(self.folder / file)
        array = self.arrays[file][name]
        if kind not in _KINDS:
            raise ValueError(f"kind {kind!r}")
        if kind == "torch.bfloat16":
            return torch.from_numpy(array).view(torch.bfloat16)
        return torch.from_numpy(array) if kind == "torch" else array[()] if kind == "scalar" else array


def _unescape(key: str) -> str:
    if key.startswith("$") and not key.startswith("$$"):
        raise ValueError(f"key {key!r}")
    return key[1:] if key.startswith("$") else key
