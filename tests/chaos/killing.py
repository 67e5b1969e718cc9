"""Commands that are killed, stopped, refused by the system or crowded, and then go on."""

import errno
import math
import os
import random
import signal
import time
from pathlib import Path

from chaos.accidents import Count, Refuse, Room, SignalAt
from chaos.laboratory import (
    Job,
    References,
    Undisturbed,
    begin,
    check_left,
    end,
    finish,
    numbers_in,
    scratch,
    session,
    told,
)
from chaos.tally import demand
from processes import command_of

TINY = ("--epochs", "1", "--set", "tasks=2", "--json")
RUN = ("run", "split-digits")

JOBS = (
    Job((*RUN, "fopng", "--engine", "single", "--seeds", "2", *TINY)),
    Job((*RUN, "fopng", "--engine", "single", *TINY), often=True),
    Job((*RUN, "sgd", "--engine", "replicas", "--seeds", "3", *TINY)),
    Job((*RUN, "ewc", "--engine", "replicas", "--seeds", "2", *TINY), often=True),
    Job(("compare", "split-digits", "sgd", "er", "--seeds", "2", *TINY)),
    Job((*RUN, "sgd", *TINY), cold=True),
    Job((*RUN, "gpm", "--seeds", "2", "--again", *TINY), again=True),
)
"""Runs alone and side by side, with and without a page, from a warm and a cold cache, new and again."""

CODES = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EINTR)

STOPS = (signal.SIGINT, signal.SIGTERM)

references = References()


def undisturbed(job: Job) -> Undisturbed:
    """What a job leaves when nothing happens."""
    return references(job, _events_of)


def _events_of(job: Job, folder: Path) -> int:
    inward, outward = os.pipe()
    running = begin(job, folder, Count(outward))
    os.close(outward)
    with open(inward, "rb") as counted:
        events = len(counted.read())
    end(running)
    return events


def killed_at_a_random_time(chance: random.Random, place: int) -> int:
    """A few times in the life of a job."""
    job, kills = chance.choice(JOBS), 0
    expected = undisturbed(job)
    with scratch() as folder:
        for _ in range(chance.randint(1, 4)):
            after = chance.uniform(0, expected.seconds)
            kills += end(begin(job, folder), after).code == -signal.SIGKILL
        finish(job, folder, expected)
    return max(1, kills)


def killed_at_an_event(chance: random.Random, place: int) -> None:
    """At each file-system event of each job in turn."""
    job, event = _event(place)
    with scratch() as folder:
        ended = end(begin(job, folder, SignalAt(signal.SIGKILL, event)))
        demand(ended.code in (-signal.SIGKILL, 0), f"{ended.code}: {ended.err[-300:]}")
        finish(job, folder, undisturbed(job))


def events() -> int:
    """How many file-system events all jobs have."""
    return sum(undisturbed(job).events for job in JOBS)


def _event(place: int) -> tuple[Job, int]:
    # a step that shares no factor with the number of events meets each of them, those of all jobs mixed
    step = next(step for step in range(997, 2000) if math.gcd(step, events()) == 1)
    place = place * step % events()
    for job in JOBS:
        if place < undisturbed(job).events:
            return job, place
        place -= undisturbed(job).events
    raise AssertionError


def killed_in_a_write(chance: random.Random, place: int) -> None:
    """By the limit of a file's size, after any byte."""
    job = chance.choice(JOBS)
    with scratch() as folder:
        ended = end(begin(job, folder, Room(_size(chance), deadly=True)))
        demand(ended.code in (-signal.SIGXFSZ, 0), f"{ended.code}: {ended.err[-300:]}")
        finish(job, folder, undisturbed(job))


def no_room(chance: random.Random, place: int) -> None:
    """No file can grow beyond some size."""
    job = chance.choice(JOBS)
    with scratch() as folder:
        ended = end(begin(job, folder, Room(_size(chance), deadly=False)))
        _check_refused(ended.code, ended.err)
        demand(not list(folder.rglob(".*.partial")), "a half-written file was left")
        finish(job, folder, undisturbed(job))


