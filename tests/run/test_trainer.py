"""The trainer and the experiment around it: reports, callbacks, evaluation, goals, the handles for users."""

import json
import os
import shutil

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery import (
    Batch,
    Callback,
    CheckpointError,
    ConfigError,
    Experiment,
    Trainer,
    UsageError,
    load_config,
    load_policy,
    register,
)
from rookery.run import machine
from rookery.run.report.sinks import Histogram, Table

TREE = {
    "algo": {"name": "dqn", "target_every": 20, "lr": 5e-3, "epsilon": 0.3},
    "env": {"id": "rookery/ProbeObsAction-v0", "num": 2},
    "model": {"hidden": [16]},
    "store": {"capacity": 500, "min_fill": 50, "batch_size": 32},
    "train": {"max_steps": 400},
    "eval": {"every_steps": 200, "episodes": 4, "num": 2},
    "log": {"every_steps": 100, "sinks": ["jsonl"], "window": 10},
    "checkpoint": {"every_steps": 200},
    "learning": {"mode": "eager"},
}


def config(**more):
    tree = {section: dict(values) for section, values in TREE.items()}
    for section, values in more.items():
        tree[section] = {**tree.get(section, {}), **values}
    return load_config(tree=tree)


def test_a_turn_per_report_with_typed_results():
    seen = list(Trainer(config()))
    assert [p.steps for p in seen] == [100, 200, 300, 400]
    assert seen[-1].finished == "train.max_steps=400 reached"
    assert [p.finished for p in seen[:-1]] == [None] * 3
    assert seen[-1].updates == 350
    assert seen[2].return_min <= seen[2].return_mean <= seen[2].return_max
    assert seen[2].length_mean == 1.0
    assert {"env", "act", "update", "steps_per_second", "seconds"} <= set(seen[2].time)
    assert seen[1].evaluation.steps == 200
    assert len(seen[1].evaluation.returns) == 4


def test_evaluation_does_not_disturb_training():
    with_it, without = Trainer(config()), Trainer(config(eval={"every_steps": 0, "at_end": False}))
    for trainer in (with_it, without):
        for _ in trainer:
            pass
    assert with_it.learner.weights_sha256() == without.learner.weights_sha256()


@pytest.mark.slow
def test_reports_do_not_change_the_result():
    often, seldom = Trainer(config(log={"every_steps": 10})), Trainer(config())
    for trainer in (often, seldom):
        for _ in trainer:
            pass
    assert often.learner.weights_sha256() == seldom.learner.weights_sha256()


class Watch(Callback):
    """Counts hooks, keeps data in the episode, adds a metric of its own."""

    def __init__(self):
        self.calls = {}

    def _count(self, name):
        self.calls[name] = self.calls.get(name, 0) + 1

    def run_start(self, progress):
        self._count("run_start")

    def round_end(self, progress):
        self._count("round_end")

    def report(self, progress):
        self._count("report")
        progress.record("twice", progress.steps)

    def episode_start(self, episode):
        self._count("episode_start")
        episode.data["rewards"] = []

    def episode_step(self, episode, step):
        self._count("episode_step")
        episode.data["rewards"].append(step.reward)

    def episode_end(self, episode):
        self._count("episode_end")
        episode.metrics["own/reward"] = sum(episode.data["rewards"])
        assert episode.total == sum(episode.data["rewards"])
        assert episode.length == len(episode.data["rewards"])

    def evaluation(self, evaluation):
        self._count("evaluation")

    def checkpoint(self, path):
        self._count("checkpoint")

    def run_end(self, progress):
        self._count("run_end")


def test_every_hook_is_called_and_custom_metrics_are_averaged(tmp_path):
    watch = Watch()
    result = Experiment(config(), callbacks=[watch], out=tmp_path / "run").train()
    expected = {"run_start": 1, "round_end": 200, "report": 4, "episode_step": 400, "episode_end": 400, "evaluation": 2}
    assert watch.calls == expected | {"episode_start": 402, "checkpoint": 3, "run_end": 1}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    for line in lines:
        assert -1.0 <= line["own/reward_min"] <= line["own/reward_mean"] <= line["own/reward_max"] <= 1.0
    assert lines[1]["twice_mean"] == 100  # recorded in the report before
    assert result.status == "finished"


