"""Whether thinking was off where it was switched off, by a template argument that some models and servers do not obey.

Knows turns; refuses to know engines. What a model thinks all the same is told from its text like any thought.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from debate_local.core.transcript import Turn

# The template arguments of the families of models, and the values that switch thinking off.
_SWITCHES = ("enable_thinking", "thinking", "thinking_budget", "reasoning", "reasoning_effort")
_OFF = (False, 0, "off", "none", "disabled")


class ThinkingWatch:
    """Counts the turns that hold a thought though thinking is off, and the switches that a template does not know."""

    def __init__(self) -> None:
        self._told: Counter[tuple[str, str]] = Counter()
        self._disobeyed: Counter[tuple[str, str]] = Counter()
        self._ignored: Counter[tuple[str, str]] = Counter()

    def see(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            model, completion = turn.request.model, turn.completion
            if switch := switched_off(turn.request.template_args):
                self._told[model, switch] += 1
                self._disobeyed[model, switch] += bool(completion.reasoning)
            for note in completion.notes:
                if note.endswith("; ignored"):
                    self._ignored[model, note] += 1

    def warnings(self) -> list[str]:
        """A sentence for each model and switch that did not do what it says."""
        disobeyed = [
            f"model {model}: {count} of {self._told[model, switch]} turns hold a thought although {switch} switches "
            "thinking off: the model, its chat template or its server does not obey. Peers never see thoughts, but "
            "they count as tokens"
            for (model, switch), count in self._disobeyed.items()
            if count
        ]
        ignored = [f"model {model}: {note}, in {count} turns" for (model, note), count in self._ignored.items()]
        return disobeyed + ignored


def switched_off(template_args: Mapping[str, Any]) -> str:
    """The argument that switches thinking off, as `enable_thinking=false`; "" when none does."""
    off = (name for name in _SWITCHES if name in template_args and template_args[name] in _OFF)
    return next((f"{name}={str(template_args[name]).lower()}" for name in off), "")
