"""The page of runs as they go: made anew at each request, without a script."""

from collections.abc import Sequence

import pandas as pd

from fopng.lab.report import words
from fopng.lab.report.charts import accuracy_curves, specification
from fopng.lab.report.files import drawn
from fopng.lab.report.frames import estimates
from fopng.lab.report.live import COLUMNS, Progress, cells_of, summary_of
from fopng.lab.report.page import style, template


def live_html(runs: Sequence[Progress], *, title: str, seconds: int) -> str:
    """The page of these runs; it asks for itself again after some seconds."""
    page = template("live.html.jinja").render(
        title=title,
        seconds=seconds,
        style=style(),
        summary=summary_of(runs),
        columns=COLUMNS,
        rows=[(run, cells_of(run)) for run in runs],
        drawings=[
            (name, drawn(specification(accuracy_curves(rows), name), "svg").decode()) for name, rows in curves_of(runs)
        ],
    )
    return words.encodable(page)


def curves_of(runs: Sequence[Progress]) -> list[tuple[str, pd.DataFrame]]:
    """The mean accuracy after each task so far, for each benchmark and protocol."""
    rows: dict[str, list[dict[str, object]]] = {}
    for run in runs:
        rows.setdefault(f"{run.benchmark}, {run.protocol} protocol", []).extend(
            {"label": run.method, "method": run.method, "task": task, "value": value}
            for task, value in enumerate(run.curve, start=1)
        )
    return [
        (name, estimates(pd.DataFrame(some), "value", ["label", "method", "task"]))
        for name, some in rows.items()
        if some
    ]
