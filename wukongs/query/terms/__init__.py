"""Terms and values of a query: ids to texts, rdflib terms and Python values, and how values compare."""
