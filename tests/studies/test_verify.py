"""Verdicts, on figures that are given; runs of seeds, with a stand-in for the program that trains and judges."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from rookery.core.errors import ConfigError, RookeryError, UsageError
from rookery.studies import seeds
from rookery.studies.gates import Gate
from rookery.studies.seeds import Crew, Judged, Plan
from rookery.studies.verify import Verdict, gate_of, jobs_for, line_of, summary_of, together

# a program with the same words as `rookery`: run folders hold what their seed says
STAND_IN = """
import json, pathlib, signal, sys, time
words = dict(w.lstrip('-').split('=', 1) for w in sys.argv[1:] if w.startswith('--') and '=' in w)
if sys.argv[1] == 'train':
    seed, folder = int(words['seed']), pathlib.Path(words['out'])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'seed').write_text(str(seed))
    if seed == 13:
        print('error: nothing works', file=sys.stderr)
        sys.exit(5)
    if seed == 99:
        signal.signal(signal.SIGTERM, lambda *_: ((folder / 'saved').touch(), sys.exit(143)))
        (folder / 'started').touch()
        time.sleep(60)
    lines = [{'steps': 5}, {'eval/steps': 10, 'eval/return_mean': seed + 0.5, 'eval/success_mean': 0.25}]
    (folder / 'metrics.jsonl').write_text(chr(10).join(map(json.dumps, lines)))
    (folder / 'summary.json').write_text(json.dumps({'steps': 10, 'learning_mode': 'eager'}))
else:
    seed = int((pathlib.Path(sys.argv[2]) / 'seed').read_text())
    print(json.dumps({'mean': 100.0 + seed, 'std': 2.0, 'success': 0.75, 'asked': words}))
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    file = tmp_path / "program.py"
    file.write_text(STAND_IN)
    monkeypatch.setattr(seeds, "ROOKERY", (sys.executable, "-S", str(file)))


def plan(tmp_path, figure="return", overrides=()):
    return Plan("pole-fake", overrides, tmp_path / "out", figure, 100, 7)


def judged(*values):
    return [Judged(seed, value, (value, 0.0), 10, "eager", [], 1.0) for seed, value in enumerate(values)]


def verdict(*values, stored=None, gate=Gate(5, 475.0)):  # noqa: B008 - frozen
    return Verdict("pole-fake", gate, judged(*values), "gold" if stored else "draft", stored)


def test_it_holds_if_the_gate_is_met_and_the_intervals_overlap():
    found = verdict(500.0, 500.0, 490.0, 480.0, 500.0, stored=(472.0, 500.0))
    assert found.met
    assert found.overlap is True
    assert found.holds


def test_a_met_gate_does_not_help_an_interval_below_the_stored_one():
    found = verdict(480.0, 480.0, 480.0, stored=(490.0, 500.0))
    assert found.met
    assert found.overlap is False
    assert not found.holds
    assert "lies BELOW the stored one [490, 500]" in summary_of(found)[1]


def test_an_interval_above_the_stored_one_is_told_and_no_failure():
    found = verdict(500.0, 500.0, 500.0, stored=(476.0, 480.0))
    assert found.overlap is False
    assert found.holds
    assert "lies ABOVE" in summary_of(found)[1]


def test_overlapping_intervals_do_not_help_a_missed_gate():
    found = verdict(400.0, 480.0, 460.0, 470.0, stored=(450.0, 480.0))
    assert found.overlap is True
    assert not found.met
    assert not found.holds
    assert "MISSES the gate 475" in summary_of(found)[1]


def test_without_a_stored_band_the_gate_alone_counts_and_that_is_said():
    found = verdict(500.0, 500.0)
    assert found.overlap is None
    assert found.holds
    assert "nothing is stored for this preset (draft), so the gate alone counts" in summary_of(found)[1]
    assert not verdict(100.0).holds


def test_bands_are_compared_as_they_are_stored():
    # the mean of ten 500s is 499.99999999999994, and 500.0 is what was stored of the same
    found = verdict(*[500.0] * 10, stored=(500.0, 500.0))
    assert found.holds


def test_a_gate_is_met_by_values_that_equal_it():
    assert verdict(0.9, 0.9, 0.9, gate=Gate(3, 0.9, "success")).met


def test_a_gate_with_an_upper_bound_is_missed_by_whoever_does_better_than_its_algorithm_can():
    control = Gate(3, 7.0, most=7.0)
    assert verdict(7.0, 7.0, 7.0, gate=control).met
    assert not verdict(8.0, 8.0, 8.0, gate=control).met
    assert not verdict(6.0, 6.0, 6.0, gate=control).met
    assert "MISSES the gate 7 to 7" in summary_of(verdict(8.0, 8.0, 8.0, gate=control))[1]


