"""F35: nothing listens but on the loopback interface, and a stranger who connects there changes nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from faults.commands import command, environment, summary
from faults.hostile_cases import sockets, strangers
from faults.sockets import is_local, listening
from rookery.core.system.process import WorkerLost
from rookery.learning.group.all_reduce import ReduceGroup

CASES = {attack.name: attack for attack in sockets()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learning.learners=2", "pool=process"])
def test_strangers_at_the_sockets_of_a_run_change_not_a_bit(tmp_path: Path, name: str) -> None:
    (tmp_path / "home").mkdir()
    outcome = strangers(CASES[name], tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.notes == []  # it listens on the loopback interface alone
    words = [str(tmp_path / "alone") if word == "new" else word for word in CASES[name].words]
    assert subprocess.run(command(*words), env=environment(), check=False, capture_output=True).returncode == 0
    undisturbed, disturbed = summary(tmp_path / "alone"), summary(tmp_path / "new")
    assert disturbed["weights_sha256"] == undisturbed["weights_sha256"]
    assert disturbed["exact"] is undisturbed["exact"] is True


@pytest.mark.slow
def test_a_ray_that_is_started_here_listens_on_the_loopback_interface_alone(cluster: Any) -> None:
    addresses = listening(os.getpid())
    assert addresses  # Ray does listen
    assert [address for address in addresses if not is_local(address)] == []


def test_who_does_not_know_the_secret_is_found_out() -> None:
    class Stranger(ReduceGroup):
        def _sum(self, tensor: torch.Tensor) -> None:
            tensor += 7  # somebody answers, but without the secret

    group = Stranger(0, 2, 0, torch.device("cpu"))
    with pytest.raises(WorkerLost, match="does not know the secret"):
        group._prove(b"secret")
