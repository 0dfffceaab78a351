"""What a reply repeats of a question's form: its options, and the `A:` of question and answer. Chooses nothing."""

import re
from itertools import islice

from debate_local.tasks.answers.options import Options

_SPEAKER = re.compile(r"\s*[*_]*A[*_]*:\s*(?=\S)")


def without_speaker(text: str, options: Options) -> str:
    """`A: The answer is D` is said by A, the one who answers. `A: Golgi body` is option A."""
    speaker = _SPEAKER.match(text)
    if speaker is None or any(
        named.start == speaker.end() and named.option == 0
        for named in options.texts_in(text, speaker.end(), min(len(text), speaker.end() + 300))
    ):
        return text
    return " " * speaker.end() + text[speaker.end() :]


_LISTED = re.compile(r"([A-Z])[)\].:*_]+[ \t]*(?=\S)")
_MOST_LABELS = 200
_LIST_GAP = re.compile(r"[\s,;|*_>.•-]*")


def without_lists(text: str, options: Options) -> str:
    """The reply with blanks for options that it merely repeats: two or more in their order, letters and whole texts."""
    runs: list[tuple[int, int, int]] = []
    texts = options.texts
    for label in islice(_LISTED.finditer(text), _MOST_LABELS):
        place = ord(label[1]) - ord("A")
        if place >= len(texts) or not texts[place] or not text.startswith(texts[place], label.end()):
            continue
        start = label.start()
        while start and text[start - 1] in "([*_":
            start -= 1
        end = label.end() + len(texts[place])
        if runs and runs[-1][2] == place - 1 and _LIST_GAP.fullmatch(text, runs[-1][1], start):
            runs[-1] = (runs[-1][0], end, place)
        elif place == 0:
            runs.append((start, end, place))
    pieces, done = [], 0
    for start, end, place in runs:
        if place:
            pieces += [text[done:start], " " * (end - start)]
            done = end
    return "".join([*pieces, text[done:]])
