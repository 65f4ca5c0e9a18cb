"""Read the equations of docstrings, ``x <- x + eta (1/N) sum_b omega_b Delta_b``, and write them in LaTeX.

Only what is certainly an equation is read: it assigns, relates or operates, and its words are letters, Greek letters,
functions and single names such as ``server_lr``. Anything else stays the code that it is.
"""

import re

GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "lambda", "mu", "nu", "xi", "pi", "rho",
    "sigma", "tau", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi", "Psi",
    "Omega",
)  # fmt: skip
WORDS = {"sum": r"\sum", "prod": r"\prod", "grad": r"\nabla", "inf": r"\infty", "sigmoid": r"\sigma", "in": r"\in"}
FUNCTIONS = ("max", "min", "exp", "log", "cos", "sin", "mean", "median", "sign", "clip", "floor", "ceil", "round")
SIGNS = {"<-": r"\leftarrow", "<=": r"\le", ">=": r"\ge", "!=": r"\ne", "~": r"\sim", "*": r"\,", "...": r"\dots"}
CLOSING = {"(": ")", "{": "}", "[": "]"}

_TOKEN = re.compile(r"@|[A-Za-z]+\d*'*|\d+(?:\.\d+)?|<-|<=|>=|!=|\.\.\.|\|\||[-+*/=<>(){},^_|~\[\]]|\s+")
_KNOWN = "|".join((*GREEK, *WORDS, *FUNCTIONS, "sqrt"))
_NAME = re.compile(rf"\b(?!(?:{_KNOWN})_)[A-Za-z]{{2,}}(?:_[A-Za-z]{{2,}})+(?![A-Za-z])")
_TWO_WORDS = re.compile(rf"(?<![\w'])(?!(?:{_KNOWN})\b)[a-z]{{2,}} (?!(?:{_KNOWN})\b)[a-z]{{2,}}(?![\w'(])")
_PROSE = re.compile(r"\b(?:of|over|the|to|is|not|and|for|from|than|with|where)\b")


class NoEquation(Exception):
    """The text is no equation."""


def latex(text: str) -> str | None:
    """Return an equation in LaTeX, or None where the text is none."""
    names = _NAME.findall(text)
    short = _NAME.sub("@", text)
    tokens = _TOKEN.findall(short)
    if "@" in text or "".join(tokens) != short or not re.search(r"<-| [-+*/=<>~] |\^|\|\||\bsum_", text):
        return None
    if text.startswith("[") or _PROSE.search(text) or _TWO_WORDS.search(text):
        return None
    writer = _Writer([token for token in tokens if not token.isspace()], names, "<-" in text or " = " in text)
    try:
        tex = writer.until(None)
    except NoEquation:
        return None
    return None if re.search(r"([_^])\{(?:[^{}]|\{[^{}]*\})*\} \1", tex) else tex  # two scripts in one place


def mathml(tex: str, display: str) -> str:
    """Return LaTeX as MathML, without characters that Markdown would read."""
    from latex2mathml.converter import convert  # of the extra docs

    text = convert(" ".join(tex.split()), display=display)
    text = re.sub(r"[*_`\[\]\\]", lambda found: f"&#{ord(found[0])};", text)
    return f"<span>{text}</span>" if display == "inline" else text  # math at the start of a paragraph would be a block


class _Writer:
    """Tokens, written one after the other."""

    def __init__(self, tokens: list[str], names: list[str], assigns: bool) -> None:
        self.tokens, self.names, self.assigns, self.norms, self.angles = tokens, names, assigns, 0, 0

    def until(self, end: str | None) -> str:
        """Return what stands before the token `end`, which is taken as well."""
        written: list[str] = []
        while self.tokens:
            token = self.tokens.pop(0)
            if token == end:
                return " ".join(written)
            if token in CLOSING.values():
                raise NoEquation
            written.append(self.one(token))
        if end is not None or self.norms % 2 or self.angles:
            raise NoEquation
        return " ".join(written)

    def one(self, token: str) -> str:
        """Return one token, with what belongs to it."""
        if token in "_^":
            script, primes = re.fullmatch(r"(.*?)('*)", self.script(), flags=re.S).groups()  # type: ignore[union-attr]
            return f"{token}{{{script}}}{primes}"
        if token in CLOSING:
            return f"{token} {self.until(CLOSING[token])} {CLOSING[token]}".replace("{ ", r"\{ ").replace(" }", r" \}")
        if token == "sqrt" and self.tokens[:1] == ["("]:
            self.tokens.pop(0)
            return rf"\sqrt{{{self.until(')')}}}"
        if token == "||":
            self.norms += 1
            return r"\lVert" if self.norms % 2 else r"\rVert"
        if token == "<" and ">" in self.tokens and "," in self.tokens:
            self.angles += 1
            return r"\langle"
        if token == ">" and self.angles:
            self.angles -= 1
            return r"\rangle"
        return self.word(token) if token[0].isalpha() or token == "@" else SIGNS.get(token, token)

    def script(self) -> str:
        """Return what a ``_`` or ``^`` puts below or above."""
        if not self.tokens:
            raise NoEquation
        token = self.tokens.pop(0)
        if token in "({":
            return self.until(CLOSING[token])
        return token + self.script() if token == "-" else self.one(token)

    def word(self, token: str) -> str:
        """Return a letter, a Greek letter, a function or a name."""
        name, primes = token.rstrip("'"), "'" * token.count("'")
        letter, digits = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
        below = f"_{{{digits}}}" if digits else ""
        if token == "@":
            name = self.names.pop(0).replace("_", r"\_")
            return rf"\mathrm{{{name}}}"
        if name == "E" and self.tokens[:1] == ["["]:
            return r"\mathbb{E}"
        if letter in GREEK:
            return f"\\{letter}{below}{primes}"
        if name in WORDS:
            return WORDS[name]
        if name in FUNCTIONS:
            return rf"\operatorname{{{name}}}"
        if len(letter) == 1:
            return f"{letter}{below}{primes}"
        if self.assigns:
            return rf"\mathrm{{{name}}}{primes}"
        raise NoEquation
