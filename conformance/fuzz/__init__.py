"""``dualdnn fuzz``: operations drawn from the domains, judged on subjects until something is found."""