def _size(chance: random.Random) -> int:
    return int(10 ** chance.uniform(0, 6.2))


def stopped(chance: random.Random, place: int) -> None:
    """By Ctrl-C or SIGTERM, at an event or at a time."""
    job, number = chance.choice(JOBS), chance.choice(STOPS)
    expected = undisturbed(job)
    with scratch() as folder:
        if place % 2:
            ended = end(begin(job, folder, SignalAt(number, chance.randrange(expected.events))))
        else:
            ended = end(begin(job, folder), chance.uniform(0.02, expected.seconds), number)
        demand(ended.code in (0, 128 + number), f"{ended.code}: {ended.err[-300:]}")
        demand(ended.code == 0 or "Stopped" in ended.err, f"nothing said of the stop: {ended.err[-300:]}")
        finish(job, folder, expected)


def refused(chance: random.Random, place: int) -> None:
    """A system call fails, once or from then on."""
    job, code = chance.choice(JOBS), CODES[place % len(CODES)]
    expected = undisturbed(job)
    with scratch() as folder:
        times = 10**9 if code == errno.ENOSPC or chance.random() < 0.3 else 1
        ended = end(begin(job, folder, Refuse(code, chance.randrange(expected.events), times)))
        _check_refused(ended.code, ended.err)
        finish(job, folder, expected)


def _check_refused(code: int, err: str) -> None:
    demand(code in (0, 1), f"exit code {code}: {err[-300:]}")
    demand(code == 0 or "Expected" in err, f"the error says not what to do: {err[-300:]}")


def together(chance: random.Random, place: int) -> int:
    """Two or three processes at the same runs; one of them may be killed."""
    job = chance.choice([job for job in JOBS if not job.again])
    expected = undisturbed(job)
    with scratch() as folder:
        crowd = [begin(job, folder) for _ in range(chance.randint(2, 3))]
        killed = chance.random() < 0.5
        for number, running in enumerate(crowd):
            after = chance.uniform(0, expected.seconds) if killed and number == 0 else None
            ended = end(running, after)
            if ended.code != -signal.SIGKILL:
                demand(ended.code == 0, f"{ended.code}: {ended.err[-300:]}")
                demand(told(ended.out) == expected.said, "other numbers are told")
        finish(job, folder, expected)
    return len(crowd)


WORKERS = Job((*RUN, "fopng", "--seeds", "3", "--jobs", "2", *TINY), often=True)


def workers_killed(chance: random.Random, place: int) -> None:
    """The command or one of its workers, with --jobs."""
    expected = undisturbed(Job((*RUN, "fopng", "--seeds", "3", "--engine", "single", *TINY)))
    with scratch() as folder:
        running = begin(WORKERS, folder)
        process = running.process
        time.sleep(chance.uniform(0, 8))
        workers = [each for each in session(process) if each != process and "spawn_main" in command_of(each)]
        victim = chance.choice([process, *workers])
        if victim in set(session(process)):
            os.kill(victim, signal.SIGKILL)
        ended = end(running)
        demand(ended.code in (0, 1, -signal.SIGKILL), f"{ended.code}: {ended.err[-300:]}")
        finish(WORKERS, folder, expected)
        check_left(folder, expected)
        demand(len(numbers_in(folder)) == 3, "a run is missing")


KINDS = {
    "SIGKILL at a random time": killed_at_a_random_time,
    "SIGKILL at a file-system event": killed_at_an_event,
    "killed in the middle of a write": killed_in_a_write,
    "Ctrl-C or SIGTERM": stopped,
    "a failing system call (ENOSPC, EIO, EACCES, EINTR)": refused,
    "no room for a file": no_room,
    "several processes at the same runs": together,
    "a worker of `--jobs`, or its parent, killed": workers_killed,
}
"""Each kind and its case."""
