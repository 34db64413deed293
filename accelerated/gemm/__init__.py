"""Matrix products that several families need."""