def test_pictures_histograms_and_tables_go_through_the_same_call_and_survive_a_checkpoint(tmp_path):
    class Show(Callback):
        def evaluation(self, evaluation):
            self.values = np.array(evaluation.returns)

        def round_end(self, progress):
            if progress.steps == 250:
                progress.record("own/returns", Histogram(self.values))
                progress.record("own/table", Table(("a", "b"), ((1, 2.5),)))

    trainer = Trainer(config(), callbacks=[Show()])
    for progress in trainer:
        if progress.steps == 200:
            break
    while trainer.steps < 250:
        trainer.round()
    trainer.callbacks.call("round_end", trainer.progress())
    trainer.save(tmp_path)
    other = Trainer(config(), callbacks=[Show()])
    other.load(tmp_path)
    for it in (trainer, other):
        metrics = it.report().metrics
        assert sum(metrics["own/returns"].bins()[0]) == 4
        assert metrics["own/table"] == Table(("a", "b"), ((1, 2.5),))
        assert "own/table" not in it.report().metrics


def test_hooks_run_in_the_order_of_their_priority():
    order = []

    class Say(Callback):
        def __init__(self, word, priority):
            self.word, self.priority = word, priority

        def run_start(self, progress):
            order.append(self.word)

    trainer = Trainer(config(), callbacks=[Say("last", 90), Say("first", 10), Say("middle", 50)])
    next(iter(trainer))
    assert order == ["first", "middle", "last"]


def test_hooks_that_nobody_overrides_cost_nothing():
    trainer = Trainer(config(), callbacks=[Callback()])
    assert trainer.pool.collectors[0].on_step is None


def test_a_callback_can_stop_the_run(tmp_path):
    class Enough(Callback):
        def report(self, progress):
            if progress.steps >= 200:
                progress.stop("seen enough")

    result = Experiment(config(), callbacks=[Enough()], out=tmp_path / "run").train()
    assert (result.status, result.reason, result.summary["steps"]) == ("stopped", "seen enough", 200)
    assert result.exit_code == 0


def test_a_goal_ends_the_run_and_the_reason_is_told(tmp_path):
    goal = config(train={"max_steps": 20_000, "stop": {"eval/return_mean": 1.0}})
    result = Experiment(goal, out=tmp_path / "run").train()
    assert result.status == "stopped"
    assert "eval/return_mean = 1 reached train.stop 1" in result.reason
    assert result.summary["eval"]["mean"] == 1.0
    assert result.summary["steps"] < 20_000


def test_the_summary_has_its_fields(tmp_path):
    summary = Experiment(config(), out=tmp_path / "run").train().summary
    on_disk = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert on_disk.keys() == summary.keys()
    wanted = "status reason steps updates episodes return_mean eval weights_sha256 exact resumed_from"
    wanted += " learning_mode pool workers time config_sha256 versions"
    assert set(wanted.split()) <= set(summary)
    assert summary["exact"] is True
    assert summary["workers"][0]["steps"] == 400
    assert set(summary["time"]) == {"wall_seconds", "phases"}
    assert set(summary["eval"]) >= {"mean", "std", "returns"}


@pytest.mark.slow
def test_the_best_policy_is_kept_and_can_be_used_in_an_own_loop(tmp_path):
    Experiment(config(train={"max_steps": 1_000}), out=tmp_path / "run").train()
    policy = load_policy(tmp_path / "run", "best")
    for right, obs in ((0, -1.0), (1, 1.0)):
        assert policy(Batch(obs=[np.array([obs], np.float32)])).action[0] == right


