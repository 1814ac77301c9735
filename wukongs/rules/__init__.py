"""rules: what rule files conclude from stored graphs.

library.py finds the text of a rule set, program.py makes it a Program: single rules in strata.
"""
