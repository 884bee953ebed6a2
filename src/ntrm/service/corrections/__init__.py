"""Corrections of a mask by people: what they point at, what follows, and the files that are made from it."""
