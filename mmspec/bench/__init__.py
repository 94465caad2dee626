"""Measurements, each with the command, revision, versions and machine that made it."""
