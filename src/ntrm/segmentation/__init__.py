"""Whole slides from file to tables: what ``ntrm segment`` does, with slide, relations and export below it."""
