"""Losses → recipe → module → fit."""
