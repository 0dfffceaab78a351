"""Read a chess move out of a reply: the square a piece moves to. Knows notations, not positions, and never guesses.

e5, Nf6, Nxe5+, g8f6, Ng8-f6, g8 to f6, exd8=Q are moves to their last square. The game so far, repeated in front, is no
answer; nor are two squares, squares off the board, the square a piece stands on, and castling (whose move is it?). The
order of rules is that of `statements`, with `the best move is ...` and `I play ...` (rule `move`) among the statements.
FORMAT asks for what the first rule reads.
"""

import re
from itertools import pairwise
from typing import NamedTuple

from debate_local.core.transcript import Answer
from debate_local.tasks.answers import voice
from debate_local.tasks.answers.reply import OwnText, Sentence, lower, nothing_in, own_part, plain
from debate_local.tasks.answers.statements import (
    CUE_WORDS,
    Found,
    Statement,
    box_before,
    last_words,
    link_after,
    settle,
    stretch,
)

FORMAT = "Give the square that the piece moves to inside \\boxed{} at the end of your reply."


def read_move(text: str, question: str = "") -> Answer:
    """The square that a reply moves to. value and key are the square, in lower case.

    question: what was asked; where the reply repeats it word for word, that part is not read.
    """
    own = own_part(text, question)
    if not own:
        return Answer.none(nothing_in(text))
    reader = _Reader(own, plain(question))
    found = settle(reader.reply, _CUE, reader.stated, reader.lenient, reader.own_cue)
    if found is None or found.thing is None:
        return Answer.none(found.rule if found else "no square")
    square = found.thing.square
    return Answer(square, square, found.rule, (found.thing.start, found.thing.end))


class _Move(NamedTuple):
    """A move as written at [start, end), and its last square; "" for castling."""

    start: int
    end: int
    square: str


# A game repeated further from the end than this is read over all the same.
_WINDOW = 20_000
# More in one stretch is no answer, whichever they are.
_MOST_MOVES = 20
_SQUARE = "[a-h][1-8]"
# English piece letters, and the German and French ones.
_PIECE = "[kqrbnpsdtlcf♔-♟]"
_GOES = r"\s?(?:-|–|—|→|->|=>|>|x|×|:)\s?|\s(?:to|takes(?:\son)?|captures(?:\son)?)\s"
_MOVE = re.compile(
    rf"""(?<![a-z0-9_])
    (?: (?:o-o(?:-o)?|0-0(?:-0)?)
      | {_PIECE}?{_SQUARE}(?:{_GOES})?[kqrbn]?(?P<to>{_SQUARE})
      | (?:{_PIECE}[a-h]?[1-8]?[x×]?|[a-h][x×]|[x×])?(?P<at>{_SQUARE})
    )
    (?:\s?=?\s?\(?[qrbn]\)?(?![a-z]))?(?![a-z0-9])""",
    re.VERBOSE,
)
_SAN = rf"(?:o-o(?:-o)?|0-0(?:-0)?|[kqrbn]?[a-h]?[1-8]?x?{_SQUARE}(?:=?[qrbn])?)[+#!?]*"
# The game so far, 1. e4 e5 2. Nf3 Nc6 or e2e4 e7e5 g1f3 b8. Both begin with a set of characters, which makes them fast.
_GAME = re.compile(
    rf"\d(?<![a-z0-9.]\d)\d{{0,2}}\.(?:\.\.)?[ \t]*{_SAN}[ \t]+{_SAN}"
    rf"(?:\s+\d{{1,3}}\.(?:\.\.)?[ \t]*{_SAN}(?:[ \t]+{_SAN}(?![a-z0-9]))?)*(?![a-z0-9])"
)
_LONG_GAME = re.compile(
    rf"[a-h](?<![a-z0-9][a-h])[1-8]{_SQUARE}[qrbn]?[ \t]+(?:{_SQUARE}{_SQUARE}[qrbn]?[ \t]+)+"
    rf"{_SQUARE}(?:{_SQUARE}[qrbn]?)?(?![a-z0-9])"
)
_LIKE_A_SQUARE = re.compile(r"(?<![a-z0-9])[kqrbn]?[a-z]\d{1,2}(?![a-z0-9])")
_CUE = re.compile(
    rf"{CUE_WORDS}|moves?\b(?P<noun>)|squares?\b(?P<noun1>)|destinations?\b(?P<noun2>)"
    r"|choose\b(?P<verb>)|pick\b(?P<verb1>)|select\b(?P<verb2>)|play\b(?P<verb3>)|going with\b(?P<verb4>)"
    r"|go with\b(?P<verb5>)|recommend\b(?P<verb6>)|suggest\b(?P<verb7>)"
)
_OWN_SUBJECT = re.compile(r"\b(?:i|we|i'll|i'd|we'll|let's|let us|to)\b[^.\n:]{0,30}\Z")
_OTHER_MOVE = re.compile(
    r"\b(?:other|another|illegal|invalid|last|previous|preceding|first|opponent's?|their|his|her|white's|black's|starting"
    r"|from|origin|current|alternative)\W+(?:\w+\W+)?\Z"
)
_REASON = re.compile(
    r"\b(?:because|since|as|where|which|when|while|avoiding|attack\w*|defend\w*|threaten\w*|instead|rather|not|but|after"
    r"|following|in response|if|from|with)\b|[(;]"
)
_STANDS = re.compile(
    r"\bfrom\s+(?:the\s+)?(?:square\s+)?[*_`$]*\Z"
    r"|\b(?:king|queen|rook|bishop|knight|pawn|piece)\s+(?:(?:is|was|currently|now|standing|located)\s+)*(?:on|at|from)\s+"
    r"(?:the\s+)?(?:square\s+)?[*_`$]*\Z"
)
_RULED_OUT = re.compile(
    r"[\s*_`$]*(?:(?:is|was|would be|looks)(?:n't| not)? )?"
    r"(?:illegal|not legal|invalid|blocked|occupied|guarded|taken|impossible|legal\?)"
)
_ON = re.compile(r"\b(?:on|at)\s+(?:the\s+)?(?:square\s+)?[*_`$]*\Z")
_LEADS_TO = re.compile(
    r"(?:[:=]|→|\b(?:to|is|are|be|play|plays|choose|pick|select|with|move|moves|reach|reaches|lands? on|goes))\s*"
    r"(?:the\s+)?(?:square\s+)?[\s*_`$\"'({]*\Z"
)
_AS_WELL = re.compile(
    r"\A\W*or\b|\b(?:as well|also|alternatively|another (?:option|possibility|choice)|equally|or else)\b"
)
_LINKED = re.compile(r"[\s*_`$,/;+#!?)}]*(?:\b(?:or|and)\b|[,/;])[\s*_`$({]*(?:(?:either|even|also|to|then)\s+)*")


