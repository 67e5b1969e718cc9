"""Two text tasks, one after the other, for a small transformer that only adapters fine-tune: how much of the first is left?

    python examples/transformers_lora.py          (needs transformers and peft: pip install "fopng[transformers]")

The model is a GPT-2 made from a configuration: nothing is downloaded. The texts are generated here: some letters, a mark that
asks a question, and the answer. The whole model first learns to answer with the second and the fourth letter; then its weights
are frozen, peft gives it low-rank adapters, and those alone learn two more questions, one after the other: the first letter, and
the last.
"""

import random

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import fopng

LETTERS, LENGTH = 6, 5
FIRST, LAST, SECOND, FOURTH = range(LETTERS, LETTERS + 4)
"""Letters are the tokens 0 to 5, and these the marks."""
PLACES = {FIRST: 0, SECOND: 1, FOURTH: 3, LAST: 4}


def make_text(mark, count, seed):
    """Tokens [count, LENGTH + 1], the mark last, and answers [count]."""
    generator = random.Random(seed)
    tokens = torch.tensor([[*(generator.randrange(LETTERS) for _ in range(LENGTH)), mark] for _ in range(count)])
    return tokens, tokens[:, PLACES[mark]]


def answer(model, tokens):
    """Logits of the letter that comes next, [n, letters]."""
    return model(input_ids=tokens).logits[:, -1, :LETTERS]


def predict(model, batch):
    """How the model answers a batch: logits and targets."""
    return answer(model, batch[0]), batch[1]


def make_model():
    """A GPT-2 of two layers that knows two questions, with adapters in its attention that are all that can be trained."""
    torch.manual_seed(0)
    size = {"vocab_size": LETTERS + 4, "n_positions": LENGTH + 1, "n_embd": 32, "n_layer": 2, "n_head": 4}
    nothing = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(**size, **nothing))
    pretrain(model)
    adapters = LoraConfig(
        r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, task_type="CAUSAL_LM"
    )
    return get_peft_model(model, adapters)


def pretrain(model):
    """Learn two questions with all weights."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    tokens, answers = map(torch.cat, zip(make_text(SECOND, 1500, seed=3), make_text(FOURTH, 1500, seed=4), strict=True))
    for _ in range(8):
        for rows in torch.randperm(len(tokens)).split(60):
            optimizer.zero_grad()
            F.cross_entropy(answer(model, tokens[rows]), answers[rows]).backward()
            optimizer.step()


def accuracy(model, mark):
    """The share of right answers to lines that were never trained on."""
    tokens, answers = make_text(mark, 300, seed=2)
    with torch.no_grad():
        return (answer(model, tokens).argmax(1) == answers).float().mean().item()


def learn(make_optimizer):
    """Learn the two tasks one after the other; return the accuracy on the first before the second, and on both at the end."""
    model = make_model()
    optimizer = make_optimizer(model)  # only what is trainable is optimized: the adapters
    learnt = 0.0
    for task, mark in enumerate((FIRST, LAST)):
        tokens, answers = make_text(mark, 1000, seed=1)
        batches = list(zip(tokens.split(20), answers.split(20), strict=True))
        optimizer.begin_task(task)
        for _ in range(4):
            optimizer.refresh(batches)
            for batch in batches:
                optimizer.zero_grad()
                F.cross_entropy(*predict(model, batch)).backward()
                optimizer.step()
        optimizer.end_task(batches)
        learnt = accuracy(model, FIRST) if task == 0 else learnt
    return learnt, accuracy(model, FIRST), accuracy(model, LAST), optimizer.layout


def first_task(model):
    """What learns the first task, whatever the method."""
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)


if __name__ == "__main__":
    methods = {
        "Adam": lambda model: fopng.Adam(model, lr=5e-3, predict=predict, first_task=first_task(model)),
        "FOPNG": lambda model: fopng.FOPNG(
            model,
            lr=1e-2,
            projection="orthogonal",
            gradients_per_task=200,
            gram_damping=1e-3,
            fisher_samples=200,
            predict=predict,
            first_task=first_task(model),
        ),
    }
    for name, make_optimizer in methods.items():
        learnt, first, second, layout = learn(make_optimizer)
        print(
            f"{name:6} {layout.size} parameters of {len(layout.names)} adapters: first task {learnt:.0%}, after the second "
            f"{first:.0%}; second task {second:.0%}"
        )
