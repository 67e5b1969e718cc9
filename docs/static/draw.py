"""Draw the pictures of the explanations: `python docs/static/draw.py`. Each is computed from the formulas that it explains."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
WIDTH, HEIGHT, SCALE = 640, 360, 70.0
ORIGIN = 190.0, 235.0

STYLE = """
  text { font: 17px system-ui, sans-serif; fill: #1f2430 }
  .faint { stroke: #8a93a6; fill: none; stroke-width: 1.3 }
  .old { stroke: #8a93a6; fill: #8a93a6; fill-opacity: .13 }
  .plain { stroke: #c4442f; fill: #c4442f } .ours { stroke: #1d6fd0; fill: #1d6fd0 } .third { stroke: #2b8a57; fill: #2b8a57 }
  line.plain, line.ours, line.third { stroke-width: 3.2 }
  text.plain, text.ours, text.third { stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #dfe4ee }
    .plain { stroke: #ff8a70; fill: #ff8a70 } .ours { stroke: #6db3ff; fill: #6db3ff } .third { stroke: #63cf97; fill: #63cf97 }
  }
"""

Vector = NDArray[np.float64]


def vector(*numbers: float) -> Vector:
    """A vector of float64."""
    return np.array(numbers, dtype=np.float64)


def place(point: Vector, origin: tuple[float, float] = ORIGIN) -> tuple[float, float]:
    """Where a point stands on the picture."""
    return origin[0] + SCALE * point[0], origin[1] - SCALE * point[1]


def arrow(
    to: Vector, kind: str, label: str, shift: tuple[float, float] = (8, -6), *, start: Vector | None = None
) -> str:
    """An arrow with words at its end."""
    (x0, y0), (x1, y1) = place(vector(0, 0) if start is None else start), place(to)
    along = vector(x1 - x0, y1 - y0) / np.hypot(x1 - x0, y1 - y0)
    across = vector(-along[1], along[0])
    head = [vector(x1, y1), vector(x1, y1) - 13 * along + 6 * across, vector(x1, y1) - 13 * along - 6 * across]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in head)
    end = vector(x1, y1) - 11 * along
    return (
        f'<line class="{kind}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'
        f'<polygon class="{kind}" stroke="none" points="{points}"/>{words(label, x1 + shift[0], y1 + shift[1], kind)}'
    )


def words(text: str, x: float, y: float, kind: str = "", anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def contour(F: Vector, level: float, kind: str, origin: tuple[float, float] = ORIGIN) -> str:
    """The ellipse `v^T F v = level`."""
    values, vectors = np.linalg.eigh(F)
    radii = SCALE * np.sqrt(level / values)
    angle = -np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0]))
    x, y = origin
    size = f'rx="{radii[0]:.1f}" ry="{radii[1]:.1f}"'
    return f'<ellipse class="{kind}" cx="{x}" cy="{y}" {size} transform="rotate({angle:.2f} {x} {y})"/>'


def write(name: str, title: str, parts: Iterable[str], width: int = WIDTH, height: int = HEIGHT) -> None:
    """Write a picture."""
    body = "\n".join(parts)
    (HERE / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n",
        encoding="utf-8",
    )


def projection() -> None:
    """What a step may change: plain, projected, bent."""
    turn = np.radians(20)
    along, across = vector(np.cos(turn), np.sin(turn)), vector(-np.sin(turn), np.cos(turn))
    F = 0.03 * np.outer(along, along) + 1.2 * np.outer(across, across)
    g = 3.1 * along + 2.0 * across
    bent = np.linalg.solve(np.eye(2) + 2.5 * F, g)
    parts = [contour(F, level, "old") for level in (0.12, 0.48)]
    parts += [
        words("old answers change little in here", 300, 335),
        arrow(g, "plain", "plain step", (-30, -12)),
        arrow(along * (g @ along), "third", "projected", (12, 20)),
        arrow(bent, "ours", "bent", (10, -8)),
        f'<circle cx="{ORIGIN[0]}" cy="{ORIGIN[1]}" r="5" class="faint" style="fill:#8a93a6"/>',
        words("weights now", ORIGIN[0] + 10, ORIGIN[1] + 26),
    ]
    write("projection", "A plain step leaves the valley of the old tasks; a projected or bent step stays in it", parts)


def kronecker() -> None:
    """What a diagonal and a Kronecker factor know of the same inputs."""
    random = np.random.default_rng(3)
    along = vector(1, 1) / np.sqrt(2)
    inputs = random.normal(size=(60, 1)) * along * 0.85 + 0.1 * random.normal(size=(60, 2))
    A = inputs.T @ inputs / len(inputs)
    parts = []
    for x, F, heading in ((165.0, np.diag(np.diag(A)), "diagonal"), (475.0, A, "Kronecker factor")):
        origin = x, 190.0
        dots = [place(point, origin) for point in inputs]
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" class="faint" style="fill:#8a93a6"/>' for a, b in dots]
        parts += [contour(np.linalg.inv(F), 4.0, "old", origin), words(heading, x, 30, anchor="middle")]
    parts += [
        words("both inputs are in use", 165, 350, "plain", "middle"),
        words("one direction is free", 475, 350, "ours", "middle"),
    ]
    write(
        "kronecker",
        "Old inputs lie along one direction: a diagonal cannot see it, a Kronecker factor does",
        parts,
        height=366,
    )


def printed() -> None:
    """The orthogonal step keeps `B^T v = 0`; the printed one does not."""
    F = np.diag([0.45, 1.6])
    B, g = vector(0.9, 1.1), vector(2.6, -0.4)
    inverse = np.linalg.inv(F)
    A = B @ inverse @ B
    orthogonal = inverse @ (g - B * (B @ inverse @ g) / A)
    plain = inverse @ (g - B * (B @ g) / A)
    allowed = vector(B[1], -B[0]) / np.linalg.norm(B)
    (x0, y0), (x1, y1) = place(-1.4 * allowed), place(4.0 * allowed)
    orthogonal, plain = (2.4 * each / np.linalg.norm(each) for each in (orthogonal, plain))
    parts = [
        f'<line class="faint" stroke-dasharray="6 5" x1="{x0:.1f}" y1="{y0 - 60:.1f}" x2="{x1:.1f}" y2="{y1 - 60:.1f}"/>',
        arrow(B * 1.6, "third", "B, to be left alone", (8, 4)),
        arrow(plain, "plain", "printed", (10, 4)),
        arrow(orthogonal, "ours", "orthogonal", (10, -4)),
    ]
    shifted = [
        part if number == 0 else f'<g transform="translate(0 -60)">{part}</g>' for number, part in enumerate(parts)
    ]
    shifted.append(words("on this line old answers stay", 395, 345))
    write("printed", "The orthogonal step lies where old answers stay; the printed step does not", shifted)


if __name__ == "__main__":
    projection()
    kronecker()
    printed()
