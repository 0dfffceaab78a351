"""Tiny models that real engines load in a moment: a token a character, random weights or a reply known beforehand."""

import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@functools.cache
def tokenizer(*marks: str) -> Any:
    """A token a printable ASCII character, so that a text tells its tokens; `<|im_end|>` ends. marks: special too."""
    tokenizers = pytest.importorskip("tokenizers")
    own = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {token: number for number, token in enumerate([*own, "Ġ", "Ċ", *map(chr, range(33, 127))])}
    characters = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    characters.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    characters.decoder = tokenizers.decoders.ByteLevel()
    # Only the end and the marks are special, and so left out of texts.
    characters.add_tokens(own[:2])
    characters.add_special_tokens([own[2], *marks])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=characters, eos_token="<|im_end|>")
    made.chat_template = CHATML
    return made


SIZES: dict[str, Any] = {
    **dict.fromkeys(("bos_token_id", "pad_token_id"), 0),
    **dict.fromkeys(("eos_token_id", "num_hidden_layers", "num_key_value_heads"), 2),
    "num_attention_heads": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
    "vocab_size": 99,
    "max_position_embeddings": 512,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "sliding window": ("Mistral", {"sliding_window": 16}),
    "convolutions": ("Lfm2", {"layer_types": ["conv", "full_attention"]}),
}


def save_tiny(folder: Path, kind: str = "llama", **generation: Any) -> Path:
    """A model folder, its random weights large enough for replies to differ. generation: its generation_config.json."""
    family, options = KINDS[kind]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **options)
    network = getattr(transformers, f"{family}ForCausalLM")(config)
    for weights in network.parameters():
        if weights.dim() > 1:
            weights.data.mul_(6)
    network.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, **generation}))
    return folder


def save_parrot(folder: Path, says: Sequence[str], marks: Sequence[str] = ()) -> Path:
    """A model folder whose greedy reply to everything is these tokens, no two of them equal, and then its end.

    Each token is followed by one other, and the last of the prompt (a line break) by the first of them.
    """
    words = tokenizer(*marks)
    chain = words.convert_tokens_to_ids(["Ċ", *says, "<|im_end|>"])
    width = 128
    sizes = {**SIZES, "vocab_size": len(words), "hidden_size": width, "tie_word_embeddings": False}
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    for name, weights in network.named_parameters():
        if weights.dim() > 1:
            weights.data.zero_()
        if name == "model.embed_tokens.weight":
            weights.data.fill_diagonal_(1.0)
    for token, following in itertools.pairwise(chain):
        network.lm_head.weight.data[following, token] = 1.0
    network.save_pretrained(folder)
    words.save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    return folder
