"""The slow obvious twin: one continual agent in plain PyTorch, one module at a time, one depth at a time.

Written straight from the description of the paper's learners (Le, Hussing & Eaton 2024) and sharing no code with the
package, so that the two can check each other: same data, same first weights, same batches, dropout off: same weights.
Nothing here is fast.

`Net` is the network, `Agent` the learner. Weights go in and out as plain tensors (width H, C modules,
D depths, T tasks, K classes, F = H features or, in the CNN, H * 2 * 2):

    projection.weight [H, inputs]                    projection.bias [H]   MLP only, frozen
    module.weight [C, H, H] (CNN: [C, H, H, 3, 3])   module.bias [C, H]    monolithic: module k is the layer at depth k
    head.weight [T, K, F]                            head.bias [T, K]
    structure [T, C, D]                              modular only, logits
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

MEAN = (0.5079, 0.4872, 0.4415)
STD = (0.2676, 0.2567, 0.2765)

Weights = dict[str, Tensor]
Samples = tuple[Tensor, Tensor]  # images x[n, ...] in [0, 1], labels y[n] in 0..K-1

# order(kind, task, epoch, n): a permutation of n samples, or None to shuffle. Kinds: "initial" (task is the one whose
# loader it is), "assimilate", "adapt" and "replay". In the last two the n samples are the current task's train set,
# then the replay buffers of tasks 0, 1, 2, ...
Order = Callable[[str, int, int, int], Tensor | None]


class Data(NamedTuple):
    """One task."""

    train: Samples
    val: Samples
    test: Samples


@dataclass(frozen=True)
class Setting:
    """Sizes and switches; the defaults are the paper's for the MNIST family. See `paper` for the CNN's."""

    kind: str = "modular-mlp"  # or "mlp", "cnn", "modular-cnn"
    tasks: int = 10
    classes: int = 2
    initial: int = 4  # tasks learned together at the start
    basis: int = 4  # modules at the start (modular)
    depth: int = 4
    width: int = 64
    inputs: int = 784  # MLP: numbers per image
    side: int = 32  # CNN: pixels per side
    epochs: int = 100
    every: int = 10  # epochs between measurements
    batch: int = 64
    rate: float = 1e-3
    memory: int = 32  # replay samples per task
    threshold: float = 0.05  # relative gain a candidate must exceed
    dropout: float = 0.5
    dropout_basis: bool = False  # modular: also on the first `basis` modules
    fresh: bool = False  # a new Adam at every task, or one for life
    adaptation: bool = True  # the last epoch of a task updates all modules
    renormalise: bool = True  # softmax over the visible modules only, or over all and drop the hidden term
    # With `renormalise` the hidden candidate's logits get gradient zero in the step without it. They belong to S_t,
    # which that step trains, so Adam's momentum still moves them. False: they are left alone.
    hidden_logits_move: bool = True

    @property
    def modular(self) -> bool:
        return self.kind.startswith("modular")

    @property
    def cnn(self) -> bool:
        return self.kind.endswith("cnn")

    @property
    def features(self) -> int:
        """Numbers that enter a head."""
        return self.width * (self.side // 2**self.depth) ** 2 if self.cnn else self.width


def paper(kind: str, **changes: Any) -> Setting:
    """The paper's setting for a kind of model: MNIST family for MLPs, CIFAR-100 for CNNs."""
    setting = Setting(kind)
    if setting.cnn:
        # The CNN has dropout on its basis too.
        setting = replace(setting, tasks=20, classes=5, width=50, dropout_basis=True)
    return replace(setting, **changes)


def choose(setting: Setting) -> Tensor:
    """Which module each initial task uses at each depth: [initial, depth].

    MLP: drawn at random, again until every module is used. CNN: task t uses module t at all depths.
    """
    shape = (setting.initial, setting.depth)
    if setting.cnn:
        return (torch.arange(setting.initial) % setting.basis)[:, None].expand(shape)
    if setting.initial * setting.depth < setting.basis:
        raise ValueError(f"{setting.initial} tasks of depth {setting.depth} cannot use all {setting.basis} modules")
    while True:
        choice = torch.randint(setting.basis, shape)
        if len(set(choice.flatten().tolist())) == setting.basis:
            return choice


