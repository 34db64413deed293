"""Implements ReduceTensor."""
