"""One run over several processes: each has a shard of the data, all have the same model.

torchrun --nproc-per-node 2 examples/distributed.py          (or with plain python: one process; needs pip install "fopng[demo]")
"""

import gc
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before a group is there: its functions would keep that one, and its threads, for ever
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import fopng

EPOCHS = 3
BATCH = 16


def make_tasks():
    """Real 8 x 8 digits: upright in the first task, turned by 90 degrees in the second."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
    for turns in (0, 1):
        pixels = torch.rot90(images, turns, dims=(1, 2)).flatten(1)
        yield TensorDataset(pixels[:1408], labels[:1408]), (pixels[1408:], labels[1408:])


def learn(device):
    """Train on one task after the other, save where that ends, and say how well each is known then."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10)).to(device)
    shared = DistributedDataParallel(model)
    # the wrapped model: that is how the optimizer knows who shares the run
    first = torch.optim.SGD(model.parameters(), lr=1e-1)
    optimizer = fopng.FOPNG(shared, lr=3e-3, gradients_per_task=200, projection="orthogonal", first_task=first)
    tests = []
    for number, (train, test) in enumerate(make_tasks()):
        sampler = DistributedSampler(train, seed=number)
        loader = DataLoader(train, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
        optimizer.begin_task(number)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            optimizer.refresh(loader)  # in every process
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(shared(x.to(device)), y.to(device)).backward()
                optimizer.step()
        optimizer.end_task(loader)
        tests.append(test)
    with torch.no_grad():
        right = [(model(x.to(device)).argmax(1) == y.to(device)).float().mean().item() for x, y in tests]
    held = optimizer.diagnose().bytes
    state = optimizer.state_dict()  # in every process; the same in all, for any number of them
    if dist.get_rank() == 0:
        torch.save(state, "distributed.pt")
        told = f"first task {right[0]:.1%}, second task {right[1]:.1%}, {held / 1e3:.0f} kB each"
        print(f"{dist.get_world_size()} processes: {told}")


if __name__ == "__main__":
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ.update({name: os.environ.get(name, value) for name, value in alone.items()})
    gpus = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo", device_id=device if gpus else None)
    learn(device)
    # nothing holds the group any more, so that its threads end here: one that runs on while Python ends may abort the process
    gc.collect()
    dist.destroy_process_group()
