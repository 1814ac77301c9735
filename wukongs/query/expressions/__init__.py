"""Expressions over binding tables: by columns of numbers and texts where that is exact, else value by value."""
