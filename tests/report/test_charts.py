"""What the figures show: axes on which everything has room, fronts, names that do not hide one another."""

import dataclasses
import itertools
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fopng.lab.report.charts import Spot
from fopng.lab.report.figures import accuracy_curves, charts_of, learning_scatter, pareto_front, removed_curves
from fopng.lab.report.looks import looks_of
from fopng.lab.report.placing import DEPTH, HEIGHT, Box, place_labels
from fopng.lab.report.scales import Categories, Linear, Logarithmic, scale_of
from fopng.lab.report.summary import panel_of
from fopng.lab.runs.scores import Estimate
from sample_runs import diverged, laboratory, result

numbers = st.floats(-1e6, 1e6)


def panel(results):
    return panel_of(results, "matched protocol")


@given(st.lists(numbers, min_size=1))
def test_every_value_has_room_between_ticks_that_rise(values):
    scale = Linear.around("x", values)
    assert all(0 <= scale.place(value) <= 1 for value in values)
    places = [place for place, _ in scale.ticks()]
    assert 2 <= len(places) <= 9
    assert places == sorted(set(places))
    assert len({word for _, word in scale.ticks()}) == len(places)


@given(st.lists(st.floats(0, 100), min_size=1))
def test_a_percentage_is_never_drawn_beyond_what_can_be(values):
    scale = Linear.around("x", values, floor=0, top=100)
    assert 0 <= scale.low < scale.high <= 100


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1e-7, 1e-3, 1.0], Logarithmic),
        ([0.1, 0.2, 0.9], Linear),
        ([0, 0.1, 0.5], Linear),
        ([0, 1e-4, 1.0], Categories),
        ([1, 16, None], Categories),
        (["a", "b"], Categories),
        ([3], Linear),
        ([None], Categories),
    ],
)
def test_the_axis_suits_the_values(values, kind):
    scale = scale_of("x", values)
    assert type(scale) is kind
    places = [scale.place(value) for value in values]
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)
    assert scale.ticks()


def spots(pairs):
    return [Spot(None, Estimate.of([x]), Estimate.of([y])) for x, y in pairs]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_the_front_is_what_nobody_dominates(pairs):
    front = {(spot.x.mean, spot.y.mean) for spot in pareto_front(spots(pairs))}
    undominated = {(x, y) for x, y in pairs if not any(a <= x and b >= y and (a, b) != (x, y) for a, b in pairs)}
    assert front == undominated


@given(st.integers(0, 1000), st.sampled_from([1, 20, 400]))
def test_every_label_has_a_place_and_hides_neither_points_nor_another(seed, spread):
    """Ten of them, anywhere in a room of the size of a figure's, however close to one another."""
    random = Random(seed)
    room = Box(0, 0, 432, 258)
    middle = random.uniform(0, 432 - spread), random.uniform(0, max(0, 258 - spread))
    points = [
        (middle[0] + random.uniform(0, spread), min(258, middle[1] + random.uniform(0, spread))) for _ in range(10)
    ]
    labels = [(point, random.uniform(20, 150)) for point in points]
    boxes = []
    for ((x, y), width), place in zip(labels, place_labels(labels, room), strict=True):
        left = {"": place.x, "e": place.x - width, "m": place.x - width / 2}[place.anchor]
        box = Box(left, place.y + DEPTH - HEIGHT, left + width, place.y + DEPTH)
        assert box == place.box
        assert box.within(room)
        end = box.nearest((x, y)) if place.lead is None else place.lead
        assert end == box.nearest((x, y))
        assert place.lead is not None or math.dist(end, (x, y)) < 10
        boxes.append(box)
    for first, second in itertools.combinations(boxes, 2):
        assert not first.meets(second)
    markers = [Box(x - 1, y - 1, x + 1, y + 1) for x, y in points]
    assert not any(box.meets(marker) for box in boxes for marker in markers)


