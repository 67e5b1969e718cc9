"""Do runs in this process: like runs as groups, then the others one by one, then those that other processes were doing."""

from __future__ import annotations

import time
from contextlib import ExitStack

from fopng.lab.engine import train
from fopng.lab.engine.batched import free_memory
from fopng.lab.engine.streams import StreamScheduler, interleave
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.request import build
from fopng.lab.schedule.batched import BatchedExecutor
from fopng.lab.schedule.groups import GroupFolder, alike, is_grouped
from fopng.lab.schedule.machine import threads_used
from fopng.lab.schedule.runner import Work, label
from fopng.lab.storage.locks import HeldError

POLL_SECONDS = 0.5


def do_inline(work: Work) -> None:
    """Do the missing runs; with `jobs` above one, several groups share the device, each on a stream."""
    runner, held, alone = work.runner, dict[str, HeldError](), list[RunConfig]()
    free = free_memory(runner.device) if runner.memory_limit is None else runner.memory_limit

    def do_group(group: list[RunConfig], streams: StreamScheduler) -> None:
        executor = BatchedExecutor(work, streams, free)
        try:
            executor.do(group)
        except Exception as error:
            if not runner.survives(error):
                raise
            runner.notice(f"{label(group[0])} and {len(group) - 1} more failed: {error} They are done one by one.")
            executor.left = [config for config in group if config.key not in work.done | executor.held]
        held.update(executor.held)
        alone.extend(executor.left)

    with threads_used(runner.threads, work.configs[0].model):
        groups = [group for group in alike(work.configs) if _is_done_together(work, group)]
        grouped = {config.key for group in groups for config in group}
        alone += [config for config in work.missing if config.key not in grouped]
        interleave(groups, do_group, lanes=runner.jobs, device=runner.device)
        left = {config.key for config in alone}
        for config in [config for config in work.missing if config.key in left]:
            try:
                do_one(work, config)
            except HeldError as error:
                held[config.key] = error
        for config in [config for config in work.configs if config.key in held]:
            _wait_for(work, config, held[config.key])


def _is_done_together(work: Work, group: list[RunConfig]) -> bool:
    """Whether these like runs are trained as a group: if several are missing, or one of a group that was begun."""
    runner, missing = work.runner, [config for config in group if config.key not in work.done]
    if runner.engine == "single" or not missing:
        return False
    begun = len(missing) == 1 and any(each.has_any(missing) for each in GroupFolder.begun(runner.store, group[0]))
    return begun or is_grouped(group[0], len(missing), runner.engine, runner.device)


def do_one(work: Work, config: RunConfig) -> None:
    """Do a run, or continue it; HeldError if another process is doing it."""
    runner = work.runner
    with ExitStack() as held:
        try:
            if not work.claim(config, held):
                return
            outcome = train(
                build(config, runner.data_dir),
                device=runner.device,
                checkpoint=runner.store.folder(config).checkpoint,
                observers=[*runner.observers, runner.view, *work.logs(config)],
                should_stop=runner.should_stop,
                notice=runner.notice,
                save_seconds=runner.save_seconds,
            )
            work.finish(config, outcome)
        except HeldError:
            raise
        except Exception as error:
            work.fail(config, error)


def _wait_for(work: Work, config: RunConfig, holder: HeldError) -> None:
    """Wait until another process has done a run; do it if that process is gone."""
    if not work.runner.wait:
        raise holder
    work.runner.notice(f"{label(config)} is being done elsewhere; waiting for it. {holder}")
    while True:
        try:
            return do_one(work, config)
        except HeldError:
            if work.runner.should_stop():
                raise
            time.sleep(POLL_SECONDS)
