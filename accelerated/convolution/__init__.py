"""Serve convolutions with every documented algorithm, their gradients, Im2Col and reordered filters. Each kind of
solver has a folder.
"""
