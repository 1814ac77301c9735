"""Universities: data and questions of the shape of LUBM (Guo, Pan, Heflin 2005), whose answers need reasoning.

Nobody says that a full professor is a person, that who heads a department works for it, that a group of a department
is part of the university, or who is an alumnus. Each question is asked with and without what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

EX = "http://bench.example/univ/"
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
DEPARTMENTS, GROUPS = 15, 10
FACULTY = (("FullProfessor", 8), ("AssociateProfessor", 12), ("AssistantProfessor", 9), ("Lecturer", 6))
STUDENTS = (("UndergraduateStudent", 250), ("GraduateStudent", 80))
CLASSES = {
    "FullProfessor": "Professor",
    "AssociateProfessor": "Professor",
    "AssistantProfessor": "Professor",
    "Professor": "Faculty",
    "Lecturer": "Faculty",
    "Faculty": "Employee",
    "Employee": "Person",
    "UndergraduateStudent": "Student",
    "GraduateStudent": "Student",
    "Student": "Person",
    "Department": "Organization",
    "ResearchGroup": "Organization",
    "University": "Organization",
}
PROPERTIES = {
    "headOf": "worksFor",
    "worksFor": "memberOf",
    "undergraduateFrom": "degreeFrom",
    "doctorFrom": "degreeFrom",
}
RULES = f"""PREFIX : <{EX}>
RULE within: CONSTRUCT {{ ?x :partOf ?z }} WHERE {{ ?x :partOf ?y . ?y :partOf ?z }}
RULE alumni: CONSTRUCT {{ ?u :hasAlumnus ?x }} WHERE {{ ?x :degreeFrom ?u }}
RULE chairs: CONSTRUCT {{ ?x a :Chair }} WHERE {{ ?x a :Person ; :headOf ?d . ?d a :Department }}
"""


def name(*parts: object) -> str:
    return f"<{EX}{'/'.join(map(str, parts))}>"


@dataclass(frozen=True, slots=True)
class Universities:
    """count: of universities; each has as many departments, people and groups as the others."""

    count: int

    def lines(self) -> bytes:
        """Return the triples as N-Triples."""
        return "".join(f"{' '.join(triple)} .\n" for triple in self._triples()).encode()

    def _triples(self) -> Iterator[tuple[str, str, str]]:
        for below, above in CLASSES.items():
            yield name(below), f"<{RDFS}subClassOf>", name(above)
        for below, above in PROPERTIES.items():
            yield name(below), f"<{RDFS}subPropertyOf>", name(above)
        for university in range(self.count):
            yield name("u", university), TYPE, name("University")
            for department in range(DEPARTMENTS):
                yield from self._department(university, department)

    def _department(self, university: int, department: int) -> Iterator[tuple[str, str, str]]:
        here = name("u", university, "d", department)
        yield here, TYPE, name("Department")
        yield here, name("partOf"), name("u", university)
        for group in range(GROUPS):
            one = name("u", university, "d", department, "g", group)
            yield one, TYPE, name("ResearchGroup")
            yield one, name("partOf"), here
        for kind, count in (*FACULTY, *STUDENTS):
            for number in range(count):
                person = name("u", university, "d", department, kind, number)
                yield person, TYPE, name(kind)
                works = "memberOf" if kind.endswith("Student") else "worksFor"
                yield person, name("headOf" if (kind, number) == (FACULTY[0][0], 0) else works), here
                degree = "undergraduateFrom" if kind == "GraduateStudent" else "doctorFrom"
                if kind != "UndergraduateStudent":
                    yield person, name(degree), name("u", (university + number) % self.count)

    @property
    def questions(self) -> dict[str, tuple[str, int]]:
        """Questions with their texts and how many rows each has once all follows."""
        faculty, students = sum(count for _, count in FACULTY), sum(count for _, count in STUDENTS)
        professors = faculty - FACULTY[-1][1]
        graduates = [count for kind, count in (*FACULTY, *STUDENTS) if kind != "UndergraduateStudent"]
        # Those whose number is a multiple of the count of universities have their degree from their own.
        alumni = sum(
            sum((university + number) % self.count == 0 for university in range(self.count))
            for count in graduates
            for number in range(count)
        )
        return {
            "all professors": (f"SELECT ?x {{ ?x a {name('Professor')} }}", self.count * DEPARTMENTS * professors),
            "persons of one department": (
                f"SELECT ?x {{ ?x {name('memberOf')} {name('u', 0, 'd', 0)} ; a {name('Person')} }}",
                faculty + students,
            ),
            "groups of one university": (
                f"SELECT ?x {{ ?x a {name('ResearchGroup')} ; {name('partOf')} {name('u', 0)} }}",
                DEPARTMENTS * GROUPS,
            ),
            "alumni of one university": (
                f"SELECT ?x {{ {name('u', 0)} {name('hasAlumnus')} ?x }}",
                DEPARTMENTS * alumni,
            ),
            "chairs of one university": (
                f"SELECT ?x {{ ?x a {name('Chair')} ; {name('worksFor')} ?d . ?d {name('partOf')} {name('u', 0)} }}",
                DEPARTMENTS,
            ),
            "students of one's own university": (
                f"SELECT ?x {{ ?x a {name('Student')} ; {name('memberOf')} ?d ; {name('degreeFrom')} ?u . "
                f"?d {name('partOf')} ?u }}",
                self.count * DEPARTMENTS * sum(number % self.count == 0 for number in range(STUDENTS[1][1])),
            ),
        }
