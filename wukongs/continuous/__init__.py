"""Registered queries: their windows, firings, reports and subscriptions."""
