"""Draw operations from the domains, and judge them on subjects until something is found: ``dualdnn fuzz``."""
