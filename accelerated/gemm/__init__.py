"""Plan and run matrix products for recurrent networks and attention."""