class Block(nn.Module):
    """One module: affine map, (CNN: halve the image,) ReLU, dropout."""

    def __init__(self, setting: Setting, dropout: float) -> None:
        super().__init__()
        h = setting.width
        self.cnn = setting.cnn
        self.layer = nn.Conv2d(h, h, 3, padding=1) if self.cnn else nn.Linear(h, h)
        self.drop = nn.Dropout(dropout)

    def forward(self, h: Tensor) -> Tensor:
        h = self.layer(h)
        if self.cnn:
            h = functional.max_pool2d(h, 2)
        return cast(Tensor, self.drop(functional.relu(h)))


class Net(nn.Module):
    """The network of one agent: frozen entrance, modules, one head per task, and (modular) one structure per task."""

    # To a type checker a ModuleList forgets what it holds.
    blocks: Any  # of Block
    heads: Any  # of Linear
    structure: Any  # of ParameterList

    def __init__(self, setting: Setting, choice: Tensor | None = None) -> None:
        super().__init__()
        self.setting = setting
        if not setting.cnn:
            self.projection = nn.Linear(setting.inputs, setting.width).requires_grad_(False)
        self.blocks = nn.ModuleList()
        for _ in range(setting.basis if setting.modular else setting.depth):
            self.blocks.append(Block(setting, setting.dropout if self.drops(len(self.blocks)) else 0.0))
        self.heads = nn.ModuleList(nn.Linear(setting.features, setting.classes) for _ in range(setting.tasks))
        # structure[t][j] is the row of module j in S_t: one logit per depth. Rows are parameters of their own so that
        # a structure can grow and shrink.
        self.structure = nn.ModuleList()
        if setting.modular:
            choice = choose(setting) if choice is None else choice
            for t in range(setting.tasks):
                logits = torch.ones(setting.basis, setting.depth)
                if t < setting.initial:
                    one_hot = functional.one_hot(choice[t], setting.basis).T  # [basis, depth]
                    logits = logits.masked_fill(one_hot == 0, -torch.inf)
                self.structure.append(nn.ParameterList(nn.Parameter(row.clone()) for row in logits))

    def drops(self, index: int) -> bool:
        """Whether the module with this index has dropout."""
        return not self.setting.modular or self.setting.dropout_basis or index >= self.setting.basis

    def enter(self, x: Tensor) -> Tensor:
        """The frozen entrance: random projection (MLP), or standardised and padded with empty channels (CNN)."""
        if not self.setting.cnn:
            return cast(Tensor, self.projection(x.flatten(1)))
        x = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
        empty = torch.zeros(len(x), self.setting.width - 3, *x.shape[2:])
        return torch.cat([x, empty], dim=1)

    def mixture(self, task: int, hide: bool) -> Tensor:
        """Weight of each module at each depth for a task: [modules, depth]. With `hide`, the last module is hidden."""
        logits = torch.stack(list(self.structure[task]))
        if hide and self.setting.renormalise:
            hidden = torch.arange(len(logits)) == len(logits) - 1
            logits = logits.masked_fill(hidden[:, None], -torch.inf)
        return logits.softmax(dim=0)

    def forward(self, x: Tensor, task: int, hide: bool = False) -> Tensor:
        """Logits [n, K] of a task. With `hide`, the last module, the candidate, takes no part."""
        h = self.enter(x)
        if self.setting.modular:
            visible = list(self.blocks)[:-1] if hide else list(self.blocks)
            s = self.mixture(task, hide)
            for k in range(self.setting.depth):
                total = torch.zeros(())
                for j, block in enumerate(visible):
                    total = total + s[j, k] * block(h)
                h = total
        else:
            for block in self.blocks:
                h = block(h)
        return cast(Tensor, self.heads[task](h.flatten(1)))

    def grow(self, task: int) -> None:
        """Append a module with random weights, usable by this task and later ones, invisible to earlier ones."""
        self.blocks.append(Block(self.setting, self.setting.dropout if self.drops(len(self.blocks)) else 0.0))
        for t, rows in enumerate(self.structure):
            rows.append(nn.Parameter(torch.full((self.setting.depth,), 1.0 if t >= task else -torch.inf)))

    def shrink(self) -> None:
        """Remove the last module and its rows; the softmax of each structure then runs over what remains."""
        self.blocks = nn.ModuleList(list(self.blocks)[:-1])
        self.structure = nn.ModuleList(nn.ParameterList(list(rows)[:-1]) for rows in self.structure)

    def load(self, weights: Weights) -> None:
        """Set what `weights` names; the rest stays."""
        unknown = weights.keys() - self.export().keys()
        if unknown:
            raise ValueError(f"a {self.setting.kind} has no {sorted(unknown)}; it has {sorted(self.export())}")
        with torch.no_grad():
            for name, value in weights.items():
                part, _, field = name.partition(".")
                if part == "projection":
                    getattr(self.projection, field).copy_(value)
                elif part == "module":
                    for block, one in zip(self.blocks, value, strict=True):
                        getattr(block.layer, field).copy_(one)
                elif part == "head":
                    for head, one in zip(self.heads, value, strict=True):
                        getattr(head, field).copy_(one)
                else:
                    for rows, logits in zip(self.structure, value, strict=True):
                        for row, one in zip(rows, logits, strict=True):
                            row.copy_(one)

    def export(self) -> Weights:
        """A copy of all weights in the layout above; a candidate that is still there is the last module."""
        weights = {
            "module.weight": torch.stack([block.layer.weight for block in self.blocks]),
            "module.bias": torch.stack([block.layer.bias for block in self.blocks]),
            "head.weight": torch.stack([head.weight for head in self.heads]),
            "head.bias": torch.stack([head.bias for head in self.heads]),
        }
        if not self.setting.cnn:
            weights |= {"projection.weight": self.projection.weight, "projection.bias": self.projection.bias}
        if self.setting.modular:
            weights["structure"] = torch.stack([torch.stack(list(rows)) for rows in self.structure])
        return {name: value.detach().clone() for name, value in weights.items()}


