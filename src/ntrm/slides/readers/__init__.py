"""Readers of slide files, and the child process in which they run."""
