"""Formulas of docstrings as MathML, which browsers draw themselves: `-(1 - p_y)^gamma log p_y` with its words kept.

A docstring is read in a terminal first, so its formulas are plain text; the site draws the same text. What is known:
`_` and `^` with what follows, `a / b` as a fraction of the two neighbours, `|x|` and `||x||`, `1[...]` as an indicator,
`sum_k`, `max_j`, `mean_i`, Greek letters by name, `x` between two things as a times sign. Words stay words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "epsilon": "ε", "lambda": "λ", "mu": "μ", "sigma": "σ", "Sigma": "Σ"}
FUNCTIONS = ("log", "ln", "exp", "max", "min", "sum", "mean", "sign", "argmax", "softmax", "sigmoid", "sqrt")
OPERATORS = {"<=": "≤", ">=": "≥", "<-": "←", "->": "→", "+-": "±", "-": "−", "*": "⋅", "||": "‖", "±": "±"}
CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|", "||": "||"}
TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<code>`[^`]*`)|(?P<size>\d+x\d+)|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)"
    r"|(?P<word>(?:[A-Za-zÀ-ÿ]+-)+[A-Za-zÀ-ÿ]{2,}|[A-Za-zÀ-ÿ]{2,}\d*(?:-[A-Za-z0-9]+)*(?:'s?(?!\w))?|[A-Za-z])"
    r"|(?P<sign><=|>=|<-|->|\+-|\|\||[^\w\s]|_)"
)


@dataclass
class Item:
    """A piece of a sentence: a word, a mark, an operator or something that stands in a formula."""

    kind: str  # word, mark, operator, atom, function
    source: str
    xml: str = ""
    inside: list[Item] = field(default_factory=list)
    spaced: bool = False  # a space stands before it


def typeset(sentence: str) -> str:
    """The sentence as HTML, its formulas as MathML."""
    return drawn(Reader(sentence).items())


class Reader:
    """Reads a sentence from left to right."""

    def __init__(self, sentence: str) -> None:
        sentence = sentence.replace("proportional to", "∝")
        self.tokens = [(match.lastgroup or "", match[0]) for match in TOKEN.finditer(sentence)]
        self.place = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self.place + ahead
        return self.tokens[at] if at < len(self.tokens) else ("end", "")

    def items(self, closing: str = "") -> list[Item]:
        """All items up to the closing bracket, which is taken too."""
        items: list[Item] = []
        spaced = False
        while self.place < len(self.tokens):
            kind, text = self.peek()
            if kind == "space":
                self.place, spaced = self.place + 1, True
                continue
            if closing and text == closing and not (text in ("|", "||") and self.separates()):
                self.place += 1
                return items
            item = self.item(closing, items)
            item.spaced, spaced = spaced, False
            items.append(item)
        return items

    def separates(self) -> bool:
        """Whether a bar stands alone between two things, as in P(right | confidence)."""
        return self.peek(-1)[0] == "space" and self.peek(1)[0] == "space"

    def item(self, closing: str, before: list[Item]) -> Item:
        kind, text = self.peek()
        self.place += 1
        if kind in ("code", "size"):
            return Item("word", text, f"<code>{escape(text[1:-1])}</code>" if kind == "code" else text)
        if kind == "number":
            if self.peek()[1] == "[":
                return self.scripts(self.bracket("1", "<mn>𝟙</mn>"))
            return self.scripts(Item("atom", text, f"<mn>{text}</mn>"))
        if kind == "word":
            return self.word(text)
        if text in CLOSING and not (text in ("|", "||") and self.is_separator(before)):
            self.place -= 1
            return self.scripts(self.bracket("", ""))
        if text in ",;:.":
            return Item("mark", text, f"<mo>{text}</mo>" if closing else text)
        if text in ")]}'\"°":
            return Item("word", text, escape(text))
        return Item("operator", text, escape(OPERATORS.get(text, text)))

    def is_separator(self, before: list[Item]) -> bool:
        """A bar that neither opens nor closes: alone between spaces, or right behind a thing as in E[y|p]."""
        self.place -= 1
        alone, touching = self.separates(), bool(before) and self.peek(-1)[0] != "space"
        self.place += 1
        return alone or (touching and before[-1].kind == "atom")

    def word(self, text: str) -> Item:
        kind, following = self.peek()
        attached = following in ("_", "^") or (following == "(" and text not in ("over", "of"))
        if text in FUNCTIONS:
            if text == "sqrt" and following == "(":
                inside = self.bracket("", "").inside
                return self.scripts(Item("atom", text, f"<msqrt>{row(inside)}</msqrt>", inside))
            return self.scripts(Item("function", text, "<mo>∑</mo>" if text == "sum" else f"<mi>{text}</mi>"))
        if len(text) == 1 or text in GREEK:
            digits = kind == "number" and len(text) == 1
            if digits:
                self.place += 1
                return self.scripts(Item("atom", text, f"<msub><mi>{text}</mi><mn>{following}</mn></msub>"))
            return self.scripts(Item("atom", text, f"<mi>{GREEK.get(text, text)}</mi>"))
        if attached:
            return self.scripts(Item("atom", text, f'<mi mathvariant="normal">{escape(text)}</mi>'))
        return Item("word", text, escape(text))

    def bracket(self, source: str, before: str) -> Item:
        opening = self.peek()[1]
        self.place += 1
        inside = self.items(CLOSING[opening])
        left, right = (OPERATORS.get(b, b) for b in (opening, CLOSING[opening]))
        fence = '<mo fence="true" form="{}">{}</mo>'
        xml = f"{before}{fence.format('prefix', left)}{row(inside)}{fence.format('postfix', right)}"
        return Item("atom", source + opening, f"<mrow>{xml}</mrow>", inside)

    def scripts(self, item: Item) -> Item:
        """An item with its indices, powers, primes and arguments."""
        under, over, prime = "", "", ""
        while True:
            text = self.peek()[1]
            if text == "_" and not under:
                self.place += 1
                under = self.index()
            elif text == "^" and not over:
                self.place += 1
                over = self.power()
            elif text == "'" and item.kind == "atom" and not prime:
                self.place += 1
                prime = "<mo>′</mo>"
            elif text == "(" and item.kind != "mark" and item.source[-1:].isalpha():
                called = self.bracket("", scripted(item, under, prime + over))
                item, under, over, prime = Item("atom", ")", called.xml), "", "", ""
            else:
                item.xml = scripted(item, under, prime + over)
                return item

    def index(self) -> str:
        kind, text = self.peek()
        if text == "(":
            return self.bracket("", "").xml
        self.place += 1
        if kind == "word" and len(text) < 3 and text not in GREEK:
            letters = "".join(f"<mi>{letter}</mi>" for letter in text)
            return f"<mrow>{letters}</mrow>" if len(text) > 1 else letters
        if kind == "word":
            return f"<mi>{GREEK[text]}</mi>" if text in GREEK else f"<mtext>{escape(text)}</mtext>"
        return f"<mn>{text}</mn>"

    def power(self) -> str:
        kind, text = self.peek()
        if text in ("-", "+"):
            self.place += 1
            return f"<mrow><mo>{OPERATORS.get(text, text)}</mo>{self.power()}</mrow>"
        if text == "(":
            inside = self.bracket("", "").inside
            return f"<mrow>{row(inside)}</mrow>"
        if text in CLOSING:
            return self.bracket("", "").xml
        self.place += 1
        if kind == "number":
            return f"<mn>{text}</mn>"
        item = Item("atom", text, f"<mi>{GREEK.get(text, text)}</mi>")
        if self.peek()[1] == "_":
            self.place += 1
            return scripted(item, self.index(), "")
        return item.xml


def scripted(item: Item, under: str, over: str) -> str:
    over = f"<mrow>{over}</mrow>" if over else ""
    if under and item.kind == "function":
        return (
            f"<munder>{item.xml}{under}</munder>" if not over else f"<munderover>{item.xml}{under}{over}</munderover>"
        )
    if under and over:
        return f"<msubsup>{item.xml}{under}{over}</msubsup>"
    if under:
        return f"<msub>{item.xml}{under}</msub>"
    return f"<msup>{item.xml}{over}</msup>" if over else item.xml


GAP = '<mspace width="0.2em"/>'


def as_word(item: Item) -> Item:
    return Item("word", item.source, item.source, spaced=item.spaced)


def settled(items: list[Item]) -> list[Item]:
    """Items whose meaning depends on their neighbours: times signs, articles, `sum over`, `with a sign`."""
    settled = list(items)
    plain = {name: "<mo>∑</mo>" if name == "sum" else f"<mi>{name}</mi>" for name in FUNCTIONS}
    for at in reversed(range(len(settled))):
        item = settled[at]
        following = settled[at + 1].kind if at + 1 < len(settled) else "end"
        article = item.source in ("a", "A") and item.xml == f"<mi>{item.source}</mi>" and following == "word"
        alone = item.xml == plain.get(item.source) and following in ("word", "mark", "end")
        if article or alone:
            settled[at] = as_word(item)
    for at, item in enumerate(settled):
        if is_times(settled, at):
            settled[at] = Item("operator", "x", "×", spaced=item.spaced)
    return settled


def is_times(items: list[Item], at: int) -> bool:
    """Whether an `x` stands between two things."""
    if items[at].source != "x" or items[at].xml != "<mi>x</mi>" or not 0 < at < len(items) - 1:
        return False
    return all(items[k].kind in ("atom", "word") for k in (at - 1, at + 1)) and items[at + 1].spaced


def fractions(items: list[Item]) -> list[Item]:
    """`a / b` becomes one item; brackets around either are no longer needed."""
    joined: list[Item] = []
    k = 0
    while k < len(items):
        item = items[k]
        divided = item.source == "/" and item.kind == "operator" and joined and k + 1 < len(items)
        if divided and joined[-1].kind in ("atom", "word") and items[k + 1].kind in ("atom", "word"):
            top, bottom = joined.pop(), items[k + 1]
            joined.append(Item("atom", "/", f"<mfrac>{bare(top)}{bare(bottom)}</mfrac>", spaced=top.spaced))
            k += 2
            continue
        joined.append(item)
        k += 1
    return joined


def bare(item: Item) -> str:
    if item.source == "(" and item.xml.startswith("<mrow><mo"):
        return f"<mrow>{row(item.inside)}</mrow>"
    return f"<mtext>{item.xml}</mtext>" if item.kind == "word" else item.xml


def row(items: Iterable[Item]) -> str:
    """What stands inside a formula, words included."""
    parts: list[str] = []
    words: list[str] = []
    previous = ""
    joined = fractions(settled(list(items)))
    for at, item in enumerate([*joined, Item("end", "")]):
        if item.kind == "word":
            words.append((" " if item.spaced and words else "") + item.xml)
            continue
        if words:
            edge = (
                "" if previous in ("", "operator") else " ",
                "" if item.kind in ("end", "operator", "mark") else " ",
            )
            text = re.sub("</?code>", "", "".join(words))
            parts.append(f"<mtext>{edge[0].replace(' ', chr(160))}{text}{edge[1].replace(' ', chr(160))}</mtext>")
            previous, words = "word", []
        elif previous in ("atom", "function") and item.kind in ("atom", "function"):
            parts.append(GAP)
        joins = previous == "" and item.spaced and at + 1 < len(joined) and joined[at + 1].spaced
        unary = item.source in ("-", "+", "±") and previous in ("", "operator", "mark") and not joins
        form = "prefix" if unary else "infix"
        parts.append(f'<mo form="{form}">{item.xml}</mo>' if item.kind == "operator" else item.xml)
        previous = item.kind
    return "".join(parts)


def is_formula(item: Item) -> bool:
    """Whether an item needs to be drawn: a bracket around words alone does not."""
    if item.kind not in ("atom", "function") or item.xml.startswith("<mn>"):
        return False
    return item.source != "(" or any(is_formula(part) or part.kind == "operator" for part in item.inside)


def drawn(items: list[Item]) -> str:
    """A sentence: runs of formula between words and marks."""
    items = settled(items)
    html: list[str] = []
    run: list[Item] = []

    def flush() -> None:
        if not run:
            return
        lead = " " if run[0].spaced else ""
        if any(is_formula(item) for item in run) or any(item.source == "/" for item in run):
            html.append(f'{lead}<math displaystyle="true">{row(run)}</math>')
        else:
            html.append("".join((" " if item.spaced else "") + as_text(item) for item in run))
        run.clear()

    for at, item in enumerate(items):
        dividing = any(0 <= k < len(items) and items[k].source == "/" for k in (at - 1, at + 1))
        if item.kind in ("atom", "function", "operator") or (item.kind == "word" and dividing):
            if item.source == "(" and not is_formula(item) and not dividing:
                flush()
                html.append((" " if item.spaced else "") + as_text(item))
            else:
                run.append(item)
            continue
        flush()
        html.append((" " if item.spaced else "") + item.xml)
    flush()
    return "".join(html).strip()


def as_text(item: Item) -> str:
    if item.inside or item.source == "(":
        inside = "".join((" " if part.spaced else "") + as_text(part) for part in item.inside)
        return f"({inside})"
    return item.xml if item.kind == "word" else re.sub(r"<[^>]*>", "", item.xml)
