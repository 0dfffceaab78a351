"""One spelling for what can be spelt in many ways: LaTeX and plain text of a formula become one plain LaTeX.

Knows how formulas are written, not what they mean. Works on one answer, a few hundred characters at most.
"""

import re
import unicodedata
from collections.abc import Callable

from debate_local.tasks.answers.reply import plain

_SIGNS = {
    "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "×": r"\times ",
    "·": r"\cdot ", "÷": r"\div ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "±": r"\pm ",
    "°": r"^\circ ", "−": "-", "–": "-", "√": r"\sqrt ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "γ": r"\gamma ", "λ": r"\lambda ", "φ": r"\phi ", "ω": r"\omega ", "μ": r"\mu ", "ℝ": r"\mathbb{R}", "∨": r"\lor ",
    "⇒": r"\implies ", "→": r"\to ", "⟨": r"\langle ", "⟩": r"\rangle ", "‖": "|", "′": "'", "∠": r"\angle ",
}  # fmt: skip
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_VULGAR = re.compile("[¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
_FROM_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")

_RENAMED: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\(?:left|right|[bB]igg?[lrm]?|middle)(?![a-zA-Z])\s*\.?", ""),
    (r"\\(?:display|text|script)style(?![a-zA-Z])|\\limits(?![a-zA-Z])|\\no(?:break|indent)(?![a-zA-Z])|&(?=\s*=)", ""),
    (r"\s*\\!\s*", ""),
    (r"\{,\}", ","),
    # A thin space groups digits.
    (r"(?<=\d)\\,(?=\d{3}(?!\d))", ""),
    (r"(?<!\\)\\[,;:> ]|\\q?quad(?![a-zA-Z])|~", " "),
    (r"\\langle(?![a-zA-Z])", "("),
    (r"\\rangle(?![a-zA-Z])", ")"),
    (r"\\(?:mathrm|textrm|textbf|textit|textnormal|texttt|mbox|hbox|mathbf|mathit|mathsf|operatorname\*?|boldsymbol|bm"
     r"|rm|bf)\s*(?=\{)", r"\\text"),
    (r"\\text\{\s*([a-zA-Z])\s*\}", r"\1"),
    (r"\\%", "%"),
    (r"\\\$", "$"),
    (r"\\&", "&"),
    (r"\\lbrace(?![a-zA-Z])", r"\\{"),
    (r"\\rbrace(?![a-zA-Z])", r"\\}"),
    (r"\\[lr]?vert(?![a-zA-Z])|\\mid(?![a-zA-Z])", "|"),
    (r"\\(?:ge|le)(?:q|qslant|qq)(?![a-zA-Z])", lambda m: m[0][:3] + " "),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\neq(?![a-zA-Z])|(?<=\s)!=", r"\\ne "),
    (r"<=", r"\\le "),
    (r">=", r"\\ge "),
    (r"\\(?:varnothing|empty)(?![a-zA-Z])", r"\\emptyset "),
    (r"\\ast(?![a-zA-Z])|(?<!\*)\*(?!\*)", r"\\cdot "),
    (r"\*\*", "^"),
    (r"\\degree(?![a-zA-Z])|\^\s*\{\s*\\circ\s*\}", r"^\\circ "),
    (r"\\text\{\s*,?\s*(and|or)\s*\}", r" \1 "),
    (r"\\(?:lor|vee)(?![a-zA-Z])", " or "),
]  # fmt: skip
_RULES = [(re.compile(pattern), new) for pattern, new in _RENAMED]

