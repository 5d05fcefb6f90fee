"""From layers to a Config: provenance, hints, contradictions, dump = reload."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.core import registry
from rookery.core.config.check import InvalidConfig
from rookery.core.config.fields import keys_of
from rookery.core.config.yaml import write_text
from rookery.core.errors import ConfigError
from rookery.run.config.config import SECTIONS, diff, flat
from rookery.run.config.resolve import json_schema, load_config, models_of
from rookery.run.config.rules import remarks

PRESETS = registry.names("preset")


def problems_of(**given: Any) -> dict[str, str]:
    """key → problem of a config that must be refused."""
    with pytest.raises(InvalidConfig) as caught:
        load_config(**given)
    return {problem.key: str(problem) for problem in caught.value.problems}


def rule_of(*overrides: str) -> str:
    """The one broken rule."""
    found = problems_of(preset="toy-preset", overrides=overrides)
    assert list(found) == [""]
    return found[""]


# --- layers ---


def test_each_layer_wins_over_those_below_and_every_value_says_where_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("algo:\n  epochs: 5\n  gamma: 0.8\nstore:\n  capacity: 5000\n")
    config = load_config("toy-preset", file, overrides=["algo.gamma=0.7"], tree={"eval": {"episodes": 20}})
    found = {key: (value, config.provenance(key)) for key, value in flat(config.dump()).items()}
    assert found["log.window"] == (100, "default")
    assert found["env.num"] == (2, "algorithm toy")
    assert found["env.api"] == ("auto", "default")  # a neighbour of what the algorithm set
    assert found["train.max_steps"] == (5000, "preset toy-preset")
    assert found["algo.epochs"] == (5, f"file {file}, line 2")
    assert found["eval.episodes"] == (20, "argument")
    assert found["algo.gamma"] == (0.7, "command line")


def test_algo_and_env_by_argument_are_enough() -> None:
    config = load_config(algo="toy", env="CartPole-v1")
    assert (config.algo.name, config.env.id, config.train.max_steps) == ("toy", "CartPole-v1", 100_000)
    assert config.provenance("env.id") == "argument"


def test_an_algorithm_class_can_be_given_itself(toy: type) -> None:
    assert load_config(algo=toy, env="CartPole-v1").algorithm is toy


def test_scientific_notation_is_a_number_for_integers_too() -> None:
    config = load_config("toy-preset", overrides=["train.max_steps=1e5", "algo.lr=1e-3"])
    assert (config.train.max_steps, config.algo.lr.at(0)) == (100_000, 0.001)
    assert isinstance(config.dump()["train"]["max_steps"], int)


def test_the_callers_tree_is_never_changed() -> None:
    tree = {
        "algo": {"name": "toy", "lr": {"kind": "linear", "start": 1, "end": 0, "steps": 10}},
        "env": {"id": "CartPole-v1", "kwargs": {"a": [1]}},
    }
    before = copy.deepcopy(tree)
    preset = copy.deepcopy(registry.lookup("preset", "toy-preset"))
    load_config("toy-preset", tree=tree, overrides=["env.kwargs.b=2", "algo.lr.end=0.5"])
    assert tree == before
    assert registry.lookup("preset", "toy-preset") == preset


def test_a_config_cannot_be_changed() -> None:
    config = load_config("toy-preset")
    with pytest.raises((AttributeError, ValueError)):
        config.algo.gamma = 0.5
    with pytest.raises(AttributeError):
        config.algo = None


def test_user_modules_are_imported_before_names_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_names.py").write_text(
        "from rookery.core import registry\nregistry.register('preset', 'from-import', {'algo': {'name': 'toy'}})\n"
        "registry.register('sink', 'my-sink', 'my_names:Sink')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        config = load_config("toy-preset", tree={"import": ["my_names"], "log": {"sinks": ["my-sink"]}})
    finally:
        registry.unregister("preset", "from-import")
        registry.unregister("sink", "my-sink")
    assert config.imports == ("my_names",)
    assert config.dump()["import"] == ["my_names"]


# --- errors ---


@pytest.mark.slow
def test_every_key_with_one_letter_dropped_gets_a_hint_that_names_it() -> None:
    keys = [key.key for name, model in models_of("toy").items() for key in keys_of(model, name)]
    assert len(keys) > 60
    siblings = set(keys) | {key.rpartition(".")[0] for key in keys}
    for key in keys:
        prefix, _, last = key.rpartition(".")
        for i in range(len(last)):
            typo = f"{prefix}.{last[:i]}{last[i + 1 :]}"
            if typo in siblings or len(last) == 1:
                continue
            found = problems_of(preset="toy-preset", overrides=[f"{typo}=1"])
            assert "unknown key (set by command line)" in found[typo], typo
            assert repr(key) in found[typo] or f"In Rookery that is {key}" in found[typo], (typo, found[typo])


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_with_one_letter_dropped_gets_a_hint_that_names_it(section: str) -> None:
    for i in range(len(section)):
        typo = section[:i] + section[i + 1 :]
        if typo in SECTIONS:
            continue
        found = problems_of(preset="toy-preset", tree={typo: {"x": 1}})
        assert repr(section) in found[typo]


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("algo.batch_size=5", "store.batch_size"),  # right name, wrong section
        ("train.seed=5", "run.seed"),
        ("max_steps=5", "train.max_steps"),  # section left out
        ("algo.lr={strt: 1}", "algo.lr.start"),
        ("algo.inner.siz=1", "algo.inner.size"),
        ("algo.layers=[{szie: 1}]", "algo.layers.0.size"),
    ],
)
def test_a_key_in_the_wrong_place_gets_a_hint_to_the_right_one(override: str, hint: str) -> None:
    assert repr(hint) in " ".join(problems_of(preset="toy-preset", overrides=[override]).values())


@pytest.mark.parametrize(
    ("override", "key", "expected"),
    [
        ("algo.epochs=many", "algo.epochs", "expected a whole number ≥ 1, got 'many'"),
        ("algo.epochs=1.5", "algo.epochs", "expected a whole number ≥ 1, got 1.5"),
        ("algo.epochs=0", "algo.epochs", "expected a whole number ≥ 1, got 0"),
        ("algo.epochs=true", "algo.epochs", "expected a whole number ≥ 1, got True"),
        ("algo.epochs=[1]", "algo.epochs", "expected a whole number ≥ 1, got [1]"),
        ("algo.limit=x", "algo.limit", "expected a whole number ≥ 1 or null, got 'x'"),
        ("algo.gamma=2", "algo.gamma", "expected a number ≥ 0 and ≤ 1, got 2"),
        ("algo.double=1", "algo.double", "expected true or false, got 1"),
        ("algo.double=yes", "algo.double", "expected true or false, got 'yes'"),
        (
            "algo.loss=hubr",
            "algo.loss",
            "expected huber | squared, got 'hubr' (set by command line). Did you mean 'huber'?",
        ),
        ("algo.sizes=3", "algo.sizes", "expected a list of whole numbers, got 3"),
        ("algo.sizes=[1, x]", "algo.sizes.1", "expected a whole number, got 'x'"),
        ("algo.lr=fast", "algo.lr", "expected a number or a schedule"),
        ("algo.lr=[1]", "algo.lr", "expected a number or a schedule"),
        ("algo.lr={kind: linear}", "algo.lr", "a linear schedule needs `end`"),
        ("algo.lr.start=true", "algo.lr.start", "expected a number, got True"),
        ("run.threads=lots", "run.threads", "expected a whole number ≥ 1 and ≤ 1024 or auto, got 'lots'"),
        ("run.device=gpu", "run.device", "expected text matching (auto|cpu|cuda(:\\d+)?|mps), got 'gpu'"),
        ("run.name=../up", "run.name", "expected text"),
        ("train.stop=5", "train.stop", "expected a mapping of names to numbers, got 5"),
        ("train.stop.reward=high", "train.stop.reward", "expected a number, got 'high'"),
        ("train=5", "train", "expected a mapping with some of max_steps"),
        ("algo.gamma=.nan", "algo.gamma", "expected a finite number, got nan"),
        ("train.max_seconds=.inf", "train.max_seconds", "expected a finite number, got inf"),
        ("env.kwargs.x=[1, .nan]", "env.kwargs.x.1", "expected a finite number, got nan"),
        ("env.kwargs.x=99999999999999999999", "env.kwargs.x", "below 2^63"),
        ("import=[5]", "import", "expected a list of modules"),
        ("import=[no_such_module_here]", "import", "there is no module 'no_such_module_here'"),
    ],
)
def test_a_wrong_value_is_told_with_key_expectation_value_and_source(override: str, key: str, expected: str) -> None:
    found = problems_of(preset="toy-preset", overrides=[override])
    assert list(found) == [key]
    assert expected in found[key]
    assert "set by command line" in found[key]


def test_the_source_of_a_wrong_value_is_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("algo:\n  name: toy\n  epochs: many\n")
    assert f"(set by file {file}, line 3)" in problems_of(file=file)["algo.epochs"]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(
        "algo: {name: toy, gama: 1, epochs: x}\nstoer: {}\ntrain: {max_steps: -1}\nenv: {kwargs: {a: .nan}}\n"
    )
    found = problems_of(file=file, overrides=["log.level=LOUD", "eval.episodes=3", "eval.num=2"])
    assert set(found) == {"algo.gama", "algo.epochs", "stoer", "train.max_steps", "env.kwargs.a", "log.level", ""}
    assert "eval.episodes=3" in found[""]


def test_a_contradiction_is_told_together_with_a_typo_elsewhere_but_not_one_with_the_mistyped_key() -> None:
    both = ["sentinel.on_nan=rollback", "checkpoint.every_steps=0", "algo.gama=1"]
    assert set(problems_of(preset="toy-preset", overrides=both)) == {"algo.gama", ""}
    spoilt = [
        "train.max_steps=100",
        "store.min_fil=50",
        "store.batch_size=8",
    ]  # min_fill stays at its default 1000 only because of the typo
    assert set(problems_of(preset="toy-preset", overrides=spoilt)) == {"store.min_fil"}


def test_an_unknown_algorithm_does_not_hide_other_problems() -> None:
    found = problems_of(tree={"algo": {"name": "toyy"}, "train": {"max_step": 1}})
    assert "Did you mean 'toy'" in found["algo.name"]
    assert "'train.max_steps'" in found["train.max_step"]


def test_no_algorithm_at_all_is_told_with_the_list() -> None:
    found = problems_of(env="CartPole-v1")
    assert "expected the name of an algorithm" in found["algo.name"]
    assert "dqn" in found["algo.name"]


def test_an_unknown_sink_gets_a_hint() -> None:
    found = problems_of(preset="toy-preset", overrides=["log.sinks=[consol]"])
    assert "unknown sink 'consol'. Did you mean 'console'?" in found["log.sinks"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("CartPol-v1", "unknown env 'CartPol-v1'. Did you mean 'CartPole-v1'?"),
        ("no_such_module:Env-v0", "there is no module 'no_such_module'"),
    ],
)
def test_an_unknown_env_is_told_before_anything_starts(name: str, told: str) -> None:
    found = problems_of(preset="toy-preset", overrides=[f"env.id={name}"])
    assert told in found["env.id"]
    assert "(set by command line)" in found["env.id"]


def test_an_unknown_preset_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cartpole-dqn'"):
        load_config("cartpole-dqm")


def test_the_provenance_of_an_unknown_key_is_an_error_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'algo\.gamma'"):
        load_config("toy-preset").provenance("algo.gama")


# --- rules ---


def test_contradictions_name_both_fields_and_their_sources() -> None:
    message = rule_of("store.batch_size=2000", "store.min_fill=100")
    assert "store.batch_size=2000" in message
    assert "store.min_fill=100" in message
    assert "store.batch_size: command line, store.min_fill: command line" in message


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        (["train.max_steps=null"], ["train.max_steps", "train.max_updates"]),
        (["eval.episodes=10", "eval.num=4"], ["eval.episodes=10", "eval.num=4", "eval.num=5"]),
        (["train.max_steps=500"], ["train.max_steps=500", "store.min_fill=1000"]),
        (["train.stop.eval/return_mean=475", "eval.every_steps=0"], ["train.stop", "eval.every_steps=0"]),
        (
            ["sentinel.on_nan=rollback", "checkpoint.every_steps=0"],
            ["sentinel.on_nan=rollback", "checkpoint.every_steps=0"],
        ),
        (
            ["store.priority={}", "train.max_steps=null", "train.max_updates=9"],
            ["store.priority.beta", "train.max_steps=null"],
        ),
        (["algo.double=true", "algo.epochs=3"], ["algo.epochs=3", "env.num=2"]),  # the algorithm's own rule
    ],
)
def test_each_rule_is_told_with_the_fields_it_joins(overrides: list[str], fields: list[str]) -> None:
    message = rule_of(*overrides)
    for field in fields:
        assert field in message


def test_a_rollout_longer_than_the_run_is_a_contradiction(toy: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "store_kind", "rollout")
    monkeypatch.setattr(toy, "defaults", {"env": {"num": 8}})
    load_config("toy-preset", overrides=["algo.rollout=625"])  # 625 · 8 = 5000 steps: exactly one
    message = rule_of("algo.rollout=626")
    assert "algo.rollout=626 × env.num=8 × pool.workers=1 = 5008" in message
    assert "env.num: algorithm toy" in message


# --- dump, reload, diff, schema ---


@pytest.mark.parametrize("preset", [*PRESETS, "toy-preset"])
def test_a_dumped_preset_reloads_to_the_same_tree(preset: str, tmp_path: Path) -> None:
    config = load_config(preset, needs_env=False)  # its package may be missing here
    file = tmp_path / "config.yaml"
    file.write_text(write_text(config.dump()), encoding="utf-8")
    again = load_config(file=file, needs_env=False)
    assert again.dump() == config.dump()
    assert again == config
    assert again.sha256() == config.sha256()
    assert load_config(tree=json.loads(json.dumps(config.dump())), needs_env=False).dump() == config.dump()


def test_a_dumped_config_keeps_what_the_command_line_changed(tmp_path: Path) -> None:
    changes = [
        "algo.lr={kind: piecewise, points: [[0, 1e-3], [100, 0]]}",
        "env.kwargs={a: {b: [1, x]}}",
        "run.name=one",
        "train.stop={a: 1}",
    ]
    config = load_config("toy-preset", overrides=changes)
    file = tmp_path / "config.yaml"
    file.write_text(write_text(config.dump()), encoding="utf-8")
    assert load_config(file=file) == config


def test_equal_trees_have_equal_hashes_and_other_ones_do_not() -> None:
    by_preset, by_tree = load_config("toy-preset"), load_config(tree=registry.lookup("preset", "toy-preset"))
    assert by_preset == by_tree
    assert by_preset.sha256() == by_tree.sha256()
    assert by_preset.sha256() != load_config("toy-preset", overrides=["run.seed=1"]).sha256()


def test_diff_names_exactly_what_differs() -> None:
    a, b = load_config("toy-preset"), load_config("toy-preset", overrides=["algo.gamma=0.5", "env.kwargs.g=1"])
    assert diff(a, b) == {"algo.gamma": (0.9, 0.5), "env.kwargs": ({}, {"g": 1})}
    assert diff(a, a) == {}


def test_the_schema_is_closed_and_describes_every_key() -> None:
    schema = json_schema("toy")
    assert set(schema["properties"]) == {"import", "players", "seats", *SECTIONS}
    assert schema["additionalProperties"] is False
    train = schema["$defs"]["TrainConfig"]
    assert train["additionalProperties"] is False
    assert train["properties"]["max_episodes"]["description"] == "finished episodes"
    json.dumps(schema)


@pytest.mark.parametrize("algo", ["toy", "dqn", "ppo", "sac"])
def test_every_key_of_a_config_is_documented(algo: str) -> None:
    for name, model in models_of(algo).items():
        for key in keys_of(model, name):
            assert key.comment, f"{key.key} has no comment on its line"


def test_every_preset_has_a_result_and_only_presets_have() -> None:
    from rookery.zoo import results

    found = results()
    assert set(found) == set(PRESETS)
    assert {result.status for result in found.values()} <= {"gold", "silver", "draft"}
    assert [name for name, result in found.items() if (result.measured is None) != (result.status == "draft")] == []


# --- garbage ---

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=3)
garbage = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


def refusal(**given: Any) -> str | None:
    """The message of a refused config; None if it was accepted and reloads to itself. Any other error is a failure."""
    try:
        config = load_config(**given)
    except ConfigError as error:
        return str(error)
    assert load_config(tree=config.dump()) == config
    return None


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([*SECTIONS, "import"]) | st.text(max_size=6), garbage, max_size=4) | garbage)
def test_garbage_trees_are_accepted_or_refused_with_a_config_error(tree: Any) -> None:
    assert refusal(tree=tree) != ""
    assert refusal(preset="toy-preset", tree=tree) != ""


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_garbage_in_any_known_key_is_accepted_or_refused_with_an_error_that_names_its_section(
    data: st.DataObject,
) -> None:
    keys = [key.key for name, model in models_of("toy").items() for key in keys_of(model, name)]
    section, _, rest = data.draw(st.sampled_from(keys)).partition(".")
    tree: Any = data.draw(garbage)
    for part in reversed(rest.split(".")):
        tree = {part: tree}
    message = refusal(preset="toy-preset", tree={section: tree})
    assert message is None or section in message


def test_a_bare_atari_id_is_told_of_the_wrapper_and_a_preset():
    (told,) = remarks(load_config(algo="dqn", env="ALE/Pong-v5"))
    assert "env.wrappers=[atari] env.stack=4" in told
    assert "pong-ppo" in told
    assert remarks(load_config(algo="dqn", env="ALE/Pong-v5", overrides=["env.wrappers=[atari]"])) == []
    assert remarks(load_config("pong-ppo")) == []
