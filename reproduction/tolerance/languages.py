"""A run on texts: a loop of one's own around the drop-in optimizer."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from fopng.lab.engine.seeds import Seeds
from fopng.lab.storage import atomic
from fopng.optim.optimizer import ContinualOptimizer
from fopng.optim.registry import METHODS
from reproduction.tolerance.images import kept_bytes
from reproduction.tolerance.records import Measured
from reproduction.tolerance.streams import TextStream
from reproduction.tolerance.texts import Corpus, windows
from reproduction.tolerance.transformer import Transformer

Pair = tuple[Tensor, Tensor]

AT_A_TIME = 32
"""Samples in a batch where no step is taken."""


def run_texts(
    stream: TextStream,
    method: str,
    settings: Mapping[str, Any],
    seed: int,
    corpora: Sequence[Corpus],
    device: torch.device,
    cache: Path,
) -> Measured:
    """Learn the corpora one after another; every method starts from the same model of the first."""
    model = first_model(stream, seed, corpora[0], device, cache)
    settings = {**settings, "momentum": stream.momentum}
    optimizer = METHODS[method].optimizer(
        model,
        **settings,
        first_task=torch.optim.AdamW(model.parameters()),
        generator=torch.Generator().manual_seed(Seeds(seed).fisher),
    )
    scores = _Scores.of(stream, model, corpora, device)
    for task, corpus in enumerate(corpora):
        samples = _Whole(corpus.train, stream.length, device)
        optimizer.begin_task(task)
        optimizer.refresh(samples)
        if task:
            scores.note_before(task)
            learn(stream, model, optimizer, corpus, Seeds(seed).order(task, 0, task), device)
            scores.note_measured(task, optimizer.measure_step())
        optimizer.end_task(samples)
        scores.note_after(task)
    return scores.measured(optimizer)


def learn(
    stream: TextStream,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    corpus: Corpus,
    seed: int,
    device: torch.device,
) -> None:
    """Take the steps of a task; plain training takes the same."""
    for x, y in drawn(corpus, stream.steps, (stream.batch_size, stream.length), seed, device):
        optimizer.zero_grad()
        loss(model, x, y).backward()
        optimizer.step()


def first_model(stream: TextStream, seed: int, corpus: Corpus, device: torch.device, cache: Path) -> Transformer:
    """The model that has learnt the first corpus: trained once, kept in a folder for all other runs."""
    path = first_path(stream, seed, corpus, cache)
    model = Transformer(seed=Seeds(seed).weights, context=stream.length).to(device)
    if path.is_file():
        model.load_state_dict(torch.load(path, map_location=device, weights_only=True))
        return model
    learn_first(stream, model, corpus, Seeds(seed).order(0, 0, 0), device)
    kept = io.BytesIO()
    torch.save({name: value.cpu() for name, value in model.state_dict().items()}, kept)
    cache.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(path, kept.getvalue())
    return model


def first_path(stream: TextStream, seed: int, corpus: Corpus, cache: Path) -> Path:
    """Where that model is kept."""
    return cache / f"first-{seed}-{_key(stream, corpus)}.pt"


def learn_first(stream: TextStream, model: Transformer, corpus: Corpus, seed: int, device: torch.device) -> None:
    """AdamW, with a rate that rises for a tenth of the steps and then falls to nothing."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=stream.first_lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, stream.first_lr, total_steps=stream.first_steps, pct_start=0.1
    )
    shape = stream.first_batch_size, stream.length
    for x, y in drawn(corpus, stream.first_steps, shape, seed, device):
        optimizer.zero_grad()
        loss(model, x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def drawn(corpus: Corpus, steps: int, shape: tuple[int, int], seed: int, device: torch.device) -> Iterator[Pair]:
    """The batches of so many steps, of so many pieces of so many bytes."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x, y = windows(corpus.train, *shape, generator)
        yield x.to(device), y.to(device)


def loss(model: Transformer, x: Tensor, y: Tensor) -> Tensor:
    """The mean over bytes, in nats."""
    return cross_entropy(model(x).flatten(0, 1), y.flatten())


@final
class _Whole:
    """A corpus in pieces that follow one another, in batches that can be walked again."""

    def __init__(self, text: bytes, length: int, device: torch.device) -> None:
        numbers = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        count = (len(numbers) - 1) // length
        self._x, self._y = (
            numbers[at : at + count * length].long().view(count, length).to(device).split(AT_A_TIME) for at in (0, 1)
        )

    def __iter__(self) -> Iterator[Pair]:
        return zip(self._x, self._y, strict=True)


@final
@dataclass
class _Scores:
    """Losses on held-out pieces of each corpus, and how far answers have moved since their task ended."""

    model: Transformer
    pieces: list[Pair]
    score: list[list[float | None]]
    lost: list[list[float | None]]
    before: list[float | None]
    answers: list[Tensor]
    """Log-probabilities `[n, t, 256]`, of the tasks that have ended, when they ended."""
    method: dict[str, list[float | None]]
    """What the method measured of the last step of each task."""

    @classmethod
    def of(cls, stream: TextStream, model: Transformer, corpora: Sequence[Corpus], device: torch.device) -> _Scores:
        generator = torch.Generator().manual_seed(0)
        pieces = [windows(corpus.test, stream.tested, stream.length, generator) for corpus in corpora]
        return cls(model, [(x.to(device), y.to(device)) for x, y in pieces], [], [], [None] * len(pieces), [], {})

    def note_before(self, task: int) -> None:
        self.before[task] = self._loss(self._answers(task), task)

    def note_measured(self, task: int, found: Mapping[str, Tensor]) -> None:
        for name, value in found.items():
            self.method.setdefault(name, [None] * len(self.pieces))[task] = float(value)

    def note_after(self, task: int) -> None:
        now = [self._answers(each) for each in range(len(self.pieces))]
        self.answers.append(now[task])
        self.score.append([self._loss(answers, each) for each, answers in enumerate(now)])
        self.lost.append([_divergence(now[each], old) for each, old in enumerate(self.answers)])
        self.lost[-1] += [None] * (len(self.pieces) - len(self.answers))

    def measured(self, optimizer: ContinualOptimizer) -> Measured:
        numbers = [value for row in self.score for value in row if value is not None]
        diverged = not bool(torch.tensor(numbers).isfinite().all())
        return Measured(
            score=self.score,
            before=self.before,
            lost=self.lost,
            kept_bytes=kept_bytes(optimizer),
            method=self.method,
            diverged=diverged,
        )

    @torch.no_grad()
    def _answers(self, task: int) -> Tensor:
        return torch.cat([self.model(x).log_softmax(-1) for x in self.pieces[task][0].split(AT_A_TIME)])

    def _loss(self, answers: Tensor, task: int) -> float:
        y = self.pieces[task][1]
        return -float(answers.gather(-1, y[..., None]).mean())


def _divergence(now: Tensor, old: Tensor) -> float:
    """The mean over bytes of `KL(old || now)`, in nats."""
    return float(kl_div(now, old, log_target=True, reduction="sum")) / old[..., 0].numel()


def _key(stream: TextStream, corpus: Corpus) -> str:
    said = (corpus.digest, stream.length, stream.first_batch_size, stream.first_steps, stream.first_lr)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12]