def test_a_score_is_1_at_the_gate_and_grows_with_the_figure_also_below_zero():
    assert verdict(475.0, 380.0).scores == pytest.approx([1.0, 0.8])
    assert verdict(-200.0, -150.0, -300.0, gate=Gate(3, -200.0)).scores == pytest.approx([1.0, 1.25, 0.5])


def test_several_presets_together_redraw_within_each():
    found = together([verdict(475.0, 475.0), verdict(-150.0, -150.0, gate=Gate(2, -200.0))])
    # scores 1, 1 and 1.25, 1.25, whatever is drawn
    assert found["score_iqm"] == pytest.approx(1.125)
    assert found["interval"] == pytest.approx([1.125, 1.125])
    assert found["runs"] == 4


def test_the_machine_readable_result_can_be_written_as_json():
    told = json.loads(json.dumps(verdict(500.0, 490.0, stored=(472.0, 500.0)).to_dict()))
    assert told["iqm"] == 495.0
    assert told["interval"] == [490.0, 500.0]
    assert told["seeds"][1] == {"seed": 1, "return": 490.0, "steps": 10}
    assert told["stored"] == [472.0, 500.0]
    assert told["holds"] is True


def test_a_preset_that_cannot_be_verified_is_refused_in_a_sentence(fake_zoo):
    with pytest.raises(ConfigError, match="Did you mean 'pole-fake'"):
        gate_of("pole-fak")
    with pytest.raises(
        UsageError, match="draft-fake has no gate, so there is nothing to verify: its status is 'draft'"
    ):
        gate_of("draft-fake")
    assert gate_of("pole-fake") is fake_zoo.FAKE_GATES["pole-fake"]


def test_a_run_with_workers_takes_a_cpu_for_each(fake_zoo):
    assert jobs_for("pole-fake", [], quota=4) == 4
    assert jobs_for("pole-elsewhere-fake", [], quota=4) == 1  # two workers and the learner
    assert jobs_for("pole-elsewhere-fake", [], quota=6) == 2
    assert jobs_for("pole-elsewhere-fake", ["pool=local"], quota=2) == 2
    assert jobs_for("pole-elsewhere-fake", [], quota=1) == 1


def test_seeds_are_told_when_done_and_returned_in_their_order(program, tmp_path):
    told = []
    with Crew(2) as crew:
        found = crew.run(plan(tmp_path), range(3, 6), told.append)
    assert [run.seed for run in found] == [3, 4, 5]
    assert sorted(run.seed for run in told) == [3, 4, 5]
    assert [run.value for run in found] == [103.0, 104.0, 105.0]
    assert found[0].curve == [(10, 3.5)]
    assert found[0].stored() == {"seed": 3, "mean": 103.0, "steps": 10, "mode": "eager", "curve": [(10, 3.5)]}
    assert line_of("pole-fake", Gate(3, 1.0), found[0]).startswith("pole-fake seed 3: return 103.00 ± 2.00")


def test_successes_are_judged_by_their_share(program, tmp_path):
    with Crew(1) as crew:
        found = crew.run(plan(tmp_path, "success"), [1], lambda run: None)
    assert found[0].value == 0.75
    assert found[0].curve == [(10, 0.25)]


def test_runs_with_other_changes_have_other_folders(tmp_path):
    plain, changed = plan(tmp_path), plan(tmp_path, overrides=("algo.gamma=0.9",))
    assert plain.folder(3).name == "pole-fake-3"
    assert changed.folder(3) != plain.folder(3)
    assert changed.folder(3) != plan(tmp_path, overrides=("algo.gamma=0.8",)).folder(3)
    assert "algo.gamma=0.9" in changed.training(3)
    assert "--on-exists=resume" in changed.training(3)


def test_a_seed_that_fails_ends_the_others_and_is_told_with_its_last_words(program, tmp_path):
    with Crew(1) as crew, pytest.raises(RookeryError, match="ended with 5:\nerror: nothing works"):
        crew.run(plan(tmp_path), [13, 1, 2], lambda run: None)
    assert not (tmp_path / "out" / "pole-fake-2").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_runs_save_and_starts_no_more(program, tmp_path, number):
    out = tmp_path / "out"

    def interrupt():
        while not (out / "pole-fake-99" / "started").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with Crew(1) as crew, pytest.raises(KeyboardInterrupt):
        crew.run(plan(tmp_path), [99, 1], lambda run: None)
    thread.join()
    assert (out / "pole-fake-99" / "saved").exists()
    assert not (out / "pole-fake-1").exists()
