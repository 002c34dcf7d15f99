"""A Llama of 400 kB with random weights, and a tokenizer of bytes: nothing is fetched for it.

What it says has no meaning, but it is said in the form of a `response_format`, as by any model.
"""

import json
import random
from array import array
from pathlib import Path
from struct import pack

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

CONTEXT = 2_048
SPECIAL = ("<s>", "</s>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
WIDTH, INNER, LAYERS, HEADS = 64, 128, 2, 2  # vLLM's kernels on a CPU want 32 a head, and more


def write_tiny_llama(folder: Path) -> Path:
    """The folder, with the model in it: the same one each time."""
    vocabulary = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    folder.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(folder, vocabulary)
    (folder / "config.json").write_text(json.dumps(_config(len(vocabulary))))
    (folder / "model.safetensors").write_bytes(_safetensors(_shapes(len(vocabulary))))
    return folder


def _write_tokenizer(folder: Path, vocabulary: list[str]) -> None:
    tokenizer = Tokenizer(BPE({token: number for number, token in enumerate(vocabulary)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    bos, eos = SPECIAL
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "model_max_length": CONTEXT,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _config(tokens: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": tokens,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _shapes(tokens: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (tokens, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    for layer in (f"model.layers.{number}" for number in range(LAYERS)):
        shapes |= {f"{layer}.self_attn.{part}_proj.weight": (WIDTH, WIDTH) for part in "qkvo"}
        shapes |= {f"{layer}.mlp.{part}_proj.weight": (INNER, WIDTH) for part in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj.weight"] = (WIDTH, INNER)
        shapes |= {f"{layer}.{part}_layernorm.weight": (WIDTH,) for part in ("input", "post_attention")}
    return shapes


def _safetensors(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """The format: the length of a header in JSON, the header, and the numbers; norms are ones."""
    chance, header, data = random.Random(0), {}, bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array("f", (1.0 if len(shape) == 1 else chance.gauss(0, 0.02) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (len(data), len(data) + 4 * count)}
        data += values.tobytes()
    told = json.dumps(header).encode()
    return pack("<Q", len(told)) + told + bytes(data)