class Agent:
    """One agent alone: it learns its tasks in order, each by `learn`."""

    def __init__(
        self,
        setting: Setting,
        weights: Weights | None = None,  # first weights; what is not named is drawn
        choice: Tensor | None = None,  # modules of the initial tasks, [initial, depth]; `structure` in weights wins
        candidate: Callable[[int], tuple[Tensor, Tensor]] | None = None,  # task -> weight, bias of its new module
        order: Order | None = None,  # the order of samples in every pass
        keep: Callable[[int, int], Tensor] | None = None,  # (task, n) -> indices of train samples to replay later
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.setting = setting
        self.net = Net(setting, choice)
        self.net.load(weights or {})
        self.candidate = candidate
        self.order = order
        self.keep = keep
        self.waiting: list[Samples] = []  # train sets of the initial tasks, until they are learned together
        self.memory: dict[int, Samples] = {}  # replay buffers by task
        self.kept: dict[int, bool] = {}  # modular: whether task t added its candidate
        self.steps = 0  # Adam steps so far
        # Structures come in when their task begins; before and after, nothing trains them.
        self.adam = self.new_adam([*self.net.blocks.parameters(), *self.net.heads.parameters()])

    # The parts of a step.

    def new_adam(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Adam:
        """Adam over the given parameters, with the paper's rate and PyTorch's defaults."""
        return torch.optim.Adam(parameters, lr=self.setting.rate)

    def train_only(self, *parts: nn.Module) -> None:
        """Freeze everything else. What is frozen gets no gradient at all, so Adam skips it: no decay, no momentum."""
        self.net.requires_grad_(False)
        for part in parts:
            part.requires_grad_(True)

    def loader(self, kind: str, task: int, epoch: int, data: TensorDataset | ConcatDataset[Any]) -> DataLoader[Any]:
        """One pass over the data in batches, the last one possibly smaller."""
        order = self.order(kind, task, epoch, len(data)) if self.order else None
        if order is None:
            return DataLoader(data, self.setting.batch, shuffle=True)
        return DataLoader(data, self.setting.batch, sampler=order.tolist())

    def union(self, task: int, train: Samples) -> ConcatDataset[Any]:
        """The current train set, then the buffers of past tasks; each sample with its task: (x, y, task)."""
        parts = {task: train} | self.memory
        return ConcatDataset([TensorDataset(x, y, torch.full_like(y, t)) for t, (x, y) in parts.items()])

    def loss(self, x: Tensor, y: Tensor, tasks: Tensor, hide: bool = False) -> Tensor:
        """Cross-entropy, each sample through its own task's head, summed and divided by the batch size."""
        total = torch.zeros(())
        for task in sorted(set(tasks.tolist())):
            mine = tasks == task
            logits = self.net(x[mine], task, hide)
            total = total + functional.cross_entropy(logits, y[mine], reduction="sum")
        return total / len(y)

    def step(self, loss: Tensor, still: Iterable[nn.Parameter] = ()) -> None:
        """One Adam step. Heads of tasks not in the batch have no gradient and stay as they are; so does `still`."""
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        for parameter in still:
            parameter.grad = None
        self.adam.step()
        self.steps += 1

    # One epoch of each kind.

    def joint(self, epoch: int) -> None:
        """Initial tasks together: a batch and a step of task 0, of task 1, ...; again until all loaders are empty."""
        loaders = [self.loader("initial", t, epoch, TensorDataset(*train)) for t, train in enumerate(self.waiting)]
        self.train_only(self.net.blocks, self.net.heads)
        for batches in zip_longest(*loaders):
            for task, batch in enumerate(batches):
                if batch is not None:
                    x, y = batch
                    self.step(functional.cross_entropy(self.net(x, task), y))

    def replay(self, task: int, epoch: int, train: Samples) -> None:
        """Monolithic: one pass over the current train set and all buffers; all layers, and the heads in the batch."""
        self.train_only(self.net.blocks, self.net.heads)
        for x, y, tasks in self.loader("replay", task, epoch, self.union(task, train)):
            self.step(self.loss(x, y, tasks))

    def assimilate(self, task: int, epoch: int, train: Samples) -> None:
        """Modular: on every batch one step with the candidate and one without it; old modules are frozen."""
        rows, head, candidate = self.net.structure[task], self.net.heads[task], self.net.blocks[-1]
        still = [] if self.setting.hidden_logits_move or not self.setting.renormalise else [rows[-1]]
        for x, y in self.loader("assimilate", task, epoch, TensorDataset(*train)):
            self.train_only(rows, head, candidate)
            self.step(functional.cross_entropy(self.net(x, task), y))
            self.train_only(rows, head)
            self.step(functional.cross_entropy(self.net(x, task, hide=True), y), still)

    def adapt(self, task: int, epoch: int, train: Samples) -> None:
        """Modular: one pass over the current train set and all buffers that updates all modules and nothing else.

        Every batch is used twice, with the candidate and without. Modules that no task in the batch uses have weight
        zero, not no weight: their gradient is zero and Adam moves them by momentum. The hidden candidate has none.
        """
        self.train_only(self.net.blocks)
        for x, y, tasks in self.loader("adapt", task, epoch, self.union(task, train)):
            self.step(self.loss(x, y, tasks))
            self.step(self.loss(x, y, tasks, hide=True))

    # One task.

    def begin(self, task: int) -> None:
        """Start a task after the initial ones: a candidate and its rows (modular), and Adam's parameters."""
        net = self.net
        if self.setting.modular:
            net.grow(task)
            if self.candidate:
                with torch.no_grad():
                    weight, bias = self.candidate(task)
                    net.blocks[-1].layer.weight.copy_(weight)
                    net.blocks[-1].layer.bias.copy_(bias)
        trained = list(net.structure[task]) if self.setting.modular else []
        if self.setting.fresh:
            self.adam = self.new_adam([*net.blocks.parameters(), *net.heads.parameters(), *trained])
        elif self.setting.modular:
            self.adam.add_param_group({"params": [*net.blocks[-1].parameters(), *trained]})

    def epoch(self, task: int, epoch: int, train: Samples) -> None:
        """One epoch of a task after the initial ones."""
        if not self.setting.modular:
            self.replay(task, epoch, train)
        elif self.setting.adaptation and epoch == self.setting.epochs - 1:
            self.adapt(task, epoch, train)
        else:
            self.assimilate(task, epoch, train)

    def decide(self, task: int, val: Samples) -> None:
        """Modular: remove the candidate unless on validation data it is worth more than `threshold`, relative.

        (a1 - a0) / a0 > threshold in counts of right answers: exact at the threshold, and at a0 = 0 it asks for a1 > 0.
        """
        a1, a0 = self.right(task, *val), self.right(task, *val, hide_candidate=True)
        self.kept[task] = a1 - a0 > self.setting.threshold * a0
        if not self.kept[task]:
            self.net.shrink()

    def learn(self, task: int, train: Samples, val: Samples, watch: Callable[[int], None] | None = None) -> None:
        """Learn a task from start to end; `watch(label)` is called whenever accuracies are to be measured."""
        watch = watch or (lambda label: None)
        setting = self.setting
        watch(0)
        if task < setting.initial:
            self.waiting.append(train)
        else:
            self.begin(task)
        if task >= setting.initial - 1:
            for epoch in range(setting.epochs):
                if task < setting.initial:
                    self.joint(epoch)
                else:
                    self.epoch(task, epoch, train)
                if epoch % setting.every == 0:
                    watch(epoch + 1)
        if setting.modular and task >= setting.initial:
            self.decide(task, val)
        watch(setting.epochs + 1)
        x, y = train
        index = self.keep(task, len(y)) if self.keep else torch.randperm(len(y))[: setting.memory]
        self.memory[task] = x[index], y[index]

    def exercise(self, task: int, train: Samples, steps: int) -> int:
        """For timing: assimilate (or replay) a task that has begun, in whole passes until `steps` are taken.

        Returns the steps really taken. A batch is one step of replay, two of assimilation (with and without).
        """
        epoch, start = 0, self.steps
        while self.steps < start + steps:
            self.assimilate(task, epoch, train) if self.setting.modular else self.replay(task, epoch, train)
            epoch += 1
        return self.steps - start

    # What it knows.

    def right(self, task: int, x: Tensor, y: Tensor, hide_candidate: bool = False) -> int:
        """How many samples of a task are classified right, in eval mode."""
        training = self.net.training
        self.net.eval()
        with torch.no_grad():
            parts = [self.net(part, task, hide_candidate).argmax(dim=1) for part in torch.split(x, 500)]
        self.net.train(training)
        return int((torch.cat(parts) == y).sum())

    def accuracy(self, task: int, x: Tensor, y: Tensor, hide_candidate: bool = False) -> float:
        """The fraction of samples of a task that are classified right, in eval mode."""
        return self.right(task, x, y, hide_candidate) / len(y)


def labels(setting: Setting) -> list[int]:
    """When accuracies are measured: 0, then i + 1 after every epoch i divisible by `every`, then epochs + 1."""
    return [0, *range(1, setting.epochs + 1, setting.every), setting.epochs + 1]


def run(agent: Agent, stream: list[Data]) -> tuple[Tensor, Tensor]:
    """Learn a stream: test accuracies [T, G, T] with, and [T, G] of the current task without the candidate.

    NaN where nothing is measured: tasks to come, the labels between first and last of initial tasks but the last of
    them, and, in the second, times when there is no candidate.
    """
    grid = labels(agent.setting)
    table = torch.full((len(stream), len(grid), len(stream)), torch.nan)
    without = torch.full((len(stream), len(grid)), torch.nan)
    for t, data in enumerate(stream):

        def watch(label: int, t: int = t) -> None:
            g = grid.index(label)
            for u in range(t + 1):
                table[t, g, u] = agent.accuracy(u, *stream[u].test)
            if agent.setting.modular and t >= agent.setting.initial and 0 < g < len(grid) - 1:
                without[t, g] = agent.accuracy(t, *stream[t].test, hide_candidate=True)

        agent.learn(t, data.train, data.val, watch)
    return table, without
