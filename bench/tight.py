"""A tight plain PyTorch loop: one agent after the other, fused Adam, batches by indexing, no `DataLoader`.

What somebody writes who knows PyTorch and has one agent in mind.
"""

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F

from bench.problem import BETAS, EPSILON, Masks, Problem, Weights


class Agent:
    """One lane of a problem."""

    def __init__(self, problem: Problem, lane: int) -> None:
        self.problem = problem
        self.x, self.y, self.task = problem.x[lane], problem.y[lane], problem.task[lane]
        own = {name: tensor[lane] for name, tensor in problem.weights.items()}
        trained = slice(0, None) if problem.modules is None else slice(-1, None)
        self.frozen = {name: own[f"module.{name}"][: trained.start] for name in ("weight", "bias")}
        self.weight, self.bias = (Parameter(own[f"module.{name}"][trained].clone()) for name in ("weight", "bias"))
        # A parameter for each head: one that has no image in a batch has no gradient, and Adam leaves it alone.
        self.heads = [
            (Parameter(weight.clone()), Parameter(bias.clone()))
            for weight, bias in zip(own["head.weight"], own["head.bias"], strict=True)
        ]
        self.structure = Parameter(own["structure"].clone()) if problem.modules else None
        every = [self.weight, self.bias, *(one for head in self.heads for one in head)]
        every += [] if self.structure is None else [self.structure]
        self.adam = torch.optim.Adam(every, lr=problem.rate, betas=BETAS, eps=EPSILON, fused=True)

    def epoch(self, order: Tensor | None = None, masks: Masks | None = None, lane: int = 0) -> None:
        """One epoch; `masks` are those of all lanes, of which this one is at `lane`."""
        order = torch.randperm(self.problem.images) if order is None else order
        at = 0
        for rows in order.split(self.problem.batch):
            x, y, task = self.x[rows], self.y[rows], self.task[rows]
            for hide in (False, True) if self.problem.modules else (False,):
                drop = None if masks is None else [one[lane, ..., : len(rows)] for one in masks[at]]
                at += 1
                features = self.plain(x, drop) if self.problem.modules is None else self.mixed(x, drop, hide)
                self.step(features, y, task)

    def plain(self, h: Tensor, masks: list[Tensor] | None) -> Tensor:
        """What the heads of a monolithic net read."""
        for k, (weight, bias) in enumerate(zip(self.weight.unbind(), self.bias.unbind(), strict=True)):
            h = self.dropped(F.linear(h, weight, bias).relu_(), None if masks is None else masks[k][0].T)
        return h

    def mixed(self, h: Tensor, masks: list[Tensor] | None, hide: bool) -> Tensor:
        """What the head of a modular net reads; the candidate is the last module."""
        problem, structure = self.problem, self.structure
        assert problem.modules is not None
        assert structure is not None
        basis, count = problem.modules.basis, len(self.frozen["weight"])
        logits = structure[:count] if hide and problem.modules.renormalise else structure
        shares = logits.softmax(0)
        for k in range(problem.depth):
            # All frozen modules are one product.
            outputs = torch.baddbmm(self.frozen["bias"][:, None], h.expand(count, *h.shape), self.frozen["weight"].mT)
            parts = [outputs[:basis].relu(), self.dropped(outputs[basis:].relu(), of(masks, k, slice(count - basis)))]
            mixed = torch.tensordot(shares[:count, k], torch.cat(parts), 1)
            if not hide:
                own = F.linear(h, self.weight[0], self.bias[0]).relu_()
                mixed = mixed + shares[count, k] * self.dropped(own, of(masks, k, count - basis))
            h = mixed
        return h

    def dropped(self, h: Tensor, mask: Tensor | None) -> Tensor:
        return F.dropout(h, self.problem.dropout) if mask is None else h * mask

    def step(self, features: Tensor, y: Tensor, task: Tensor) -> None:
        """One Adam step on a batch, each image through its own task's head."""
        if len(self.heads) == 1:
            logits = F.linear(features, *self.heads[0])
        else:
            weights, biases = (torch.cat(list(one)) for one in zip(*self.heads, strict=True))
            every = F.linear(features, weights, biases).view(len(y), len(self.heads), -1)
            logits = every[torch.arange(len(y)), task]
        loss = F.cross_entropy(logits, y)
        self.adam.zero_grad()
        loss.backward()
        if len(self.heads) > 1:
            for absent in set(range(len(self.heads))).difference(task.tolist()):
                for one in self.heads[absent]:
                    one.grad = None
        self.adam.step()

    def weights(self) -> Weights:
        """The weights as they are now."""
        made = {
            f"module.{name}": torch.cat([self.frozen[name], tensor.detach()])
            for name, tensor in (("weight", self.weight), ("bias", self.bias))
        }
        for name, tensors in zip(("head.weight", "head.bias"), zip(*self.heads, strict=True), strict=True):
            made[name] = torch.stack([one.detach() for one in tensors])
        return made if self.structure is None else made | {"structure": self.structure.detach()}


def of(masks: list[Tensor] | None, depth: int, modules: slice | int) -> Tensor | None:
    """The masks of some modules at a depth, the batch first."""
    return None if masks is None else masks[depth][modules].mT


class Loop:
    """All lanes of a problem, one after the other."""

    def __init__(self, problem: Problem) -> None:
        self.agents = [Agent(problem, lane) for lane in range(problem.lanes)]
        self.at = 0

    def epoch(self, order: Tensor | None = None, masks: Masks | None = None) -> None:
        for lane, agent in enumerate(self.agents):
            agent.epoch(None if order is None else order[lane], masks, lane)

    def turn(self) -> None:
        """One epoch of the next agent: how many there are changes nothing."""
        self.agents[self.at].epoch()
        self.at = (self.at + 1) % len(self.agents)

    def weights(self) -> Weights:
        every = [agent.weights() for agent in self.agents]
        return {name: torch.stack([one[name] for one in every]) for name in every[0]}
