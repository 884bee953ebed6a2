"""Slides from file to tables: what ``ntrm segment`` does."""
