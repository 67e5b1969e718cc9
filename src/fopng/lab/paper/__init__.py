"""The paper, end to end: what its experiments are, and how long they take here."""

from fopng.lab.paper.cost import Cost
from fopng.lab.paper.plan import Part, paper_parts, part_names

__all__ = ["Cost", "Part", "paper_parts", "part_names"]
