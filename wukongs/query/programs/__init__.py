"""Programs: whole queries as operations over tables of one arena, run by one kernel call."""
