"""F6, F7, F8, F16: envs that raise, hang or die. Whatever is recorded is one step of one env, once."""

import os
import signal
import time

import numpy as np
import pytest

from faults.commands import in_process, quick
from faults.numbered import Rows
from rookery import Trainer, load_config
from rookery.core.errors import EnvError
from rookery.envs.multi.one_agent import AsVector

pytestmark = pytest.mark.slow

ENV = "faults.numbered:Numbered"
WORDS = ["env.num=4", "model.hidden=[4]", "learning.mode=eager", "train.max_steps=100000", "store.min_fill=50000"]
QUICK = ["env.faults.backoff_seconds=0"]
MODES = {
    "inline": ["env.workers=inline"],
    "subprocess": ["env.workers=subprocess", "env.workers.processes=2", "env.workers.start=fork"],
    "async": ["env.workers=async", "env.workers.processes=4", "env.workers.start=fork"],
}
everywhere = pytest.mark.parametrize("mode", MODES)
elsewhere = pytest.mark.parametrize("mode", ["subprocess", "async"])


def trainer_of(mode, *words, **kwargs):
    given = "{" + ", ".join(f"{key}: {value}" for key, value in kwargs.items()) + "}"
    overrides = [*WORDS, *QUICK, *MODES[mode], f"env.kwargs={given}", *words]
    trainer = Trainer(load_config(algo="dqn", env=ENV, overrides=overrides))
    trainer.pool.collectors[0].load({"main": trainer.players.main.message(0)})
    return trainer


def recorded(trainer, chunks, rows=32):
    """What the collector of a trainer records, looked at row by row; holes are fine, lies are not."""
    found, collector = Rows(trainer.config.env.num), trainer.pool.collectors[0]
    for _ in range(chunks):
        chunk = collector.collect(rows)["main"]
        found.take(chunk)
        trainer.store.add(chunk)
    assert found.count == trainer.store.size == len(found.seen)
    return found


def recorded_until_renewed(trainer, renewals=1, found=None):
    """As `recorded`, until so many envs were renewed: with async the others go on meanwhile, however long it takes."""
    collector, found, end = trainer.pool.collectors[0], found or Rows(4), time.monotonic() + 30
    while collector.env.renewals < renewals:
        found.take(collector.collect(32)["main"])
        assert time.monotonic() < end, "no env was renewed"
    found.take(collector.collect(32)["main"])
    return found


@everywhere
def test_an_env_that_raises_now_and_then_is_replaced_and_nothing_is_recorded_twice_or_linked_wrongly(mode, caplog):
    with trainer_of(mode, fault="raise", share=0.02) as trainer:
        env = trainer.pool.collectors[0].env
        found = recorded(trainer, 12) if mode != "async" else recorded_until_renewed(trainer, 6)
        assert env.renewals > 5
        assert found.ended > 5
        assert trainer.exact() is not True
        if mode != "async":
            assert "the gripper is stuck" in trainer.exact()
            assert found.count == 12 * 32 * 4 - env.renewals  # one hole each
            assert trainer.pool.metrics() == {"env/renewals": float(env.renewals)}


@everywhere
def test_a_step_that_the_env_calls_abnormal_is_a_hole_and_nothing_is_linked_across_it(mode):
    with trainer_of(mode, fault="abnormal", share=0.02) as trainer:
        found, env = recorded(trainer, 12), trainer.pool.collectors[0].env
        assert env.renewals == 0  # the same env goes on with its next episode
        assert found.ended > 5
        if mode != "async":
            assert "its info says that the step is abnormal" in trainer.exact()
            assert 12 * 32 * 4 - 100 < found.count < 12 * 32 * 4 - 5  # one hole each, about 30


def test_an_env_without_faults_has_no_holes_and_is_exact():
    with trainer_of("subprocess") as trainer:
        found = recorded(trainer, 3)
        assert (found.count, trainer.exact(), trainer.pool.metrics()) == (3 * 32 * 4, True, {})


