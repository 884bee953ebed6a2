"""Relations over a whole section: window sums → nodes → graph → every pixel asks. Sums add up over windows."""
