"""For libraries that import torchvision, where that was built for another torch than the one that is here."""

import sys

import torch


def define_missing():
    """Define the two operators that torchvision looks for when it is imported, if its own library does not bring them."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    except ImportError:
        pass
