"""MNIST and the two datasets published in its format: idx files, 28x28 grey images, ten classes."""

import math
import struct
from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shoal.data.bank import Bank, split
from shoal.data.dataset import Content, DataError, Dataset, Download, File

UNSIGNED_BYTE = 8  # the idx code for uint8, the only element type these datasets use
FILES = {  # that each of these datasets has, and their bytes
    "train-images-idx3-ubyte": 47040016,
    "train-labels-idx1-ubyte": 60008,
    "t10k-images-idx3-ubyte": 7840016,
    "t10k-labels-idx1-ubyte": 10008,
}


def parse(content: Content, axes: int) -> NDArray[np.uint8]:
    """The array in an idx file: two zero bytes, element type, number of axes, sizes (big endian), elements."""
    data, path = content.data, content.path
    head = 4 + 4 * axes
    magic = bytes((0, 0, UNSIGNED_BYTE, axes))
    if data[:4] != magic:
        raise DataError(
            f"{path} is not an idx file of bytes with {axes} axes: it must start with {magic.hex()}, "
            f"but starts with {data[:4].hex() or 'nothing'}; replace it by the published file"
        )
    if len(data) < head:
        raise DataError(
            f"{path} is damaged: its header must have {head} bytes, but it ends after {len(data)}; "
            "replace it by the published file"
        )
    shape = struct.unpack(f">{axes}I", data[4:head])
    if len(data) != head + math.prod(shape):
        raise DataError(
            f"{path} is damaged: its header promises {list(shape)}, that is {head + math.prod(shape)} bytes, "
            f"but it has {len(data)}; replace it by the published file"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def read(name: str, contents: Mapping[str, Content], classes: tuple[str, ...]) -> Bank:
    """The bank of four idx files: images[N, 28, 28] and labels[N] of the training and the test set."""

    def half(prefix: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        images = parse(contents[f"{prefix}-images-idx3-ubyte"], 3)
        labels = parse(contents[f"{prefix}-labels-idx1-ubyte"], 1)
        if len(images) != len(labels):
            folder = contents[f"{prefix}-images-idx3-ubyte"].path.parent
            raise DataError(
                f"{folder} has {len(images)} {prefix} images but {len(labels)} {prefix} labels; "
                "replace both files by the published ones"
            )
        return images, labels.astype(np.int64)

    return split(name, half("train"), half("t10k"), classes)


def downloads(folder: str, sums: str) -> tuple[Download, ...]:
    """The four files as their host offers them, with gzip, each under its own name and `.gz`. `sums` has the md5 and
    the SHA-256 of each, and the size and the md5 of what is downloaded."""
    rows = zip(FILES.items(), *[iter(sums.split())] * 4, strict=True)
    return tuple(
        Download(f"{name}.gz", int(packed), packed_md5, (File(f"{folder}/raw/{name}", size, md5, sha256),))
        for (name, size), md5, sha256, packed, packed_md5 in rows
    )


MNIST = Dataset(
    name="mnist",
    about="handwritten digits, 70,000 grey images of 28x28, 10 classes",
    licence="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
    citation="LeCun and others: Gradient-based learning applied to document recognition. Proc. IEEE, 1998",
    read=partial(read, classes=tuple("0123456789")),
    # The first is a mirror: the author's own host has refused downloads for long stretches.
    hosts=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
    downloads=downloads(
        "MNIST",
        """
        6bbc9ace898e44ae57da46a324031adb ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
        9912422 f68b3c2dcbeaaa9fbdd348bbdeb94873
        a25bea736e30d166cdddb491f175f624 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
        28881 d53e105ee54ea40749a09fcbcd1e9432
        2646ac647ad5339dbf082846283269ea 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
        1648877 9fb629c4189551a2d022fa330f9573f3
        27ae3e4e09519cfbb04c329615203637 ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
        4542 ec29112dd5afa0611ce80d1b7f02629c
        """,
    ),
)

KMNIST = Dataset(
    name="kmnist",
    about="handwritten Japanese characters (Kuzushiji), 70,000 grey images of 28x28, 10 classes",
    licence=(
        'CC BY-SA 4.0; "KMNIST Dataset" (created by CODH), adapted from "Kuzushiji Dataset" '
        "(created by NIJL and others), doi:10.20676/00000341"
    ),
    citation="Clanuwat and others: Deep learning for classical Japanese literature. arXiv:1812.01718, 2018",
    read=partial(read, classes=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")),
    hosts=("https://codh.rois.ac.jp/kmnist/dataset/kmnist/", "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"),
    downloads=downloads(
        "KMNIST",
        """
        92be26ec9822e900ac425d0a0aa84ced 7112ba9ec422d98de4885262d4a4dff14cc4fefb81c11ace8bf563a8255df5c3
        18165135 bdb82020997e1d708af4cf47b453dcf7
        949e75301f8813e0dc5800dcc320fc52 2a16eeae62da984b8bd24fa32e31d47291f01dac3fe84d5594f304f71e7d374b
        29497 e144d726b3acfaa3e44228e80efcd344
        bf305b8cd328700fbc17f5acbc2856d2 76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e
        3041136 5c965bf0a639b31b8f53240b1b52f4d7
        9f55f451c0988b028eccdf7d5cc265ab a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6
        5120 7320c461ea6c1c855c0b718fb2a4b134
        """,
    ),
)

FASHIONMNIST = Dataset(
    name="fashionmnist",
    about="articles of clothing, 70,000 grey images of 28x28, 10 classes",
    licence="MIT (Zalando SE, 2017)",
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST. arXiv:1708.07747, 2017",
    read=partial(
        read,
        classes=("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot"),
    ),
    # The host of a web site in S3 has no https, the store behind it has.
    hosts=(
        "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    downloads=downloads(
        "FashionMNIST",
        """
        f4a8712d7a061bf5bd6d2ca38dc4d50a c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
        26421880 8d4fb7e6c68d591d4c3dfef9ec88bf0d
        9018921c3c673c538a1fc5bad174d6f9 bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
        29515 25c81989df183df01b3e8a0aad5dffbe
        8181f5470baa50b63fa0f6fddb340f0a 5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
        4422102 bef4ecab320f06d8554ea6380940ec79
        15d484375f8d13e6eb1aabb0c3f46965 0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
        5148 bb300cfdad3c16e7a12a480ee83cd310
        """,
    ),
)
