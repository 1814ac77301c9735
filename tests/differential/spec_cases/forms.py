# ruff: noqa: E501 (a case is one line, so that tables can be read and sorted)
"""CONSTRUCT, DESCRIBE, ASK and datasets: sections 13 and 16."""

from tests.differential.spec_cases import Case

_GRAPHS = ":d :p 0 . :g1 { :a :p 1 . _:x :p 2 } :g2 { :a :p 1 . :b :p 3 . _:x :p 2 }"

FORMS = [
    # --- CONSTRUCT ----------------------------------------------------------------------------------------------------
    Case("construct-blank-node-per-row", ":a :p 1 . :b :p 2 .", "CONSTRUCT { ?x :q [ :v ?v ] } { ?x :p ?v }",
         ":a :q [ :v 1 ] . :b :q [ :v 2 ] ."),
    Case("construct-one-label-in-a-row", ":a :p 1 .", "CONSTRUCT { _:n :x ?x . _:n :v ?v } { ?x :p ?v }", "[] :x :a ; :v 1 ."),
    Case("construct-leaves-out-unbound", ":a :p 1 . :b :p 2 ; :q 3 .", "CONSTRUCT { ?x :v ?v . ?x :w ?w } { ?x :p ?v OPTIONAL { ?x :q ?w } }",
         ":a :v 1 . :b :v 2 ; :w 3 ."),
    Case("construct-leaves-out-what-is-no-triple", ":a :p 1 . :b :p :c .", "CONSTRUCT { ?v :of ?x . ?x ?v 1 } { ?x :p ?v }",
         ":c :of :b . :b :c 1 ."),
    Case("construct-blank-predicate-left-out", ":a :p _:b .", "CONSTRUCT { ?x ?v 1 . ?x :ok ?v } { ?x :p ?v }", ":a :ok [] ."),
    Case("construct-is-a-set", ":a :p 1 , 2 .", "CONSTRUCT { ?x :is :there } { ?x :p ?v }", ":a :is :there ."),
    Case("construct-limit-is-of-rows", ":a :p 1 .", "CONSTRUCT { ?x :v ?v . ?x :w ?v } { ?x :p ?v } LIMIT 1", ":a :v 1 ; :w 1 ."),
    Case("construct-order-limit", ":a :p 2 . :b :p 1 .", "CONSTRUCT { ?x :v ?v } { ?x :p ?v } ORDER BY ?v LIMIT 1", ":b :v 1 ."),
    Case("construct-short-form", ":a :p 1 ; :q 2 . :b :p 3 .", "CONSTRUCT WHERE { ?x :p ?v ; :q ?w }", ":a :p 1 ; :q 2 ."),
    Case("construct-short-form-blank", ":a :p [ :q 2 ] .", "CONSTRUCT WHERE { ?x :p [ :q ?w ] }", ":a :p [ :q 2 ] ."),
    Case("construct-empty-template", ":a :p 1 .", "CONSTRUCT {} { ?x :p ?v }", ""),
    Case("construct-list", ":a :p 1 .", "CONSTRUCT { :l :is (?x ?v) } { ?x :p ?v }", ":l :is (:a 1) ."),
    Case("construct-ground-once", ":a :p 1 . :b :p 2 .", "CONSTRUCT { :x :y :z } { ?x :p ?v }", ":x :y :z ."),
    Case("construct-ground-never", "", "CONSTRUCT { :x :y :z } { ?x :p ?v }", ""),
    Case("construct-keeps-blank-nodes-joined", "_:a :p _:b . _:b :p _:a .", "CONSTRUCT { ?y :q ?x } { ?x :p ?y }",
         "_:a :q _:b . _:b :q _:a ."),
    Case("construct-group", ":a :p 1 , 2 .", "CONSTRUCT { ?x :sum ?s } { SELECT ?x (SUM(?v) AS ?s) { ?x :p ?v } GROUP BY ?x }", ":a :sum 3 ."),
    Case("construct-from", _GRAPHS, "CONSTRUCT { ?x :v ?v } FROM :g2 { ?x :p ?v FILTER isIRI(?x) }", ":a :v 1 . :b :v 3 ."),
    Case("construct-keeps-lexical-forms", ":a :p 01 , '1.50'^^xsd:decimal .", "CONSTRUCT { ?x :v ?v } { ?x :p ?v }",
         ":a :v 01 , '1.50'^^xsd:decimal ."),
    # --- DESCRIBE -----------------------------------------------------------------------------------------------------
    Case("describe-iri", ":a :p 1 . :b :p 2 .", "DESCRIBE :a", ":a :p 1 ."),
    Case("describe-blank-closure", ":a :p [ :q [ :r 1 ] ] . :b :p 2 .", "DESCRIBE :a", ":a :p [ :q [ :r 1 ] ] ."),
    Case("describe-variable", ":a :p 1 . :b :p 2 .", "DESCRIBE ?x { ?x :p 2 }", ":b :p 2 ."),
    Case("describe-star", ":a :p :b . :b :q 2 .", "DESCRIBE * { ?x :p ?y }", ":a :p :b . :b :q 2 ."),
    Case("describe-star-of-no-pattern", ":a :p 1 .", "DESCRIBE *", ""),
    Case("describe-both", ":a :p 1 . :b :p 2 . :c :p 3 .", "DESCRIBE :a ?x { ?x :p 2 }", ":a :p 1 . :b :p 2 ."),
    Case("describe-nothing", ":a :p 1 .", "DESCRIBE :none", ""),
    Case("describe-a-cycle-of-blank-nodes", ":a :p _:x . _:x :q _:y . _:y :q _:x .", "DESCRIBE :a", ":a :p _:x . _:x :q _:y . _:y :q _:x ."),
    # --- ASK ----------------------------------------------------------------------------------------------------------
    Case("ask-yes", ":a :p 1 .", "ASK { ?x :p 1 }", True),
    Case("ask-no", ":a :p 1 .", "ASK { ?x :p 2 }", False),
    Case("ask-empty", "", "ASK {}", True),
    Case("ask-with-filter", ":a :p 1 .", "ASK { ?x :p ?v FILTER(?v > 1) }", False),
    Case("ask-limit-zero", ":a :p 1 .", "ASK { ?x :p ?v } LIMIT 0", False),
    Case("ask-values", ":a :p 1 .", "ASK { ?x :p ?v } VALUES ?v { 2 }", False),
    Case("ask-group-having", ":a :p 1 .", "ASK { ?x :p ?v } GROUP BY ?x HAVING(COUNT(*) > 1)", False, "gives true"),
    Case("ask-having-alone", ":a :p 1 . :b :p 2 .", "ASK { ?x :p ?v } HAVING(?x = :b)", True),
    # --- datasets -----------------------------------------------------------------------------------------------------
    Case("from-one", _GRAPHS, "SELECT ?v FROM :g1 { ?x :p ?v }", "(1) (2)"),
    Case("from-merges-as-a-set", _GRAPHS, "SELECT ?x ?v FROM :g1 FROM :g2 { ?x :p ?v FILTER isIRI(?x) }", "(:a 1) (:b 3)", "keeps the triple of both graphs twice"),
    Case("from-leaves-no-named-graphs", _GRAPHS, "SELECT ?g FROM :g1 { GRAPH ?g { ?x :p ?v } }", ""),
    Case("from-named-leaves-an-empty-default", _GRAPHS, "SELECT ?x FROM NAMED :g1 { ?x :p ?v }", ""),
    Case("from-named", _GRAPHS, "SELECT DISTINCT ?g FROM NAMED :g1 { GRAPH ?g { ?x :p ?v } }", "(:g1)"),
    Case("from-named-hides-others", _GRAPHS, "SELECT ?x FROM NAMED :g1 { GRAPH :g2 { ?x :p ?v } }", ""),
    Case("from-and-from-named", _GRAPHS, "SELECT ?g ?x FROM :g1 FROM NAMED :g2 { ?x :p 1 GRAPH ?g { ?x :p 1 } }", "(:g2 :a)"),
    Case("from-unknown-is-empty", _GRAPHS, "SELECT ?x FROM :none { ?x :p ?v }", ""),
    Case("from-named-twice", _GRAPHS, "SELECT ?g FROM NAMED :g1 FROM NAMED :g1 { GRAPH ?g { :a :p ?v } }", "(:g1)", "takes the graph twice"),
    Case("from-in-a-path", ":g1 { :a :n :b } :g2 { :b :n :c }", "SELECT ?y FROM :g1 FROM :g2 { :a :n+ ?y }", "(:b) (:c)"),
    Case("from-of-a-describe", _GRAPHS, "DESCRIBE :a FROM :g1", ":a :p 1 ."),
    Case("from-of-an-exists", _GRAPHS, "SELECT ?x FROM :g2 { ?x :p 3 FILTER EXISTS { :a :p 1 } }", "(:b)"),
    Case("from-of-a-subquery", _GRAPHS, "SELECT ?n FROM :g1 { { SELECT (COUNT(*) AS ?n) { ?x :p ?v } } }", "(2)"),
    Case("same-label-in-two-graphs-of-a-file-is-one-node", _GRAPHS, "SELECT (COUNT(*) AS ?n) FROM :g1 FROM :g2 { ?x :p 2 }", "(1)", "keeps the triple of both graphs twice"),
]  # fmt: skip
