"""The systems that NTRM is compared with, on the same blocks and behind the same interface."""
