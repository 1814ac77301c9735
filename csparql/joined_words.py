"""Keywords that stand side by side without a blank, such as `FILTERNOT EXISTS` and `LIMIT10`.

SPARQL has no bare words: the longest terminal that matches comes next (SPARQL 1.1, 19.8). So `SELECTDISTINCT?s` is
SELECT, DISTINCT and ?s, but `FILTERex:f` is a prefixed name. The tokenizer reads a whole word, which gives better
errors for misspelt ones. Only the text that does not parse so is cut again here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wukongs.csparql.functions import AGGREGATES, ALIASES, FUNCTIONS
from wukongs.csparql.tokens import Token, read_tokens

KEYWORDS = frozenset(
    """ADD ALL AS ASC ASK BASE BIND BY CLEAR CONSTRUCT COPY CREATE DATA DEFAULT DELETE DESC DESCRIBE DISTINCT DROP
    EXISTS FALSE FILTER FROM GRAPH GROUP HAVING IN INSERT INTO LIMIT LOAD MINUS MOVE NAMED NOT OFFSET OPTIONAL ORDER
    PREFIX REDUCED SELECT SEPARATOR SERVICE SILENT TO TRUE UNDEF UNION USING VALUES VERSION WHERE WITH
    BOUND TIMESTAMP""".split()  # noqa: SIM905
) | {*FUNCTIONS, *AGGREGATES, *ALIASES}
"""The words of SPARQL's grammar and of its functions, in upper case; `a` is not among them, since its case counts."""
_STREAM_WORDS = frozenset(
    """AND CHANGE CLOSE COMPUTED CONTENT DSTREAM ELAPSED ELEMENTS EMPTY EVERY ISTREAM ITEM ITEMS NON ON QUERY RANGE
    REGISTER REPORT RESULT RSTREAM SLIDE STEP STREAM TRIPLES TUMBLING WINDOW MS MSEC MSECS MILLISECOND MILLISECONDS S
    SEC SECS SECOND SECONDS M MIN MINS MINUTE MINUTES H HOUR HOURS D DAY DAYS""".split()  # noqa: SIM905
)
"""The words that C-SPARQL adds. They stay whole, and are cut off nothing: its grammar is our own."""
_NAMED = frozenset(("QUERY", "STREAM", "RSTREAM", "ISTREAM", "DSTREAM"))
_AFTER_NAME = frozenset(("AS", "COMPUTED", "REPORT"))


def split_words(text: str, tokens: Sequence[Token], run_ends: Mapping[int, int], source: str) -> list[Token] | None:
    """Cut words that begin with a keyword behind the longest such keyword; None if the text has no such word.

    Parameters
    ----------
    text : str                         The text of the tokens.
    tokens : sequence of Token         The tokens with whole words.
    run_ends : start -> end            Places in the text of the tokens of the kind "data", which stay as they are.
    source : str                       The name of the text in errors.

    Raises
    ------
    QuerySyntaxError                   A character behind a keyword begins no token.
    """
    if not any(map(_keyword_length, _outside_names(tokens))):
        return None
    cut: list[Token] = []
    at = 0
    wanted = iter(tokens)
    following = next(wanted)
    kept = {token.start for token in tokens} - {token.start for token in _outside_names(tokens)}
    while not cut or cut[-1].kind != "end":
        while following.start < at:
            following = next(wanted)
        if following.kind == "data":
            cut.append(following)
            at = run_ends[following.start]
            continue
        at = read_tokens(text, at, cut, None, source)
        token = cut[-1]
        length = 0 if token.start in kept else _keyword_length(token)
        if length:
            word = token.text[:length]
            cut[-1] = Token(word.upper(), word, token.start)
            at = token.start + length
    return cut


def _outside_names(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens that are no part of the bare name of a registered query."""
    found: list[Token] = []
    in_name = False
    for place, token in enumerate(tokens):
        in_name = in_name and token.kind not in _AFTER_NAME
        if not in_name:
            found.append(token)
        is_registered = place > 0 and tokens[place - 1].kind == "REGISTER"
        in_name = in_name or (is_registered and token.kind in _NAMED)
    return found


def _keyword_length(token: Token) -> int:
    """Return how many characters of a word are a keyword with something behind it; 0 for other tokens."""
    word = token.kind
    if word in KEYWORDS or word in _STREAM_WORDS or not word[:1].isalpha() or word != token.text.upper():
        return 0
    for length in range(len(word) - 1, 0, -1):
        if word[:length] in KEYWORDS:
            return length
    return 1 if token.text.startswith("a") and len(word) > 1 else 0
