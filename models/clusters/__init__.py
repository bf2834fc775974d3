"""Devices and the clusters they form: how fast, how large, and how they are linked.

| to … | use |
|---|---|
| look a device up, or describe one | `device`, `Device`, `Achieved` |
| have a cluster by name or from a file | `load_fleet`, `fleet` |
| make the ranks of a pipeline of it | `Fleet.cluster` |
"""

from .device import DEVICES, Achieved, Device, device
from .fleet import Fleet, Link, Member, fleet
from .fleet_file import load_fleet

__all__ = ["DEVICES", "Achieved", "Device", "Fleet", "Link", "Member", "device", "fleet", "load_fleet"]
