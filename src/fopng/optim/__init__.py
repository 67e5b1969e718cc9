"""The methods, and the optimizers that are made of them."""

METHODS_BY_FILE = (
    "sgd.SGD",
    "adam.Adam",
    "ewc.EWC",
    "fng.FNG",
    "ogd.OGD",
    "fopng.FOPNG",
    "prefisher.FOPNGPreFisher",
    "ong.ONG",
    "natural_ogd.NaturalOGD",
    "si.SI",
    "mas.MAS",
    "lwf.LwF",
    "er.ER",
    "gem.GEM",
    "agem.AGEM",
    "online_ewc.OnlineEWC",
    "fopng_k.KroneckerFOPNG",
    "ncl.NCL",
    "gpm.GPM",
    "sgp.SGP",
)
"""The registry: a line for each method, `file.Class`, in the order of the paper's table, then those it has no column for."""

METHOD_NAMES = tuple(name.rpartition(".")[2] for name in METHODS_BY_FILE)
"""The names of their classes, which are those of their optimizers."""
