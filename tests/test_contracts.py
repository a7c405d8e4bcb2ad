"""Every entry of every table keeps the laws of its contract: a new one is tested without a line here."""

import sys
from collections.abc import Iterator
from importlib import import_module
from math import inf

import pytest
import torch
from torch import Tensor, nn

from shoal.contracts.mode_case import made_of, suited
from shoal.errors import SettingsError
from shoal.learners.table import LEARNERS
from shoal.models.table import MODELS, wrapped
from shoal.network.graphs import GRAPHS
from shoal.sharing.combine import RULES, Array, Heard, Rule, mean, total
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.modes import MODES
from shoal.sharing.scores import SCORES, Metric
from shoal.testing import check_graph, check_learner, check_mode, check_model, check_rule, check_score


# Every mode with the first model that it suits, and two with nets of modules, too; the other pairs take minutes and are
# for `make data`.
def everyday(mode: str, model: str) -> bool:
    return model == suited([made_of(mode)])[0] or (mode in ("recv", "fedavg") and model == "modular-mlp")


PAIRS = [
    pytest.param(mode, model, marks=[] if everyday(mode, model) else [pytest.mark.slow])
    for mode in MODES
    for model in suited([made_of(mode)])
]


@pytest.mark.parametrize(("mode", "model"), PAIRS)
def test_every_mode_keeps_the_laws_of_modes(mode: str, model: str) -> None:
    check_mode(mode, model=model)


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_keeps_the_laws_of_learners(learner: str) -> None:
    check_learner(learner)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_keeps_the_laws_of_models(model: str) -> None:
    check_model(model)


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_topology_keeps_the_laws_of_topologies(graph: str) -> None:
    check_graph(graph)


@pytest.mark.parametrize("metric", SCORES)
def test_every_score_keeps_the_laws_of_scores(metric: str) -> None:
    check_score(metric)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_keeps_the_laws_of_rules(rule: str) -> None:
    check_rule(rule)


@pytest.mark.parametrize("rule", ["median", "clipped"])  # one that all have in common, and one that looks at its own
def test_a_mode_with_a_rule_keeps_the_laws_of_modes(rule: str) -> None:
    check_mode(FedAvg(every=2, combine=rule))


def test_every_mode_and_learner_has_an_example_that_it_accepts() -> None:
    for mode in MODES.values():
        mode.model_validate(dict(mode.example))
    for learner in LEARNERS.values():
        learner.model_validate(dict(learner.example))


# What a stranger brings

STRANGER = '''
from typing import Any, ClassVar, Literal

import networkx as nx
import torch

from shoal.learners.contract import Learner
from shoal.learners.usual import usual_epoch
from shoal.letters.mail import Expected
from shoal.letters.letter import Letter
from shoal.letters.letter import Quote
from shoal.sharing.mode import Mode
from shoal.sharing.scores import Metric


def biases(world):
    return Expected(torch.float32, (world.settings.tasks.count, world.settings.tasks.classes))


class Bias(Mode):
    """Everybody sends the biases of its heads, and takes the half of what comes."""

    mode: Literal["bias"] = "bias"
    every: int = 2
    when: Literal["before"] = "before"

    @property
    def letters(self):
        return {"bias": Letter({"bias": biases}, 1, ())}

    def answer(self, agent, question, to):
        return {"bias": agent.tensor("head.bias").clone()}

    def absorb(self, agent, letters):
        for letter in letters:
            agent.become({"head.bias": agent.tensor("head.bias").lerp(letter["bias"], 0.5)})


class Leaky(Bias):
    """Its agents learn from whoever is there."""

    def absorb(self, agent, letters):
        bias = agent._stack.params["head.bias"]
        bias.copy_(bias.mean(0, keepdim=True).expand_as(bias))


class Nosy(Bias):
    """Reads another agent's row where it should wait for mail; only neighbours in one stack are near enough."""

    def absorb(self, agent, letters):
        bias = agent._stack.params["head.bias"]
        for letter in letters:
            lane = agent._lane._replace(agent=letter.sender)
            if lane in agent._world.row:
                bias[agent._row] = bias[agent._world.row[lane]]


class Rude(Bias):
    """Writes what is not its own."""

    def absorb(self, agent, letters):
        super().absorb(agent, letters)
        agent._stack.of("memory")["y"].zero_()


class Cheap(Bias):
    """Quotes less than it sends."""

    def quote(self, world, budget, other=None):
        return [Quote("bias", 1, 1)]


class Silent(Bias):
    """Never sends anything."""

    def answer(self, agent, question, to):
        return None


class Fine(Learner):
    """Learns the new task, and nothing else."""

    method: Literal["fine"] = "fine"

    def epoch(self, world, stack, epoch):
        usual_epoch(world, stack, epoch, past=False)


class Lucky(Fine):
    """Draws from torch."""

    method: Literal["lucky"] = "lucky"

    def end(self, world, stack):
        stack.params["head.bias"].add_(0.01 * torch.randn(stack.params["head.bias"].shape))


class Crowded(Fine):
    """Looks at its neighbours in the stack."""

    method: Literal["crowded"] = "crowded"

    def end(self, world, stack):
        stack.params["head.bias"].sub_(stack.params["head.bias"].mean(0, keepdim=True))


class Thief(Fine):
    """Writes what is not its own."""

    method: Literal["thief"] = "thief"

    def end(self, world, stack):
        stack.of("received")["fill"].zero_()


def path(n, p, generator):
    return nx.path_graph(n)


def short(n, p, generator):
    return nx.path_graph(max(1, n - 1))


def lucky(n, p, generator):
    return nx.gnp_random_graph(n, 0.5)


classes = Metric(lambda pair: float(len(set(pair.theirs.tolist()) & set(pair.mine.tolist()))), "classes")
upside_down = Metric(lambda pair: -classes.score(pair), "classes")
'''


