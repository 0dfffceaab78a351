"""What one agent has been told and has said, as messages whose roles alternate whatever came back."""

from typing import Literal

from .chat import Message

History = Literal["full", "last", "fresh"]


class Conversation:
    """An agent's own side of a debate.

    keeps: what of it is repeated in a later prompt. full: all of it (Du et al. 2023). last: the first prompt and its
    own last reply (the overview article). fresh: the first prompt only.
    """

    __slots__ = ("_first", "_keeps", "messages")

    def __init__(self, first: str, keeps: History = "full") -> None:
        self.messages = [Message("user", first)]
        self._first, self._keeps = self.messages[0], keeps

    def told(self, text: str) -> None:
        """Put a further prompt at the end. When the agent's last turn brought no text, it joins the prompt before."""
        last = self.messages[-1]
        if self._keeps != "full":
            replied = self._keeps == "last" and last.role == "assistant"
            self.messages = [self._first, last] if replied else [self._first]
        if not text:
            return
        last = self.messages[-1]
        if last.role == "user":
            # Chat templates want roles to alternate, so one message asks both.
            self.messages[-1] = Message("user", f"{last.content}\n\n{text}")
        else:
            self.messages.append(Message("user", text))

    def said(self, text: str) -> None:
        """Keep a reply; one without text leaves nothing."""
        if text.strip():
            self.messages.append(Message("assistant", text))
