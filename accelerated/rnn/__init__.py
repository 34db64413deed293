"""Compute recurrent networks: products of all steps of a layer, and the steps one after the other."""
