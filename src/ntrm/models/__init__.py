"""Networks: blocks → encoder → decoder → tissue relation module → NTRM and the systems it is compared with."""
