import torch

from zero_tune.learning.augment import augment


def test_each_sample_has_its_own_shift_shared_by_all_its_frames():
    image = torch.arange(16 * 16, dtype=torch.uint8).view(1, 1, 1, 16, 16).expand(6, 2, 3, 16, 16)
    out = augment(image, ("shift",), torch.Generator().manual_seed(0))
    assert out.shape == image.shape and out.dtype == torch.float32
    assert torch.equal(out[:, :1].expand_as(out), out) and torch.equal(
        out[:, :, :1].expand_as(out), out
    )
    assert len({tuple(x.flatten().tolist()) for x in out[:, 0, 0]}) > 1
    assert float(out.min()) >= 0.0 and float(out.max()) <= 1.0


def test_intensity_scales_a_whole_sample_by_at_most_ten_percent():
    image = torch.full((5, 1, 1, 8, 8), 0.5)
    out = augment(image, ("intensity",), torch.Generator().manual_seed(0))
    assert ((out - 0.5).abs() <= 0.05 + 1e-6).all()
    assert torch.equal(out.amax((1, 2, 3, 4)), out.amin((1, 2, 3, 4)))
    assert len(out[:, 0, 0, 0, 0].unique()) > 1


def test_a_shift_is_a_crop_of_the_padded_image():
    image = torch.rand(1, 1, 1, 8, 8)
    out = augment(image, ("shift",), torch.Generator().manual_seed(3))
    padded = torch.nn.functional.pad(image[0], (4, 4, 4, 4), mode="replicate")[0, 0]
    crops = [padded[r : r + 8, c : c + 8] for r in range(9) for c in range(9)]
    assert any(torch.equal(out[0, 0, 0], crop) for crop in crops)
