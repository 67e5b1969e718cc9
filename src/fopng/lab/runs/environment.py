"""What a run ran on: it may explain a number, and is no part of the configuration."""

import platform
from importlib import metadata

import torch

import fopng
from fopng.lab.runs.config import Value


def describe_environment(device: torch.device) -> dict[str, Value]:
    """Versions, device and threads; nothing that names a person or a machine.

    >>> describe_environment(torch.device("cpu"))["device"]
    'cpu'
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "fopng": fopng.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": metadata.version("numpy"),
        "cuda": torch.version.cuda,
        "system": platform.system(),
        "device": device.type,
        "device_name": name,
        "threads": torch.get_num_threads(),
    }
