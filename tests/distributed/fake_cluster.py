"""A cluster in this process, which does errands at once, or loses them, or has them fail, as it is told."""

from collections import deque

from fopng.lab.cluster.errands import Letter, Lost, Needs
from fopng.lab.cluster.mailbox import Mailbox
from fopng.lab.cluster.worker import do_errand

GIGABYTE = 2**30


class FakeCluster:
    """`accidents` says for each errand in turn what happens to it: None, or a function from the errand to its ending."""

    def __init__(self, accidents=(), *, machines=2, memory=16 * GIGABYTE):
        self.accidents, self.machines, self.memory = deque(accidents), machines, memory
        self.mailbox, self.submitted, self.waiting = Mailbox(), [], deque()
        self.stopped = False

    def submit(self, errand, needs):
        self.submitted.append((errand, needs))
        self.waiting.append(errand)

    def ended(self, seconds):
        if not self.waiting:
            return {}
        errand = self.waiting.popleft()
        accident = self.accidents.popleft() if self.accidents else None
        return {errand.name: do_errand(errand, self.mailbox.post) if accident is None else accident(errand, self)}

    def letters(self):
        return self.mailbox.collect()

    def stop(self):
        self.stopped = True
        self.mailbox.stop()

    def room(self, needs):
        return self.machines

    def largest(self):
        return Needs(1, 0, self.memory)


def is_lost(errand, cluster):
    """The worker is gone before it wrote."""
    return Lost("WorkerCrashedError")


def is_lost_on_the_way(steps):
    """The worker saves and writes home after every step, and is gone after so many."""

    class Gone(BaseException):
        pass

    def accident(errand, cluster):
        written = 0

        def post(letter):
            nonlocal written
            written += 1
            if written > steps:
                raise Gone
            return cluster.mailbox.post(letter)

        try:
            do_errand(errand, post)
        except Gone:
            return Lost("NodeDiedError")
        raise AssertionError("The errand was over before it was lost.")

    return accident


def lies(errand, cluster):
    """A worker that is thought dead writes after its wave was given to another."""
    cluster.mailbox.post(Letter("not " + errand.name, 0.5))
    return is_lost(errand, cluster)
