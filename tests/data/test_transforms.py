"""Image transforms and word vectors."""

import colorsys
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.core.random import fold, stream, uniform
from turnout.data import (
    AdjustSharpness,
    ColorJitter,
    Equalize,
    Normalize,
    Posterize,
    RandomCrop,
    RandomHorizontalFlip,
    Transform,
    WordVectors,
    cifar100_augmentation,
    cifar_augmentation,
)
from turnout.data.named.color import brighten, from_levels, to_levels, turn_hue
from turnout.data.transforms import apply_transforms, bake, check_transforms, keys_of

DEVICES = [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]
RANDOM = [
    RandomCrop(8, padding=3),
    RandomCrop(6),
    RandomHorizontalFlip(),
    AdjustSharpness(2.0),
    ColorJitter(brightness=0.3, hue=0.2),
    Posterize(2),
    Equalize(),
]


def keys_for(n: int, seed: int = 0) -> torch.Tensor:
    return fold(stream("test", seed), torch.arange(n))


def levels_of(n: int, channels: int = 3, side: int = 8, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (n, channels, side, side))
    dark = noise // rng.integers(1, 9, (n, channels, 1, 1))  # images that use only a part of the levels as well
    return torch.from_numpy(dark.astype(np.uint8))


def images(n: int, channels: int = 3, side: int = 8) -> torch.Tensor:
    return from_levels(levels_of(n, channels, side), torch.float32)


def pillow(levels: torch.Tensor) -> Image.Image:
    """A uint8 image ``[3, H, W]`` as Pillow's."""
    return Image.fromarray(levels.permute(1, 2, 0).numpy())


def from_pillow(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


# ------------------------------------------------------------------------------------------------------- laws of them all


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("transform", RANDOM, ids=repr)
def test_sample_depends_only_on_its_key(transform: Transform, device: torch.device) -> None:
    x, keys = images(37, side=20).to(device), keys_for(37).to(device)
    together = transform.apply(x, keys)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0)).to(device)
    assert torch.equal(transform.apply(x[order], keys[order]), together[order])
    for size in (1, 3, 8):
        assert torch.equal(transform.apply(x[:size], keys[:size]), together[:size])
    assert torch.equal(transform.apply(x.cpu(), keys.cpu()), together.cpu())


@pytest.mark.parametrize("transform", RANDOM, ids=repr)
def test_different_keys_give_different_results_and_the_input_is_unchanged(transform: Transform) -> None:
    one = images(1, side=20)
    x, before = one.expand(64, -1, -1, -1), one.clone()
    results = transform.apply(x, keys_for(64))
    assert len(torch.unique(results.flatten(1), dim=0)) > 1
    assert torch.equal(one, before)
    assert results.dtype == torch.float32
    assert results.is_contiguous()


@pytest.mark.parametrize("transform", RANDOM, ids=repr)
def test_empty_batch_stays_empty(transform: Transform) -> None:
    assert len(transform.apply(images(3)[:0], keys_for(0))) == 0


@pytest.mark.parametrize("transform", [*RANDOM, Normalize((0.5,) * 3, (0.5,) * 3)], ids=repr)
def test_non_image_inputs_are_refused(transform: Transform) -> None:
    with pytest.raises(DataError, match=r"got inputs of shape \[5, 64\]"):
        transform.apply(torch.zeros(5, 64), keys_for(5))


# ------------------------------------------------------------------------------------------------------------ normalize


def test_normalize_shifts_and_scales_each_channel() -> None:
    x = torch.tensor([0.5, 0.75, 1.0]).view(1, 3, 1, 1).expand(2, 3, 4, 4)
    out = Normalize((0.5, 0.5, 0.5), (1.0, 0.5, 0.25)).apply(x, None)
    assert torch.equal(out[:, :, 0, 0], torch.tensor([[0.0, 0.5, 2.0]] * 2))


@pytest.mark.parametrize("shape", [(5, 7), (5, 1, 4, 4), (5,)])
def test_scalar_mean_applies_to_any_shape(shape: tuple[int, ...]) -> None:
    assert torch.equal(Normalize(0.5, 0.25).apply(torch.ones(shape), None), torch.full(shape, 2.0))