@pytest.fixture(scope="module", autouse=True)
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module of somebody else, in a folder of its own."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "stranger.py").write_text(STRANGER)
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(folder)
    yield
    patch.undo()
    sys.modules.pop("stranger", None)


def test_a_strangers_pieces_keep_the_laws_through_the_doors() -> None:
    check_mode("stranger:Bias")
    check_learner("stranger:Fine")
    check_graph("stranger:path")
    check_score("stranger:classes")


def test_so_do_objects_that_were_made_in_python() -> None:
    stranger = import_module("stranger")
    check_mode(stranger.Bias(every=1))
    check_graph(stranger.path)
    check_score(stranger.classes)
    assert "checked" not in GRAPHS
    assert "checked" not in SCORES


class Net(nn.Module):
    """A net of somebody else, for colour images."""

    def __init__(self, colours: int = 3) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(colours, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = torch.relu(self.second(torch.relu(self.first(x))))
        return h


class Restless(Net):
    """Draws whenever it is asked, for images in grey."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(1)


def test_any_net_keeps_the_laws_of_models() -> None:
    check_model(wrapped(Net))
    with pytest.raises(AssertionError, match="draws random numbers from torch while it learns"):
        check_model(wrapped(Restless))


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("Leaky", "agents that exchange nothing with others learn as if these were not there, but `.*` differs"),
        ("Nosy", "a fleet that is cut into several stacks ends as in one .*, but `.*` differs"),
        ("Rude", "the mode `bias` wrote `y` in the state of `memory`, which is not its own"),
        (
            "Cheap",
            "`bias`: a quote is an upper bound, but mail was refused in a small fleet as more than `quote` names",
        ),
        ("Silent", "`bias`: no mail was accepted in a small fleet, so there is nothing to test; give it an `example`"),
    ],
)
def test_a_mode_that_breaks_a_law_is_told_which(mode: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_mode(f"stranger:{mode}")


@pytest.mark.parametrize(
    ("learner", "sentence"),
    [
        ("Lucky", "the same seed is the same run, bit for bit .*, but `.*` differs"),
        ("Crowded", "an agent learns alone what it learns beside others, but `.*` differs"),
        ("Thief", "the learner `thief` wrote `fill` in the state of `received`, which is not its own"),
    ],
)
def test_a_learner_that_breaks_a_law_is_told_which(learner: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_learner(f"stranger:{learner}")


def test_a_rule_that_breaks_a_law_is_told_which() -> None:
    def sum_(heard: Heard) -> Array:
        return total(heard.models)

    def trusting(heard: Heard) -> Array:
        return mean(heard)

    with pytest.raises(AssertionError, match="of 2 equal models is that model"):
        check_rule(Rule(sum_, lambda liars: inf))
    with pytest.raises(AssertionError, match="bears 1 of 3 models being lies, but it ends"):
        check_rule(Rule(trusting, lambda liars: 2 * liars + 1))
    with pytest.raises(SettingsError, match=r"there is no rule `medain`; did you mean `median`\?"):
        check_rule("medain")


def test_a_topology_or_score_that_breaks_a_law_is_told_which() -> None:
    with pytest.raises(AssertionError, match=r"with 2 agents and p = 0\.0 has nodes \[0\]: it needs all agents"):
        check_graph("stranger:short")
    with pytest.raises(AssertionError, match="is another graph from the same generator; draw from the generator alone"):
        check_graph("stranger:lucky")
    with pytest.raises(AssertionError, match="is larger for a task that is alike: it is -3 there and -0 for another"):
        check_score("stranger:upside_down")
    with pytest.raises(AssertionError, match="is a finite float, got nan"):
        check_score(Metric(lambda pair: float("nan"), "images"))
