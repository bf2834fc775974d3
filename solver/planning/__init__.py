"""From layers and a cluster to stages: partition, placement and order, chosen together."""