def test_integer_inputs_are_scaled_as_levels() -> None:
    levels = levels_of(4)
    normalize = Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    assert torch.equal(normalize.apply(levels, None), normalize.apply(levels / 255, None))


def test_mismatched_mean_and_std_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"std: got 0\.0, needed a finite number > 0"):
        Normalize((0.5, 0.5), (1.0, 0.0))
    with pytest.raises(ConfigurationError, match=r"std: got .*, needed as many numbers as the mean has, 3"):
        Normalize((0.5, 0.5, 0.5), (1.0, 1.0))
    with pytest.raises(DataError, match=r"Normalize has 3 channels, got inputs of shape \[2, 1, 8, 8\]"):
        Normalize((0.5,) * 3, (1.0,) * 3).apply(torch.zeros(2, 1, 8, 8), None)


# ------------------------------------------------------------------------------------------------------- crops and flips


def test_crops_are_uniform_windows_of_the_padded_image() -> None:
    image = torch.arange(1.0, 17.0).view(1, 1, 4, 4)
    padded = torch.nn.functional.pad(image, [1] * 4)[0, 0]
    windows = {tuple(padded[i : i + 4, j : j + 4].flatten().tolist()) for i in range(3) for j in range(3)}
    crops = RandomCrop(4, padding=1).apply(image.expand(900, -1, -1, -1), keys_for(900))
    found, times = np.unique(crops.flatten(1).numpy(), axis=0, return_counts=True)
    assert {tuple(window.tolist()) for window in found} == windows
    assert times.min() > 60  # of 100 expected


