# ruff: noqa: E501 (a case is one line, so that tables can be read and sorted)
"""Aggregates, grouping and solution modifiers: sections 11, 15 and 18.5."""

from tests.differential.spec_cases import Case

_MIXED = ":a :v 1 , 2 . :b :v 1.5 , 2 . :c :v 1e0 , 3 . :d :v 'x' , 4 . :e :v _:y ."
_NAMES = ":a :n 'b' . :b :n 'a' . :c :n 'a' ; :m 'z' ."
_EVERY_KIND = ":s :v _:b , :i , 'text' , 2 , 'text'@en , '2010-01-01T00:00:00Z'^^xsd:dateTime ; :w 1 ."

GROUPS = [
    # --- empty groups and empty input ---------------------------------------------------------------------------------
    Case("count-of-nothing", "", "SELECT (COUNT(*) AS ?n) (COUNT(?x) AS ?m) { ?x ?p ?o }", "(0 0)"),
    Case("aggregates-of-nothing", "", "SELECT (SUM(?x) AS ?a) (AVG(?x) AS ?b) (MIN(?x) AS ?c) (MAX(?x) AS ?d) (SAMPLE(?x) AS ?e) "
         "(GROUP_CONCAT(?x) AS ?f) { ?x ?p ?o }", "(0 0 u: u: u: '')"),
    Case("grouped-nothing-is-no-row", "", "SELECT ?x (COUNT(*) AS ?n) { ?x ?p ?o } GROUP BY ?x", ""),
    Case("having-of-nothing", "", "SELECT (COUNT(*) AS ?n) { ?x ?p ?o } HAVING(COUNT(*) > 0)", ""),
    Case("having-without-group-by", ":a :p 1 .", "SELECT (COUNT(*) AS ?n) { ?x ?p ?o } HAVING(COUNT(*) = 1)", "(1)"),
    Case("expression-over-nothing", "", "SELECT (COUNT(*) + 1 AS ?n) (COALESCE(MAX(?x), 'none') AS ?m) { ?x ?p ?o }", "(1 'none')"),
    Case("constant-beside-an-aggregate", "", "SELECT (1 AS ?one) (COUNT(*) AS ?n) { ?x ?p ?o }", "(1 0)"),
    # --- types and errors ---------------------------------------------------------------------------------------------
    Case("sum-types", _MIXED, "SELECT ?x (SUM(?v) AS ?s) { ?x :v ?v } GROUP BY ?x", "(:a 3) (:b 3.5) (:c 4e0) (:d u:) (:e u:)"),
    Case("avg-types", _MIXED, "SELECT ?x (AVG(?v) AS ?s) { ?x :v ?v } GROUP BY ?x", "(:a 1.5) (:b 1.75) (:c 2e0) (:d u:) (:e u:)"),
    Case("error-ends-one-aggregate-only", _MIXED, "SELECT ?x (COUNT(?v) AS ?n) (SUM(?v) AS ?s) { ?x :v ?v } GROUP BY ?x HAVING(?x = :d)",
         "(:d 2 u:)"),
    Case("error-in-having-drops", _MIXED, "SELECT ?x { ?x :v ?v } GROUP BY ?x HAVING(SUM(?v) > 3)", "(:b) (:c)"),
    Case("count-leaves-errors-out", _MIXED, "SELECT ?x (COUNT(?v + 0) AS ?n) { ?x :v ?v } GROUP BY ?x", "(:a 2) (:b 2) (:c 2) (:d 1) (:e 0)", "gives no count at all"),
    Case("count-of-unbound", _NAMES, "SELECT (COUNT(?m) AS ?n) (COUNT(*) AS ?all) { ?x :n ?v OPTIONAL { ?x :m ?m } }", "(1 3)"),
    Case("sum-of-unbound-is-an-error", ":a :p 1 . :b :p 2 ; :q 3 .", "SELECT (SUM(?w) AS ?s) { ?x :p ?v OPTIONAL { ?x :q ?w } }", "(u:)"),
    Case("sum-of-coalesced", ":a :p 1 . :b :p 2 ; :q 3 .", "SELECT (SUM(COALESCE(?w, 0)) AS ?s) { ?x :p ?v OPTIONAL { ?x :q ?w } }", "(3)"),
    Case("avg-of-an-error-is-caught", _MIXED, "SELECT ?x (COALESCE(AVG(?v), -1) AS ?s) { ?x :v ?v } GROUP BY ?x",
         "(:a 1.5) (:b 1.75) (:c 2e0) (:d -1) (:e -1)"),
    Case("count-distinct", ":a :p 1 , 1.0 , 'x' , 'x'@en . :b :p 1 .", "SELECT (COUNT(DISTINCT ?v) AS ?n) { ?x :p ?v }", "(4)"),
    Case("count-distinct-rows", ":a :p 1 . :b :p 1 .", "SELECT (COUNT(DISTINCT *) AS ?n) { { ?x :p ?v } UNION { ?x :p ?v } }", "(2)"),
    Case("sum-distinct-is-by-term", ":a :p 1 , 1.0 . :b :p 1 .", "SELECT (SUM(DISTINCT ?v) AS ?n) { ?x :p ?v }", "(2.0)"),
    Case("aggregate-of-an-expression", ":a :p 1 ; :q 2 . :b :p 3 ; :q 4 .", "SELECT (SUM(?v * ?w) AS ?s) { ?x :p ?v ; :q ?w }", "(14)"),
    Case("expression-of-aggregates", ":a :p 1 , 2 , 6 .", "SELECT ((MIN(?v) + MAX(?v)) / 2 AS ?mid) (AVG(?v) * COUNT(*) AS ?s) { ?x :p ?v }",
         "(3.5 9.0)"),
    Case("min-max-over-kinds", ":a :p 'b' , 'a' . :b :p 3 , 2.5 . :c :p '2001-01-01T00:00:00Z'^^xsd:dateTime , '2000-01-01T00:00:00Z'^^xsd:dateTime .",
         "SELECT ?x (MIN(?v) AS ?a) (MAX(?v) AS ?b) { ?x :p ?v } GROUP BY ?x",
         "(:a 'a' 'b') (:b 2.5 3) (:c '2000-01-01T00:00:00Z'^^xsd:dateTime '2001-01-01T00:00:00Z'^^xsd:dateTime)"),
    Case("min-uses-the-order-of-order-by", ":a :p :i , 1 , _:b . :c :p 'x' , :i .", "SELECT ?x (isBLANK(MIN(?v)) AS ?b) (isIRI(MIN(?v)) AS ?i) { ?x :p ?v } GROUP BY ?x",
         "(:a true false) (:c false true)"),
    Case("sample-is-one-of-them", ":a :p 1 , 2 .", "SELECT (SAMPLE(?v) IN (1, 2) AS ?ok) { ?x :p ?v }", "(true)"),
    # --- GROUP_CONCAT -------------------------------------------------------------------------------------------------
    Case("group-concat-default", ":a :p 'x' .", "SELECT (GROUP_CONCAT(?v) AS ?s) { { ?x :p ?v } UNION { ?x :p ?v } }", "('x x')"),
    Case("group-concat-separator", ":a :p 'x' .", "SELECT (GROUP_CONCAT(?v; SEPARATOR=', ') AS ?s) { { ?x :p ?v } UNION { ?x :p ?v } }", "('x, x')"),
    Case("group-concat-distinct", ":a :p 'x' .", "SELECT (GROUP_CONCAT(DISTINCT ?v; SEPARATOR='') AS ?s) { { ?x :p ?v } UNION { ?x :p ?v } }", "('x')"),
    Case("group-concat-of-numbers-and-iris", ":a :p 1.50 . :b :p :i .", "SELECT ?x (GROUP_CONCAT(?v) AS ?s) { ?x :p ?v } GROUP BY ?x",
         "(:a '1.50') (:b 'http://e/i')", "takes only strings"),
    # --- grouping -----------------------------------------------------------------------------------------------------
    Case("group-by-expression", ":a :p 1 . :b :p 2 . :c :p 3 .", "SELECT ?odd (COUNT(*) AS ?n) { ?x :p ?v } GROUP BY (?v IN (1, 3) AS ?odd)", "(true 2) (false 1)"),
    Case("group-by-unnamed-expression", ":a :p 'x' . :b :p 'X' .", "SELECT (COUNT(*) AS ?n) { ?x :p ?v } GROUP BY LCASE(?v)", "(2)"),
    Case("group-by-an-unbound", ":a :p 1 ; :q 5 . :b :p 2 . :c :p 4 .", "SELECT ?w (SUM(?v) AS ?s) { ?x :p ?v OPTIONAL { ?x :q ?w } } GROUP BY ?w", "(5 1) (u: 6)"),
    Case("group-by-an-error", ":a :p 1 . :b :p 'x' . :c :p 'y' .", "SELECT ?k (COUNT(*) AS ?n) { ?x :p ?v } GROUP BY (?v + 1 AS ?k)", "(2 1) (u: 2)"),
    Case("group-by-two", ":a :p 1 ; :q 1 . :b :p 1 ; :q 2 .", "SELECT ?v ?w (COUNT(*) AS ?n) { ?x :p ?v ; :q ?w } GROUP BY ?v ?w", "(1 1 1) (1 2 1)"),
    Case("group-is-by-term", ":a :p 1 . :b :p 1.0 . :c :p 01 .", "SELECT (COUNT(*) AS ?n) { ?x :p ?v } GROUP BY ?v", "(1) (1) (1)", "gives 01 and 1 one identity"),
    Case("having-several", ":a :p 1 , 2 , 3 . :b :p 1 .", "SELECT ?x { ?x :p ?v } GROUP BY ?x HAVING(COUNT(*) > 1) (MAX(?v) < 4)", "(:a)"),
    Case("having-does-not-see-a-selected-name", ":a :p 1 , 2 . :b :p 1 .", "SELECT ?x (COUNT(*) AS ?n) { ?x :p ?v } GROUP BY ?x HAVING(?n > 1)", ""),
    Case("order-by-aggregate", ":a :p 1 . :b :p 1 , 2 .", "SELECT ?x { ?x :p ?v } GROUP BY ?x ORDER BY DESC(COUNT(*))", "(:b) (:a)"),
    Case("group-without-aggregate", ":a :p 1 , 2 .", "SELECT ?x { ?x :p ?v } GROUP BY ?x", "(:a)"),
    Case("select-expression-uses-the-one-before", ":a :p 1 .", "SELECT (?v + 1 AS ?w) (?w * 10 AS ?z) { ?x :p ?v }", "(2 20)"),
    Case("select-expression-error-stays-unbound", ":a :p 'x' .", "SELECT ?x (?v + 1 AS ?w) { ?x :p ?v }", "(:a u:)"),
    Case("select-expression-uses-aggregate-name", ":a :p 1 , 2 .", "SELECT (COUNT(*) AS ?n) (?n * 10 AS ?m) { ?x :p ?v }", "(2 20)", "refuses the name"),
    # --- order --------------------------------------------------------------------------------------------------------
    Case("order-of-kinds", _EVERY_KIND, "SELECT (IF(isBLANK(?v), 'b', IF(isIRI(?v), 'i', 'l')) AS ?k) { :s :v ?v FILTER(!isLITERAL(?v) || STR(?v) = '2') } ORDER BY ?v",
         "('b') ('i') ('l')"),
    Case("order-unbound-first", ":a :p 1 ; :q 5 . :b :p 2 .", "SELECT ?x { ?x :p ?v OPTIONAL { ?x :q ?w } } ORDER BY ?w", "(:b) (:a)"),
    Case("order-desc-unbound-last", ":a :p 1 ; :q 5 . :b :p 2 .", "SELECT ?x { ?x :p ?v OPTIONAL { ?x :q ?w } } ORDER BY DESC(?w)", "(:a) (:b)"),
    Case("order-by-number-not-text", ":a :p 10 , 9 , 1e1 , 8.5 .", "SELECT ?v { ?x :p ?v FILTER(DATATYPE(?v) != xsd:double) } ORDER BY ?v", "(8.5) (9) (10)"),
    Case("order-two-keys", _NAMES, "SELECT ?x { ?x :n ?v } ORDER BY ?v DESC(?x)", "(:c) (:b) (:a)"),
    Case("order-by-expression", ":a :p 1 ; :q 9 . :b :p 5 ; :q 1 .", "SELECT ?x { ?x :p ?v ; :q ?w } ORDER BY (?v + ?w)", "(:b) (:a)"),
    Case("order-by-function", _NAMES, "SELECT ?x { ?x :n ?v } ORDER BY STR(?x)", "(:a) (:b) (:c)"),
    Case("order-by-a-custom-cast", ":a :p '10' . :b :p '9' .", "SELECT ?x { ?x :p ?v } ORDER BY xsd:integer(?v)", "(:b) (:a)"),
    Case("order-by-errors-first", ":a :p 1 . :b :p 'x' .", "SELECT ?x { ?x :p ?v } ORDER BY (?v + 1)", "(:b) (:a)"),
    Case("order-by-a-name-not-shown", ":a :p 2 . :b :p 1 .", "SELECT ?x { ?x :p ?v } ORDER BY ?v", "(:b) (:a)"),
    Case("order-by-a-selected-expression", ":a :p 2 . :b :p 1 .", "SELECT ?x (-?v AS ?w) { ?x :p ?v } ORDER BY ?w", "(:a -2) (:b -1)"),
    Case("distinct-then-limit", ":a :p 1 , 2 . :b :p 3 .", "SELECT DISTINCT ?x { ?x :p ?v } ORDER BY ?x LIMIT 2", "(:a) (:b)"),
    Case("distinct-with-unbound", ":a :p 1 . :b :p 1 .", "SELECT DISTINCT ?v ?w { ?x :p ?v OPTIONAL { ?x :q ?w } }", "(1 u:)"),
    Case("distinct-is-by-term", ":a :p 1 . :b :p 1.0 . :c :p 1 .", "SELECT DISTINCT ?v { ?x :p ?v }", "(1) (1.0)"),
    Case("distinct-order-by-what-is-not-shown", ":a :p 2 . :b :p 1 .", "SELECT DISTINCT ?x { ?x :p ?v } ORDER BY ?v", "(:b) (:a)"),
    Case("limit-zero", _NAMES, "SELECT ?x { ?x :n ?v } LIMIT 0", ""),
    Case("offset-behind-the-end", _NAMES, "SELECT ?x { ?x :n ?v } OFFSET 100", ""),
    Case("offset-then-limit", _NAMES, "SELECT ?x { ?x :n ?v } ORDER BY ?x OFFSET 1 LIMIT 1", "(:b)"),
    Case("limit-huge", _NAMES, "SELECT ?x { ?x :n ?v } ORDER BY ?x LIMIT 99999999999 OFFSET 1", "(:b) (:c)"),
    Case("projected-name-never-bound", ":a :p 1 .", "SELECT ?x ?nothing { ?x :p ?v }", "(:a u:)"),
]  # fmt: skip
