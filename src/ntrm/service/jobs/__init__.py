"""Slides and their jobs: database, supervisor, worker, results that were there before."""
