"""Convolutional networks of bench/data: ResNet, VGG, Inception, SSD, EfficientNet, written in plain torch."""

import torch
from torch import nn
from torch.nn import functional as F


def _unit(
    channels_in: int,
    channels_out: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


class Bottleneck(nn.Module):
    """ResNet v1.5: the stride is in the 3x3 convolution."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = _unit(channels_in, width, 1)
        self.second = _unit(width, width, 3, stride, 1)
        self.third = nn.Sequential(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        same = stride == 1 and channels_in == 4 * width
        self.short = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(channels_in, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu_(self.third(self.second(self.first(x))).add_(self.short(x)))


def stages(depths: tuple[int, ...], strides: tuple[int, ...] = (1, 2, 2, 2)) -> list[nn.Module]:
    layers: list[nn.Module] = [_unit(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for at, (depth, stride) in enumerate(zip(depths, strides, strict=False)):
        width = 64 * 2**at
        for block in range(depth):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return layers


def resnet(depths: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(*stages(depths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = [
        nn.Linear(512 * 49, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(),
    ]
    return nn.Sequential(*layers, nn.Flatten(), *head, nn.Linear(4096, 1000))


class Branches(nn.Module):
    """Parallel paths whose outputs are joined along the channels."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([path(x) for path in self.paths], 1)


def inception_v3() -> nn.Module:
    """Inception v3 of the paper and of torchvision, without the auxiliary head."""

    def a(channels: int, pool: int) -> nn.Module:
        return Branches(
            _unit(channels, 64, 1),
            nn.Sequential(_unit(channels, 48, 1), _unit(48, 64, 5, 1, 2)),
            nn.Sequential(_unit(channels, 64, 1), _unit(64, 96, 3, 1, 1), _unit(96, 96, 3, 1, 1)),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), _unit(channels, pool, 1)),
        )

    def c(width: int) -> nn.Module:
        row, column = ((1, 7), (0, 3)), ((7, 1), (3, 0))
        return Branches(
            _unit(768, 192, 1),
            nn.Sequential(
                _unit(768, width, 1), _unit(width, width, row[0], 1, row[1]), _unit(width, 192, column[0], 1, column[1])
            ),
            nn.Sequential(
                _unit(768, width, 1),
                _unit(width, width, column[0], 1, column[1]),
                _unit(width, width, row[0], 1, row[1]),
                _unit(width, width, column[0], 1, column[1]),
                _unit(width, 192, row[0], 1, row[1]),
            ),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), _unit(768, 192, 1)),
        )

    def e(channels: int) -> nn.Module:
        def fork() -> nn.Module:
            return Branches(_unit(384, 384, (1, 3), 1, (0, 1)), _unit(384, 384, (3, 1), 1, (1, 0)))

        return Branches(
            _unit(channels, 320, 1),
            nn.Sequential(_unit(channels, 384, 1), fork()),
            nn.Sequential(_unit(channels, 448, 1), _unit(448, 384, 3, 1, 1), fork()),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), _unit(channels, 192, 1)),
        )

    stem = [
        _unit(3, 32, 3, 2),
        _unit(32, 32, 3),
        _unit(32, 64, 3, 1, 1),
        nn.MaxPool2d(3, 2),
        _unit(64, 80, 1),
        _unit(80, 192, 3),
    ]
    b = Branches(
        _unit(288, 384, 3, 2),
        nn.Sequential(_unit(288, 64, 1), _unit(64, 96, 3, 1, 1), _unit(96, 96, 3, 2)),
        nn.MaxPool2d(3, 2),
    )
    d = Branches(
        nn.Sequential(_unit(768, 192, 1), _unit(192, 320, 3, 2)),
        nn.Sequential(
            _unit(768, 192, 1),
            _unit(192, 192, (1, 7), 1, (0, 3)),
            _unit(192, 192, (7, 1), 1, (3, 0)),
            _unit(192, 192, 3, 2),
        ),
        nn.MaxPool2d(3, 2),
    )
    body = [
        nn.MaxPool2d(3, 2),
        a(192, 32),
        a(256, 64),
        a(288, 64),
        b,
        c(128),
        c(160),
        c(160),
        c(192),
        d,
        e(1280),
        e(2048),
    ]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(2048, 1000))


