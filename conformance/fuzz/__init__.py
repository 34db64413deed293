"""Draw operations from the domains, and judge them on subjects until something is found: ``dualdnn fuzz``."""

DEFAULT_SUBJECTS = ("reference", "accelerated")
DEFAULT_SECONDS = 60.0
