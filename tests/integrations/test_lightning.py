"""The Lightning callback with the real Trainer: the same numbers as a loop written by hand, and resuming to the same bits."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fopng

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pl = pytest.importorskip("lightning.pytorch")
    from fopng.integrations.lightning import ContinualTasks

pytestmark = [
    # the library's advice on faster loading and logging, which tiny tests have no use for
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*is smaller than the logging interval"),
    pytest.mark.filterwarnings("ignore:.*in eval mode at the start"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided"),
]

EPOCHS = 2


def batches(task):
    generator = torch.Generator().manual_seed(task)
    x = torch.randn(40, 6, generator=generator)
    return DataLoader(TensorDataset(x, (x[:, task] > 0).long()), batch_size=8)


class Data(pl.LightningDataModule):
    """One task."""

    def __init__(self, task):
        super().__init__()
        self.task = task

    def train_dataloader(self):
        return batches(self.task)


class Classifier(pl.LightningModule):
    """Makes its optimizer anew in every fit, as most modules do."""

    def __init__(self, method=fopng.FOPNG, whole=False, **settings):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        self.make = lambda: method(self if whole else self.net, lr=1e-2, **settings)
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return self.make()


def trainer(tasks, folder=None, **more):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    quiet |= {"enable_checkpointing": False} if folder is None else {"default_root_dir": folder}
    callbacks = [tasks, *more.pop("callbacks", [])]
    return pl.Trainer(max_epochs=EPOCHS, callbacks=callbacks, **quiet, **more)


def by_hand(method, tasks=3):
    module = Classifier(method)
    torch.manual_seed(1)
    optimizer = method(module.net, lr=1e-2)
    for task in range(tasks):
        optimizer.begin_task(task)
        for _ in range(EPOCHS):
            optimizer.refresh(batches(task))
            for x, y in batches(task):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module.net(x), y).backward()
                optimizer.step()
        optimizer.end_task(batches(task))
    return module.net, optimizer


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def fit(module, tasks, count, start=0, **more):
    for task in range(start, count):
        trainer(tasks, **more).fit(module, Data(task))


@pytest.mark.parametrize("method", [fopng.FOPNG, fopng.EWC, fopng.SI, fopng.ER, fopng.GPM])
def test_the_numbers_are_those_of_a_loop_by_hand(method):
    expected, _ = by_hand(method)
    module = Classifier(method)
    torch.manual_seed(1)
    fit(module, ContinualTasks(), 3)
    assert same(module.net, expected)


def test_one_optimizer_kept_by_the_module_does_as_well_and_so_does_the_module_itself_as_a_model():
    expected, _ = by_hand(fopng.FOPNG)
    module = Classifier(whole=True)
    torch.manual_seed(1)
    optimizer = module.make()
    module.make = lambda: optimizer
    fit(module, ContinualTasks(), 3)
    assert same(module.net, expected)
    assert (optimizer.tasks_done, optimizer.in_task) == (3, False)


def test_the_learning_rate_of_a_new_task_is_its_own():
    module, tasks = Classifier(fopng.OGD), ContinualTasks()
    fit(module, tasks, 1)
    module.make = lambda: fopng.OGD(module.net, lr=0.0)
    before = [p.clone() for p in module.net.parameters()]
    fit(module, tasks, 2, start=1)
    assert all(torch.equal(a, b) for a, b in zip(before, module.net.parameters(), strict=True))


class Resumable:
    """A loader that Lightning can take up within an epoch."""

    def __init__(self, task):
        self.batches, self.start, self.at = list(batches(task)), 0, 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        start, self.start = self.start, 0
        for place in range(start, len(self)):
            self.at = place + 1
            yield self.batches[place]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.start = state["at"]


class ResumableData(Data):
    """One task, resumable."""

    def train_dataloader(self):
        return Resumable(self.task)


class Stop(pl.Callback):
    """Break off after so many steps."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, module, *rest):
        if trainer.global_step == self.step:
            raise KeyError("power cut")


@pytest.mark.parametrize("stop", [3, 5, 7])
def test_a_task_that_was_broken_off_goes_on_to_the_same_numbers(tmp_path, stop):
    """Within the first epoch, at its end, within the second; the checkpoint is Lightning's own."""
    expected, _ = by_hand(fopng.FOPNG, tasks=2)
    module = Classifier()
    tasks = ContinualTasks()
    torch.manual_seed(1)
    fit(module, tasks, 1)
    saver = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=1)
    with pytest.raises(KeyError, match="power cut"):
        trainer(tasks, tmp_path, callbacks=[saver, Stop(stop)]).fit(module, ResumableData(1))
    again = Classifier()
    trainer(ContinualTasks(), tmp_path, callbacks=[saver]).fit(
        again, ResumableData(1), ckpt_path=tmp_path / "last.ckpt"
    )
    assert same(again.net, expected)


def test_a_new_process_goes_on_with_the_next_task(tmp_path):
    expected, reference = by_hand(fopng.FOPNG)
    module, tasks = Classifier(), ContinualTasks()
    torch.manual_seed(1)
    fit(module, tasks, 1)
    last = trainer(tasks)
    last.fit(module, Data(1))
    last.save_checkpoint(tmp_path / "two.ckpt")
    module, tasks = Classifier(), ContinualTasks()
    tasks.restore(module, tmp_path / "two.ckpt")
    optimizer = module.make()
    module.make = lambda: optimizer
    fit(module, tasks, 3, start=2)
    assert same(module.net, expected)
    assert optimizer.pipeline.state.memory.count == reference.pipeline.state.memory.count


def test_a_checkpoint_of_the_last_epoch_ends_the_task(tmp_path):
    saver = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True)
    trainer(ContinualTasks(), tmp_path, callbacks=[saver]).fit(Classifier(), Data(0))
    module = Classifier()
    optimizer = module.make()
    module.make = lambda: optimizer
    trainer(ContinualTasks()).fit(module, Data(0), ckpt_path=tmp_path / "last.ckpt")
    assert (optimizer.tasks_done, optimizer.in_task) == (1, False)
    with pytest.raises(ValueError, match=r"got .*last.ckpt from within one. Go on with: trainer.fit"):
        ContinualTasks().restore(Classifier(), tmp_path / "last.ckpt")


class Watched(Data):
    """Counts the walks, with workers that stay."""

    def train_dataloader(self):
        data = batches(self.task).dataset
        return DataLoader(data, batch_size=8, num_workers=1, persistent_workers=True, multiprocessing_context="fork")


def test_workers_that_stay_lose_no_batch():
    module = Classifier()
    trainer(ContinualTasks()).fit(module, Watched(0))
    assert len(module.losses) == 5 * EPOCHS


class Pairs(Data):
    """Two loaders at a time."""

    def train_dataloader(self):
        return {"a": batches(self.task), "b": batches(self.task)}


def test_several_loaders_come_as_training_step_gets_them():
    seen = []

    def predict(model, batch):
        seen.append(set(batch))
        return model(batch["a"][0]), batch["a"][1]

    module = Classifier(predict=predict)
    module.training_step = lambda batch, batch_idx: Classifier.training_step(module, batch["b"], batch_idx)
    trainer(ContinualTasks()).fit(module, Pairs(0))
    assert seen
    assert all(keys == {"a", "b"} for keys in seen)


def test_other_optimizers_are_refused():
    module = Classifier()
    module.make = lambda: torch.optim.SGD(module.net.parameters(), lr=1e-2)
    with pytest.raises(TypeError, match=r"return one of fopng's optimizers, got \['SGD'\]"):
        trainer(ContinualTasks()).fit(module, Data(0))