def test_weights_can_be_taken_and_given():
    a, b = Trainer(config()), Trainer(config(run={"seed": 5}))
    assert a.learner.weights_sha256() != b.learner.weights_sha256()
    b.policy().set_weights(a.policy("main").weights())
    assert a.learner.weights_sha256() == b.learner.weights_sha256()
    with pytest.raises(ConfigError, match="no player 'other'"):
        a.policy("other")


def test_methods_of_every_env_and_worker_can_be_called():
    trainer = Trainer(config(pool={"workers": 3}))
    assert trainer.foreach_env("optimum") == [1.0] * 6
    assert trainer.foreach_worker(lambda collector: collector.index) == [0, 1, 2]


def test_workers_have_columns_and_streams_of_their_own():
    trainer = Trainer(config(pool={"workers": 2}, train={"max_steps": 401}))
    for _ in trainer:
        pass
    assert sum(trainer.worker_steps) == trainer.steps == 401
    assert abs(trainer.worker_steps[0] - trainer.worker_steps[1]) <= 2
    seeds = {collector.env.vector._seed[0] for collector in trainer.pool.collectors}
    assert len(seeds) == 2


def test_save_and_restore_in_python():
    a = Trainer(config())
    for progress in a:
        if progress.steps == 200:
            state = a.state()
            break
    b = Trainer(config())
    b.restore(state)
    for trainer in (a, b):
        while trainer.steps < 400:
            trainer.round()
    assert a.learner.weights_sha256() == b.learner.weights_sha256()


def test_a_saved_trainer_goes_on_from_its_file(tmp_path):
    with Trainer(config()) as a, Trainer(config()) as b:
        for _ in range(120):
            a.round()
        a.save(tmp_path)
        b.load(tmp_path)
        for trainer in (a, b):
            while trainer.steps < 400:
                trainer.round()
        assert a.learner.weights_sha256() == b.learner.weights_sha256()


def test_a_reached_goal_stays_reached_when_the_run_is_resumed(tmp_path):
    goal = config(train={"max_steps": 20_000, "stop": {"eval/return_mean": 1.0}})
    first = Experiment(goal, out=tmp_path / "run").train().summary
    again = Experiment(goal, out=tmp_path / "run", on_exists="resume").train().summary
    for key in ("steps", "reason", "weights_sha256", "status"):
        assert again[key] == first[key]


class Dropping(torch.nn.Module):
    """An encoder with dropout."""

    def __init__(self, obs_spec):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5))
        self.out_features = 16

    def forward(self, obs):
        return self.net(obs)


@pytest.mark.slow
def test_a_module_that_draws_by_itself_is_repeatable_and_leaves_the_global_generator_alone():
    register("encoder", "dropping", Dropping)
    drawn = []
    for outside in (1, 2):
        torch.manual_seed(outside)
        before = torch.random.get_rng_state()
        with Trainer(config(model={"encoder": "dropping", "hidden": [16]})) as trainer:
            for _ in trainer:
                pass
            drawn.append(trainer.learner.weights_sha256())
        assert torch.equal(torch.random.get_rng_state(), before)
    assert drawn[0] == drawn[1]


@pytest.mark.slow
def test_auto_runs_eagerly_what_cannot_be_compiled_and_says_why(tmp_path):
    register("encoder", "dropping", Dropping)
    mode = {"mode": "auto", "compile_after": 1, "cache": str(tmp_path / "cache")}
    summary = Experiment(config(model={"encoder": "dropping"}, learning=mode), out=tmp_path / "run").train().summary
    assert summary["learning_mode"] == "eager"
    assert "draws random numbers by itself" in summary["learning_mode_reason"]


def test_a_goal_counts_after_a_kill_before_the_closing_evaluation():
    goal = config(train={"max_steps": 20_000, "stop": {"eval/return_mean": -9.0}})
    a, b = Trainer(goal), Trainer(goal)
    saved = {}
    a.after_round = lambda before: (
        saved.update(a.state()) if a.reason else None
    )  # the checkpoint of the goal's own round
    for _ in a:
        pass
    b.restore(saved)
    for progress in b:
        last = progress
    assert b.steps == a.steps == 200
    assert "reached train.stop" in last.finished


