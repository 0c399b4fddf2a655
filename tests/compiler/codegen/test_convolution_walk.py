"""Windows line by line, and the loops of a MATMUL step by step."""

import itertools

import pytest

from compiler.codegen.convolution_walk import clip, input_range, matmul_walk, window_range
from hw.isa.encoding import MATMUL_LOOPS


def random_range(rng, count):
    begin = int(rng.integers(count))
    return begin, int(rng.integers(begin + 1, count + 1))


def random_axis(rng):
    """Outputs, taps (begin, end), stride, padding, dilation."""
    return (
        random_range(rng, 7),
        random_range(rng, 4),
        *(int(rng.integers(low, 4)) for low in (1, 0, 1)),
    )


def touched(outputs, taps, stride, padding, dilation):
    return [
        output * stride - padding + tap * dilation
        for output in range(*outputs)
        for tap in range(*taps)
    ]


def test_ranges_are_those_of_the_lines_that_are_touched(rng):
    for _ in range(300):
        outputs, taps, stride, padding, dilation = axis = random_axis(rng)
        size = int(rng.integers(1, 20))
        lines = touched(*axis)
        options = {"stride": stride, "padding": padding, "dilation": dilation}
        found = window_range(outputs, taps, **options)
        assert found == (min(lines), max(lines) + 1), axis
        begin, end = input_range(outputs, taps, **options, size=size)
        assert 0 <= begin < end <= size, f"{axis} of {size}: {begin} to {end}"
        inside = [line for line in lines if 0 <= line < size]
        if inside:
            # Nothing that is read is missing, and nothing is there without need.
            assert begin <= min(inside), f"{axis} of {size}: {begin} to {end}"
            assert end > max(inside), f"{axis} of {size}: {begin} to {end}"
            assert (begin, end) == (max(found[0], 0), min(found[1], size))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [((-3, 2), (0, 2)), ((4, 9), (4, 6)), ((-5, -1), (0, 1)), ((8, 9), (5, 6)), ((2, 3), (2, 3))],
)
def test_clip_keeps_at_least_one_line_of_six(lines, expected):
    assert clip(*lines, 6) == expected


def test_every_step_reads_the_pixel_of_its_window(rng):
    for _ in range(60):
        axes = [random_axis(rng) for _ in range(2)]
        outputs, taps, stride, padding, dilation = zip(*axes, strict=True)
        sizes = [int(rng.integers(1, 12)) for _ in range(2)]
        lines = tuple(
            input_range(a[0], a[1], stride=a[2], padding=a[3], dilation=a[4], size=size)
            for a, size in zip(axes, sizes, strict=True)
        )
        images, pixel, x_address = (int(rng.integers(1, high)) for high in (4, 4, 1000))
        fields = matmul_walk(
            x_address, pixel, images=images, outputs=outputs, taps=taps, lines=lines,
            stride=stride, padding=padding, dilation=dilation,
        )  # fmt: skip
        height, width = (end - begin for begin, end in lines)
        counts = {loop: range(fields.get(f"{loop}_count", pixel)) for loop in MATMUL_LOOPS}
        for steps in itertools.product(*counts.values()):
            step = dict(zip(MATMUL_LOOPS, steps, strict=True))
            address = fields["x_address"]
            address += sum(step[loop] * fields[f"{loop}_stride"] for loop in MATMUL_LOOPS)
            place = []
            for axis, output, tap in ((0, "ho", "kh"), (1, "wo", "kw")):
                line = (outputs[axis][0] + step[output]) * stride[axis] - padding[axis]
                place.append(line + (taps[axis][0] + step[tap]) * dilation[axis])
            h, w = (line - begin for line, (begin, _) in zip(place, lines, strict=True))
            found_h = fields["h_origin"] + step["ho"] * fields["ho_step"]
            found_w = fields["w_origin"] + step["wo"] * fields["wo_step"]
            assert found_h + step["kh"] * fields["kh_step"] == h, f"{step}: row"
            assert found_w + step["kw"] * fields["kw_step"] == w, f"{step}: column"
            wanted = x_address + ((step["n"] * height + h) * width + w) * pixel + step["cb"]
            assert address == wanted, f"{step}: word {address}, expected {wanted}; {fields}"
        assert (fields["h_limit"], fields["w_limit"]) == (height, width)
