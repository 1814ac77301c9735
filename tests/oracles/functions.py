"""The function library of SPARQL 1.1 (17.4) and its casts (17.5), written plainly from the specification.

A function takes and gives terms; `ExpressionError` is an error. Everything goes character by character or through exact
fractions, as slow as it likes. Not here: what draws random values, regular expressions (tests have Python's for those),
and years that Python's datetime does not have.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from datetime import datetime
from fractions import Fraction

from tests.oracles.rdf import XSD, Term, literal
from tests.oracles.values import ExpressionError

_BOUNDS = {
    "integer": (-math.inf, math.inf),
    "nonNegativeInteger": (0, math.inf),
    "byte": (-128, 127),
    "int": (-(2**31), 2**31 - 1),
    "unsignedByte": (0, 255),
}
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")


def fail() -> ExpressionError:
    return ExpressionError()


# --- reading arguments ------------------------------------------------------------------------------------------------


def is_plain(term: Term) -> bool:
    return term.kind == "literal" and not term.datatype and not term.language


def text(term: Term) -> str:
    """The characters of a string literal, simple or with a tag."""
    if term.kind != "literal" or term.datatype:
        raise fail()
    return term.value


def simple(term: Term) -> str:
    if not is_plain(term):
        raise fail()
    return term.value


def pair(first: Term, second: Term) -> tuple[str, str]:
    """Two compatible strings (17.4.3.1.2)."""
    if second.language not in ("", first.language):
        raise fail()
    return text(first), text(second)


def xsd_name(term: Term) -> str:
    return term.datatype.removeprefix(XSD) if term.datatype.startswith(XSD) else ""


def digits(written: str) -> bool:
    return written.isascii() and written.isdigit()


def read_decimal(written: str) -> Fraction:
    unsigned = written[1:] if written[:1] in ("+", "-") else written
    whole, dot, rest = unsigned.partition(".")
    if not ((digits(whole) and (rest == "" or digits(rest))) or (whole == "" and dot and digits(rest))):
        raise fail()
    number = Fraction(int(whole + rest or "0"), 10 ** len(rest))
    return -number if written[0] == "-" else number


def read_number(written: str, name: str) -> Fraction | float:
    """Read a lexical form of a numeric datatype."""
    if name in _BOUNDS:
        unsigned = written[1:] if written[:1] in ("+", "-") else written
        if not digits(unsigned) or not _BOUNDS[name][0] <= int(written) <= _BOUNDS[name][1]:
            raise fail()
        return Fraction(int(written))
    if name == "decimal":
        return read_decimal(written)
    if written in ("INF", "+INF", "-INF", "NaN"):
        return float(written.replace("INF", "inf"))
    mantissa, mark, exponent = written.replace("E", "e").partition("e")
    number = read_decimal(mantissa)
    if mark and not digits(exponent[1:] if exponent[:1] in ("+", "-") else exponent):
        raise fail()
    scaled = number * Fraction(10) ** int(exponent or "0")
    if scaled == 0:
        return -0.0 if written[0] == "-" else 0.0
    return nearest(scaled, name)


def nearest(number: Fraction, name: str) -> float:
    """The nearest double or float; of two equally near ones that with the even last bit."""
    try:
        as_double = float(number)
    except OverflowError:
        return math.copysign(math.inf, number)
    return as_double if name == "double" else nearest_float(number, as_double)


def nearest_float(number: Fraction, as_double: float) -> float:
    limit = Fraction(2) ** 128
    if abs(number) >= limit - Fraction(2) ** 103:
        return math.copysign(math.inf, number)
    (bits,) = struct.unpack("<i", struct.pack("<f", min(abs(as_double), 3.4028234e38)))
    around = [struct.unpack("<f", struct.pack("<i", near))[0] for near in (bits - 1, bits, bits + 1) if near >= 0]
    finite = [each for each in around if math.isfinite(each)]
    best = min(finite, key=lambda each: (abs(Fraction(each) - abs(number)), _last_bit(each)))
    return math.copysign(best, as_double)


def _last_bit(number: float) -> int:
    bits: int = struct.unpack("<i", struct.pack("<f", number))[0]
    return bits & 1


def number_of(term: Term) -> tuple[str, Fraction | float]:
    """The numeric type of a literal (derived types are integer) and its value."""
    name = xsd_name(term)
    if name not in _BOUNDS and name not in ("decimal", "float", "double"):
        raise fail()
    return "integer" if name in _BOUNDS else name, read_number(term.value, name)


def moment_of(term: Term) -> tuple[datetime, str]:
    """The date and time of an xsd:dateTime as they are written, and the zone as it is written."""
    if xsd_name(term) != "dateTime":
        raise fail()
    return split_moment(term.value)


def split_moment(written: str) -> tuple[datetime, str]:
    zone = "Z" if written.endswith("Z") else written[-6:] if written[-6:-5] in ("+", "-") and written[-3] == ":" else ""
    bare = written.removesuffix(zone)
    if len(bare) < 19 or bare[10] != "T" or not (len(bare) == 19 or (bare[19] == "." and digits(bare[20:]))):
        raise fail()
    try:
        return datetime.fromisoformat(bare[:19] + (bare[19:] + "000000")[:7] if len(bare) > 19 else bare), zone
    except ValueError:
        raise fail() from None


# --- writing results --------------------------------------------------------------------------------------------------


def truth(value: bool) -> Term:
    return literal("true" if value else "false", XSD + "boolean")


def like(model: Term, value: str) -> Term:
    return literal(value, "", model.language)


def write_number(name: str, value: Fraction | float) -> Term:
    if name in ("float", "double"):
        return literal(_write_float(float(value)), XSD + name)
    fraction = Fraction(value)
    places = 0
    while (fraction * 10**places).denominator != 1:
        places += 1
    unsigned = str(abs(int(fraction * 10**places))).rjust(places + 1, "0")
    body = unsigned if places == 0 else f"{unsigned[:-places]}.{unsigned[-places:]}"
    return literal(("-" if fraction < 0 else "") + body, XSD + name)


def _write_float(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value).replace("inf", "INF")


# --- strings ----------------------------------------------------------------------------------------------------------


def substr(term: Term, start: Term, length: Term | None = None) -> Term:
    held = text(term)
    kinds = [number_of(start), *([] if length is None else [number_of(length)])]
    if any(kind != "integer" for kind, _ in kinds):
        raise fail()
    first = kinds[0][1]
    stop = math.inf if length is None else first + kinds[1][1]
    return like(term, "".join(letter for place, letter in enumerate(held, 1) if first <= place < stop))


def find(held: str, part: str) -> int:
    return next((place for place in range(len(held) + 1) if held[place : place + len(part)] == part), -1)


def strbefore(term: Term, part: Term) -> Term:
    held, wanted = pair(term, part)
    place = find(held, wanted)
    return literal("") if place < 0 else like(term, held[:place])


def strafter(term: Term, part: Term) -> Term:
    held, wanted = pair(term, part)
    place = find(held, wanted)
    return literal("") if place < 0 else like(term, held[place + len(wanted) :])


def concat(*terms: Term) -> Term:
    joined = "".join(map(text, terms))
    tags = [term.language for term in terms]
    return literal(joined, "", tags[0] if tags and all(tag == tags[0] for tag in tags) else "")


def langmatches(tag: Term, language_range: Term) -> Term:
    held, wanted = simple(tag).lower().split("-"), simple(language_range).lower().split("-")
    return truth(held != [""] if wanted == ["*"] else held[: len(wanted)] == wanted)


def encode_for_uri(term: Term) -> Term:
    letters = (
        letter if letter in _PLAIN else "".join(f"%{byte:02X}" for byte in letter.encode()) for letter in text(term)
    )
    return literal("".join(letters))


def digest(algorithm: Callable[[bytes], hashlib._Hash]) -> Callable[[Term], Term]:
    return lambda term: literal(algorithm(simple(term).encode("utf-8")).hexdigest())


# --- numbers and times ------------------------------------------------------------------------------------------------


def rounded(change: Callable[[Fraction], int]) -> Callable[[Term], Term]:
    def apply(term: Term) -> Term:
        kind, value = number_of(term)
        if isinstance(value, float):
            if value == 0 or not math.isfinite(value):
                return write_number(kind, value)
            return write_number(kind, math.copysign(float(abs(change(Fraction(value)))), value))
        return write_number(kind, Fraction(change(value)))

    return apply


def absolute(term: Term) -> Term:
    kind, value = number_of(term)
    return write_number(kind, abs(value))


def part_of(name: str) -> Callable[[Term], Term]:
    return lambda term: literal(str(getattr(moment_of(term)[0], name)), XSD + "integer")


def seconds(term: Term) -> Term:
    moment_of(term)
    written = term.value[17:19] + ("." + term.value[20:].rstrip("Z").split("+")[0].split("-")[0]) * (
        term.value[19:20] == "."
    )
    return write_number("decimal", read_decimal(written))


def timezone(term: Term) -> Term:
    zone = moment_of(term)[1]
    if not zone:
        raise fail()
    minutes = 0 if zone == "Z" else int(zone[1:3]) * 60 + int(zone[4:6])
    hours = f"{minutes // 60}H" if minutes >= 60 else ""
    rest = f"{minutes % 60}M" if minutes % 60 else ""
    sign = "-" if zone[0] == "-" and minutes else ""
    return literal(f"{sign}PT{hours}{rest}" if minutes else "PT0S", XSD + "dayTimeDuration")


# --- casts ------------------------------------------------------------------------------------------------------------


def to_number(name: str) -> Callable[[Term], Term]:
    def apply(term: Term) -> Term:
        if is_plain(term):
            value = read_number(term.value.strip(" \t\r\n"), name)
        elif xsd_name(term) == "boolean":
            value = Fraction(int(truth_of(term)))
        else:
            value = number_of(term)[1]
        if name in ("float", "double"):
            if isinstance(value, Fraction):
                value = nearest(value, name)
            elif name == "float" and math.isfinite(value) and value != 0:
                value = nearest_float(Fraction(value), value)
            return write_number(name, value)
        if isinstance(value, float) and not math.isfinite(value):
            raise fail()
        exact = Fraction(value)
        if name == "decimal":
            return write_number(name, exact)
        whole = abs(exact) // 1 * (-1 if exact < 0 else 1)
        if not _BOUNDS[name][0] <= whole <= _BOUNDS[name][1]:
            raise fail()
        return write_number(name, Fraction(whole))

    return apply


def truth_of(term: Term) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if term.value not in known:
        raise fail()
    return known[term.value]


def to_boolean(term: Term) -> Term:
    if is_plain(term):
        return truth(truth_of(literal(term.value.strip(" \t\r\n"))))
    if xsd_name(term) == "boolean":
        return truth(truth_of(term))
    value = number_of(term)[1]
    return truth(value == value and value != 0)


def to_string(term: Term) -> Term:
    if term.kind == "iri" or is_plain(term):
        return literal(term.value)
    if xsd_name(term) == "boolean":
        return literal("true" if truth_of(term) else "false")
    if xsd_name(term) == "dateTime":
        return literal(to_date_time(term).value)
    kind, value = number_of(term)
    if isinstance(value, Fraction):
        return literal(write_number(kind, value).value)
    if not math.isfinite(value) or value == 0:
        return literal("-0" if str(value) == "-0.0" else "0" if value == 0 else _write_float(value))
    shortest = shortest_digits(value, kind)
    if Fraction(1, 10**6) <= abs(Fraction(value)) < 10**6:
        return literal(write_number("decimal", shortest).value)
    exponent = 0
    mantissa = abs(shortest)
    while mantissa >= 10:
        mantissa, exponent = mantissa / 10, exponent + 1
    while mantissa < 1:
        mantissa, exponent = mantissa * 10, exponent - 1
    written = write_number("decimal", mantissa).value
    return literal(f"{'-' if value < 0 else ''}{written}{'' if '.' in written else '.0'}E{exponent}")


def shortest_digits(value: float, kind: str) -> Fraction:
    """The number with the fewest digits that reads back as this float or double."""
    for precision in range(17):
        candidate = Fraction(f"{value:.{precision}e}")
        if nearest(candidate, kind) == value:
            return candidate
    raise AssertionError(value)


def to_date_time(term: Term) -> Term:
    moment, zone = split_moment(term.value.strip(" \t\r\n")) if is_plain(term) else moment_of(term)
    fraction = f".{moment.microsecond:06}".rstrip("0").rstrip(".")
    shown = "Z" if zone in ("+00:00", "-00:00") else zone
    return literal(f"{moment.year:04}{moment:-%m-%dT%H:%M:%S}{fraction}{shown}", XSD + "dateTime")


FUNCTIONS: dict[str, Callable[..., Term]] = {
    "STRLEN": lambda term: literal(str(sum(1 for _ in text(term))), XSD + "integer"),
    "SUBSTR": substr,
    "UCASE": lambda term: like(term, "".join(letter.upper() for letter in text(term))),
    "LCASE": lambda term: like(term, "".join(letter.lower() for letter in text(term))),
    "STRSTARTS": lambda term, part: truth(find(*pair(term, part)) == 0),
    "STRENDS": lambda term, part: truth(find(pair(term, part)[0][::-1], pair(term, part)[1][::-1]) == 0),
    "CONTAINS": lambda term, part: truth(find(*pair(term, part)) >= 0),
    "STRBEFORE": strbefore,
    "STRAFTER": strafter,
    "CONCAT": concat,
    "LANGMATCHES": langmatches,
    "ENCODE_FOR_URI": encode_for_uri,
    "MD5": digest(hashlib.md5),
    "SHA1": digest(hashlib.sha1),
    "SHA256": digest(hashlib.sha256),
    "SHA384": digest(hashlib.sha384),
    "SHA512": digest(hashlib.sha512),
    "ABS": absolute,
    "CEIL": rounded(lambda value: -(-value // 1)),
    "FLOOR": rounded(lambda value: value // 1),
    "ROUND": rounded(lambda value: (value + Fraction(1, 2)) // 1),
    **{name: part_of(part) for name, part in {"YEAR": "year", "MONTH": "month", "DAY": "day"}.items()},
    **{name: part_of(part) for name, part in {"HOURS": "hour", "MINUTES": "minute"}.items()},
    "SECONDS": seconds,
    "TIMEZONE": timezone,
    "TZ": lambda term: literal(moment_of(term)[1]),
    "xsd:string": to_string,
    "xsd:boolean": to_boolean,
    "xsd:dateTime": to_date_time,
    **{f"xsd:{name}": to_number(name) for name in (*_BOUNDS, "decimal", "float", "double")},
}


def call(name: str, *arguments: Term) -> Term | None:
    """Call a function; None for an error."""
    try:
        return FUNCTIONS[name](*arguments)
    except ExpressionError:
        return None
