"""What every kernel is written with: element types, index geometry, TMA, mma, clusters, dependent launch,
reductions."""
