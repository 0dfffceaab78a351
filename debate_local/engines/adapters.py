"""Whether a LoRA adapter was made for a model, told from the headers of their *.safetensors; no tensor is read.

Told before anything loads, since an engine finds out when the first request for the adapter comes, and may die of it.
Rule: only what cannot be is refused. What the files do not tell (quantised or otherwise packed weights) is let through.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

Shape = tuple[int, ...]


def misfit(adapter: str | Path, model: str | Path) -> str | None:
    """Why the adapter in a folder cannot be the model's, or None. Raises ValueError for a damaged file."""
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    parts = {match: shape for name, shape in _shapes(adapter).items() if (match := _PART.fullmatch(name))}
    layers = _shapes(model)
    if "quantization_config" in config or not parts or not layers:
        return None
    known = {match: layers[f"{match[1]}.weight"] for match in parts if f"{match[1]}.weight" in layers}
    if not known and "text_config" not in config:
        return f"it changes {next(iter(parts))[1]}, which the model does not have"
    for match, layer in known.items():
        # A reads what the layer reads, B writes what it writes; some models store a layer the other way round.
        size = parts[match][-1] if match[2] == "A" else parts[match][0]
        if size not in layer:
            shown = " x ".join(map(str, layer))
            return f"it is made for {match[1]} of width {size}, the model's is {shown}"
    return None


_PART = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.\w+)?\.weight")
# safetensors refuses longer headers too.
_LONGEST_HEADER = 100_000_000


def _shapes(folder: str | Path) -> Mapping[str, Shape]:
    """The shape of every tensor in a folder's *.safetensors, by its name."""
    found: dict[str, Shape] = {}
    for file in sorted(Path(folder).expanduser().glob("*.safetensors")):
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            try:
                header = json.loads(stream.read(length)) if length <= _LONGEST_HEADER else None
            except ValueError:
                header = None
        if not isinstance(header, dict):
            raise ValueError(f"{file} is no safetensors file, or damaged: get it anew")
        found |= {name: tuple(about["shape"]) for name, about in header.items() if name != "__metadata__"}
    return found
