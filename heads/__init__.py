"""EAGLE-3 draft heads: capture, training, export, serving."""
