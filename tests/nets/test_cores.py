"""Cores: memory by hand and against torch's own cells."""

import math

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from interrupted import straight_and_resumed
from rookery import ConfigError, Trainer, load_config
from rookery.nets.config import CoreConfig
from rookery.nets.cores import Core, GTrXL, build_core, state_spec


def core(kind, n_in=3, size=4):
    torch.manual_seed(0)
    return Core(n_in, CoreConfig(kind=kind, size=size))


def zeros(it, *lead):
    return {
        name: torch.zeros(*lead, *leaf.shape)
        for name, leaf in state_spec(CoreConfig(kind=it.kind, size=it.size)).items()
    }


def test_a_gru_step_by_hand():
    it = core("gru", 1, 1)
    with torch.no_grad():
        it.from_input.weight[:] = torch.tensor([[1.0], [0.0], [2.0]])  # r, z, n
        it.from_input.bias[:] = torch.tensor([0.0, math.log(3.0), 0.0])
        it.from_state.weight[:] = torch.tensor([[0.0], [0.0], [1.0]])
        it.from_state.bias[:] = torch.tensor([0.0, 0.0, 0.5])
    y, state = it.step(torch.tensor([[0.0]]), {"h": torch.tensor([[0.2]])})
    # r = σ(0) = 0.5, z = σ(log 3) = 0.75, n = tanh(0 + 0.5 · (0.2 + 0.5)) = tanh 0.35; h' = 0.25 n + 0.75 · 0.2
    assert y.item() == pytest.approx(0.25 * math.tanh(0.35) + 0.15, abs=1e-6)
    assert state["h"].item() == y.item()


def test_an_lstm_step_by_hand():
    it = core("lstm", 1, 1)
    with torch.no_grad():
        it.from_input.weight[:] = torch.tensor([[0.0], [0.0], [1.0], [0.0]])  # i, f, g, o
        it.from_input.bias[:] = torch.tensor([0.0, math.log(3.0), 0.0, 0.0])
        it.from_state.weight.zero_()
        it.from_state.bias.zero_()
    y, state = it.step(torch.tensor([[0.5]]), {"h": torch.zeros(1, 1), "c": torch.tensor([[0.4]])})
    c = 0.75 * 0.4 + 0.5 * math.tanh(0.5)  # f = σ(log 3) = 0.75, i = 0.5
    assert state["c"].item() == pytest.approx(c, abs=1e-6)
    assert y.item() == pytest.approx(0.5 * math.tanh(c), abs=1e-6)


@pytest.mark.parametrize(("kind", "theirs"), [("gru", nn.GRUCell), ("lstm", nn.LSTMCell)])
def test_a_cell_equals_torchs(kind, theirs):
    it, other = core(kind), theirs(3, 4)
    with torch.no_grad():
        for mine, name in ((it.from_input, "ih"), (it.from_state, "hh")):
            getattr(other, f"weight_{name}").copy_(mine.weight)
            getattr(other, f"bias_{name}").copy_(mine.bias)
    x, h, c = torch.randn(5, 3), torch.randn(5, 4), torch.randn(5, 4)
    mine = it.step(x, {"h": h, "c": c} if kind == "lstm" else {"h": h})[1]
    wanted = other(x, (h, c)) if kind == "lstm" else (other(x, h),)
    for part, name in zip(wanted, mine):
        assert torch.allclose(mine[name], part, atol=1e-6)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_unrolling_is_stepping_with_a_fresh_memory_at_each_start_and_none_in_holes(kind):
    it, x = core(kind), torch.randn(6, 2, 3)
    first, valid = torch.zeros(6, 2, dtype=torch.bool), torch.ones(6, 2, dtype=torch.bool)
    first[0, 0] = first[3, 1] = True
    valid[2, 0] = valid[5, 1] = False
    state = {name: torch.randn(2, 4) for name in zeros(it, 1)}
    y, after = it.unroll(x, state, first, valid)
    for b in range(2):
        now = {name: part[b] for name, part in state.items()}
        for t in range(6):
            if first[t, b]:
                now = zeros(it)
            if valid[t, b]:
                now = it.step(x[t, b], now)[1]
            for name in now:
                assert torch.allclose(after[name][t, b], now[name], atol=1e-6), (t, b)
    assert torch.equal(y, after["h"])


def test_gradients_reach_the_first_step():
    it, x = core("lstm"), torch.randn(5, 1, 3, requires_grad=True)
    y, _ = it.unroll(x, zeros(it, 1), torch.zeros(5, 1).bool(), torch.ones(5, 1).bool())
    y[-1].sum().backward()
    assert (x.grad[0] != 0).all()


# --- the transformer ---

ATTENDS = CoreConfig(kind="gtrxl", size=6, heads=2, layers=2, memory=3)


def attentive(config=ATTENDS, n_in=3):
    torch.manual_seed(1)
    it = build_core(n_in, config)
    assert isinstance(it, GTrXL)
    with torch.no_grad():
        for block in it.blocks:  # zeros would hide a mistake
            block.content_bias.normal_()
            block.place_bias.normal_()
    return it