@elsewhere
@pytest.mark.parametrize(("fault", "named"), [("kill", "SIGKILL"), ("segfault", "SIGSEGV"), ("exit", "exit code 7")])
def test_a_worker_that_dies_is_replaced_and_the_signal_is_named(mode, fault, named, tmp_path, caplog):
    with trainer_of(mode, fault=fault, when=5, only=1, marks=tmp_path) as trainer:
        found, env = recorded_until_renewed(trainer), trainer.pool.collectors[0].env
        assert env.renewals == (2 if mode == "subprocess" else 1)  # all envs of its process
        assert f"with envs {'0 to 1' if mode == 'subprocess' else '1 to 1'}" in caplog.text
        assert named in caplog.text
        assert found.count > 5


@elsewhere
def test_a_worker_killed_from_outside_loses_its_unfinished_episodes_only(mode):
    with trainer_of(mode) as trainer:
        env, found = trainer.pool.collectors[0].env, Rows(4)
        for kills in range(1, 5):
            os.kill(env.pids[0], signal.SIGKILL)
            recorded_until_renewed(trainer, kills * (2 if mode == "subprocess" else 1), found)
        assert found.count >= 32 * 4


@elsewhere
def test_a_worker_that_hangs_is_ended_at_its_deadline_and_its_stack_is_shown(mode, tmp_path, caplog):
    words = ["env.faults.step_seconds=0.3", "env.faults.reset_seconds=5"]
    with trainer_of(mode, *words, fault="hang", when=5, only=1, marks=tmp_path) as trainer:
        recorded_until_renewed(trainer)
        assert "env 1 of worker 0" in caplog.text
        assert "step has not returned for 0.3 s (env.faults.step_seconds)" in caplog.text
        assert "time.sleep(1000)" in caplog.text


def test_a_worker_in_which_nothing_moves_is_killed_by_its_parent(caplog):
    words = ["env.faults.step_seconds=0.2", "env.faults.reset_seconds=1"]
    with trainer_of("subprocess", *words) as trainer:
        recorded(trainer, 1)
        os.kill(trainer.pool.collectors[0].env.pids[1], signal.SIGSTOP)
        trainer.pool.collectors[0].collect(8)
        assert "did not answer within 1.4 s" in caplog.text


@everywhere
def test_an_env_that_always_raises_ends_the_run_with_its_cause(mode):
    with (
        trainer_of(mode, "env.faults.renewals=3", fault="raise", when=3, only=2) as trainer,
        pytest.raises(EnvError, match=r"env 2 of worker 0 .*ValueError: the gripper is stuck") as caught,
    ):
        recorded_until_renewed(trainer, 100)
    text = str(caught.value)
    assert caught.value.exit_code == 3
    assert "seed " in text
    assert "Last action: " in text
    assert "failure 4 in a row, and env.faults.renewals=3" in text
    if mode != "inline":
        assert 'raise ValueError("the gripper is stuck")' in text  # the child's own traceback


@everywhere
def test_an_env_that_cannot_be_reset_now_and_then_is_replaced_between_episodes(mode, caplog):
    with trainer_of(mode, fault="reset", share=0.2) as trainer:
        found = recorded(trainer, 6) if mode != "async" else recorded_until_renewed(trainer, 4)
        assert trainer.pool.collectors[0].env.renewals > 3
        if mode != "async":
            assert found.count == 6 * 32 * 4  # no row is lost: it was no step that failed


def test_a_worker_that_always_dies_is_given_up_shown_once_and_the_others_go_on(caplog):
    with trainer_of("subprocess", "env.faults.renewals=2", fault="kill", when=1, only=3) as trainer:
        found = recorded(trainer, 3)
        assert trainer.pool.metrics()["env/given_up"] == 2.0
        assert caplog.text.count("it is given up, the others go on") == 1
        assert {env for env, _, time_ in found.seen if time_ == 11} == {0, 1}  # whole episodes
        state = trainer.pool.collectors[0].state()
    with trainer_of("subprocess") as again:  # a resumed run tries all of them
        again.pool.collectors[0].restore(state)
        chunk = again.pool.collectors[0].collect(16)["main"]
        assert chunk.rows["valid"].all()


