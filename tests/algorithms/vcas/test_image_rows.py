"""What the second sampling of VCAS would add if its rows were whole images, as on the machine: of
the images that the first one keeps an eighth less for the weight gradient. Prints, of each
convolution, the variance that is added over SGD's own, and the same with pixels as rows.

Covers: algorithms/vcas/layers.py, algorithms/vcas/sampling.py.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from algorithms.data.datasets import load_images
from algorithms.networks.registry import MODELS
from algorithms.vcas.controller import VCASConfig
from algorithms.vcas.layers import sampled_layers, sampling
from algorithms.vcas.sampling import keep_probabilities, weights_variance

IMAGES, STEPS, NU = 64, 300, 7 / 8


class Training:
    """VGG after some steps of backpropagation, and random batches."""

    def __init__(self, data, pool):
        torch.manual_seed(1)
        found = load_images(data, seed=1)
        self.images = functional.avg_pool2d(found.train_images, pool)
        self.labels = found.train_labels
        self.model = MODELS["vgg"](tuple(self.images.shape[1:]), found.classes)
        self.layers = sampled_layers(self.model)
        self.convolutions = [one for one in self.layers if isinstance(one.module, nn.Conv2d)]
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.03, momentum=0.9)
        for _ in range(STEPS):
            self.backward(self.batch())
            optimizer.step()

    def batch(self):
        chosen = torch.randint(len(self.images), (IMAGES,))
        return self.images[chosen], self.labels[chosen]

    def backward(self, batch, ratio=1.0):
        """By layer the gradient of its output and its input, of the images that are kept."""
        seen = {}

        def watching(layer):
            def keep_rows(gradient, inputs):
                kept = gradient.flatten(1).norm(dim=1) > 0
                seen[layer.name] = gradient[kept], inputs[kept]
                return gradient

            return keep_rows

        for layer in self.layers:
            layer.ratio, layer.keep_rows = ratio, watching(layer)
        self.model.zero_grad()
        with sampling(self.layers):
            loss = functional.cross_entropy(self.model(batch[0]), batch[1])
        loss.backward()
        return seen

    def own_variances(self):
        """SGD's variance of the weight gradient of each convolution, from ten batches."""
        found = []
        for _ in range(10):
            self.backward(self.batch())
            found.append([one.module.weight.grad.clone() for one in self.convolutions])
        return [float(torch.stack(each).double().var(0).sum()) for each in zip(*found)]


def added(layer, gradient, inputs):
    """Variance of a sample of the images, exactly, and of one of the pixels, its bound."""
    module, images = layer.module, len(gradient)
    own = torch.stack([
        nn.grad.conv2d_weight(inputs[i : i + 1], module.weight.shape, gradient[i : i + 1],
                              module.stride, module.padding).norm()
        for i in range(images)
    ])  # fmt: skip
    products = gradient.flatten(1).norm(dim=1) * inputs.flatten(1).norm(dim=1)
    of_images = weights_variance(own, keep_probabilities(products, NU * images))
    pixels = (gradient.norm(dim=1) * layer._input_norms(inputs)).flatten()
    kept = NU * float((pixels > 0).sum())
    return of_images, weights_variance(pixels, keep_probabilities(pixels, kept))


@pytest.mark.long
@pytest.mark.parametrize(("data", "pool"), [("digits", 1), ("fashion-mnist", 2)])
def test_images_are_too_large_as_rows(data, pool):
    try:
        training = Training(data, pool)
    except (ValueError, OSError) as error:
        pytest.skip(str(error))
    limit, variances = VCASConfig().weights_share, training.own_variances()
    for ratio in (1.0, 0.25):
        passes = [training.backward(training.batch(), ratio) for _ in range(4)]
        for layer, variance in zip(training.convolutions, variances, strict=True):
            both = [added(layer, *seen[layer.name]) for seen in passes]
            images, pixels = (sum(part) / len(both) / variance for part in zip(*both))
            print(f"{data}, ratio {ratio}, convolution {layer.name}: images {images:.4f}, "
                  f"pixels {pixels:.4f}")  # fmt: skip
            assert pixels < images
            if ratio < 1:
                assert images > limit
