"""The command line: what it prints, and one sentence for each thing that cannot be."""

import json
import os
import re
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest
import torch

import shoal
from shoal.cli.commands import NAMED
from shoal.cli.examples import EXAMPLES
from shoal.doors import line
from shoal.errors import Stopped
from shoal.runs.record import reopen
from shoal_paper import families
from tests.command import DIGITS, TINY, Done, call, command, refused
from tests.fleets import last_saved

PROMISED = {
    "final_accuracy", "final_accuracy_se", "auc", "auc_se", "agents", "seeds", "tasks", "seconds", "modules", "out",
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("nowhere")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, made by the real command; its output is beside it."""
    place = tmp_path_factory.mktemp("finished")
    words = ("run", DIGITS, *TINY, "--json", "--out", place / "run")
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    (place / "out").write_text(done.stdout)
    (place / "err").write_text(done.stderr)
    assert done.returncode == 0, done.stderr
    return place / "run"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["data", "list"], ["list", "settings"], ["list", "experiments"]]
)
def test_help_and_lists_do_not_wait_for_torch(words: list[str]) -> None:
    done = subprocess.run(
        [*command()[:1], "-X", "importtime", *command(*words)[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"typer", "shoal"} <= imported
    assert not {"torch", "polars", "safetensors"} & imported
    assert done.stdout


def test_help_names_every_command() -> None:
    done = call("--help")
    assert done.code == 0
    commands = (
        "run resume demo check network export predict transfer report reproduce compare sweep advise list data live"
    )
    assert set(commands.split()) == {name for name in EXAMPLES if " " not in name}
    for name in commands.split():
        assert name in done.out


def test_the_help_of_reproduce_names_all_that_can_be() -> None:
    done = call("reproduce", "--help")
    told = set(re.findall(r"[\w-]+", done.out))
    assert done.code == 0
    assert told >= {*families.FAMILIES, "all", "report", *families.DATASETS, *families.MODELS, *families.METHODS}


def test_json_is_all_there_is_on_stdout(finished: Path) -> None:
    lines = (finished.parent / "out").read_text().splitlines()
    assert len(lines) == 1
    summary = json.loads(lines[-1])
    assert set(summary) >= PROMISED
    assert summary == json.loads((finished / "summary.json").read_text())
    assert (summary["agents"], summary["seeds"], summary["tasks"]) == (2, 2, 6)
    assert summary["out"] == str(finished)
    assert 50 < summary["final_accuracy"] < 100
    assert summary["final_accuracy_se"] > 0
    assert 4 <= summary["modules"] <= 6


def test_progress_is_on_stderr(finished: Path) -> None:
    lines = (finished.parent / "err").read_text().splitlines()
    assert lines[0] == f"run directory {finished}"
    assert lines[1] == "tasks 1 to 4 train jointly"
    assert [line.partition(" done, accuracy ")[0] for line in lines[2:]] == ["task 4/6", "task 5/6", "task 6/6"]


def test_resuming_a_finished_run_reports_it_again(finished: Path) -> None:
    before = contents(finished)
    done = call("resume", finished, "--json")
    assert done.code == 0
    assert json.loads(done.out) == json.loads((finished / "summary.json").read_text())
    assert done.err == f"{finished} was finished already\n"
    assert contents(finished) == before
    shown = call("resume", finished)
    assert "final accuracy, %" in shown.out
    assert shown.out.endswith(f"in {finished}\n")


def test_a_run_goes_where_its_name_and_identity_say() -> None:
    done = call("run", DIGITS, *TINY, "learner.epochs=1", "model=mlp", "--seeds", 1)
    assert done.code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name == f"digits-mlp-{reopen(folder).settings.identity()}"
    assert reopen(folder).settings.seeds == 1
    assert done.out.splitlines()[-1] == f"in {folder}"


def test_seeds_can_be_said_twice_and_the_option_wins() -> None:
    done = call("run", DIGITS, *TINY, "learner.epochs=1", "seeds=3", "--seeds", 1, "--json")
    assert json.loads(done.out)["seeds"] == 1


def test_settings_of_a_run_can_be_run_again(finished: Path) -> None:
    done = call("run", finished / "settings.toml", "--out", "again", "--json")
    first, second = json.loads((finished / "summary.json").read_text()), json.loads(done.out)
    for summary in (first, second):
        summary.pop("seconds")
        summary.pop("out")
    assert first == second


def test_data_list_says_what_is_here() -> None:
    done = call("data", "list")
    assert done.code == 0
    assert done.out.split()[:2] == ["dataset", "here"]
    for name in ("digits", "mnist", "kmnist", "fashionmnist", "cifar100", "combined"):
        assert name in done.out
    assert call("list", "datasets").out == done.out


def test_list_settings_explains_every_key_as_toml_has_it() -> None:
    done = call("list", "settings")
    assert done.code == 0
    for name in ("dataset", "tasks.count", "learner.adaptation", "machine.checkpoint"):
        assert name in done.out
    assert '"digits"' in done.out
    assert "True" not in done.out.partition("The protocol")[0]


@pytest.mark.parametrize("what", NAMED)
def test_lists_have_a_line_on_each_and_nothing_else(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    door, also = NAMED[what]
    module, _, name = door.partition(":")
    table = getattr(import_module(module), name)
    done = call("list", what)
    assert done.code == 0
    told = done.out
    assert "what it is" in told.splitlines()[0]
    assert len(told.splitlines()) < 3 * len(table) + 5
    plain = " ".join(told.split())
    for entry in table:
        assert len(line(table[entry])) > 10
        assert f"{entry} {line(table[entry])}" in plain
    assert also in plain


@pytest.mark.parametrize(
    ("what", "name", "own"),
    [
        ("sharing", "recv", ["sharing.queries", "sharing.every", "find hard", "paper*"]),
        ("modes", "fedprox", ["sharing.mu", "strength of the pull"]),
        ("sharing", "shoal.sharing.recv:Recv", ["sharing.queries"]),
        ("learners", "ewc", ["learner.strength", "how hard weights are held", "`shoal list settings` shows for all"]),
        ("learners", "none", ["`shoal list settings` shows for all"]),
        ("rules", "krum", []),
    ],
)
def test_one_entry_of_a_list_is_shown_with_its_settings(what: str, name: str, own: list[str]) -> None:
    module, _, attribute = NAMED[{"modes": "sharing"}.get(what, what)][0].partition(":")
    done = call("list", what, name)
    assert done.code == 0
    told = " ".join(done.out.split())
    assert told.startswith(f"{name}: {line(getattr(import_module(module), attribute).find(name))}")
    for word in own:
        assert word in told
    assert "sharing.mu" not in told or name == "fedprox"


def test_lists_say_what_hides_in_a_built_in_net() -> None:
    told = " ".join(call("list", "models").out.split())
    for word in ("frozen random", "CIFAR-100's", "statistics", "package.module:Net", "modular-package.module:Block"):
        assert word in told


def test_check_and_the_record_say_which_engine_runs_a_net_and_why(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(DIGITS.read_text())
    done = call("check", file)
    assert "it runs under vmap, because small matrices of all agents pay off in one kernel" in done.out
    assert call("run", DIGITS, *TINY, "--out", tmp_path / "run").code == 0
    (model,) = json.loads((tmp_path / "run" / "about.json").read_text())["models"]
    assert model.startswith("modular-mlp: 3 tensors of ")


def test_only_what_there_is_can_be_listed() -> None:
    refused(call("list", "fish"), "cannot list `fish`; allowed: settings, sharing, learners, graphs")
    refused(call("list", "sharing", "rcv"), "there is no sharing mode `rcv`; did you mean `recv`?")
    for what in ("settings", "datasets", "experiments"):
        refused(call("list", what, "recv"), f"`shoal list {what}` shows all and takes no name, got `recv`; leave")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["dataset=mnits"], ["unknown dataset `mnits`", "digits, mnist,", "did you mean `mnist`?"]),
        (["model=mlpp"], ["there is no model `mlpp`; did you mean `mlp`?", "modular-cnn"]),
        (["protocol=papr"], ["`protocol` cannot be 'papr'; allowed: 'fair', 'paper'"]),
        (["agnets=2"], ["unknown setting `agnets`; did you mean `agents`?"]),
        (["learner.epcohs=2"], ["unknown setting `learner.epcohs`; did you mean `learner.epochs`?"]),
        (["epochs=2"], ["unknown setting `epochs`; did you mean `learner.epochs`?"]),
        (["epochs"], ["cannot read `epochs`; settings on the command line look like learner.epochs=50"]),
        (["machine.device=nonsense"], ["`machine.device` cannot be 'nonsense'; allowed: cpu, cuda or cuda:N"]),
        (["machine.device=meta"], ["`machine.device` cannot be 'meta'; allowed: cpu, cuda or cuda:N"]),
        (["machine.device=cuda:99"], ["machine.device = 'cuda:99' is not on this machine; it has: cpu"]),
        (["agents=0"], ["`agents` cannot be 0; allowed: a whole number above 0"]),
        (["--seeds", "0"], ["`seeds` cannot be 0; allowed: a whole number above 0"]),
        (["tasks.replacement=false"], ["tasks.classes = 2 x tasks.count = 6", "needs 12 classes, the data has 10"]),
        (["tasks.classes=11"], ["tasks.classes = 11 needs 11 classes, the data has 10"]),
        (["tasks.train=500"], ["tasks.train = 500 per class asks for 1000 rows", "ask for fewer"]),
        (["tasks.validation=500"], ["tasks.validation = 500 per class asks for 1000 rows", "ask for fewer"]),
        (["learner.memory=33"], ["learner.memory = 33 is more than the 32 training rows of a task", "lower"]),
        (["tasks.initial=7"], ["tasks.initial = 7 is more than tasks.count = 6"]),
    ],
)
def test_a_wrong_setting_gets_one_sentence_and_nothing_is_written(words: list[str], parts: list[str]) -> None:
    refused(call("run", DIGITS, *TINY, *words, "--out", "run"), *parts)
    assert not Path("run").exists()
    assert not list(Path().iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_gets_one_sentence() -> None:
    refused(call("run", DIGITS, "machine.device=cuda"), "machine.device = 'cuda' is not on this machine; it has: cpu")


def test_bad_input_is_the_same_for_the_real_command() -> None:
    words = ("run", DIGITS, *TINY, "learner.epcohs=2", "--json")
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    refused(Done(done.returncode, done.stdout, done.stderr), "did you mean `learner.epochs`?")
    assert not list(Path().iterdir())


def test_a_settings_file_that_is_none_gets_one_sentence() -> None:
    Path("bad.toml").write_text("agents: 8\n")
    Path("bytes.toml").write_bytes(bytes(range(256)))
    refused(call("run", "bad.toml"), "cannot read bad.toml as TOML: Expected '='", "line 1")
    refused(call("run", "bytes.toml"), "cannot read bytes.toml as TOML")
    refused(call("run", "none.toml"), "no settings file none.toml", "those that come with shoal: budget, cifar100,")
    refused(call("run", Path.cwd()), "Is a directory")
    assert sorted(path.name for path in Path().iterdir()) == ["bad.toml", "bytes.toml"]


def test_missing_data_gets_one_sentence_that_says_where_to_put_it() -> None:
    Path("data").mkdir()
    refused(
        call("run", DIGITS, *TINY, "dataset=mnist", "--data", "data"),
        "dataset `mnist` was not found", "the given folder data: not there", "run `shoal data get mnist`",
        "put train-images-idx3-ubyte", "into data/MNIST/raw",
    )  # fmt: skip
    refused(call("run", DIGITS, *TINY, "dataset=combined"), "dataset `mnist` was not found")
    assert not Path("runs").exists()


def test_damaged_data_gets_one_sentence_and_is_left_as_it_is() -> None:
    raw = Path("data/MNIST/raw")
    raw.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{name}-ubyte").write_bytes(b"not an image")
    before = contents(Path("data"))
    refused(
        call("run", DIGITS, *TINY, "dataset=mnist", "--data", "data"),
        "data/MNIST/raw/train-images-idx3-ubyte is damaged: expected 47040016 bytes, found 12 bytes", "delete it",
    )  # fmt: skip
    assert contents(Path("data")) == before
    assert not Path("runs").exists()


def test_a_finished_run_is_not_written_over(finished: Path) -> None:
    before = contents(finished)
    again = call("run", DIGITS, *TINY, "--out", finished)
    assert (again.code, again.err) == (0, f"{finished} was finished already\n")
    refused(call("run", DIGITS, *TINY, "learner.rate=0.002", "--out", finished), "learner.rate")
    assert contents(finished) == before


def test_an_unfinished_run_says_resume(finished: Path) -> None:
    unfinished(finished, Path("run"))
    before = contents(Path("run"))
    refused(call("run", DIGITS, *TINY, "--out", "run"), "run holds an unfinished run; go on with `shoal resume run`")
    assert contents(Path("run")) == before


def unfinished(finished: Path, folder: Path) -> None:
    """A copy of a run as it is just before its end, without checksums, so that a test may change what it says."""
    folder.mkdir()
    for path in finished.iterdir():
        if path.name not in ("summary.json", "manifest.json"):
            (folder / path.name).write_bytes(path.read_bytes())


def test_an_output_folder_that_is_a_file_is_left_alone() -> None:
    Path("run").write_text("mine")
    refused(call("run", DIGITS, *TINY, "--out", "run"), "run is a file; choose another folder as `out`")
    refused(call("run", DIGITS, *TINY, "--out", "run/x"), "cannot make the folder run/x: Not a directory")
    assert Path("run").read_text() == "mine"


def test_a_path_with_brackets_is_shown_as_it_is() -> None:
    folder = Path("[red]" + "x" * 100 + "[/nothing]")
    done = call("run", DIGITS, *TINY, "learner.epochs=1", "--out", folder)
    assert done.code == 0
    assert done.err.splitlines()[0] == f"run directory {folder}"
    assert done.out.splitlines()[-1] == f"in {folder}"
    refused(call("run", DIGITS, *TINY, "--out", folder), f"{folder} holds another run")


def test_resume_needs_a_run_directory() -> None:
    refused(call("resume", "none"), "none is not a run directory: it has no settings.toml; `shoal run` makes one")
    Path("empty").mkdir()
    refused(call("resume", "empty"), "empty is not a run directory")
    assert not list(Path("empty").iterdir())


@pytest.mark.parametrize(("key", "value"), [("format", 99), ("shoal", "0.0.1")])
def test_a_run_of_another_version_is_refused(finished: Path, key: str, value: object) -> None:
    unfinished(finished, Path("run"))
    about = json.loads(Path("run/about.json").read_text()) | {key: value}
    Path("run/about.json").write_text(json.dumps(about))
    before = contents(Path("run"))
    refused(
        call("resume", "run"),
        f"run was made by shoal {about['shoal']} (format {about['format']}), this is shoal {shoal.__version__}",
        "continue it with that version, or start a new run",
    )
    assert contents(Path("run")) == before


def test_the_result_of_another_version_can_still_be_read(finished: Path) -> None:
    unfinished(finished, Path("run"))
    Path("run/summary.json").write_bytes((finished / "summary.json").read_bytes())
    about = json.loads(Path("run/about.json").read_text()) | {"shoal": "0.0.1"}
    Path("run/about.json").write_text(json.dumps(about))
    assert call("resume", "run", "--json").code == 0


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_a_damaged_about_file_is_named(finished: Path, text: str) -> None:
    unfinished(finished, Path("run"))
    Path("run/about.json").write_text(text, encoding="latin1")
    refused(call("resume", "run"), "cannot read run/about.json: ", "restore it, or start a new run")


def test_damaged_settings_are_named(finished: Path) -> None:
    unfinished(finished, Path("run"))
    with Path("run/settings.toml").open("a") as file:
        file.write("chekpoint = 3\n")
    refused(call("resume", "run"), "run/settings.toml: unknown setting `machine.chekpoint`", "`machine.checkpoint`?")


def test_a_damaged_summary_is_named(finished: Path) -> None:
    unfinished(finished, Path("run"))
    Path("run/summary.json").write_text("{")
    refused(call("resume", "run"), "cannot read run/summary.json: ")


def resume_refused(*parts: str) -> None:
    """A run directory that cannot be continued is said to be so, after the line that names it, and left as it is."""
    before = contents(Path("run"))
    done = call("resume", "run")
    first, rest = done.err.split("\n", 1)
    assert first == "run directory run"
    refused(done._replace(err=rest), *parts)
    assert contents(Path("run")) == before


def test_a_damaged_checkpoint_is_named_and_kept(finished: Path) -> None:
    unfinished(finished, Path("run"))
    whole = Path("run/checkpoint.safetensors").read_bytes()
    Path("run/checkpoint.safetensors").write_bytes(whole[:-100])
    resume_refused("run/checkpoint.safetensors is damaged", "delete it and `shoal resume run` starts again")
    Path("run/checkpoint.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    resume_refused("run/checkpoint.safetensors is damaged")


def test_a_checkpoint_of_other_settings_is_refused(finished: Path) -> None:
    unfinished(finished, Path("run"))
    text = Path("run/settings.toml").read_text()
    Path("run/settings.toml").write_text(text.replace("seed = 10\n", "seed = 11\n"))
    resume_refused("run/checkpoint.safetensors belongs to other settings than run/settings.toml", "start a new run")


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Inside, writing more than `size` bytes into a file fails (Python ignores the signal that comes with it)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_loses_nothing(finished: Path) -> None:
    """The checkpoint grows when the common start ends and every agent gets its own: that one does not fit."""
    with no_file_above((finished / "checkpoint.safetensors").stat().st_size * 3 // 4):
        done = call("run", DIGITS, *TINY, "--out", "run")
        assert done.code == 2
        assert done.err.splitlines()[-1] == (
            "error: cannot write run/checkpoint.safetensors: File too large; what was saved before is whole: make "
            "room, then `shoal resume run`"
        )
    stacks = last_saved(reopen(Path("run")))
    assert stacks is not None
    assert stacks[0].task == 4
    assert call("resume", "run", "--json").code == 0
    assert_same_result(finished, Path("run"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of one page, which `grow` can make larger."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def grow(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)


def test_a_full_disk_loses_nothing(finished: Path, disk: Path) -> None:
    """On a disk that gains a few pages whenever it is full, a run still ends where it should."""
    folder = disk / "run"
    failed = set()
    for kilobytes in (4, 8, 12, *range(16, 800, 12)):
        grow(disk, kilobytes)
        begun = (folder / "settings.toml").exists()
        done = call("resume", folder) if begun else call("run", DIGITS, *TINY, "--out", folder)
        if done.code == 0:
            break
        assert done.code == 2
        assert "Traceback" not in done.err
        last = done.err.splitlines()[-1]
        assert last.startswith("error: cannot write ")
        assert "No space left on device; " in last
        assert last.count("error: ") == 1
        if (folder / "settings.toml").exists():
            assert last.endswith(f"what was saved before is whole: make room, then `shoal resume {folder}`")
            last_saved(reopen(folder))
        assert not list(folder.glob("*.part"))
        failed.add(last.split(": ")[1].rpartition("/")[2])
    assert_same_result(finished, folder)
    assert {"settings.toml", "checkpoint.safetensors"} <= failed


def assert_same_result(one: Path, other: Path) -> None:
    stacks = [last_saved(reopen(folder)) for folder in (one, other)]
    tensors = [
        {name: t.numpy().tobytes() for name, t in stack.tensors.items()} for one in stacks if one for stack in one
    ]
    assert tensors[0] == tensors[1]
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}


def test_check_says_what_sharing_will_cost() -> None:
    done = call("check", DIGITS, "learner.epochs=60", "sharing=fedavg", "network.budget=3000", "network.every=10")
    assert done.code == 0
    words = " ".join(done.out.split())
    # A module of width 32 has 32 * 32 + 32 floats and a number: two of four fit 3,000. Every 5 of 60 epochs, 4 tasks
    # have 12 exchanges each, and an edge that rests for 10 epochs carries every other one.
    for part in (
        "224 links over all seeds; every agent is connected",
        "224 links: 3,000 floats per exchange, at least 10 epochs", "fedavg, model", "2 of 4",
        "floats 2,114", "floats by the paper's rule 2,112", "exchanges in a task 12", "floats in a task 12,684",
        "messages in the run 48", "floats in the run 50,736", "refused: link at rest 24", "refused: over budget 0",
    ):  # fmt: skip
        assert part in words, done.out
    assert not list(Path().iterdir())


def test_check_tells_the_truth() -> None:
    words = ("sharing=recv", "network=ring", "network.budget=2000", "sharing.every=2", "sharing.nearest=2")
    planned = call("check", DIGITS, *TINY, *words)
    done = call("run", DIGITS, *TINY, *words, "--out", "run", "--json")
    assert (planned.code, done.code) == (0, 0), (planned.err, done.err)
    ledger = pl.read_parquet("run/ledger.parquet")
    assert len(ledger)
    asked = ledger.filter(kind="question")
    titles = {line.rsplit("  ")[0].strip(): line.split()[-2:] for line in planned.out.splitlines() if line.strip()}
    assert titles["floats"][0] == f"{asked['floats'][0]:,}"
    assert titles["bytes"][0] == f"{asked['bytes'][0]:,}"
    per_edge = asked.group_by("seed", "sender", "receiver").agg(pl.len(), pl.col("floats").sum())
    assert set(per_edge["len"]) == {int(titles["messages in the run"][0])}
    assert {f"{value:,}" for value in per_edge["floats"]} == {titles["floats in the run"][0]}


def test_a_run_that_shares_says_what_it_cost() -> None:
    done = call("run", DIGITS, *TINY, "sharing=fedavg", "sharing.every=1", "network=ring", "--out", "run")
    assert done.code == 0, done.err
    ledger = pl.read_parquet("run/ledger.parquet")
    assert set(ledger["verdict"]) == {"accepted"}
    assert f"in {len(ledger):,} messages" in done.out
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["bytes_total"] == ledger["bytes"].sum()


def test_a_programming_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_TRACEBACK", "1")

    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("shoal.runs.execute.carry_out", broken)
    monkeypatch.setattr("shoal.own_code.is_theirs", lambda frame: False)  # as if it stood in shoal
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        call("run", DIGITS, *TINY)


def test_a_stop_anywhere_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise Stopped("stopped and saved")

    monkeypatch.setattr("shoal.cli.demo.show", stop)
    assert call("demo") == Done(130, "", "stopped and saved\n")


def test_a_full_disk_and_a_terminal_that_knows_few_letters_are_no_tracebacks() -> None:
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            words = command("list", "settings")
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("error: cannot write: ")
    words = command("check", "links")
    few = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(words, capture_output=True, text=True, encoding="latin-1", env=few, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_said() -> None:
    assert call("--version").out == f"shoal {shoal.__version__}\n"
