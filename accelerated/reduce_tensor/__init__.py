"""ReduceTensor."""
