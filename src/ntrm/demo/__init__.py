"""The tour of ``ntrm demo``: every step on synthetic sections, and an error of the model that a click mends."""