class SSD300(nn.Module):
    """SSD300 v1.1 with ResNet-50 up to its third stage, which keeps its resolution. Source: DeepLearningExamples PyTorch/Detection/SSD."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(*stages((3, 4, 6), (1, 2, 1)))
        outputs = (1024, 512, 512, 256, 256, 256)
        inner = (256, 256, 128, 128, 128)
        self.more = nn.ModuleList(
            nn.Sequential(
                _unit(outputs[at], inner[at], 1),
                _unit(inner[at], outputs[at + 1], 3, 2 if at < 3 else 1, 1 if at < 3 else 0),
            )
            for at in range(5)
        )
        boxes = (4, 6, 6, 6, 4, 4)
        self.place = nn.ModuleList(
            nn.Conv2d(size, 4 * count, 3, padding=1) for size, count in zip(outputs, boxes, strict=True)
        )
        self.label = nn.ModuleList(
            nn.Conv2d(size, 81 * count, 3, padding=1) for size, count in zip(outputs, boxes, strict=True)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        feeds = [self.features(x)]
        for layer in self.more:
            feeds.append(layer(feeds[-1]))
        places = [layer(feed).reshape(x.size(0), 4, -1) for layer, feed in zip(self.place, feeds, strict=True)]
        labels = [layer(feed).reshape(x.size(0), 81, -1) for layer, feed in zip(self.label, feeds, strict=True)]
        return torch.cat(places, 2), torch.cat(labels, 2)


class MobileBlock(nn.Module):
    """An inverted bottleneck with squeeze and excitation, of EfficientNet."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        width = channels * expand

        def unit(one: int, other: int, size: int, step: int, groups: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(one, other, size, step, size // 2, groups=groups, bias=False),
                nn.BatchNorm2d(other),
                nn.SiLU(inplace=True),
            )

        self.wide = unit(channels, width, 1, 1, 1) if expand > 1 else nn.Identity()
        self.deep = unit(width, width, kernel, stride, width)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, max(1, channels // 4), 1),
            nn.SiLU(),
            nn.Conv2d(max(1, channels // 4), width, 1),
            nn.Sigmoid(),
        )
        self.narrow = nn.Sequential(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.same = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.deep(self.wide(x))
        y = self.narrow(y * self.squeeze(y))
        return y + x if self.same else y


def efficientnet(wide: float, deep: float) -> nn.Module:
    """EfficientNet v1 of a width and a depth multiplier: B0 (1.0, 1.0), B4 (1.4, 1.8)."""

    def round_up(channels: int) -> int:
        scaled = channels * wide
        found = max(8, int(scaled + 4) // 8 * 8)
        return found + 8 if found < 0.9 * scaled else found

    plan = (
        (16, 1, 3, 1, 1),
        (24, 2, 3, 2, 6),
        (40, 2, 5, 2, 6),
        (80, 3, 3, 2, 6),
        (112, 3, 5, 1, 6),
        (192, 4, 5, 2, 6),
        (320, 1, 3, 1, 6),
    )
    channels = round_up(32)
    layers: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.SiLU(inplace=True))
    ]
    for out, repeats, kernel, stride, expand in plan:
        for at in range(-(-repeats * int(deep * 10) // 10)):
            layers.append(MobileBlock(channels, round_up(out), kernel, stride if at == 0 else 1, expand))
            channels = round_up(out)
    last = round_up(1280)
    head = [nn.Conv2d(channels, last, 1, bias=False), nn.BatchNorm2d(last), nn.SiLU(inplace=True)]
    return nn.Sequential(*layers, *head, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(last, 1000))


def images(size: int):  # noqa: ANN201
    """A step of classification on square images."""

    def step(model: nn.Module, batch: int) -> torch.Tensor:
        return F.cross_entropy(model(torch.zeros(batch, 3, size, size)).float(), torch.zeros(batch, dtype=torch.long))

    return step


def boxes(model: nn.Module, batch: int) -> torch.Tensor:
    """A step of SSD300: both losses over 8,732 boxes, with the sort that finds hard negatives."""
    places, labels = model(torch.zeros(batch, 3, 300, 300))
    truth = torch.zeros(batch, labels.size(2), dtype=torch.long)
    smooth = F.smooth_l1_loss(places.float(), torch.zeros_like(places).float(), reduction="none").sum(1)
    loss = F.cross_entropy(labels.float(), truth, reduction="none")
    rank = loss.detach().sort(1, descending=True)[1].sort(1)[1]
    return (smooth + loss * (rank < 100)).sum()
