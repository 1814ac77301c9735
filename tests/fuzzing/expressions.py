"""Random expressions: mostly of the type that their place asks for, now and then of any."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.fuzzing.graphs import DURATIONS, NODES, NUMBERS, OTHERS, STRINGS, TIMES
from tests.fuzzing.trees import Tree, tree

OF_STRING = ("UCASE", "LCASE", "ENCODE_FOR_URI")
HASHES = ("MD5", "SHA1", "SHA256", "SHA384", "SHA512")
OF_NUMBER = ("ABS", "CEIL", "FLOOR", "ROUND")
OF_TIME = ("YEAR", "MONTH", "DAY", "HOURS", "MINUTES", "SECONDS")
TESTS = ("isIRI", "isURI", "isBLANK", "isLITERAL", "isNUMERIC")
CASTS = ("xsd:integer", "xsd:decimal", "xsd:double", "xsd:boolean", "xsd:string", "xsd:dateTime")
DURATION_CASTS = ("xsd:duration", "xsd:dayTimeDuration", "xsd:yearMonthDuration")
SHAPELESS = ("isIRI(UUID())", "STRLEN(STRUUID())", "(RAND() < 1)", "(NOW() = NOW())", "isBLANK(BNODE())")
PATTERNS = ('"^a"', '"[ab]+"', '"b$"', '"A"', '"."', '"(a)(b)?"')
RANGES = ('"*"', '"en"', '"de"', '"en-us"')


def call(name: str, *arguments: Tree) -> Tree:
    parts: list[str | Tree] = [f"{name}("]
    for at, argument in enumerate(arguments):
        parts += [", ", argument] if at else [argument]
    return Tree("expression", name.upper(), (*parts, ")"))


def leaf(text: str) -> Tree:
    return Tree("expression", "", (text,))


class ExpressionMaker:
    """Makes expressions over some variables. exists: makes the group of an EXISTS, None where there is to be none."""

    def __init__(self, rng: random.Random, exists: Callable[[int], Tree]) -> None:
        self.rng = rng
        self._exists = exists

    def condition(self, variables: Sequence[str], depth: int = 2, exists_depth: int = 0) -> Tree:
        """Make a truth value."""
        pick = self.rng.random()
        again = depth - 1
        if exists_depth > 0 and pick < 0.12:
            negated = self.rng.choice(("EXISTS", "NOT EXISTS"))
            return tree("expression", negated, negated, self._exists(exists_depth - 1))
        if pick < 0.2 and variables:
            first, second = (leaf(self.rng.choice(variables)) for _ in range(2))
            op = self.rng.choice(("!=", "!=", "=", "<", ">="))
            return tree("expression", op, "(", first, op, second if self.rng.random() < 0.6 else self.value((), 0), ")")
        if depth > 0 and pick < 0.33:
            op = self.rng.choice(("&&", "||"))
            sides = (self.condition(variables, again, exists_depth) for _ in range(2))
            return tree("expression", op, "(", next(sides), op, next(sides), ")")
        if depth > 0 and pick < 0.4:
            return tree("expression", "!", "( !", self.condition(variables, again, exists_depth), ")")
        if pick < 0.62:
            return self._comparison(variables, again)
        if pick < 0.7:
            op = self.rng.choice(("IN", "NOT IN"))
            items = [self.value(variables, 0) for _ in range(self.rng.randint(0, 3))]
            listed = [tree("more", "", "," if at else "", item) for at, item in enumerate(items)]
            return tree("expression", op, "(", self.value(variables, again), op, "(", listed, ") )")
        return self._test(variables, again)

    def _comparison(self, variables: Sequence[str], depth: int) -> Tree:
        op = self.rng.choice(("=", "!=", "<", ">", "<=", ">=", "=", "!="))
        make = self.rng.choice((self.value, self.number, self.number, self.string, *[self.time, self.duration] * 2))
        return tree("expression", op, "(", make(variables, depth), op, make(variables, depth), ")")

    def _test(self, variables: Sequence[str], depth: int) -> Tree:
        kind = self.rng.randrange(7)
        if kind == 0:
            return call(self.rng.choice(TESTS), self.value(variables, depth))
        if kind == 1 and variables:
            return call("BOUND", leaf(self.rng.choice(variables)))
        if kind == 2:
            name = self.rng.choice(("CONTAINS", "STRSTARTS", "STRENDS"))
            return call(name, self.string(variables, depth), self.string(variables, 0))
        if kind == 3:
            flags = [leaf('"i"')] if self.rng.random() < 0.3 else []
            return call("REGEX", self.string(variables, depth), leaf(self.rng.choice(PATTERNS)), *flags)
        if kind == 4:
            return call("sameTerm", self.value(variables, depth), self.value(variables, depth))
        if kind == 5:
            return call("langMatches", call("LANG", self.value(variables, depth)), leaf(self.rng.choice(RANGES)))
        return self.value(variables, depth)

    def value(self, variables: Sequence[str], depth: int) -> Tree:
        """Make a term of any kind."""
        pick = self.rng.random()
        if depth <= 0 or pick < 0.3:
            if variables and self.rng.random() < 0.7:
                return leaf(self.rng.choice(variables))
            return leaf(self.rng.choice((*NODES, *NUMBERS, *STRINGS, *TIMES, *DURATIONS, *OTHERS)))
        again = depth - 1
        if pick < 0.5:
            return self.number(variables, depth)
        if pick < 0.65:
            return self.string(variables, depth)
        if pick < 0.69:
            return self.rng.choice((self.time, self.duration))(variables, depth)
        if pick < 0.74:
            return call("IF", self.condition(variables, again), self.value(variables, again), self.value(variables, 0))
        if pick < 0.8:
            return call("COALESCE", *(self.value(variables, again) for _ in range(self.rng.randint(1, 3))))
        if pick < 0.86:
            return call("DATATYPE", self.value(variables, again))
        if pick < 0.9:
            return call(self.rng.choice(CASTS), self.value(variables, again))
        if pick < 0.92:
            return call("STRLANG", self.string(variables, again), leaf(self.rng.choice(('"en"', '"de"'))))
        if pick < 0.94:
            return call("STRDT", self.string(variables, again), leaf(self.rng.choice(("xsd:integer", ":type"))))
        if pick < 0.96:
            return call("IRI", call("CONCAT", leaf('"http://e/"'), self.string(variables, 0)))
        if pick < 0.965:
            return tree("expression", "OF MOMENT", self.rng.choice(SHAPELESS))
        return self.condition(variables, again)

    def number(self, variables: Sequence[str], depth: int) -> Tree:
        pick = self.rng.random()
        if depth <= 0 or pick < 0.25:
            return leaf(self.rng.choice(variables) if variables and self.rng.random() < 0.6 else self._constant())
        again = depth - 1
        if pick < 0.65:
            op = self.rng.choice("+-*/")
            return tree("expression", op, "(", self.number(variables, again), op, self.number(variables, again), ")")
        if pick < 0.7:
            return tree("expression", "NEGATE", "( -", self.number(variables, again), ")")
        if pick < 0.8:
            return call(self.rng.choice(OF_NUMBER), self.number(variables, again))
        if pick < 0.9:
            return call("STRLEN", self.string(variables, again))
        return call(self.rng.choice(OF_TIME), self.time(variables, again))

    def _constant(self) -> str:
        return self.rng.choice(("0", "1", "2", "2.5", "1e0", "0.5", "3", *NUMBERS))

    def string(self, variables: Sequence[str], depth: int) -> Tree:
        pick = self.rng.random()
        if depth <= 0 or pick < 0.25:
            return leaf(self.rng.choice(variables if variables and self.rng.random() < 0.6 else STRINGS))
        again = depth - 1
        if pick < 0.45:
            return call("STR", self.value(variables, again))
        if pick < 0.55:
            return call(self.rng.choice(OF_STRING), self.string(variables, again))
        if pick < 0.6:
            return call(self.rng.choice(HASHES), self.string(variables, again))
        if pick < 0.7:
            return call("CONCAT", *(self.string(variables, again) for _ in range(self.rng.randint(1, 3))))
        if pick < 0.78:
            name = self.rng.choice(("STRBEFORE", "STRAFTER"))
            return call(name, self.string(variables, again), self.string(variables, 0))
        if pick < 0.86:
            length = [leaf(self.rng.choice("0123"))] if self.rng.random() < 0.5 else []
            return call("SUBSTR", self.string(variables, again), leaf(self.rng.choice("123")), *length)
        if pick < 0.92:
            to = leaf(self.rng.choice(('"x"', '""', '"$0$0"')))
            return call("REPLACE", self.string(variables, again), leaf(self.rng.choice(PATTERNS)), to)
        if pick < 0.96:
            return call("LANG", self.value(variables, again))
        return call(self.rng.choice(("TZ", "STR")), self.time(variables, again))

    def time(self, variables: Sequence[str], depth: int) -> Tree:
        pick = self.rng.random()
        if depth <= 0 or pick < 0.45:
            return leaf(self.rng.choice(variables if variables and self.rng.random() < 0.6 else TIMES))
        op, *sides = ["-", self.time(variables, depth - 1), self.duration(variables, depth - 1)]
        if pick < 0.75:
            op, sides = "+", sides if self.rng.random() < 0.7 else sides[::-1]
        return tree("expression", f"TIME {op}", "(", sides[0], op, sides[1], ")")

    def duration(self, variables: Sequence[str], depth: int) -> Tree:
        pick = self.rng.random()
        if depth <= 0 or pick < 0.4:
            return leaf(self.rng.choice(variables if variables and self.rng.random() < 0.4 else DURATIONS))
        again = depth - 1
        if pick < 0.55:
            return tree("expression", "TIME -", "(", self.time(variables, again), "-", self.time(variables, again), ")")
        if pick < 0.75:
            op = self.rng.choice("+-")
            sides = (self.duration(variables, again) for _ in range(2))
            return tree("expression", f"DURATION {op}", "(", next(sides), op, next(sides), ")")
        if pick < 0.87:
            op = self.rng.choice("*/")
            number = self.number(variables, 0)
            return tree("expression", f"DURATION {op}", "(", self.duration(variables, again), op, number, ")")
        if pick < 0.93:
            return tree("expression", "NEGATE", "( -", self.duration(variables, again), ")")
        return call(self.rng.choice(DURATION_CASTS), call("STR", self.duration(variables, again)))
