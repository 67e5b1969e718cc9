"""Processes that share a run: started from one that has imported everything, so that four cost little more than one."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

TESTS = Path(__file__).parents[1]
PATIENCE = 180


def launch(
    count: int, job: str, folder: Path, *, lost: int | None = None, backend: str = "gloo", device: str = "cpu"
) -> list[Any]:
    """What a job gives in each of so many processes.

    Args:
        count: W.
        job: a function of `distributed.jobs`, called in every process.
        folder: a new one, for what they give and for where they meet.
        lost: the process that gives nothing, because it dies.
        backend: what carries their messages.
        device: where all of them compute.
    """
    folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "distributed.fleet", str(count), job, str(folder)],
        cwd=TESTS,
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "FOPNG_FLEET": str(folder),
            "FOPNG_FLEET_BACKEND": backend,
            "FOPNG_FLEET_DEVICE": device,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    files = [folder / f"{number}.pt" for number in range(count)]
    return [
        None if number == lost else torch.load(file, weights_only=True, map_location="cpu")
        for number, file in enumerate(files)
    ]


def _work(number: int, count: int, job: str, folder: Path) -> None:
    import torch.distributed as dist

    from distributed import jobs

    backend = os.environ["FOPNG_FLEET_BACKEND"]
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=number, world_size=count)
    torch.save(getattr(jobs, job)(), folder / f"{number}.pt")
    if dist.is_initialized():
        dist.destroy_process_group()


def _children(count: int, job: str, folder: Path) -> int:
    """Fork, and end as soon as one fails; the others must notice by themselves."""
    from distributed import jobs  # noqa: F401  # once, for all

    torch.set_num_threads(1)
    children = {}
    for number in range(count):
        child = os.fork()
        if child == 0:
            try:
                _work(number, count, job, folder)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children[child] = number
    worst, deadline = 0, time.monotonic() + PATIENCE - 10
    while children and time.monotonic() < deadline:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            del children[child]
            worst = max(worst, os.waitstatus_to_exitcode(status))
        else:
            time.sleep(0.02)
    for child in children:
        os.kill(child, 9)
    return 1 if children else worst


if __name__ == "__main__":
    sys.exit(_children(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
