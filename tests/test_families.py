"""Models of the families that people use, from their configurations: every matrix has a Kronecker product, of the exact trace."""

import pytest
import torch
from torch import nn

import oracle
import torchvision_ops
from fopng.curvature.estimate import layer_moments
from fopng.curvature.factor_sums import matrix_form
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.generated_texts import write_texts

torchvision_ops.define_missing()
transformers = pytest.importorskip("transformers")

N = 3
SMALL = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
}
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def made(name, config, **settings):
    return lambda: getattr(transformers, name)(getattr(transformers, config)(**settings))


def words():
    return torch.randint(5, 60, (N, 7))


def each_word():
    return torch.randint(0, 64, (N, 7))


def text(model, batch):
    return model(input_ids=batch[0]).logits, batch[1]


def picture(model, batch):
    return model(pixel_values=batch[0]).logits, batch[1]


def pair(model, batch):
    return model(input_ids=batch[0], decoder_input_ids=batch[1]).logits, batch[2]


def sound(model, batch):
    return model(input_features=batch[0], decoder_input_ids=batch[1]).logits, batch[2]


def to_words():
    return words(), each_word()


def to_class():
    return words(), torch.arange(N)


def pictures(size):
    return lambda: (torch.randn(N, 3, size, size).double(), torch.arange(N))


FAMILIES = {
    "gpt2": (
        made("GPT2LMHeadModel", "GPT2Config", vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=16, **ENDS),
        text,
        to_words,
    ),
    "bert": (made("BertForSequenceClassification", "BertConfig", **SMALL, num_labels=3), text, to_class),
    "distilbert": (
        made(
            "DistilBertForSequenceClassification",
            "DistilBertConfig",
            **{"vocab_size": 64, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "num_labels": 3},
        ),
        text,
        to_class,
    ),
    "llama": (made("LlamaForCausalLM", "LlamaConfig", **SMALL, **ENDS, num_key_value_heads=1), text, to_words),
    "qwen2, tied": (
        made("Qwen2ForCausalLM", "Qwen2Config", **SMALL, **ENDS, num_key_value_heads=1, tie_word_embeddings=True),
        text,
        to_words,
    ),
    "t5": (
        made(
            "T5ForConditionalGeneration",
            "T5Config",
            **{"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2},
        ),
        pair,
        lambda: (words(), words(), each_word()),
    ),
    "vit": (
        made(
            "ViTForImageClassification",
            "ViTConfig",
            **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24},
            **{"image_size": 8, "patch_size": 4, "num_labels": 3},
        ),
        picture,
        pictures(8),
    ),
    "convnext": (
        made(
            "ConvNextForImageClassification",
            "ConvNextConfig",
            **{"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "image_size": 32, "num_labels": 3},
        ),
        picture,
        pictures(32),
    ),
    "swin": (
        made(
            "SwinForImageClassification",
            "SwinConfig",
            **{"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2]},
            window_size=4,
            num_labels=3,
        ),
        picture,
        pictures(16),
    ),
    "mamba": (
        made("MambaForCausalLM", "MambaConfig", vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4),
        text,
        to_words,
    ),
    "whisper": (
        made(
            "WhisperForConditionalGeneration",
            "WhisperConfig",
            **{"vocab_size": 64, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1},
            **{
                "encoder_attention_heads": 2,
                "decoder_attention_heads": 2,
                "encoder_ffn_dim": 24,
                "decoder_ffn_dim": 24,
            },
            **{"max_source_positions": 8, "max_target_positions": 16, "num_mel_bins": 8, "decoder_start_token_id": 1},
            **ENDS,
        ),
        sound,
        lambda: (torch.randn(N, 8, 16).double(), words(), each_word()),
    ),
}


def squares_by_name(model, batch, ask):
    """The trace of the exact Fisher in each parameter, one sample at a time."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    rows = oracle.sample_gradients(model, batch, N, ask=ask)
    parts = rows.split([p.numel() for _, p in named], 1)
    return {name: part.square().sum(1).mean() for (name, _), part in zip(named, parts, strict=True)}


def single(model):
    """The parameters of convolutions, and of layers that each sample goes through once: their traces are KFAC's own."""
    own = {name for name, module in model.named_modules() if isinstance(module, (nn.Conv1d, nn.Conv2d))}
    return {f"{name}.weight" for name in own} | {
        "classifier.weight",
        "bert.pooler.dense.weight",
        "pre_classifier.weight",
    }


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_every_matrix_has_a_kronecker_product(name):
    build, ask, data = FAMILIES[name]
    torch.manual_seed(0)
    model, batch = build().double().eval(), data()
    found = layer_moments(PerSampleGradients(model, predict=ask), LoaderStream([batch]), signals="observed")
    inside = {own for names in found.layers for own in names}
    matrices = {own: p.numel() for own, p in model.named_parameters() if p.requires_grad and matrix_form(p.shape)}
    assert sum(size for own, size in matrices.items() if own in inside) >= 0.95 * sum(matrices.values())
    exact = squares_by_name(model, batch, ask)
    total = sum(exact.values())
    apart = single(model)
    for names, own in found.layers.items():
        expected = sum(exact[own] for own in names)
        if names[0] not in apart:
            torch.testing.assert_close(own.traces(), expected, rtol=1e-7, atol=1e-12 * float(total))
    for own, part in found.rest.parts.items():
        torch.testing.assert_close(part.sum(), exact[own], rtol=1e-7, atol=1e-12 * float(total))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_language_model_writes_its_own_texts(family):
    """By its own `generate`, without padding, the same for the same seed, and as batches of its kind have them."""
    if family == "llama":
        config = transformers.LlamaConfig(**SMALL, **ENDS)
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=16, **ENDS)
        model = transformers.GPT2LMHeadModel(config)
    model.train()
    tokens = words()
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}

    def ask(model, batch):
        outputs = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return outputs[:, :-1], batch["labels"][:, 1:]

    source = PerSampleGradients(model, predict=ask)
    first, again = (write_texts(source, batch, 70, seed=3) for _ in range(2))
    written = first["input_ids"]
    assert written.shape == (70, 7)
    assert torch.equal(written, again["input_ids"])
    assert set(written[:, 0].tolist()) <= set(tokens[:, 0].tolist())
    assert torch.equal(first["labels"], written)
    assert model.training
