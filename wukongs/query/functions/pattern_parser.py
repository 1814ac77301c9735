"""Regular expressions of XPath (Functions and Operators, 7.6.1) written for RE2, or for Python where RE2 cannot.

XPath has XML Schema's syntax with anchors, reluctant quantifiers and back-references. Every class of characters is
worked out as a set here, so Unicode categories, `\\i`, `\\c`, subtraction ([a-z-[aeiou]]) and the flag i mean what
XPath says, not what the engine thinks. `.` is anything but a line feed, `$` without the flag m is the very end.

RE2 takes time that is linear in the text, whatever the pattern. It has no back-references and repeats at most 1000
times; such patterns go to Python's `re`, where a hostile one can take exponential time.

Blocks have Unicode's names (pattern_blocks.py); an unknown name is an error. With the flag m, `^` also matches after a
line feed that ends the text. Beyond XPath 2.0, `(?:...)` groups without a number and
the flag q takes the pattern literally, as XPath 3.0 has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.query.functions.pattern_blocks import block, nearest_block
from wukongs.query.functions.pattern_sets import (
    EVERYTHING,
    Ranges,
    any_case,
    category,
    complement,
    escape_class,
    united,
    without,
)

FLAGS = frozenset("smixq")
_SPECIAL = frozenset(".\\?*+{}()[]|^$")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", **{letter: letter for letter in "\\|.?*+(){}-[]^$"}}
_LINE_FEED: Ranges = ((10, 10),)
_BLANKS = " \t\n\r"
_RE2_REPEATS_MAX = 1000
_NESTING_MAX = 200


class PatternError(ValueError):
    """The message says what is wrong with a regular expression, or with its flags."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The same pattern for RE2, None where RE2 cannot, and for Python's re.

    group_count: of groups that capture; state_count: about how many characters and classes it has with all repetitions
    written out. A character of the text may cost so many steps."""

    for_re2: str | None
    for_python: str
    group_count: int
    state_count: int


def translate(pattern: str, flags: str) -> Translation:
    """Translate a pattern.

    Raises PatternError: no regular expression of XPath, or a flag that is none of s m i x q.
    """
    unknown = set(flags) - FLAGS
    if unknown:
        raise PatternError(f"expected flags among s, m, i, x and q, found {min(unknown)!r}")
    reader = _Reader(pattern, flags, for_re2=True)
    for_re2 = reader.whole()
    for_python = _Reader(pattern, flags, for_re2=False).whole()
    return Translation(None if reader.needs_python else for_re2, for_python, reader.group_count, reader.state_count)


class _Reader:
    def __init__(self, pattern: str, flags: str, for_re2: bool) -> None:
        self._pattern = pattern
        self._at = 0
        self._literal = "q" in flags
        self._dot_is_all = "s" in flags
        self._by_line = "m" in flags
        self._ignores_case = "i" in flags
        self._skips_blanks = "x" in flags
        self._for_re2 = for_re2
        self._open: list[int] = []
        self._depth = 0
        self._copies = 1
        self.group_count = 0
        self.state_count = 0
        self.needs_python = False

    def whole(self) -> str:
        if self._literal:
            return "".join(map(self._character, self._pattern))
        text = self._branches()
        if self._at < len(self._pattern):
            raise self._error("an opening parenthesis before this one")
        return text

    def _error(self, expected: str) -> PatternError:
        found = self._pattern[self._at : self._at + 10]
        shown = repr(found) if found else "the end"
        return PatternError(f"expected {expected} at character {self._at + 1}, found {shown}")

    def _next(self) -> str:
        """Return the next character without reading it, '' at the end."""
        while self._skips_blanks and self._pattern[self._at : self._at + 1] in _BLANKS and not self._is_done():
            self._at += 1
        return self._pattern[self._at : self._at + 1]

    def _is_done(self) -> bool:
        return self._at >= len(self._pattern)

    def _accept(self, text: str) -> bool:
        self._next()
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    # --- branches, pieces, atoms --------------------------------------------------------------------------------------

    def _branches(self) -> str:
        branches = [self._branch()]
        while self._accept("|"):
            branches.append(self._branch())
        return "|".join(branches)

    def _branch(self) -> str:
        pieces = []
        while self._next() not in ("", "|", ")"):
            before = self.state_count
            pieces.append(self._atom() + self._quantifier())
            self.state_count = before + (self.state_count - before) * self._copies
        return "".join(pieces)

    def _atom(self) -> str:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            self._at += 1
            return self._set(self._class())
        if letter == "\\":
            return self._escape()
        if letter in "?*+{}]":
            raise self._error(r"a character, a class or a group (write \ before ? * + { } or ] to mean them)")
        self._at += 1
        if letter == ".":
            return self._set(EVERYTHING if self._dot_is_all else complement(_LINE_FEED))
        if letter == "^":
            return "(?m:^)" if self._by_line else r"\A"
        if letter == "$":
            end = r"\z" if self._for_re2 else r"\Z"
            return "(?m:$)" if self._by_line else end
        return self._character(letter)

    def _group(self) -> str:
        self._depth += 1
        if self._depth > _NESTING_MAX:
            raise self._error(f"groups that are nested at most {_NESTING_MAX} deep")
        self._at += 1
        is_counted = not self._accept("?:")
        if is_counted:
            self.group_count += 1
            self._open.append(self.group_count)
        inner = self._branches()
        if not self._accept(")"):
            raise self._error("')'")
        if is_counted:
            self._open.pop()
        self._depth -= 1
        return f"({inner})" if is_counted else f"(?:{inner})"

    def _quantifier(self) -> str:
        letter = self._next()
        self._copies = 1
        if letter and letter in "?*+":
            self._at += 1
            text = letter
        elif letter == "{":
            self._at += 1
            text = self._counts()
        else:
            return ""
        return f"{text}?" if self._accept("?") else text

    def _counts(self) -> str:
        """Read `n}`, `n,}` or `n,m}`."""
        least = self._count()
        most: int | None = least
        if self._accept(","):
            most = None if self._next() == "}" else self._count()
        if not self._accept("}") or (most is not None and most < least):
            raise self._error("a quantifier such as {2}, {2,} or {2,5}")
        if max(least, most or 0) > _RE2_REPEATS_MAX:
            self.needs_python = True
        self._copies = max(1, least, most or 0)
        return f"{{{least}}}" if most == least else f"{{{least},{'' if most is None else most}}}"

    def _count(self) -> int:
        start = self._at
        while "0" <= self._next() <= "9":
            self._at += 1
        digits = self._pattern[start : self._at]
        if not digits or len(digits) > 6:
            raise self._error("a number of repetitions below 1000000")
        return int(digits)

    def _escape(self) -> str:
        """Read an escape outside of a class."""
        letter = self._pattern[self._at + 1 : self._at + 2]
        if "1" <= letter <= "9":
            return self._back_reference()
        return self._set(self._escaped_set())

    def _back_reference(self) -> str:
        """Read \\n: the longest number of a group that stands before it."""
        start, end = self._at + 1, self._at + 2
        while "0" <= self._pattern[end : end + 1] <= "9" and int(self._pattern[start : end + 1]) <= self.group_count:
            end += 1
        number = int(self._pattern[start:end])
        if number > self.group_count or number in self._open:
            raise self._error("a back-reference to a group that has ended")
        self._at = end
        self.needs_python = True
        return f"(?i:(?:\\{number}))" if self._ignores_case else f"(?:\\{number})"

    # --- sets of characters -------------------------------------------------------------------------------------------

    def _escaped_set(self) -> Ranges:
        """Read an escape that stands for one character or for a class."""
        letter = self._pattern[self._at + 1 : self._at + 2]
        if letter in ("p", "P"):
            end = self._pattern.find("}", self._at)
            name = self._pattern[self._at + 3 : end] if self._pattern[self._at + 2 : self._at + 3] == "{" else ""
            is_block = name.startswith("Is")
            found = None if end < 0 else block(name[2:]) if is_block else category(name)
            if found is None:
                near = nearest_block(name[2:]) if is_block else ""
                hint = rf" (did you mean \p{{Is{near}}}?)" if near else ""
                raise self._error(rf"a Unicode category such as \p{{Lu}}, or a block such as \p{{IsGreek}}{hint}")
            self._at = end + 1
            return found if letter == "p" else complement(found)
        known = escape_class(letter.lower()) if letter else None
        if known is not None:
            self._at += 2
            return known if letter.islower() else complement(known)
        if letter not in _ESCAPED:
            raise self._error(r"an escape such as \n, \d, \w, \s, \p{L} or \.")
        self._at += 2
        return self._cased(_one(_ESCAPED[letter]))

    def _class(self) -> Ranges:
        """Read a class from after its opening bracket; blanks count in it, whatever the flags."""
        is_negative = self._pattern.startswith("^", self._at)
        self._at += is_negative
        found: list[Ranges] = []
        removed: Ranges = ()
        while True:
            if self._is_done():
                raise self._error("']'")
            letter = self._pattern[self._at]
            if letter == "]" and found:
                self._at += 1
                break
            if found and self._pattern.startswith("-[", self._at):
                removed = self._subtracted()
                break
            found.append(self._item())
        ranges = united(*found)
        return without(complement(ranges) if is_negative else ranges, removed)

    def _subtracted(self) -> Ranges:
        self._depth += 1
        if self._depth > _NESTING_MAX:
            raise self._error(f"classes that are nested at most {_NESTING_MAX} deep")
        self._at += 2
        removed = self._class()
        if not self._pattern.startswith("]", self._at):
            raise self._error("']' after the class that is taken away")
        self._at += 1
        self._depth -= 1
        return removed

    def _item(self) -> Ranges:
        """Read a character, a range of characters or an escape of a class."""
        start = self._at
        first = self._class_character()
        if len(first) != 1 or first[0][0] != first[0][1]:
            return first
        following = self._pattern[self._at : self._at + 2]
        if following[:1] != "-" or following in ("-]", "-[", "-"):
            return self._cased(first)
        self._at += 1
        last = self._class_character()
        if len(last) != 1 or last[0][0] != last[0][1] or last[0][0] < first[0][0]:
            self._at = start
            raise self._error("a range from a character to a later one")
        return self._cased(((first[0][0], last[0][0]),))

    def _class_character(self) -> Ranges:
        letter = self._pattern[self._at : self._at + 1]
        if letter == "\\":
            is_plain = self._pattern[self._at + 1 : self._at + 2] in _ESCAPED
            if is_plain:
                self._at += 2
                return _one(_ESCAPED[self._pattern[self._at - 1]])
            return self._escaped_set()
        if letter in ("", "[", "]"):
            raise self._error(r"a character of the class (write \ before [ or ] to mean them)")
        self._at += 1
        return _one(letter)

    def _cased(self, ranges: Ranges) -> Ranges:
        return any_case(ranges) if self._ignores_case else ranges

    # --- writing ------------------------------------------------------------------------------------------------------

    def _character(self, letter: str) -> str:
        return self._set(self._cased(_one(letter)))

    def _set(self, ranges: Ranges) -> str:
        self.state_count += 1
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            return self._code(ranges[0][0])
        if ranges == EVERYTHING:
            return "(?s:.)"
        outside = complement(ranges)
        if len(outside) < len(ranges) or not ranges:
            return f"[^{self._ranges(outside)}]"
        return f"[{self._ranges(ranges)}]"

    def _ranges(self, ranges: Ranges) -> str:
        codes = (
            self._code(first) if first == last else f"{self._code(first)}-{self._code(last)}" for first, last in ranges
        )
        return "".join(codes)

    def _code(self, code: int) -> str:
        letter = chr(code)
        if code < 128 and letter.isalnum():
            return letter
        return f"\\x{{{code:x}}}" if self._for_re2 else f"\\U{code:08x}"


def _one(letter: str) -> Ranges:
    return ((ord(letter), ord(letter)),)
