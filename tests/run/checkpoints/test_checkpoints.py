"""State trees come back with the same bits and types; a checkpoint is read only if all of it is what was written."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rookery.core.errors import CheckpointError
from rookery.core.rng import Streams
from rookery.run.checkpoints import manifest as manifests
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.checkpoints.migrations import Migration
from rookery.run.checkpoints.statefile import MAX_HEADER_BYTES, encode, read_state, write_state

DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]


def through_files(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return read_state(folder, write_state(folder, state))


def same(a: Any, b: Any) -> None:
    """Equal type, dtype, shape and bits."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        same(
            a.contiguous().view(torch.uint8).numpy() if a.numel() and a.dim() else None,
            b.view(torch.uint8).numpy() if a.numel() and a.dim() else None,
        )
    elif isinstance(a, np.ndarray | np.generic):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    else:
        assert a == b


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3)])
def test_every_dtype_and_shape_comes_back_as_numpy_and_as_torch(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    count = int(np.prod(shape))
    raw = np.arange(7, 7 + count * np.dtype(dtype).itemsize, dtype=np.uint8)
    array = (raw % 2).astype(bool)[:count].reshape(shape) if dtype == "bool" else raw.view(dtype).reshape(shape)
    state = {"a": {"array": array, "tensor": torch.from_numpy(array.copy())}}
    back = through_files(tmp_path / "s", state)
    same(state["a"]["array"], back["a"]["array"])
    assert back["a"]["tensor"].dtype == state["a"]["tensor"].dtype
    assert back["a"]["tensor"].numpy().tobytes() == array.tobytes()
    assert back["a"]["tensor"].shape == shape


def test_arrays_that_come_back_can_be_written_to(tmp_path: Path) -> None:
    back = through_files(tmp_path / "s", {"a": np.zeros(3), "b": torch.zeros(3)})
    back["a"][0] = 1.0
    back["b"][0] = 2.0
    assert back["a"].tolist() == [1.0, 0.0, 0.0]
    assert back["b"].tolist() == [2.0, 0.0, 0.0]


def test_views_that_are_not_contiguous_or_not_little_endian_keep_their_values(tmp_path: Path) -> None:
    grid = np.arange(12.0).reshape(3, 4)
    state = {
        "n": {"t": grid.T, "step": grid[:, ::2], "back": grid[::-1]},
        "t": {"t": torch.from_numpy(grid).T, "e": torch.ones(1).expand(4)},
    }
    back = through_files(tmp_path / "s", state)
    for key in ("t", "step", "back"):
        assert back["n"][key].tolist() == state["n"][key].tolist()
    assert back["t"]["t"].tolist() == grid.T.tolist()
    assert back["t"]["e"].tolist() == [1.0] * 4
    assert through_files(tmp_path / "b", {"a": np.array([1, 2], dtype=">i4")})["a"].tolist() == [1, 2]


def test_nan_payloads_bfloat16_gradients_and_numpy_scalars_survive(tmp_path: Path) -> None:
    odd_nan = np.array([0x7FC00123], dtype=np.uint32).view(np.float32)
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    state = {"odd": odd_nan, "half": half, "zero_d": half[0], "scalar": np.float32(0.1), "flag": np.bool_(True)}
    back = through_files(tmp_path / "s", state)
    assert back["odd"].view(np.uint32).tolist() == [0x7FC00123]
    assert back["half"].dtype == torch.bfloat16
    assert back["half"].tolist() == [1.5, -2.0]
    assert back["zero_d"].shape == ()
    same(back["scalar"], np.float32(0.1))
    same(back["flag"], np.bool_(True))
    learning = torch.ones(2, requires_grad=True)
    assert through_files(tmp_path / "g", {"w": learning})["w"].tolist() == [1.0, 1.0]


def test_json_values_survive_with_big_integers_nan_and_odd_keys(tmp_path: Path) -> None:
    state = {
        "numbers": {
            "big": 2**127 - 1,
            "negative": -(2**200),
            "tenth": 0.1,
            "tiny": 5e-324,
            "minus_zero": -0.0,
            "one": 1.0,
            "int": 1,
        },
        "odd": {
            "nan": math.nan,
            "inf": math.inf,
            "minus": -math.inf,
            "yes": True,
            "none": None,
            "text": "ü\n\ud800",
            "": 0,
        },
        "lists": [1, 2.0, None, [], {"x": [np.arange(2)]}],
        "$array": {"$float": "nan", "$$": [1], "a/b": 1},
        "empty": {},
        "a/b": np.zeros(1),
        "a": {"b": np.ones(1)},
        "A": np.full(1, 2.0),
        "..": np.full(1, 3.0),
        "__metadata__": np.full(1, 4.0),
    }
    same(through_files(tmp_path / "s", state), state)


def test_keys_that_look_like_one_path_stay_apart(tmp_path: Path) -> None:
    state = {"c": {"a/b": np.zeros(1), "a": {"b": np.ones(1)}}}
    back = through_files(tmp_path / "s", state)
    assert back["c"]["a/b"].tolist() == [0.0]
    assert back["c"]["a"]["b"].tolist() == [1.0]


def test_generators_go_on_where_they_were(tmp_path: Path) -> None:
    streams = Streams(3)
    streams.numpy("store").normal(size=5)
    torch.rand(4, generator=streams.torch("act"))
    back = Streams(0)
    back.restore(through_files(tmp_path / "s", {"streams": streams.state()})["streams"])
    assert back.numpy("store").normal() == streams.numpy("store").normal()
    assert torch.rand(1, generator=back.torch("act")) == torch.rand(1, generator=streams.torch("act"))


@pytest.mark.parametrize(
    "leaf",
    [
        (1, 2),
        object(),
        {1: 2},
        np.array(["a"]),
        np.array([None]),
        np.zeros(1, complex),
        torch.zeros(1, dtype=torch.complex64),
        {1, 2},
        b"raw",
    ],
)
def test_a_leaf_that_cannot_be_kept_is_refused_with_its_path(leaf: Any) -> None:
    with pytest.raises(CheckpointError, match="pool/env"):
        encode({"pool": {"env": leaf}})


def test_no_file_of_a_checkpoint_holds_a_pickle(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(5, {"a": np.arange(3), "b": {"t": torch.ones(2), "n": 1}}, {})
    assert {file.name for file in path.iterdir()} == {
        "a.safetensors",
        "b.safetensors",
        "state.json",
        "manifest.json",
        "COMMIT",
    }
    assert path.name == "step-000000000005"
    for file in path.iterdir():
        assert not file.read_bytes().startswith((b"\x80", b"PK"))


# --- reading what others wrote ---


def rewrite(folder: Path, change: Any) -> None:
    """Change state.json and make the manifest agree, as someone who means harm would."""
    tree = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(change(tree)))
    recommit(folder)


def recommit(folder: Path, **manifest_changes: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text()) | manifest_changes
    for name, info in manifest["files"].items():
        if (folder / name).is_file():
            data = (folder / name).read_bytes()
            info |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    commit(folder, manifest)


def commit(folder: Path, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "COMMIT").write_text(hashlib.sha256(text).hexdigest() + "\n")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return Checkpoints(tmp_path / "checkpoints").save(7, {"net": {"w": np.arange(4.0)}, "n": 1}, {"exact": True})


@pytest.mark.parametrize(
    "reference",
    [
        {"$array": ["../net.safetensors", "net/w", "numpy"]},
        {"$array": ["net.safetensors", "nothing", "numpy"]},
        {"$array": ["net.safetensors", "net/w", "pickle"]},
        {"$array": ["net.safetensors"]},
        {"$array": 3},
        {"$float": "1e999"},
        {"$float": []},
        {"$object": "os.system"},
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(saved: Path, reference: Any) -> None:
    rewrite(saved, lambda tree: tree | {"n": reference})
    with pytest.raises(CheckpointError, match=r"state\.json"):
        Checkpoints(saved.parent).load(saved)


@pytest.mark.parametrize(
    "text", ["[]", "NaN", '{"a": NaN}', '{"a": 1, "a": 2}', "{", "[" * 100_000, '{"n": ' + "9" * 5000 + "}"]
)
def test_state_that_is_not_a_strict_json_object_is_refused(saved: Path, text: str) -> None:
    (saved / "state.json").write_text(text)
    recommit(saved)
    with pytest.raises(CheckpointError, match=r"state\.json"):
        Checkpoints(saved.parent).load(saved)


@pytest.mark.parametrize(
    "name", ["../../secret", "/etc/passwd", "a/b", "..", ".hidden", "", "a\\b", "a\x00b", "x" * 200]
)
def test_file_names_with_path_tricks_are_refused(saved: Path, name: str) -> None:
    files = json.loads((saved / "manifest.json").read_text())["files"]
    recommit(saved, files=files | {name: {"sha256": "0" * 64, "bytes": 0}})
    with pytest.raises(CheckpointError, match="plain file name"):
        Checkpoints(saved.parent).load(saved)


@pytest.mark.parametrize("name", ["net.safetensors", "state.json", "manifest.json", "COMMIT"])
def test_links_are_refused_even_if_the_content_is_right(saved: Path, name: str) -> None:
    elsewhere = saved.parent.parent / "elsewhere"
    os.rename(saved / name, elsewhere)
    (saved / name).symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match=name):
        Checkpoints(saved.parent).load(saved)


def test_a_link_in_place_of_the_folder_and_a_pipe_in_place_of_a_file_are_refused(saved: Path) -> None:
    (saved.parent / "step-000000000009").symlink_to(saved)
    with pytest.raises(CheckpointError):
        Checkpoints(saved.parent).load(saved.parent / "step-000000000009")
    (saved / "net.safetensors").unlink()
    os.mkfifo(saved / "net.safetensors")
    with pytest.raises(CheckpointError, match="cannot be read as a regular file: it is a pipe"):
        Checkpoints(saved.parent).load(saved)


def header(length: int, text: bytes, data: bytes = b"") -> bytes:
    return length.to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        header(2**63, b"{}"),
        header(MAX_HEADER_BYTES + 1, b"{}"),
        header(2, b"[]"),
        header(2, b"{}", b"left over"),
        header(72, b'{"net/w":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,32]}}'.ljust(72), bytes(32)),
        header(64, b'{"net/w":{"dtype":"F64","shape":[4],"data_offsets":[0,3200]}}'.ljust(64), bytes(32)),
        header(64, b'{"net/w":{"dtype":"PY","shape":[4],"data_offsets":[0,32]}}'.ljust(64), bytes(32)),
    ],
)
def test_a_malformed_safetensors_file_is_refused(saved: Path, data: bytes) -> None:
    (saved / "net.safetensors").write_bytes(data)
    recommit(saved)
    with pytest.raises(CheckpointError, match=r"net\.safetensors"):
        Checkpoints(saved.parent).load(saved)


