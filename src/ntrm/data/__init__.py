"""Layouts on disk → checked cases → patient-disjoint splits → tiles → tensors."""