class _Reader:
    """Reads one reply's own part, the game in it blanked."""

    def __init__(self, own: str, question: str) -> None:
        for game in (_GAME, _LONG_GAME):
            own = _blanked(own, game)
        self.reply, self._question = OwnText(own), question

    def own_cue(self, reply: OwnText, cue: re.Match[str]) -> Statement | None:
        """What `the best move is` and `I play` lead to."""
        after = cue.end()
        before = reply.low[max(0, cue.start() - 40) : cue.start()]
        if before[-1:].isalnum() or (_is_verb(cue) and not _OWN_SUBJECT.search(before)):
            return None
        if not _is_verb(cue):
            link = link_after(reply, after)
            if link is None or _OTHER_MOVE.search(before) or voice.supposed(reply.low, cue.start()):
                return None
            after = link.end()
        sentence = stretch(reply, after)
        return Statement("move", cue.start(), after, sentence.end) if sentence else None

    def stated(self, statement: Statement) -> Found[_Move] | None:
        """The one move that a statement begins with."""
        low, start, end = self.reply.low, statement.start, statement.end
        if not statement.closed:
            return Found("cut off in a box")
        moves = self._moves(start, end)
        if not moves:
            nothing = statement.rule != "move" and (
                voice.refused(low[start:end]) or _LIKE_A_SQUARE.search(low, start, end)
            )
            return Found("stated, but no square of the board") if nothing else None
        reason = _REASON.search(low, moves[0].end, end)
        moves = [move for move in moves if reason is None or move.start < reason.start()]
        if statement.rule == "boxed" and (before := box_before(self.reply, statement.cue)):
            moves = self._moves(*before) + moves
        several = len({move.square for move in moves}) > 1
        if several and (statement.rule == "boxed" or _LINKED.fullmatch(low, moves[0].end, moves[1].start)):
            return None if statement.rule == "move" else Found("several candidates")
        return _move(statement.rule, moves[0])

    def lenient(self, start: int, corrects: bool) -> Found[_Move] | None:
        """The move of the last sentence that has one."""
        later: Found[_Move] | None = None
        for word in last_words(self.reply, start, "" if corrects else self._question, corrects):
            if word.refusal:
                return later or Found(word.refusal)
            found = self._concluded(word.sentence)
            if later is not None and found is not None:
                differs = found.thing is None or later.thing is None or found.thing.square != later.thing.square
                return Found("several candidates") if differs else later
            if found is not None and not _AS_WELL.search(self.reply.low[word.sentence.start : word.sentence.end]):
                return found
            # What is said to be possible as well is held against what was said before.
            later = later or found
        return later

    def _concluded(self, sentence: Sentence) -> Found[_Move] | None:
        low, moves = self.reply.low, self._moves(sentence.start, sentence.end)
        if not moves:
            return None
        reason = _REASON.search(low, moves[0].end, sentence.end)
        moves = [move for move in moves if reason is None or move.start < reason.start()]
        if len({move.square for move in moves}) > 1:
            linked = any(_LINKED.fullmatch(low, a.end, b.start) for a, b in pairwise(moves))
            led = [m for m in moves if _LEADS_TO.search(low, max(sentence.start, m.start - 40), m.start)]
            if linked or len({move.square for move in led}) != 1:
                return Found("several candidates")
            moves = led
        return _move("lenient: last sentence", moves[-1])

    def _moves(self, start: int, end: int) -> list[_Move]:
        """The moves in a stretch, without denied ones and without the squares that pieces stand on."""
        low = self.reply.low
        found = [
            _Move(*m.span(), m["to"] or m["at"] or "")
            for m in [*_MOVE.finditer(low, start, end)][:_MOST_MOVES]
            if not (m["at"] and _STANDS.search(low, max(start, m.start() - 50), m.start()))
        ]
        found = [m for m in found if not (voice.denied(low, start, m.start, m.end) or _RULED_OUT.match(low, m.end))]
        going = [m for m in found if not _ON.search(low, max(start, m.start - 30), m.start)]
        return going or found


def _blanked(text: str, game: re.Pattern[str]) -> str:
    pieces, end = [], 0
    for found in game.finditer(lower(text), max(0, len(text) - _WINDOW)):
        pieces += [text[end : found.start()], " " * (found.end() - found.start())]
        end = found.end()
    return "".join([*pieces, text[end:]]) if pieces else text


def _is_verb(cue: re.Match[str]) -> bool:
    return (cue.lastgroup or "").startswith("verb")


def _move(rule: str, move: _Move) -> Found[_Move]:
    return Found(rule, move) if move.square else Found("castling names no square")