def test_all_workers_dying_for_ever_end_the_run():
    with (
        trainer_of("subprocess", "env.faults.renewals=2", fault="segfault", when=1) as trainer,
        pytest.raises(EnvError, match=r"SIGSEGV, 3 times in a row .*No env is left"),
    ):
        recorded(trainer, 3)


def test_an_env_is_not_given_up_for_evaluation_but_named():
    words = ["env.faults.renewals=1", "eval.num=2"]
    with (
        trainer_of("async", *words, fault="kill", when=1, only=1) as trainer,
        pytest.raises(EnvError, match=r"SIGKILL"),
    ):
        trainer.evaluate()


@elsewhere
def test_what_envs_were_told_is_told_to_their_successors(mode, caplog):
    with trainer_of(mode, fault="raise", share=0.01) as trainer:
        collector = trainer.pool.collectors[0]
        collector.reset()
        assert set(trainer.foreach_env("set_phase", 3)) == set(collector.env.pids)
        os.kill(collector.env.pids[0], signal.SIGKILL)
        recorded_until_renewed(trainer, 5)
        assert trainer.foreach_env("phase") == [3] * 4


def test_a_worker_that_dies_between_steps_makes_a_hole_and_no_wrong_link(caplog):
    with trainer_of("subprocess") as trainer:
        collector, found = trainer.pool.collectors[0], Rows(4)
        found.take(collector.collect(5)["main"])
        os.kill(collector.env.pids[1], signal.SIGKILL)
        collector.state()
        chunk = collector.collect(5)["main"]
        found.take(chunk)
        assert chunk.rows["valid"].tolist() == [[True, True, False, False], *[[True] * 4] * 4]
        assert collector.env.renewals == 2


def test_steps_that_a_callback_wants_have_their_infos_also_from_worker_processes():
    with trainer_of("subprocess") as trainer:
        collector, infos = trainer.pool.collectors[0], []
        collector.env.wants_infos = True
        collector.on_step = lambda _, step: infos.append([info["phase"] for info in step.infos])
        collector.collect(2)
        trainer.foreach_env("set_phase", 7)
        collector.collect(1)
        assert infos == [[0] * 4, [0] * 4, [7] * 4]


def test_async_returns_when_half_of_the_envs_are_ready_and_counts_are_exact():
    with trainer_of("async", "env.workers.ready=0.5", seconds=0.01) as trainer:
        collector = trainer.pool.collectors[0]
        collector.collect(1)
        env = AsVector(collector.env)
        step = env.step(np.zeros(4, np.int64))
        assert np.count_nonzero(step.valid) >= 2
        assert not (step.valid & step.busy).any()
        assert trainer.exact() == "env.workers=async: which env answers first depends on the clock"


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_async_stops_at_the_limits_of_steps_and_episodes(steps, monkeypatch):
    words = ["env.workers.processes=2" if word.startswith("env.workers.processes") else word for word in MODES["async"]]
    monkeypatch.setitem(MODES, "async", words)  # two envs in each
    with trainer_of("async") as trainer:
        collector = trainer.pool.collectors[0]
        collector.collect(3)
        assert collector.collect(steps=steps)["main"].steps <= steps
        assert collector.collect(200, steps=steps)["main"].steps == steps
        assert len(collector.collect(episodes=5)["main"].episodes) == 5


def test_a_saved_async_run_goes_on_without_a_wrong_link():
    with trainer_of("async", seconds=0.002) as first, trainer_of("inline") as second:
        found = Rows(4)
        found.take(first.pool.collectors[0].collect(20)["main"])
        second.pool.collectors[0].restore(first.pool.collectors[0].state())
        chunk = second.pool.collectors[0].collect(20)["main"]
        assert chunk.steps == 80
        found.take(first.pool.collectors[0].collect(20)["main"])