def test_crop_offsets_of_the_two_axes_are_independent() -> None:
    place = torch.arange(64.0).view(1, 1, 8, 8).expand(4000, -1, -1, -1)
    corner = RandomCrop(1).apply(place, keys_for(4000)).flatten().long()
    assert abs(np.corrcoef((corner // 8).numpy(), (corner % 8).numpy())[0, 1]) < 0.05


def test_channels_are_cropped_together() -> None:
    image = torch.arange(16.0).view(1, 1, 4, 4)
    crops = RandomCrop(3).apply(torch.cat([image, image + 100], dim=1).expand(50, -1, -1, -1), keys_for(50))
    assert torch.equal(crops[:, 1], crops[:, 0] + 100)


def test_crop_larger_than_the_image_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"RandomCrop\(size=33, padding=0\) does not fit into images of shape \[3, 32, 40\]"
    ):
        RandomCrop(33).apply(torch.zeros(2, 3, 32, 40), keys_for(2))
    with pytest.raises(ConfigurationError, match="size: got 0"):
        RandomCrop(0)
    with pytest.raises(ConfigurationError, match="padding: got -1"):
        RandomCrop(32, padding=-1)


def test_half_of_the_images_are_flipped() -> None:
    x = images(2000)
    out = RandomHorizontalFlip().apply(x, keys_for(2000))
    mirrored = (out == x.flip(-1)).flatten(1).all(dim=1)
    same = (out == x).flatten(1).all(dim=1)
    assert (mirrored ^ same).all()
    assert 900 < int(mirrored.sum()) < 1100


@pytest.mark.parametrize("kind", [RandomHorizontalFlip, AdjustSharpness, Posterize, Equalize])
def test_probability_is_validated(kind: type[RandomHorizontalFlip]) -> None:
    x, keys = images(1000, side=20), keys_for(1000)
    always, never, rare = (kind(probability=p).apply(x, keys) for p in (1.0, 0.0, 0.2))
    assert torch.equal(never, x)
    changes = (always != x).flatten(1).any(dim=1)
    changed = (rare != x).flatten(1).any(dim=1)
    assert changes.sum() > 950
    assert torch.equal(rare[changed], always[changed])
    assert 0.15 < float(changed.sum() / changes.sum()) < 0.25
    with pytest.raises(ConfigurationError, match=r"probability: got 1\.5, needed a probability"):
        kind(probability=1.5)


# --------------------------------------------------------------------------------------------------------------- color


def test_levels_round_trip_through_floats() -> None:
    levels = torch.arange(256, dtype=torch.int32)
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(to_levels(from_levels(levels, dtype)), levels)
    assert to_levels(torch.tensor([0.0, 0.9999, 1.0, 0.5])).tolist() == [0, 255, 255, 127]


@pytest.mark.parametrize("transform", [t for t in RANDOM if not isinstance(t, RandomCrop)], ids=repr)
def test_integer_images_give_the_same_levels(transform: Transform) -> None:
    levels, keys = levels_of(20), keys_for(20)
    whole = transform.apply(levels, keys)
    assert whole.dtype == torch.uint8
    assert torch.equal(to_levels(transform.apply(levels / 255, keys)), whole.int())


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_sharpness_equals_pillow(factor: float) -> None:
    for levels in levels_of(20, side=9):
        expected = from_pillow(ImageEnhance.Sharpness(pillow(levels)).enhance(factor))
        assert torch.equal(AdjustSharpness(factor).changed(levels[None].int())[0], expected.int())


def test_sharpness_equals_a_hand_computed_example() -> None:
    dot = torch.zeros(1, 1, 3, 3, dtype=torch.int32)
    dot[0, 0, 1, 1] = 100  # blurred: 500 / 13 = 38.46 -> 38, so 2 * 100 - 38
    assert AdjustSharpness(2.0).changed(dot)[0, 0, 1, 1] == 162
    assert torch.equal(AdjustSharpness(2.0).changed(dot[..., :2]), dot[..., :2])


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_posterize_equals_pillow(bits: int) -> None:
    levels = levels_of(10)
    out = Posterize(bits, probability=1.0).apply(levels, keys_for(10))
    for mine, image in zip(out, levels, strict=True):
        assert torch.equal(mine, from_pillow(ImageOps.posterize(pillow(image), bits)))


@pytest.mark.parametrize("side", [4, 15, 16, 17, 32])
def test_equalize_equals_pillow(side: int) -> None:
    levels = levels_of(30, side=side)
    levels[0] = 7  # a single level
    levels[1, :, 0, 0] = 255  # all but one pixel at the lower levels
    out = Equalize(probability=1.0).apply(levels, keys_for(30))
    for mine, image in zip(out, levels, strict=True):
        assert torch.equal(mine, from_pillow(ImageOps.equalize(pillow(image))))


def test_brightness_equals_pillow() -> None:
    factors = torch.linspace(0.0, 2.0, 30)
    levels = levels_of(30)
    for mine, image, factor in zip(brighten(levels, factors), levels, factors.tolist(), strict=True):
        assert torch.equal(mine, from_pillow(ImageEnhance.Brightness(pillow(image)).enhance(factor)).int())


@settings(max_examples=300, deadline=None)
@given(color=st.tuples(*[st.integers(0, 255)] * 3), turn=st.floats(-0.5, 0.5, width=32))
def test_hue_equals_the_hsv_of_colorsys(color: tuple[int, int, int], turn: float) -> None:
    hue, saturation, value = colorsys.rgb_to_hsv(*(level / 255 for level in color))
    expected = [channel * 255.999 for channel in colorsys.hsv_to_rgb((hue + turn) % 1.0, saturation, value)]
    out = turn_hue(torch.tensor(color).view(1, 3, 1, 1), torch.tensor([turn])).flatten().tolist()
    for mine, exact in zip(out, expected, strict=True):
        assert mine == math.floor(exact) or (abs(exact - round(exact)) < 1e-3 and abs(mine - exact) < 1.001)


def test_full_hue_rotations_change_no_color() -> None:
    grid = torch.cartesian_prod(*[torch.arange(0, 256, 15)] * 3).T.reshape(1, 3, -1, 1).int()
    assert torch.equal(turn_hue(grid, torch.tensor([0.0])), grid)
    gray = torch.arange(256, dtype=torch.int32).view(1, 1, -1, 1).expand(1, 3, -1, 1)
    assert torch.equal(turn_hue(gray, torch.tensor([0.3])), gray)


def test_third_of_a_hue_rotation_exchanges_primary_colors() -> None:
    red = torch.tensor([200, 0, 0], dtype=torch.int32).view(1, 3, 1, 1)
    assert turn_hue(red, torch.tensor([1 / 3])).flatten().tolist() == [0, 200, 0]
    assert turn_hue(red, torch.tensor([-1 / 3])).flatten().tolist() == [0, 0, 200]


def test_jitter_covers_exactly_its_bounds() -> None:
    gray = torch.full((3000, 3, 1, 1), 100, dtype=torch.uint8)
    out = ColorJitter(brightness=0.2).apply(gray, keys_for(3000)).long()
    assert (out == out[:, :1]).all()
    assert int(out.min()) in (79, 80)
    assert int(out.max()) in (119, 120)
    np.testing.assert_allclose(out.float().mean(), 99.5, atol=1.0)
    red = torch.tensor([200, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(3000, -1, -1, -1)
    turned = ColorJitter(hue=0.1).apply(red, keys_for(3000)).long().flatten(1)
    assert (turned.max(dim=1).values == 200).all()
    assert int(turned[:, 1].max()) in range(118, 121)  # a tenth of the circle: 0.6 of the way to yellow
    assert int(turned[:, 2].max()) in range(118, 121)


def test_brightness_and_hue_are_applied_in_random_order() -> None:
    """If brightness clips first, the hue differs."""
    pale = torch.tensor([250, 200, 180], dtype=torch.uint8).view(1, 3, 1, 1).expand(500, -1, -1, -1)
    jitter, keys = ColorJitter(brightness=0.5, hue=0.5), keys_for(500)
    out = jitter.apply(pale, keys).long().flatten(1)
    factor = 0.5 + uniform(keys_of(keys, 0))
    turn = 0.5 * (2.0 * uniform(keys_of(keys, 1)) - 1.0)
    before = turn_hue(brighten(pale, factor), turn).flatten(1).long()
    after = brighten(turn_hue(pale, turn), factor).flatten(1).long()
    differ = (before != after).any(dim=1)
    is_before = (out == before).all(dim=1)
    assert (is_before | (out == after).all(dim=1)).all()
    assert 0.3 < float(is_before[differ].float().mean()) < 0.7


def test_gray_images_only_change_brightness() -> None:
    x = images(10, channels=1)
    out = ColorJitter(hue=0.5).apply(x, keys_for(10))
    assert torch.equal(out, x)
    with pytest.raises(
        DataError, match=r"ColorJitter needs images \[n, C, H, W\] with C = 1 or 3, got .* \[2, 4, 8, 8\]"
    ):
        ColorJitter(hue=0.5).apply(images(2, channels=4), keys_for(2))


def test_color_options_are_validated() -> None:
    with pytest.raises(ConfigurationError, match=r"brightness: got -0\.1"):
        ColorJitter(brightness=-0.1)
    with pytest.raises(ConfigurationError, match=r"hue: got 0\.6, needed at most 0\.5"):
        ColorJitter(hue=0.6)
    with pytest.raises(ConfigurationError, match=r"factor: got -2"):
        AdjustSharpness(-2)
    with pytest.raises(ConfigurationError, match="bits: got 9, needed a whole number of at most 8"):
        Posterize(9)
    with pytest.raises(ConfigurationError, match="bits: got -1"):
        Posterize(-1)


# ------------------------------------------------------------------------------------------------------------- pipelines


def test_random_transforms_apply_only_in_training() -> None:
    x = images(6, side=32)
    out = apply_transforms(cifar100_augmentation(), x, None, training=False)
    assert torch.equal(out, Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)).apply(x, None))
    assert not torch.equal(apply_transforms(cifar100_augmentation(), x, keys_for(6), training=True), out)


@pytest.mark.parametrize("transforms", [cifar_augmentation(), cifar100_augmentation()], ids=["cifar", "cifar100"])
def test_pipeline_result_does_not_depend_on_the_batch(transforms: tuple[Transform, ...]) -> None:
    x, keys = images(24, side=32), keys_for(24)
    together = apply_transforms(transforms, x, keys, training=True)
    alone = [apply_transforms(transforms, x[i : i + 1], keys[i : i + 1], training=True) for i in range(24)]
    assert torch.equal(torch.cat(alone), together)
    assert together.shape == x.shape


def test_precomputed_transforms_change_nothing() -> None:
    x, keys = images(25, side=32), keys_for(25)
    transforms = cifar_augmentation()
    baked, remaining = bake(transforms, x, chunk=10)
    assert remaining == transforms[1:]
    assert torch.equal(
        apply_transforms(remaining, baked, keys, training=True), apply_transforms(transforms, x, keys, training=True)
    )
    assert torch.equal(baked, Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)).apply(x, None))