_NAMES = (
    "sqrt|arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp|pi|theta|alpha|beta|gamma|lambda|omega"
)
_BARE_NAME = re.compile(rf"(?<![\\a-zA-Z])({_NAMES})(?![a-zA-Z])")
_BARE_INFINITY = re.compile(r"(?<![\\a-zA-Z])(?:infinity|infty|inf|oo)(?![a-zA-Z])")
_TEXT_NAME = re.compile(rf"\\text\{{\s*({_NAMES})\s*\}}")
_BARE_EXPONENT = re.compile(r"\^\s*(-?\d+(?:\.\d+)?|-[a-zA-Z])")
_GROUP_AFTER = re.compile(r"(\^|\\sqrt(?:\[[^\[\]]{1,9}\])?)\s*\(")
_SQUARE_ROOT = re.compile(r"\\sqrt(\[[^\[\]]{1,9}\])?\s*(\d+(?:\.\d+)?|[a-zA-Z]|\\[a-zA-Z]+)")
_TOKEN = r"(\d|[a-zA-Z]|\\[a-zA-Z]+)"
_FRACTION = re.compile(rf"\\frac\s*(?:{_TOKEN}\s*(?:{_TOKEN}|(?=\{{)))")
_FRACTION_END = re.compile(rf"(\\frac\s*\{{[^{{}}]*\}})\s*{_TOKEN}")
_WRAPPED = [("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"), ('"', '"')]


def cleaned(text: str) -> str:
    """The formula in one spelling: no delimiters around it, no spacing commands, braces where LaTeX lets them go."""
    text = _unwrapped(_ascii(plain(text)))
    for pattern, new in _RULES:
        text = pattern.sub(new, text)
    text = _TEXT_NAME.sub(r"\\\1 ", text)
    if "\\text" not in text:
        text = _BARE_NAME.sub(r"\\\1 ", _BARE_INFINITY.sub(r"\\infty ", text))
    text = _SQUARE_ROOT.sub(lambda m: rf"\sqrt{m[1] or ''}{{{m[2]}}}", _braced(text))
    text = _FRACTION.sub(_fraction, text)
    text = _FRACTION_END.sub(r"\1{\2}", text)
    text = _BARE_EXPONENT.sub(r"^{\1}", text)
    return " ".join(text.split()).strip(" ,;:").removesuffix(".").strip()


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    text = "".join(_SIGNS.get(char, char) for char in text)
    text = _SUPERSCRIPTS.sub(lambda m: f"^{{{m[0].translate(_FROM_SUPERSCRIPT)}}}", text)
    return _VULGAR.sub(lambda m: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", m[0]).split("⁄")), text)


def _unwrapped(text: str) -> str:
    text = text.strip()
    for opening, closing in _WRAPPED:
        inner = text[len(opening) : len(text) - len(closing)]
        wrapped = text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing)
        if wrapped and opening not in inner and not inner.endswith("\\"):
            return _unwrapped(inner)
    return text


def _fraction(match: re.Match[str]) -> str:
    top, bottom = match.groups()
    return rf"\frac{{{top}}}" + (f"{{{bottom}}}" if bottom else "")


def _braced(text: str) -> str:
    r"""`^(x+1)` and `\sqrt(x+1)` with braces in place of the parentheses."""
    place = 0
    while found := _GROUP_AFTER.search(text, place):
        close = matching(text, found.end() - 1)
        place = found.end()
        if close is not None:
            inner = text[found.end() : close]
            text = f"{text[: found.start()]}{found[1]}{{{inner}}}{text[close + 1 :]}"
    return text


_OPENING, _CLOSING = "([{", ")]}"


def matching(text: str, opening: int) -> int | None:
    """Where the bracket at `opening` is closed; half-open intervals may close with the other kind."""
    depth = 0
    for index in range(opening, len(text)):
        if text[index] in _OPENING:
            depth += 1
        elif text[index] in _CLOSING:
            depth -= 1
            if not depth:
                return index
    return None


def split_outside(text: str, separator: re.Pattern[str]) -> list[tuple[str, str]]:
    """The parts between separators that stand in no bracket, each with the separator before it ("" for the first)."""
    parts, start, before, depth, place = [], 0, "", 0, 0
    while place < len(text):
        if text[place] in _OPENING:
            depth += 1
        elif text[place] in _CLOSING:
            depth -= 1
        elif depth == 0 and (found := separator.match(text, place)) and found.end() > place:
            parts.append((before, text[start:place].strip()))
            start = place = found.end()
            before = found[0].strip()
            continue
        place += 1
    return [*parts, (before, text[start:].strip())]