@pytest.mark.parametrize(
    "change",
    [{"step": -1}, {"step": "x"}, {"kind": "pickle"}, {"files": []}, {"files": {}}, {"extra": 1}, {"exact": None}],
)
def test_a_manifest_with_wrong_fields_is_refused(saved: Path, change: dict[str, Any]) -> None:
    commit(saved, json.loads((saved / "manifest.json").read_text()) | change)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        Checkpoints(saved.parent).load(saved)


# --- Checkpoints ---


def state_of(step: int) -> dict[str, Any]:
    return {"net": {"w": np.full(3, float(step))}, "run": {"steps": step}}


def test_the_manifest_says_what_the_checkpoint_is(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    meta = {"exact": "the env cannot be restored", "config_sha256": "ab" * 32, "updates": 12}
    checkpoints.save(50_000, state_of(50_000), meta)
    state, manifest = checkpoints.load("last")
    same(state, state_of(50_000))
    assert (manifest.format, manifest.step, manifest.kind) == (4, 50_000, "full")
    assert manifest.exact == "the env cannot be restored"
    assert manifest.config_sha256 == "ab" * 32
    assert manifest.meta == {"updates": 12}
    assert manifest.torch == torch.__version__
    assert manifest.files["state.json"].bytes == (tmp_path / "step-000000050000" / "state.json").stat().st_size
    assert set(meta) == {"exact", "config_sha256", "updates"}  # the caller's dict is not changed


def test_the_newest_is_found_by_step_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.latest() is None
    for step in (5, 100, 20, 1000):
        checkpoints.save(step, state_of(step), {})
    assert checkpoints.steps() == [100, 1000]
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.step == 1000
    same(latest.load(), state_of(1000))
    assert checkpoints.load(100)[1].step == 100
    assert checkpoints.load("100")[1].step == 100
    with pytest.raises(CheckpointError, match="there are: 100, 1000"):
        checkpoints.load(5)
    with pytest.raises(CheckpointError, match="'last', 'best' or a step"):
        checkpoints.load("bset")


def test_what_was_just_saved_is_never_pruned(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(10, state_of(10), {})
    checkpoints.save(4, state_of(4), {})  # a run that went back
    assert checkpoints.load(4)[1].step == 4


def test_best_is_replaced_and_is_not_a_checkpoint_to_resume_from(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        path = checkpoints.save_best(step, state_of(step), {})
    assert path == tmp_path / "best"
    state, manifest = checkpoints.load("best")
    assert (manifest.step, manifest.kind) == (20, "weights")
    same(state, state_of(20))
    assert checkpoints.latest() is None
    assert [file.name for file in tmp_path.iterdir()] == ["best"]
    with pytest.raises(CheckpointError, match="no checkpoint"):
        checkpoints.load("last")


def test_a_step_can_be_saved_twice(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(10, state_of(1), {})
    checkpoints.save(10, state_of(2), {})
    same(checkpoints.load(10)[0], state_of(2))
    assert [file.name for file in tmp_path.iterdir()] == ["step-000000000010"]


def test_another_format_is_refused_and_not_skipped(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state_of(1), {})
    recommit(checkpoints.save(2, state_of(2), {}), format=9)
    with pytest.raises(CheckpointError, match=r"format 9.*reads format 1, 2, 3 and 4"):
        checkpoints.latest()


def test_a_chain_of_migrations_brings_an_old_checkpoint_to_the_present_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    old = checkpoints.save(2, {"network": {"w": np.ones(2)}, "run": {"steps": 2}}, {})
    raw = json.loads((old / "manifest.json").read_text())
    raw["env_steps"] = raw.pop("step")  # what the next format will call step, the present one did not
    commit(old, raw)

    def rename_step(manifest: dict[str, Any]) -> dict[str, Any]:
        manifest = dict(manifest)
        return {"step": manifest.pop("env_steps")} | manifest

    def rename_net(state: dict[str, Any]) -> dict[str, Any]:
        return {"net" if key == "network" else key: value for key, value in state.items()}

    present = manifests.FORMAT
    monkeypatch.setattr(manifests, "FORMAT", present + 2)
    monkeypatch.setattr(manifests, "MIGRATIONS", {present + 1: Migration(state=lambda s: s | {"added": 5})})
    with pytest.raises(CheckpointError, match=f"reads format {present + 1} and {present + 2}"):
        checkpoints.latest()
    monkeypatch.setattr(manifests, "MIGRATIONS", manifests.MIGRATIONS | {present: Migration(rename_step, rename_net)})
    state, manifest = checkpoints.load("last")
    assert manifest.step == 2
    assert state["added"] == 5
    assert state["net"]["w"].tolist() == [1.0, 1.0]
