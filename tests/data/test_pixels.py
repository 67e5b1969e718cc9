import numpy as np
import pytest
import torch

from fopng.lab.data.pixels import PixelMap, Scaling

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(1, 2, 3, 4) + 1


def test_each_channel_moves_alike():
    source = np.arange(12)[::-1].copy()
    moved = PixelMap(source)(IMAGES)
    np.testing.assert_array_equal(moved[0, 0].ravel(), IMAGES[0, 0].ravel()[::-1])
    np.testing.assert_array_equal(moved[0, 1].ravel(), IMAGES[0, 1].ravel()[::-1])
    assert moved.dtype == np.uint8


def test_outside_is_black():
    source = np.arange(12)
    source[5] = -1
    moved = PixelMap(source)(IMAGES)
    assert moved[0, :, 1, 1].tolist() == [0, 0]
    assert (moved == 0).sum() == 2


@pytest.mark.parametrize("outside", [[], [5, 7]])
def test_images_on_a_device_move_alike(outside):
    source = np.random.default_rng(0).permutation(12)
    source[outside] = -1
    there = PixelMap(source).on_device(torch.from_numpy(IMAGES))
    np.testing.assert_array_equal(there.numpy(), PixelMap(source)(IMAGES))


def test_bytes_to_the_unit_interval():
    x = Scaling(255)(torch.arange(256, dtype=torch.uint8)[:, None, None, None])
    assert x.min() == 0
    assert x.max() == 1
    torch.testing.assert_close(x.flatten(), torch.arange(256) / 255, rtol=1e-6, atol=0)


def test_channels_are_normalised():
    mean, deviation = (0.4, 0.5), (0.2, 0.25)
    x = Scaling(255, mean, deviation)(torch.from_numpy(IMAGES)).double()
    for channel in range(2):
        expected = (torch.from_numpy(IMAGES[:, channel]).double() / 255 - mean[channel]) / deviation[channel]
        torch.testing.assert_close(x[:, channel], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_scaling_does_not_write_to_what_it_is_given(dtype):
    given = torch.full((1, 1, 2, 2), 100, dtype=dtype)
    Scaling(255)(given)
    assert given.unique().item() == 100
