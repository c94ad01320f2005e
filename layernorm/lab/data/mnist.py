"""MNIST: handwritten digits of 28x28 pixels, the data of the paper's section 6.6."""

from layernorm.lab.data import idx
from layernorm.lab.data.dataset import Dataset
from layernorm.lab.data.pinned import Pinned
from layernorm.lab.data.splits import Splits, scaled

TRAINING_POINTS = 55_000


def mnist() -> Splits:
    """70,000 digits of 28x28 pixels in ten classes: the paper's 55,000 training points and more.

    Pixels are the file's 0..255 divided by 255. Of the 60,000 examples of the training file the
    first 55,000 are for training and the last 5,000 for validation (the paper says how many it
    trained on, not which); the 10,000 of the test file are for test, as everywhere.

    The four IDX files are read from `$LAYERNORM_DATA/mnist` if they are there, else from the
    cache folder, downloaded once; each must have its pinned SHA-256. Held in memory as float32:
    220 MB. Source: Y. LeCun, C. Cortes, C. Burges, The MNIST database, CC BY-SA 3.0.

    Raises:
        ModuleNotFoundError: a download is needed and pooch is not installed.
        OSError: no mirror gave the files; says what to do by hand.
        ValueError: a file in `$LAYERNORM_DATA/mnist` is not the pinned one.
    """
    images, labels, test_images, test_labels = (found.path for found in MNIST.fetch())
    x, y = idx.read_labeled(images, labels, classes=10)
    parts = {
        "train": (x[:TRAINING_POINTS], y[:TRAINING_POINTS]),
        "validation": (x[TRAINING_POINTS:], y[TRAINING_POINTS:]),
        "test": idx.read_labeled(test_images, test_labels, classes=10),
    }
    return scaled("mnist", parts, maximum=255)


MNIST = Dataset(
    name="mnist",
    what="70,000 handwritten digits of 28x28 pixels, ten classes (55,000/5,000/10,000)",
    license="CC BY-SA 3.0",
    source="Y. LeCun, C. Cortes, C. Burges: The MNIST database of handwritten digits",
    load=mnist,
    content="9384fd406e3fdef7922aa260e990bfec35d69fdbe6ce1be8a709d0f49ac89bc5",
    files=(
        Pinned(
            "train-images-idx3-ubyte.gz",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            9_912_422,
        ),
        Pinned(
            "train-labels-idx1-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            28_881,
        ),
        Pinned(
            "t10k-images-idx3-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            1_648_877,
        ),
        Pinned(
            "t10k-labels-idx1-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            4_542,
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)