def test_a_goal_reached_by_a_report_closes_the_run_with_that_report():
    seen = list(Trainer(config(train={"max_steps": 20_000, "stop": {"episode/return_mean": -9.0}})))
    assert [p.steps for p in seen] == [100]
    assert seen[0].finished is not None
    assert "eval/return_mean" in seen[0].metrics


def test_a_goal_that_no_report_has_is_told(caplog):
    for _ in Trainer(config(train={"stop": {"evla/return_mean": 1.0}})):
        pass
    assert "train.stop waits for 'evla/return_mean'" in caplog.text


def test_the_knobs_of_a_restored_run_are_those_of_its_last_round():
    moving = {"lr": {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": None}, "name": "dqn"}
    a, b = Trainer(config(algo=moving)), Trainer(config(algo=moving))
    while a.steps < 400:
        a.round()
    b.restore(a.state())
    assert b.report().metrics["knob/lr"] == a.report().metrics["knob/lr"] > 0


def test_a_policy_can_act_as_in_training(tmp_path):
    with Trainer(config(algo={"name": "dqn", "epsilon": 1.0})) as trainer:
        handle = trainer.policy()
        drawn = {int(handle(Batch(obs=[np.zeros(1, np.float32)]), greedy=False).action[0]) for _ in range(30)}
        assert drawn == {0, 1}
    Experiment(config(algo={"name": "dqn", "epsilon": 1.0}), out=tmp_path / "run").train()
    for which in ("best", "last"):
        policy = load_policy(tmp_path / "run", which)
        drawn = {int(policy(Batch(obs=[np.zeros(1, np.float32)]), greedy=False).action[0]) for _ in range(30)}
        assert drawn == {0, 1}


def test_an_engine_that_cannot_be_restored_begins_new_episodes(tmp_path):
    vector = {"id": "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv", "num": 2, "engine": "native"}
    a, b = Trainer(config(env=vector)), Trainer(config(env=vector))
    for _ in range(30):
        a.round()
    b.restore(a.state())
    collector = b.pool.collectors[0]
    rows = collector.rows["main"]
    assert np.array_equal(rows.obs, collector.env.obs["agent"])
    assert rows.first.all()
    assert "begins new episodes" in b.exact()


@pytest.mark.slow
def test_a_run_that_fell_back_before_its_first_update_can_be_resumed(tmp_path):
    register("encoder", "dropping", Dropping)
    mode = {"mode": "auto", "compile_after": 1, "cache": str(tmp_path / "cache")}
    early = {"every_steps": 20}
    whole = config(
        model={"encoder": "dropping"},
        learning=mode,
        checkpoint=early,
        train={"max_steps": 40},
        store={"min_fill": 39, "batch_size": 16},
    )
    Experiment(whole, out=tmp_path / "run").train()
    longer = config(
        model={"encoder": "dropping"},
        learning=mode,
        checkpoint=early,
        train={"max_steps": 100},
        store={"min_fill": 39, "batch_size": 16},
    )
    for path in sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[1:]:
        shutil.rmtree(path)  # only the checkpoint before the first update is left
    result = Experiment(longer, out=tmp_path / "run", on_exists="resume").train()
    assert result.summary["resumed_from"] == [20]
    assert result.summary["learning_mode"] == "eager"


def test_a_state_that_cannot_be_saved_ends_the_run_at_once(tmp_path):
    class Tuples(Callback):
        def state(self):
            return {"mine": (1, 2)}

    with pytest.raises(CheckpointError, match=r"mine.* is a builtins\.tuple"):
        Experiment(config(), callbacks=[Tuples()], out=tmp_path / "run").train()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 200


def test_a_run_resumed_with_other_libraries_says_so(tmp_path, monkeypatch):
    Experiment(config(train={"max_steps": 200}), out=tmp_path / "run").train()
    now = machine.fingerprint() | {"torch": "9.9"}
    monkeypatch.setattr("rookery.run.experiment.experiment.fingerprint", lambda: now)
    result = Experiment(config(), out=tmp_path / "run", on_exists="resume").train()
    assert "torch" in result.summary["exact"]
    assert "now 9.9" in result.summary["exact"]


def test_an_encoder_class_can_be_given_in_python(tmp_path):
    result = Experiment(TREE, model=Dropping, out=tmp_path / "run").train()
    assert result.status == "finished"


def test_an_env_class_a_factory_and_an_own_algorithm_can_be_given(tmp_path):
    class Mine(gymnasium.Env):
        observation_space = spaces.Box(-1, 1, (1,), np.float32)
        action_space = spaces.Discrete(2)

        def __init__(self, index=0, size=1.0):
            self.index, self.size = index, size

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), self.size, True, False, {}

    tree = {**TREE, "env": {"num": 2, "per_env": [{"size": 1.0}, {"size": 3.0}]}}
    result = Experiment(tree, env=Mine, out=tmp_path / "run").train()
    assert result.summary["return_mean"] == 2.0  # envs of one run may differ
    assert tree["env"] == {"num": 2, "per_env": [{"size": 1.0}, {"size": 3.0}]}  # the caller's object is as it was


def test_global_generators_are_as_they_were(tmp_path):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    Experiment(config(), out=tmp_path / "run").train()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == 1


def test_the_rollout_of_a_replays_algorithm_is_obeyed():
    waits_for_4 = {"updates_per_step": 0.25, "min_fill": 48}
    for rollout, rows in ((6, 6), (2, 2), (None, 4)):
        assert Trainer(config(env={"num": 1}, algo={"rollout": rollout}, store=waits_for_4)).rows == rows


@pytest.mark.parametrize(
    ("per_step", "num", "rows"), [(1.0, 1, 1), (0.25, 1, 4), (0.25, 2, 2), (0.25, 8, 1), (0.3, 1, 3), (0.01, 1, 16)]
)
def test_a_round_of_a_replay_is_what_an_update_waits_for(per_step, num, rows):
    trainer = Trainer(config(env={"num": num}, store={"updates_per_step": per_step, "min_fill": 48}))
    assert trainer.rows == rows
    seen = []
    trainer.on_round.append(lambda steps: seen.append((steps, trainer.updates)))
    for _ in trainer:
        pass
    assert seen[-1][0] == 400  # a last round is only as long as there are steps left
    for steps, updates in seen:
        assert updates == int(max(0, steps - 48) * per_step + 1e-9)


def test_functions_are_called_with_every_env_and_worker():
    trainer = Trainer(config(pool={"workers": 2}))
    trainer.round()
    factor = 3
    before = trainer.exact()
    assert trainer.foreach_env(lambda env: env.unwrapped.optimum * factor) == [3.0] * 4
    assert before is True
    assert "foreach_env" in str(trainer.exact())


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["env.workers=subprocess", "env.workers.processes=2"], ["pool=process", "pool.workers=2"]]
)
def test_lambdas_travel_to_other_processes(words):
    words = [*words, "env.engine=gymnasium", "env.num=2", "learning.mode=eager", "log.sinks=[]", "store.min_fill=100"]
    with Trainer(load_config(algo="dqn", env="CartPole-v1", overrides=words)) as trainer:
        trainer.round()
        count = len(trainer.foreach_env("gravity"))
        pids = trainer.foreach_env(lambda env, more: (os.getpid(), env.unwrapped.gravity + more), more=1)
        assert [round(gravity, 1) for _, gravity in pids] == [10.8] * count
        assert os.getpid() not in {pid for pid, _ in pids}
        assert trainer.foreach_worker(lambda collector: collector.index) == list(range(trainer.config.pool.workers))
        with pytest.raises(UsageError, match="cannot be sent to the workers"):
            trainer.foreach_env(lambda env: (env, trainer.meters))