def test_enlarging_transforms_run_per_minibatch() -> None:
    words = WordVectors(np.eye(3, dtype=np.float32))
    x = torch.tensor([[0, 2], [1, 1]])
    same, remaining = bake((words, Normalize(0.0, 2.0)), x)
    assert same is x
    assert remaining == (words, Normalize(0.0, 2.0))


def test_only_leading_transforms_are_precomputed() -> None:
    x = images(5)
    same, remaining = bake(cifar100_augmentation(), x)
    assert same is x
    assert remaining == cifar100_augmentation()
    twice, none_left = bake((Normalize(0.5, 1.0), Normalize(0.0, 2.0)), levels_of(5))
    assert none_left == ()
    assert torch.equal(twice, (levels_of(5) / 255 - 0.5) / 2.0)
    assert len(bake((Normalize(0.5, 1.0),), x[:0])[0]) == 0


def test_two_equal_transforms_draw_different_numbers() -> None:
    x = images(400)
    out = apply_transforms((RandomHorizontalFlip(), RandomHorizontalFlip()), x, keys_for(400), training=True)
    mirrored = (out == x.flip(-1)).flatten(1).all(dim=1)
    assert 140 < int(mirrored.sum()) < 260


def test_random_transforms_without_keys_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="RandomCrop in training needs a key for each sample, got None"):
        apply_transforms(cifar_augmentation(), images(2, side=32), None, training=True)


