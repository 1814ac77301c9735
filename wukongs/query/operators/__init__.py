"""Operators over binding tables: joins, unions, differences, groups, order."""