def test_on_policy_algorithms_native_engines_and_several_agents_refuse_workers_in_one_sentence():
    cases = {
        ("ppo", "env.workers=async"): "algo.name=ppo learns from whole rollouts",
        ("dqn", "env.workers=subprocess env.engine=native"): "env.engine=native steps all of them in one call",
        ("dqn", "env.workers=async env.engine=envpool"): "env.engine=envpool steps all of them in one call",
    }
    for (algo, words), told in cases.items():
        with pytest.raises(Exception, match=told) as caught:
            load_config(algo=algo, env="CartPole-v1", overrides=words.split())
        assert caught.value.exit_code == 2
    several = ["algo.name=dqn", "env.id=rookery/Shifts-v0", "env.api=dict", "players={both: {}}"]
    with pytest.raises(Exception, match=r"env.workers=async is for envs with one agent, but env.api=dict has several"):
        load_config(overrides=[*several, "env.workers=async"])
    assert load_config(overrides=[*several, "env.workers=subprocess"]).env.workers.mode == "subprocess"


def test_the_short_form_and_its_keys_may_be_mixed():
    def workers(**given):
        return load_config(algo="dqn", env="CartPole-v1", **given).env.workers

    assert workers(overrides=["env.workers=subprocess", "env.workers.processes=3"]).processes == 3
    file = workers(tree={"env": {"workers": "async"}}, overrides=["env.workers.ready=2"])
    assert (file.mode, file.ready) == ("async", 2.0)
    config = load_config(algo="dqn", env="CartPole-v1", overrides=["env.workers=subprocess"])
    assert load_config(tree=config.dump()).dump() == config.dump()
    assert config.provenance("env.workers.mode") == "command line"


def test_good_steps_make_up_for_failures(caplog):
    with trainer_of("inline", fault="raise", when=3, only=0) as trainer, pytest.raises(EnvError):
        recorded(trainer, 4)
    # strain 1, 1.8, 2.6, … 5.0, and 5.8 is more than renewals=5: each cycle of 4 steps makes up for 4/20 of a failure
    assert caplog.text.count("A new env takes its place") == 6


def test_envs_that_were_given_up_are_told_what_the_others_were_when_the_run_is_resumed(caplog):
    with trainer_of("subprocess", "env.faults.renewals=2", fault="kill", when=1, only=0) as trainer:
        trainer.pool.collectors[0].reset()
        trainer.foreach_env("set_phase", 3)
        recorded(trainer, 1)
        assert trainer.pool.metrics()["env/given_up"] == 2.0
        state = trainer.pool.collectors[0].state()
    for mode in ("subprocess", "inline"):
        with trainer_of(mode) as again:
            again.pool.collectors[0].restore(state)
            assert again.foreach_env("phase") == [3] * 4


def test_async_does_not_wait_for_a_busy_worker_that_was_given_up_at_a_checkpoint():
    with trainer_of("async", "env.faults.renewals=0", "env.workers.ready=1", seconds=0.1) as trainer:
        env, action = AsVector(trainer.pool.collectors[0].env), np.zeros(4, np.int64)
        env.reset()
        while not env.step(action).busy.any():
            pass  # all came at once
        busy = np.flatnonzero(env.busy)
        os.kill(env.pids[busy[0]], signal.SIGKILL)
        env.state()
        assert env.given_up == 1
        for _ in range(8):
            step = env.step(action, 1)  # the last step of a run: it must come
            assert np.count_nonzero(step.valid) == 1
        assert not env.busy[busy[0]]


@everywhere
def test_an_env_that_calls_sys_exit_is_replaced_like_one_that_raises(mode, tmp_path):
    with trainer_of(mode, fault="sys.exit", when=5, only=1, marks=tmp_path) as trainer:
        recorded_until_renewed(trainer)
        assert trainer.pool.collectors[0].env.renewals == 1


def test_an_env_that_calls_sys_exit_for_ever_does_not_end_the_command_as_if_all_were_well(tmp_path):
    changes = ["env.faults.renewals=0", "env.kwargs={fault: sys.exit, when: 5}", "train.max_steps=64"]
    done = in_process("train", "--env", ENV, *quick("ppo", *changes), "--out", "run", folder=tmp_path)
    assert done.code == 3
    assert "step failed: SystemExit: 0" in done.err
