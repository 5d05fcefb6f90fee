"""Layers: YAML as people write it, overrides, merging, provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.core.config.layers import Layer, Merged
from rookery.core.config.overrides import override, parse_override, parse_overrides
from rookery.core.config.yaml import read_file, read_value, write_text
from rookery.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1e5", 100000.0),
        ("-2.5E+2", -250.0),
        (".5", 0.5),
        ("1_000", 1000),
        ("010", 10),
        ("0x1f", 31),
        ("true", True),
        ("on", "on"),
        ("no", "no"),
        ("null", None),
        ("", None),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("cuda:0", "cuda:0"),
        ("[1, 2e1]", [1, 20.0]),
        ("{kind: linear, start: 1}", {"kind": "linear", "start": 1}),
    ],
)
def test_values_are_read_as_people_mean_them(text: str, value: Any) -> None:
    found = read_value(text, "test")
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    "text", ["[1", "a: b: c", "*x", "!!python/object:os.system x", "!!int x", "&a [*a]", "{a: 1, a: 2}"]
)
def test_bad_yaml_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="test"):
        read_value(text, "test")


def test_a_key_given_twice_in_a_file_is_an_error_with_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("algo:\n  lr: 1\nenv: {}\nalgo:\n  lr: 2\n")
    with pytest.raises(ConfigError, match=r"line 4: algo is given twice, first in line 1"):
        read_file(file)


@pytest.mark.parametrize("content", ["- a\n- b\n", "just text\n", "5\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match="expected sections"):
        read_file(file)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_file(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read"):
        read_file(tmp_path / "bytes.yaml")


words = st.text(
    st.characters(
        exclude_categories=["Cc", "Cs", "Cn", "Zl", "Zp"], include_characters="\n\t", exclude_characters="\ufeff"
    )
)
numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(words, plain, max_size=4))
def test_what_is_written_as_yaml_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]
) -> None:
    assert not Merged([Layer("test", tree)]).problems
    file = tmp_path_factory.mktemp("yaml") / "x.yaml"
    file.write_text(write_text(tree), encoding="utf-8")
    assert repr(read_file(file)[0]) == repr(tree)  # repr: 1 and 1.0 and True are not the same value in a config


@given(plain)
def test_an_override_made_from_a_value_reads_back_the_same(value: Any) -> None:
    assert repr(parse_override(override("a.b", value))) == repr((("a", "b"), value))


def test_an_override_is_split_at_its_first_equals_sign() -> None:
    assert parse_override("run.name=a=b") == (("run", "name"), "a=b")
    assert parse_override("train.stop.eval/return_mean=475") == (("train", "stop", "eval/return_mean"), 475)


@pytest.mark.parametrize("text", ["algo.lr", "=1", ".lr=1", "algo..lr=1", "algo.=1"])
def test_a_malformed_override_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected an override"):
        parse_override(text)


@pytest.mark.parametrize("pair", [("a.b=1", "a.b=2"), ("a.b=1", "a={c: 2}"), ("a={c: 2}", "a.b=1")])
def test_contradicting_overrides_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="contradict"):
        parse_overrides(pair)


def test_the_same_override_twice_is_harmless() -> None:
    assert parse_overrides(["a.b=1", "a.b=1"]).tree == {"a": {"b": 1}}


def test_a_higher_layer_wins_and_each_value_knows_its_source() -> None:
    merged = Merged([Layer("low", {"a": {"x": 1, "y": 1}, "b": [1, 2]}), Layer("high", {"a": {"y": 2}, "b": [3]})])
    assert merged.tree == {"a": {"x": 1, "y": 2}, "b": [3]}  # mappings merge, lists are replaced
    assert [merged.source(path) for path in (("a", "x"), ("a", "y"), ("b",), ("c",))] == [
        "low",
        "high",
        "high",
        "default",
    ]


def test_values_from_a_file_know_their_line(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("algo:\n  name: toy\n\n  lr: 1e-3\n")
    merged = Merged([Layer("file x.yaml", *read_file(file))])
    assert merged.source(("algo", "lr")) == "file x.yaml, line 4"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ({"s": {"k": {"a": 1}}}, {"s": {"k": {}}}, {"s": {"k": {}}}),  # empty clears
        (
            {"s": {"k": {"kind": "linear", "end": 0}}},
            {"s": {"k": {"kind": "cosine"}}},
            {"s": {"k": {"kind": "cosine"}}},
        ),
        (
            {"s": {"k": {"kind": "linear", "end": 0}}},
            {"s": {"k": {"end": 1}}},
            {"s": {"k": {"kind": "linear", "end": 1}}},
        ),
        ({"algo": {"name": "a", "lr": 1}}, {"algo": {"name": "b"}}, {"algo": {"name": "b"}}),
        ({"run": {"name": "a", "seed": 1}}, {"run": {"name": "b"}}, {"run": {"name": "b", "seed": 1}}),
        ({"pool": {"kind": "a", "workers": 2}}, {"pool": {"kind": "b"}}, {"pool": {"kind": "b", "workers": 2}}),
        ({"s": {"k": 1}}, {"s": {"k": {"a": 1}}}, {"s": {"k": {"a": 1}}}),
        ({"s": {"k": {"a": 1}}}, {"s": {"k": 1}}, {"s": {"k": 1}}),
    ],
)
def test_a_mapping_is_merged_unless_it_is_another_thing(low: dict, high: dict, expected: dict) -> None:
    assert Merged([Layer("low", low), Layer("high", high)]).tree == expected


def test_what_was_replaced_leaves_no_source_behind() -> None:
    merged = Merged(
        [Layer("low", {"s": {"k": {"kind": "linear", "end": 0}}}), Layer("high", {"s": {"k": {"kind": "cosine"}}})]
    )
    assert merged.source(("s", "k", "end")) == "default"


def test_merging_copies() -> None:
    inner = {"deep": [1, {"x": 2}]}
    merged = Merged([Layer("one", {"a": inner})])
    merged.tree["a"]["deep"][1]["x"] = 3
    assert inner == {"deep": [1, {"x": 2}]}


def test_values_that_no_file_can_hold_are_problems_with_their_path() -> None:
    tree: dict[Any, Any] = {"a": {"x": float("nan"), "y": 2**70, "z": object(), 5: 1, "s": "\ud800", "t": "\x85"}}
    problems = Merged([Layer("test", tree)]).problems
    assert [path for path, _, _ in problems] == [("a", "x"), ("a", "y"), ("a", "z"), ("a",), ("a", "s"), ("a", "t")]


def test_a_tree_that_contains_itself_is_a_problem_and_no_endless_loop() -> None:
    tree: dict[str, Any] = {}
    tree["a"] = tree
    looped: list[Any] = []
    looped.append(looped)
    assert "levels deep" in Merged([Layer("test", tree)]).problems[0][1]
    assert Merged([Layer("test", {"a": looped})]).problems


def test_numpy_numbers_and_paths_become_plain() -> None:
    import numpy as np

    merged = Merged([Layer("test", {"a": np.float32(0.5), "b": np.int64(3), "c": Path("x") / "y", "d": (1, 2)})])
    assert repr(merged.tree) == repr({"a": 0.5, "b": 3, "c": "x/y", "d": [1, 2]})
    assert not merged.problems
