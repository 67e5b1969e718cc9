"""The methods, and the optimizers that are made of them."""

METHODS_BY_FILE = {
    "sgd": "sgd.SGD",
    "adam": "adam.Adam",
    "ewc": "ewc.EWC",
    "fng": "fng.FNG",
    "ogd": "ogd.OGD",
    "fopng": "fopng.FOPNG",
    "fopng-prefisher": "prefisher.FOPNGPreFisher",
    "ong": "ong.ONG",
    "natural-ogd": "natural_ogd.NaturalOGD",
    "si": "si.SI",
    "mas": "mas.MAS",
    "lwf": "lwf.LwF",
    "er": "er.ER",
    "gem": "gem.GEM",
    "a-gem": "agem.AGEM",
    "online-ewc": "online_ewc.OnlineEWC",
    "fopng-k": "fopng_k.KroneckerFOPNG",
    "ncl": "ncl.NCL",
    "gpm": "gpm.GPM",
    "sgp": "sgp.SGP",
}
"""The registry: a line for each method, the name that people type and `file.Class`.

In the order of the paper's table, then those it has no column for. The shell completes names from here, without importing torch.
"""

METHOD_NAMES = tuple(name.rpartition(".")[2] for name in METHODS_BY_FILE.values())
"""The names of their classes, which are those of their optimizers."""