@pytest.mark.parametrize("enlarging", [False, True])
def test_transforms_that_change_their_inputs_are_refused(enlarging: bool) -> None:
    """They would change the examples at each evaluation."""

    class Halved(Transform):
        random = False
        enlarges = enlarging

        def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
            return x.div_(2)

    data = to.data.digits().split(to.partition.Iid(), num_clients=4)
    run = to.Experiment(replace(data, transforms=(Halved(),)), to.models.Logistic(), rounds=1)
    with pytest.raises(
        ConfigurationError, match=r"Halved changes its inputs in place, and with them the examples: return a"
    ):
        run.run()


def test_invalid_orders_are_refused() -> None:
    check_transforms(cifar100_augmentation())
    with pytest.raises(ConfigurationError, match=r"Equalize works on colors in \[0, 1\] and stands behind Normalize"):
        check_transforms((Normalize(0.5, 0.5), Equalize()))
    with pytest.raises(ConfigurationError, match=r"transforms: got .*Equalize.*; write Equalize\(\)"):
        check_transforms((Equalize,))  # pyright: ignore[reportArgumentType]


# ----------------------------------------------------------------------------------------------------------- word vectors


@given(words=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=6))
@settings(deadline=None, max_examples=25)
def test_words_become_rows_of_the_table(words: list[list[int]]) -> None:
    table = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    x = torch.tensor(words, dtype=torch.int32)
    vectors = apply_transforms((WordVectors(table),), x, None, training=False)
    assert vectors.shape == (len(words), 3, 4)
    for i, text in enumerate(words):
        for t, word in enumerate(text):
            assert vectors[i, t].tolist() == table[word].tolist()


def test_mismatched_word_vectors_are_refused() -> None:
    with pytest.raises(DataError, match=r"got a table of float64 \[2, 3\], needed float32 of shape \[V, D\]"):
        WordVectors(np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"got a table of float32 \[3\]"):
        WordVectors(np.zeros(3, dtype=np.float32))
    words = WordVectors(np.zeros((2, 3), dtype=np.float32))
    with pytest.raises(DataError, match=r"row numbers of its table \[n, T\], got inputs of torch.float32 \[2, 5\]"):
        words.apply(torch.zeros(2, 5), None)
    with pytest.raises(DataError, match=r"got inputs of torch.int64 \[2\]"):
        words.apply(torch.zeros(2, dtype=torch.int64), None)
