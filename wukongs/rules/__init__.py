"""rules: what rule files conclude from stored graphs.

sources.py reads rule files, those of library/ among them; program.py makes a Program of them: plain rules in strata.
"""