def naive_norm(layer, x):
    return (x - x.mean()) / torch.sqrt(x.var(correction=0) + layer.eps) * layer.weight + layer.bias


def naive_gate(gate, x, y):
    w_r, w_z, w_n = gate.from_new.weight.chunk(3)
    u_r, u_z = gate.from_old.weight.chunk(2)
    r, z = torch.sigmoid(w_r @ y + u_r @ x), torch.sigmoid(w_z @ y + u_z @ x - gate.bias)
    return (1 - z) * x + z * torch.tanh(w_n @ y + gate.reset.weight @ (r * x))


def naive_position(ago, size):
    """sin and cos of ago / 10000^(k / half)."""
    half = (size + 1) // 2
    angles = [ago / 10_000 ** (k / half) for k in range(half)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


def naive_episode(it, xs):
    """Outputs of one episode: every step looks at itself and at most `steps` before it, one score at a time."""
    inputs = [it.embed.weight @ x + it.embed.bias for x in xs]
    for block in it.blocks:
        outputs, d = [], block.width
        for i, e in enumerate(inputs):
            window = range(max(0, i - it.steps), i + 1)
            normed = {j: naive_norm(block.norm, inputs[j]) for j in window}
            y = []
            for h in range(block.heads):
                rows = slice(h * d, (h + 1) * d)
                q = block.query.weight[rows] @ normed[i]
                scores = []
                for j in window:
                    content = (q + block.content_bias[h]) @ (block.key.weight[rows] @ normed[j])
                    place = block.place.weight[rows] @ naive_position(i - j, it.size)
                    scores.append((content + (q + block.place_bias[h]) @ place) / math.sqrt(d))
                shares = torch.stack(scores).softmax(0)
                y.append(sum(share * (block.value.weight[rows] @ normed[j]) for share, j in zip(shares, window)))
            e = naive_gate(block.attended, e, torch.relu(block.out.weight @ torch.cat(y)))
            inner = torch.relu(block.wide.weight @ naive_norm(block.norm_after, e) + block.wide.bias)
            outputs.append(naive_gate(block.computed, e, torch.relu(block.narrow.weight @ inner + block.narrow.bias)))
        inputs = outputs
    return torch.stack(inputs)


def fresh(config, *lead):
    return {name: torch.zeros(*lead, *leaf.shape) for name, leaf in state_spec(config).items()}


def test_the_transformer_equals_a_naive_one_over_whole_episodes_with_starts_and_holes():
    it, x = attentive(), torch.randn(9, 2, 3)
    first, valid = torch.zeros(9, 2, dtype=torch.bool), torch.ones(9, 2, dtype=torch.bool)
    first[0] = first[5, 1] = True  # two episodes in the second column
    valid[3, 0] = False
    with torch.no_grad():
        y, _ = it.unroll(x, fresh(ATTENDS, 2), first, valid)
        kept = [0, 1, 2, 4, 5, 6, 7, 8]
        assert torch.allclose(y[kept, 0], naive_episode(it, x[kept, 0]), atol=1e-5)
        assert torch.allclose(y[:5, 1], naive_episode(it, x[:5, 1]), atol=1e-5)
        assert torch.allclose(y[5:, 1], naive_episode(it, x[5:, 1]), atol=1e-5)


def test_unrolling_the_transformer_is_stepping_it_and_going_on_from_a_recorded_state():
    it, x = attentive(), torch.randn(6, 2, 3)
    first, valid = torch.zeros(6, 2, dtype=torch.bool), torch.ones(6, 2, dtype=torch.bool)
    with torch.no_grad():
        y, after = it.unroll(x, fresh(ATTENDS, 2), first, valid)
        later, _ = it.unroll(x[3:], {name: part[2] for name, part in after.items()}, first[3:], valid[3:])
        assert torch.allclose(y[3:], later, atol=1e-6)
        stepped, _ = it.step(x[1:], {name: part[:-1] for name, part in after.items()})  # [T − 1, B] at once
        assert torch.allclose(y[1:], stepped, atol=1e-5)
        none, state = it.step(torch.zeros(0, 3), fresh(ATTENDS, 0))
        assert none.shape == (0, 6)
        assert state["memory"].shape == (0, 2, 3, 6)


def test_the_transformer_forgets_what_lies_beyond_its_memory():
    it, x = attentive(), torch.randn(10, 1, 3)
    other = x.clone()
    other[0] += 5.0
    flags = torch.zeros(10, 1, dtype=torch.bool)
    with torch.no_grad():
        a, b = (it.unroll(seen, fresh(ATTENDS, 1), flags, ~flags)[0] for seen in (x, other))
    changed = (a - b).abs().amax((1, 2)) > 1e-7
    assert changed[:7].all()  # two layers of three steps each
    assert not changed[7:].any()


def test_a_closed_gate_is_the_identity_and_gates_are_nearly_closed_at_first():
    gate = attentive().blocks[0].attended
    x, y = torch.randn(5, 6), torch.randn(5, 6)
    assert set(gate.bias.tolist()) == {2.0}
    with torch.no_grad():
        gate.bias.fill_(100.0)
        assert torch.allclose(gate(x, y), x)


# --- one's own ---


class Counter(nn.Module):
    """Counts the steps of the episode; gives features, count and twice the count."""

    def __init__(self, in_features, twice=2.0):
        super().__init__()
        self.twice, self.out_features, self.state_shapes = twice, in_features + 2, {"count": (1,), "last": (2, 2)}

    def forward(self, x, state):
        count = state["count"] + 1
        return torch.cat([x, count, self.twice * count], -1), {"count": count, "last": state["last"]}


class Wrong(Counter):
    def forward(self, x, state):
        return x, state


class Bare(nn.Module):
    def __init__(self, in_features):
        super().__init__()
        self.out_features = in_features


def test_a_core_of_ones_own_is_folded_unrolled_and_reset():
    config = CoreConfig.model_validate("nets.test_cores:Counter")
    it = build_core(3, config)
    assert {name: leaf.shape for name, leaf in state_spec(config).items()} == {"count": (1,), "last": (2, 2)}
    first, valid = torch.zeros(4, 1, dtype=torch.bool), torch.ones(4, 1, dtype=torch.bool)
    first[2], valid[1] = True, False
    y, after = it.unroll(torch.zeros(4, 1, 3), fresh(config, 1), first, valid)
    assert y.shape == (4, 1, 5)
    assert after["count"].flatten().tolist() == [1, 1, 1, 2]  # the hole does not count; the third step begins anew
    assert it.step(torch.zeros(2, 3, 3), fresh(config, 2, 3))[0].shape == (2, 3, 5)


@pytest.mark.parametrize(("core", "sentence"), [
    ("nets.test_cores:Wrong", r"gave \{'y': \(2, 3\).*expected \{'y': \(2, 5\)"),
    ("nets.test_cores:Bare", r"needs an attribute `state_shapes`"),
    ({"kind": "nets.test_cores:Counter", "kwargs": {"thrice": 3}}, r"Class\(in_features, \*\*model\.core\.kwargs\)"),
    ("nets.test_cores:Missing", "has no 'Missing'"),
])  # fmt: skip
def test_a_core_that_breaks_the_contract_is_refused(core, sentence):
    with pytest.raises(ConfigError, match=sentence):
        build_core(3, CoreConfig.model_validate(core))


@pytest.mark.parametrize(("words", "sentence"), [
    (["model.core.kind=lstn"], r"model\.core\.kind=lstn is no core; .*Did you mean 'lstm'"),
    (["model.core={kind: gru, heads: 2}"], r"model\.core\.heads=2 would be ignored"),
    (["model.core={kind: gtrxl, size: 6, heads: 4}"], r"model\.core\.heads=4 must divide model\.core\.size=6"),
])  # fmt: skip
def test_wrong_options_of_a_core_are_refused(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_config(algo="ppo", env="CartPole-v1", overrides=words)


RUNS = {
    "ppo-gtrxl": ["model.core={kind: gtrxl, size: 8, heads: 2, layers: 1, memory: 4}"],
    "ppo-own": ["model.core=nets.test_cores:Counter"],
    "r2d2-gtrxl": ["model.core={kind: gtrxl, size: 8, heads: 2, layers: 1, memory: 4}"],
}


def trainer_of(name, *words):
    algo = name.partition("-")[0]
    more = {
        "ppo": ["env.num=2", "algo.rollout=8", "algo.minibatches=2"],
        "r2d2": ["store.min_fill=32", "store.batch_size=4", "algo.sequence=4", "algo.overlap=2", "algo.burn_in=2"],
    }
    short = ["model.hidden=[8]", "train.max_steps=96", "eval.every_steps=0", "eval.at_end=false", "log.sinks=[]"]
    overrides = [*short, *more[algo], *RUNS[name], "learning.mode=eager", *words]
    return Trainer(load_config(algo=algo, env="rookery/ProbeMemory-v0", overrides=overrides))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_with_another_core_is_resumed_exactly(name, tmp_path):
    with straight_and_resumed(lambda: trainer_of(name), tmp_path, steps=60) as (straight, resumed):
        assert resumed.evaluate().returns == straight.evaluate().returns


@pytest.mark.slow
def test_the_transformer_is_straight_line_code_that_can_be_compiled():
    """Traced with one pattern of starts and holes, it is right for another."""
    it, state = attentive(), fresh(ATTENDS, 2)

    def run(x, memory, real, first, valid):
        return it.unroll(x, {"memory": memory, "real": real}, first, valid)[0]

    flags = torch.zeros(4, 2, dtype=torch.bool)
    graph = make_fx(run)(torch.zeros(4, 2, 3), *state.values(), flags, ~flags)
    first, valid = flags.clone(), ~flags
    first[2, 0], valid[1, 1] = True, False
    other = torch.randn(4, 2, 3), torch.randn(2, 2, 3, 6), torch.tensor([[0.0, 1, 1], [0, 0, 1]]), first, valid
    assert torch.allclose(graph(*other), run(*other), atol=1e-6)
