"""rules: what rule files conclude from stored graphs.

sources.py reads rule files, those of library/ among them; program.py makes a Program of them: plain rules in strata.
inference.py follows a program for one engine. It asks propagation.py what follows from a change; rule_plans.py
evaluates one rule, followed_bodies.py follows a body that is no list of patterns by the operators of live views,
fact_search.py follows few triples, changing_graph.py is the graph meanwhile, ranks.py spares deletions. derivation.py
says why.
"""
