"""Files of workloads, profiles and plans."""