def test_a_label_stands_between_the_strokes_that_cross_in_its_point():
    cross = [Box(0, 150, 400, 150), Box(200, 0, 200, 300)]
    [place] = place_labels([((200, 150), 60)], Box(0, 0, 400, 300), cross)
    assert place.lead is None
    assert not any(place.box.meets(stroke) for stroke in cross)


@given(st.integers(8, 40), st.integers(-20, 20))
def test_a_label_is_not_taken_for_that_of_a_point_nearby(across, down):
    """It is clearly nearer to its own point, or a line leads to it."""
    points = [(200, 150), (200 + across, 150 + down)]
    places = place_labels([(point, 60) for point in points], Box(0, 0, 400, 300))
    for point, other, place in zip(points, reversed(points), places, strict=True):
        own, far = (math.dist(each, place.box.nearest(each)) for each in (point, other))
        assert far > own + 10 or place.lead is not None


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_whiskers_have_room_on_both_axes(seeds):
    runs = laboratory(["sgd", "ewc", "ogd", "fopng", "adam"], seeds=seeds)
    chart = learning_scatter(panel(runs))
    pairs = [(spot.ends(chart.confidence), (spot.x, spot.y)) for spot in chart.spots]
    assert all(len(ends) == (0 if seeds == 1 else 2) for both, _ in pairs for ends in both)
    for scale, along in ((chart.x, 0), (chart.y, 1)):
        for both, means in pairs:
            places = [scale.place(value) for value in (*both[along], 100 * means[along].mean)]
            assert all(0 <= place <= 1 for place in places)
            if seeds > 1:
                low, high = both[along]
                assert low < 100 * means[along].mean < high


def test_an_accuracy_beyond_what_can_be_is_off_the_axis():
    runs = [result([[first, None], [0.9, 1.0]], method="sgd", seed=seed) for seed, first in enumerate((0.9, 1.0))]
    chart = learning_scatter(panel(runs))
    assert chart.spots[0].ends(0.68)[1][1] > 100
    assert chart.y.high == 100


def test_looks_differ_for_forty_methods_also_without_colour():
    looks = looks_of([f"method {number}" for number in range(40)])
    assert len(set(looks.values())) == 40
    assert len({(look.dashes, look.marker) for look in looks.values()}) == 28


def test_the_curve_ends_where_the_runs_did():
    runs = laboratory(["sgd", "adam"], seeds=3)
    runs = [diverged(run, 2) if run.config.method == "adam" else run for run in runs]
    curves = {series.label: series for series in accuracy_curves(panel(runs)).series}
    assert [value for value, _ in curves["adam"].points] == [1, 2]
    assert [value for value, _ in curves["sgd"].points] == [1, 2, 3, 4, 5]
    assert all(
        low < mean < high
        for (_, mean), (_, low, high) in zip(curves["sgd"].points, curves["sgd"].band(0.68), strict=True)
    )


def test_one_seed_has_no_band():
    [series] = accuracy_curves(panel(laboratory(["sgd"], seeds=1))).series
    assert series.band(0.68) == []


def test_a_panel_of_nothing_but_lost_runs_has_no_scatter():
    runs = [diverged(run) for run in laboratory(["sgd"])]
    assert learning_scatter(panel(runs)) is None
    assert {chart.name for chart in charts_of(panel(runs))} == {"accuracy", "removed", "seconds", "memory"}


def test_more_than_the_whole_gradient_has_room():
    """An oblique projection can take away more than there was."""
    runs = [dataclasses.replace(run, measured={"removed_fraction": (None, 1.4, 4.2)}) for run in laboratory(["fopng"])]
    chart = removed_curves(panel(runs))
    assert pytest.approx(max(mean for each in chart.series for _, mean in each.points) / 100) == 4.2
    assert all(0 <= chart.y.place(mean) <= 1 for each in chart.series for _, mean in each.points)


def test_a_single_task():
    [series] = accuracy_curves(panel(laboratory(["sgd"], tasks=1))).series
    assert len(series.points) == 1
    assert math.isnan(panel(laboratory(["sgd"], tasks=1)).lines[0].forgetting.mean)
