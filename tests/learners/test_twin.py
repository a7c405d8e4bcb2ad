"""The twin by itself: before it may judge the package it must be beyond doubt."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.twin import MEAN, STD, Agent, Data, Net, Setting, Weights, choose, labels, paper, run

KINDS = ["mlp", "cnn", "modular-mlp", "modular-cnn"]
MODULAR = ["modular-mlp", "modular-cnn"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors are faster on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(kind: str, **changes: Any) -> Setting:
    """A setting that learns in a blink: two initial tasks of four, dropout off."""
    sizes: dict[str, Any] = {"tasks": 4, "classes": 2, "initial": 2, "width": 6, "inputs": 5, "epochs": 3, "batch": 8}
    sizes |= {"memory": 4, "dropout": 0.0, "rate": 0.01}
    if kind.endswith("cnn"):
        sizes |= {"side": 4, "depth": 2, "basis": 2}
    return paper(kind, **(sizes | changes))


def blobs(setting: Setting, task: int, n: int = 20) -> tuple[Tensor, Tensor]:
    """Two classes around two random points: x[n, ...], y[n]."""
    generator = torch.Generator().manual_seed(task)
    shape = (3, setting.side, setting.side) if setting.cnn else (setting.inputs,)
    centres = torch.rand(2, *shape, generator=generator)
    y = torch.arange(n) % 2
    return centres[y] + 0.1 * torch.randn(n, *shape, generator=generator), y


def stream(setting: Setting, n: int = 20) -> list[Data]:
    """One task of blobs after another, n samples to train on and n others to judge by."""
    tasks = [blobs(setting, task, 2 * n) for task in range(setting.tasks)]
    return [Data((x[:n], y[:n]), (x[n:], y[n:]), (x[n:], y[n:])) for x, y in tasks]


def learn(agent: Agent, tasks: range) -> None:
    """Learn these tasks of the stream of blobs."""
    for task in tasks:
        agent.learn(task, blobs(agent.setting, task), blobs(agent.setting, task))


def moved(before: Weights, after: Weights) -> set[str]:
    """Which modules, heads and structures changed, such as "head.bias[2]"; modules that only one has are left out."""
    names = set()
    for name, old in before.items():
        for i, (a, b) in enumerate(zip(old, after[name], strict=False)):
            if name == "structure":
                a, b = a[: len(b)], b[: len(a)]
            if not torch.equal(a, b):
                names.add(f"{name}[{i}]")
    return names


def snapshot(agent: Agent) -> Weights:
    """The weights as they are now."""
    return agent.net.export()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_have_the_papers_shapes_and_counts(kind: str) -> None:
    setting = paper(kind)
    net = Net(setting)
    shapes = {name: tuple(value.shape) for name, value in net.export().items()}
    if setting.cnn:
        expected = {
            "module.weight": (4, 50, 50, 3, 3),
            "module.bias": (4, 50),
            "head.weight": (20, 5, 200),
            "head.bias": (20, 5),
        }
        assert sum(p.numel() for p in net.blocks[0].parameters()) == 22_550
        assert sum(p.numel() for p in net.heads[0].parameters()) == 1005
        assert net(torch.rand(3, 3, 32, 32), 0).shape == (3, 5)
    else:
        expected = {
            "module.weight": (4, 64, 64),
            "module.bias": (4, 64),
            "head.weight": (10, 2, 64),
            "head.bias": (10, 2),
            "projection.weight": (64, 784),
            "projection.bias": (64,),
        }
        assert sum(p.numel() for p in net.blocks.parameters()) == 16_640
        assert sum(p.numel() for p in net.heads[0].parameters()) == 130
        assert net(torch.rand(3, 1, 28, 28), 0).shape == (3, 2)
    if setting.modular:
        expected["structure"] = (setting.tasks, 4, 4)
    assert shapes == expected


@pytest.mark.parametrize("kind", KINDS)
def test_first_weights_are_uniform_within_the_usual_bounds(kind: str) -> None:
    weights = Net(paper(kind)).export()
    bound = 450**-0.5 if kind.endswith("cnn") else 1 / 8
    for name in ("module.weight", "module.bias"):
        assert 0.9 * bound < weights[name].abs().max() <= bound


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_in_and_come_out(kind: str) -> None:
    source, target = Agent(small(kind), seed=1), Agent(small(kind), seed=2)
    assert moved(snapshot(source), snapshot(target))
    target = Agent(small(kind), weights=snapshot(source), seed=2)
    assert not moved(snapshot(source), snapshot(target))
    with pytest.raises(ValueError, match="has no"):
        target.net.load({"modul.weight": torch.zeros(1)})


@pytest.mark.parametrize("kind", MODULAR)
def test_initial_structures_are_one_hot_and_use_every_module(kind: str) -> None:
    setting = paper(kind)
    for seed in range(5):
        structure = Agent(setting, seed=seed).net.export()["structure"]
        first = structure[:4].softmax(dim=1)
        assert ((first == 0) | (first == 1)).all()
        assert (first.sum(dim=1) == 1).all()
        assert (first.sum(dim=(0, 2)) >= 1).all()
        assert (structure[4:] == 1).all()
    if setting.cnn:
        assert choose(setting).tolist() == [[t] * 4 for t in range(4)]


def test_a_one_hot_structure_is_a_plain_composition() -> None:
    setting = small("modular-mlp", initial=1)
    net = Net(setting, choice=torch.tensor([[2, 0, 0, 3]]))
    w = net.export()
    x, _ = blobs(setting, 0)
    h = x @ w["projection.weight"].T + w["projection.bias"]
    for j in (2, 0, 0, 3):
        h = (h @ w["module.weight"][j].T + w["module.bias"][j]).relu()
    torch.testing.assert_close(net(x, 0), h @ w["head.weight"][0].T + w["head.bias"][0])


def test_a_one_hot_cnn_is_a_plain_composition_and_needs_only_three_channels_at_first() -> None:
    setting = small("modular-cnn", initial=1)
    net = Net(setting, choice=torch.tensor([[1, 0]]))
    w = net.export()
    x, _ = blobs(setting, 0)
    h = (x - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    h = functional.conv2d(h, w["module.weight"][1][:, :3], w["module.bias"][1], padding=1)
    h = functional.max_pool2d(h, 2).relu()
    h = functional.conv2d(h, w["module.weight"][0], w["module.bias"][0], padding=1)
    h = functional.max_pool2d(h, 2).relu()
    torch.testing.assert_close(net(x, 0), h.flatten(1) @ w["head.weight"][0].T + w["head.bias"][0])


def test_a_uniform_structure_is_the_mean_of_the_modules() -> None:
    setting = small("modular-mlp", depth=1, basis=2, initial=2)
    net = Net(setting)
    w = net.export()
    x, _ = blobs(setting, 2)
    h = x @ w["projection.weight"].T + w["projection.bias"]
    one, two = ((h @ w["module.weight"][j].T + w["module.bias"][j]).relu() for j in range(2))
    h = (one + two) / 2
    torch.testing.assert_close(net(x, 2), h @ w["head.weight"][2].T + w["head.bias"][2])


@pytest.mark.parametrize("kind", MODULAR)
def test_a_new_module_is_invisible_to_earlier_tasks(kind: str) -> None:
    setting = small(kind)
    net = Net(setting)
    x = [blobs(setting, task)[0] for task in range(4)]
    before = [net(x[task], task) for task in range(4)]
    net.grow(2)
    for task in range(4):
        after = net(x[task], task)
        assert torch.allclose(after, before[task]) == (task < 2)
        assert torch.equal(net(x[task], task, hide=True), after) == (task < 2)


@pytest.mark.parametrize("kind", MODULAR)
def test_hiding_with_renormalised_weights_is_removal(kind: str) -> None:
    setting = small(kind)
    net = Net(setting)
    net.grow(2)
    x, _ = blobs(setting, 2)
    hidden = net(x, 2, hide=True)
    net.shrink()
    torch.testing.assert_close(net(x, 2), hidden)


def test_hiding_without_renormalising_drops_the_term_only() -> None:
    net = Net(small("modular-mlp", renormalise=False))
    net.grow(2)
    assert net.mixture(2, hide=True)[:-1].sum(dim=0).tolist() == pytest.approx([0.8] * 4)  # four of five equal weights
    net = Net(small("modular-mlp"))
    net.grow(2)
    assert net.mixture(2, hide=True)[:-1].sum(dim=0).tolist() == pytest.approx([1.0] * 4)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_where_it_should_be_and_off_in_eval_mode(kind: str) -> None:
    net = Net(small(kind, dropout=0.5))
    if net.setting.modular:
        net.grow(2)
    rates = [block.drop.p for block in net.blocks]
    assert rates == ([0.0] * 4 + [0.5] if kind == "modular-mlp" else [0.5] * len(rates))
    x, _ = blobs(net.setting, 2)
    assert not torch.equal(net(x, 2), net(x, 2))
    net.eval()
    assert torch.equal(net(x, 2), net(x, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_weights(kind: str) -> None:
    agents = [Agent(small(kind, dropout=0.5), seed=3) for _ in range(2)]
    results = []
    for agent in agents:
        torch.manual_seed(4)
        learn(agent, range(4))
        results.append(snapshot(agent))
    assert results[0].keys() == results[1].keys()
    assert not moved(*results)


def test_nothing_is_learned_before_the_last_initial_task() -> None:
    agent = Agent(small("modular-mlp"))
    before = snapshot(agent)
    learn(agent, range(1))
    assert not moved(before, snapshot(agent))
    assert agent.steps == 0
    assert list(agent.memory) == [0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_initial_phase_trains_modules_and_initial_heads(kind: str) -> None:
    agent = Agent(small(kind))
    before = snapshot(agent)
    learn(agent, range(2))
    after = snapshot(agent)
    modules = range(len(agent.net.blocks))
    expected = {f"module.{part}[{j}]" for part in ("weight", "bias") for j in modules}
    expected |= {f"head.{part}[{t}]" for part in ("weight", "bias") for t in range(2)}
    assert moved(before, after) == expected


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("kind", MODULAR)
def test_assimilation_moves_only_structure_head_and_candidate(kind: str, fresh: bool) -> None:
    agent = Agent(small(kind, fresh=fresh))
    learn(agent, range(2))
    agent.begin(2)
    before = snapshot(agent)
    for epoch in range(3):
        agent.assimilate(2, epoch, blobs(agent.setting, 2))
    new = len(agent.net.blocks) - 1
    expected = {f"module.weight[{new}]", f"module.bias[{new}]", "head.weight[2]", "head.bias[2]", "structure[2]"}
    assert moved(before, snapshot(agent)) == expected


def test_adaptation_moves_all_modules_and_nothing_else() -> None:
    agent = Agent(small("modular-mlp"))
    learn(agent, range(2))
    agent.begin(2)
    before = snapshot(agent)
    agent.adapt(2, 0, blobs(agent.setting, 2))
    assert moved(before, snapshot(agent)) == {f"module.{part}[{j}]" for part in ("weight", "bias") for j in range(5)}


def test_a_module_of_weight_zero_takes_part_in_adaptation_and_a_hidden_one_does_not() -> None:
    agent = Agent(small("modular-mlp"))
    learn(agent, range(2))
    agent.begin(2)
    agent.train_only(agent.net.blocks)
    x, y = blobs(agent.setting, 0)
    old = torch.zeros_like(y)  # a batch of task 0, which cannot see the candidate
    agent.step(agent.loss(x, y, old))
    assert all(p.grad is not None and not p.grad.any() for p in agent.net.blocks[-1].parameters())
    agent.step(agent.loss(x, y, old, hide=True))
    assert all(p.grad is None for p in agent.net.blocks[-1].parameters())
    assert all(p.grad is not None for block in agent.net.blocks[:-1] for p in block.parameters())


@pytest.mark.parametrize("moves", [False, True])
def test_logits_of_a_hidden_candidate_move_by_momentum_or_not_at_all(moves: bool) -> None:
    agent = Agent(small("modular-mlp", hidden_logits_move=moves, batch=20))
    learn(agent, range(2))
    agent.begin(2)
    agent.assimilate(2, 0, blobs(agent.setting, 2))  # one batch: one step with, one without
    counts = [agent.adam.state[row]["step"].item() for row in agent.net.structure[2]]
    assert counts == [2, 2, 2, 2, 2 if moves else 1]


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_replay_skips_heads_that_are_not_in_the_batch(kind: str) -> None:
    agent = Agent(small(kind))
    learn(agent, range(2))
    agent.memory.pop(1)
    before = snapshot(agent)
    agent.replay(2, 0, blobs(agent.setting, 2))
    heads = {name for name in moved(before, snapshot(agent)) if name.startswith("head")}
    assert heads == {f"head.{part}[{t}]" for part in ("weight", "bias") for t in (0, 2)}


def test_replay_loss_is_the_sum_over_samples_by_the_batch_size() -> None:
    agent = Agent(small("mlp"))
    x, y = blobs(agent.setting, 0)
    tasks = torch.arange(20) % 3
    by_sample = [functional.cross_entropy(agent.net(x[[i]], int(tasks[i])), y[[i]]) for i in range(20)]
    torch.testing.assert_close(agent.loss(x, y, tasks), torch.stack(by_sample).mean())


def test_fresh_adam_forgets_and_persistent_adam_does_not() -> None:
    for fresh in (False, True):
        agent = Agent(small("modular-mlp", fresh=fresh))
        learn(agent, range(2))
        assert all(p in agent.adam.state for p in agent.net.blocks.parameters())
        agent.begin(2)
        assert len(agent.adam.state) == (0 if fresh else 2 * 4 + 2 * 2)  # modules and two heads: weight, bias


def test_steps_per_epoch_are_the_papers() -> None:
    # 128 samples in batches of 64: 2 steps per pass, 8 per initial epoch, 4 per epoch of assimilation (with, without).
    setting = small("modular-mlp", tasks=6, initial=4, batch=64, memory=32, epochs=2)
    agent = Agent(setting)
    train = blobs(setting, 0, 128)
    steps = []
    for task in range(6):
        start = agent.steps
        agent.learn(task, train, train)
        steps.append(agent.steps - start)
    # Task 4: 4 + two for each of ceil((128 + 4 * 32)/64) = 4 batches; task 5: 4 + 2 * ceil((128 + 5 * 32)/64) = 5
    assert steps == [0, 0, 0, 16, 4 + 8, 4 + 10]
    mono = Agent(small("mlp", tasks=5, initial=4, batch=64, memory=32, epochs=1))
    learn_steps = []
    for task in range(5):
        start = mono.steps
        mono.learn(task, train, train)
        learn_steps.append(mono.steps - start)
    assert learn_steps == [0, 0, 0, 8, 4]


def test_without_adaptation_every_epoch_assimilates() -> None:
    agent = Agent(small("modular-mlp", adaptation=False))
    learn(agent, range(2))
    before = snapshot(agent)
    learn(agent, range(2, 3))
    assert not {name for name in moved(before, snapshot(agent)) if name.startswith("module")}


@pytest.mark.parametrize(
    ("with_it", "without", "keep"),
    [(84, 80, False), (85, 80, True), (63, 60, False), (80, 80, False), (0, 0, False), (1, 0, True), (21, 20, False)],
)
def test_a_candidate_must_gain_more_than_five_percent(
    with_it: int, without: int, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(small("modular-mlp"))
    agent.begin(2)
    monkeypatch.setattr(agent, "right", lambda *_, hide_candidate=False: without if hide_candidate else with_it)
    agent.decide(2, blobs(agent.setting, 2))
    assert agent.kept == {2: keep}
    assert len(agent.net.blocks) == (5 if keep else 4)
    assert snapshot(agent)["structure"].shape == (4, 5 if keep else 4, 4)


def test_orders_and_memories_are_the_callers() -> None:
    asked = []

    def order(kind: str, task: int, epoch: int, n: int) -> Tensor:
        asked.append((kind, task, epoch, n))
        return torch.arange(n)

    agent = Agent(small("modular-mlp", epochs=2), order=order, keep=lambda task, n: torch.tensor([task, n - 1]))
    learn(agent, range(3))
    initial = [("initial", task, epoch, 20) for epoch in range(2) for task in range(2)]
    assert asked == [*initial, ("assimilate", 2, 0, 20), ("adapt", 2, 1, 20 + 2 * 2)]
    x, y = blobs(agent.setting, 1)
    assert torch.equal(agent.memory[1][0], x[[1, 19]])
    assert torch.equal(agent.memory[1][1], y[[1, 19]])
    asked.clear()
    learn(mono := Agent(small("mlp", epochs=1), order=order), range(3))
    assert asked[-1] == ("replay", 2, 0, 20 + 2 * 4)
    union = mono.union(3, blobs(mono.setting, 3))
    tasks = [int(union[i][2]) for i in range(len(union))]
    assert tasks == [3] * 20 + [0] * 4 + [1] * 4 + [2] * 4


def test_a_candidate_starts_with_the_callers_weights() -> None:
    agent = Agent(small("modular-mlp"), candidate=lambda task: (torch.full((6, 6), float(task)), torch.ones(6)))
    agent.begin(2)
    assert (snapshot(agent)["module.weight"][4] == 2).all()
    assert (snapshot(agent)["module.bias"][4] == 1).all()


def test_exercise_counts_steps() -> None:
    for kind in ("mlp", "modular-mlp"):
        agent = Agent(small(kind, batch=10))
        agent.begin(2)
        assert agent.exercise(2, blobs(agent.setting, 2), 12) == 12
        assert agent.steps == 12


def test_labels_are_the_papers() -> None:
    assert labels(paper("mlp")) == [0, 1, 11, 21, 31, 41, 51, 61, 71, 81, 91, 101]
    assert labels(paper("mlp", epochs=25)) == [0, 1, 11, 21, 26]


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_remembers(kind: str) -> None:
    setting = small(kind, epochs=12, width=12, initial=2, memory=8)
    table, without = run(Agent(setting), stream(setting, 40))
    assert table.shape == (4, len(labels(setting)), 4)
    assert table[-1, -1].mean() > 0.9
    measured = ~table.isnan()
    assert not measured[0, :, 1:].any()  # tasks to come
    assert measured[0, [0, -1], 0].all()
    assert not measured[0, 1:-1].any()  # nothing happens in task 0 here
    assert measured[1:, :, 0].all()
    assert (~without.isnan()).sum() == (2 * (len(labels(setting)) - 2) if setting.modular else 0)
