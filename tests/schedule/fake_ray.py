"""As much of Ray as the scheduler uses, in this process: tasks run when they are waited for, and accidents are chosen."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

GIGABYTE = 2**30


class RayError(Exception):
    pass


class WorkerCrashedError(RayError):
    pass


class OutOfMemoryError(RayError):
    pass


class TaskCancelledError(RayError):
    pass


class RuntimeEnvSetupError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(f"Traceback of the worker\n{type(cause).__name__}: {cause}")
        self.cause = cause


@dataclass(eq=False)
class Task:
    configs: list
    options: dict
    do: Callable


class FakeRay:
    """`accidents` says for each task in turn what happens to it: None, or a function that gets the task and raises."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        OutOfMemoryError=OutOfMemoryError,
        RayTaskError=RayTaskError,
        RuntimeEnvSetupError=RuntimeEnvSetupError,
        TaskCancelledError=TaskCancelledError,
    )

    def __init__(self, accidents=(), *, machines=2, memory=16 * GIGABYTE, gpus=0):
        self.accidents, self.submitted, self.cancelled = deque(accidents), [], []
        self._nodes = [{"CPU": 1.0, "memory": memory, **({"GPU": gpus} if gpus else {})} for _ in range(machines)]
        self._outcomes = {}

    def nodes(self):
        return [{"Alive": True, "NodeID": str(n), "Resources": node} for n, node in enumerate(self._nodes)]

    def remote(self, function):
        def options(**asked):
            return SimpleNamespace(remote=lambda *arguments: self._submit(function, asked, arguments))

        return SimpleNamespace(options=options)

    def _submit(self, function, options, arguments):
        task = Task(list(arguments[1]), options, lambda: function(*arguments))
        self.submitted.append(task)
        return task

    def wait(self, tasks, num_returns, timeout):
        """One task more is done each time that one is waited for."""
        if num_returns == 1 and (waiting := [task for task in tasks if task not in self._outcomes]):
            self._outcomes[waiting[0]] = self._outcome(waiting[0])
        ready = [task for task in tasks if task in self._outcomes]
        return ready, [task for task in tasks if task not in ready]

    def _outcome(self, task):
        if task in self.cancelled:
            return TaskCancelledError()
        accident = self.accidents.popleft() if self.accidents else None
        try:
            return task.do() if accident is None else accident(task)
        except RayError as error:
            return error
        except Exception as error:
            return RayTaskError(error)

    def get(self, task):
        outcome = self._outcomes[task]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def cancel(self, task, *, force):
        self.cancelled.append(task)

    def sizes(self):
        """How many runs each task had."""
        return [len(task.configs) for task in self.submitted]


def is_lost(task):
    """The worker is gone before it did anything."""
    raise WorkerCrashedError("gone")


def runs_out_of_memory(task):
    raise OutOfMemoryError("killed for its memory")
