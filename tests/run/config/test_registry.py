"""The registry: a table of strings."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.core import registry
from rookery.core.catalogue import MOVED
from rookery.core.errors import ConfigError


@pytest.fixture
def mine() -> Iterator[str]:
    yield "mine-env"
    registry.unregister("env", "mine-env")


def test_a_registered_string_is_imported_only_when_looked_up(mine: str) -> None:
    registry.register("env", mine, "no.such.module:Env", "never imported")
    assert mine in registry.names("env")
    assert registry.entry("env", mine).summary == "never imported"
    with pytest.raises(ConfigError, match=r"no module 'no\.such\.module'"):
        registry.lookup("env", mine)


def test_an_object_can_be_registered_and_says_where_it_is_defined(mine: str) -> None:
    registry.register("env", mine, dict)
    assert registry.lookup("env", mine) is dict
    assert registry.entry("env", mine).where == "builtins:dict"


def test_a_taken_name_is_refused_but_the_same_definition_may_come_again(mine: str) -> None:
    registry.register("env", mine, "collections:OrderedDict")
    registry.register("env", mine, "collections:OrderedDict")
    with pytest.raises(ConfigError, match="already defined by collections:OrderedDict"):
        registry.register("env", mine, "collections:Counter")


@pytest.mark.parametrize("target", ["nocolon", ":x", "x:", ""])
def test_a_target_without_module_or_attribute_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="module:attribute"):
        registry.register("env", "mine-env", target)


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a,b"])
def test_a_name_that_could_not_be_typed_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name is a non-empty string"):
        registry.register("env", name, "collections:Counter")


def test_an_unknown_name_gets_a_hint_and_the_list() -> None:
    with pytest.raises(ConfigError, match=r"unknown algo 'dqm'\. Did you mean 'dqn'\? Known: .*ppo"):
        registry.lookup("algo", "dqm")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("her", "store.hindsight"),
        ("RND", "algo.curiosity"),
        ("drqn", "r2d2"),
        ("ape-x", "cartpole-apex"),
        ("ddqn", "dqn"),
        ("MAPPO", "ppo with algo.critic=world"),
        ("ippo", "ppo without env.teams"),
    ],
)
def test_what_is_an_option_here_is_told_under_its_other_name(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown algo '{name}', which is .*{re.escape(told)}") as error:
        registry.lookup("algo", name)
    assert "Did you mean" not in str(error.value)


def test_an_unknown_kind_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'algo'"):
        registry.names("algos")


def test_a_missing_attribute_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"has no 'OrderedDic'\. Did you mean 'OrderedDict'"):
        registry.load("collections:OrderedDic")


def test_a_module_that_needs_a_missing_module_names_that_one(tmp_path, monkeypatch) -> None:
    (tmp_path / "needs_more.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="needs the module 'surely_not_installed'"):
        registry.import_module("needs_more")


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("leraning_rate", ["learning_rate", "lr"], ["learning_rate"]),  # neighbours swapped: one edit
        ("l", ["lr", "lam", "log"], ["lr"]),
        ("gama", ["gamma", "lam"], ["gamma"]),
        ("LR", ["lr"], ["lr"]),
        ("zzzz", ["gamma"], []),
        ("ab", ["abc", "abd", "xyz"], ["abc", "abd"]),  # a tie names both
    ],
)
def test_the_nearest_name_is_the_one_with_the_fewest_edits(word: str, known: list[str], expected: list[str]) -> None:
    assert registry.nearest(word, known) == expected


def test_listing_every_kind_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rookery.core import registry; [registry.entries(k) for k in registry.KINDS]; "
        "print(sorted({'torch', 'gymnasium', 'numba', 'pydantic'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_importing_rookery_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, rookery; rookery.__version__; dir(rookery); print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_every_public_name_can_be_used() -> None:
    import rookery

    for name in rookery.__all__:
        assert getattr(rookery, name) is not None


def test_the_names_that_a_type_checker_sees_are_the_public_ones() -> None:
    import rookery

    text = Path(rookery.__file__).read_text()
    seen = {name: module for module, name in re.findall(r"^    from (\S+) import (\w+) as \2$", text, re.M)}
    assert seen == rookery._PUBLIC


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import rookery

    with pytest.raises(AttributeError, match="no attribute 'Agent'"):
        rookery.Agent


@pytest.mark.parametrize("kind", ["algo", "preset", "sink", "wrapper", "model"])
def test_every_builtin_name_can_be_loaded(kind: str) -> None:
    for entry in registry.entries(kind):
        assert registry.lookup(kind, entry.name) is not None
        assert entry.summary


OLD = {  # paths of earlier versions, as configs may name them
    "games": ("Game", "Pairing", "Verdicts", "Visitors", "Shifts"),
    "goals": ("GoalEnv", "BitFlip", "Reach"),
    "probes": ("Probe", "Constant", "Obs", "Discount", "Action", "ObsAction", "Endless", "Memory", "Mask", "Nested"),
    "chains": ("Chain",),
    "partial": ("NoVelocity", "cartpole"),
    "atari": ("Atari", "LifeLoss"),
    "multi": ("MultiEnv",),  # today a package of this name
    "workers": ("Workers",),
}


@pytest.mark.parametrize("path", [f"rookery.envs.{module}:{name}" for module, all_ in OLD.items() for name in all_])
def test_paths_of_envs_of_earlier_versions_still_lead_to_them(path: str) -> None:
    module, _, name = path.partition(":")
    assert registry.load(path) is registry.load(f"{MOVED[module]}:{name}")


def test_every_module_that_moved_is_where_the_table_says() -> None:
    assert len(MOVED) > 100
    assert [new for new in MOVED.values() if importlib.util.find_spec(new) is None] == []


def test_who_types_an_old_path_is_told_the_new_one_once(caplog: pytest.LogCaptureFixture) -> None:
    registry._MOVED_TOLD.clear()
    for _ in range(2):
        registry.load("rookery.envs.games:Pairing")
    told = [record.getMessage() for record in caplog.records if record.name == "rookery.core.registry"]
    assert told == ["the module rookery.envs.games is now rookery.envs.tasks.games: please write it so"]


def test_a_module_of_ours_that_never_was_is_still_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no module 'rookery\.envs\.gamez'"):
        registry.load("rookery.envs.gamez:Pairing")
