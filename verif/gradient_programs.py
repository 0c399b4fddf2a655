"""Programs that compute the gradients of one convolution, for checking the matrix products.

Written by hand rather than by the compiler: everything is loaded first and stays in the buffer,
and sums are stored as float32. Cut only where the accumulators demand it: input gradients by rows
of a phase, weight gradients by rows of the kernel.
"""

from dataclasses import dataclass
from functools import cached_property
from math import gcd, lcm

from compiler.cost import Command
from compiler.fields import dma_fields
from compiler.memory import Tensor, round_up, transfers
from compiler.program import encode_commands
from golden.convolution import output_map
from hw.commands import Init, Opcode, Pool
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig

__all__ = ["GradientProgram"]

_ONE = 0x3F800000  # float32
#: Semaphores: data for WEIGHTS, data for MATMUL, accumulators full and free, all is in the buffer.
_W_FULL, _X_FULL, _ACC_FULL, _ACC_FREE, _OUT_FULL = (1 << number for number in range(5))


@dataclass(frozen=True, kw_only=True)
class GradientProgram:
    """A convolution's input, weight and bias gradient on core 0.

    Members
    -------
    shape : (N, H, W, CI) of the input
    outputs : CO
    kernel, stride, padding, dilation : (vertical, horizontal)
    parts : which gradients, of "dx" and "dw" (which brings "db")

    Raises
    ------
    ValueError : the data do not fit into the buffer, or a row into the accumulators.
    """

    config: AdaGPConfig
    shape: tuple
    outputs: int
    kernel: tuple
    stride: tuple = (1, 1)
    padding: tuple = (0, 0)
    dilation: tuple = (1, 1)
    parts: tuple = ("dx", "dw")

    @property
    def core(self):
        return self.config.cores[0]

    @cached_property
    def map(self):
        """(HO, WO)."""
        return output_map(
            self.shape[1:3],
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )

    # Where things are ------------------------------------------------------------------------

    @cached_property
    def tensors(self):
        """name -> Tensor behind a program of ``program_bytes``."""
        images, inputs = self.shape[0], self.shape[3]
        shapes = {
            "x": self.shape,
            "dy": (images, *self.map, self.outputs),
            "w": (*self.kernel, inputs, self.outputs),
            "dx": self.shape,
            "dw": (*self.kernel, inputs, self.outputs),
            "db": (1, 1, 1, self.outputs),
        }
        granule, operand = self.config.granule_bytes, self.core.operand_width // 8
        result, offset = {}, self.program_bytes
        for name, shape in shapes.items():
            wide = name in ("dx", "dw", "db")
            item = 4 if wide else operand
            unit = lcm(granule, 4 * self.core.post_lanes if wide else operand) // item
            pitch = round_up(shape[3], unit)
            size = shape[0] * shape[1] * shape[2] * pitch * item
            kind = "float32" if wide else self.config.operand_format
            result[name] = Tensor(
                name=name, offset=offset, size=size, shape=shape, pitch=pitch, kind=kind, stage=None
            )
            offset = round_up(offset + size, 64)
        return result

    @property
    def program_bytes(self):
        """Room for the program."""
        return 1 << 16

    @property
    def memory_size(self):
        last = self.tensors["db"]
        return round_up(last.offset + last.size, 64)

    def words(self, name):
        """Buffer words of a row (its channels) of a tensor."""
        tensor = self.tensors[name]
        return -(-tensor.pitch * tensor.dtype.itemsize // self.core.word_bytes)

    @cached_property
    def addresses(self):
        """name -> first buffer word, from the start of a bank where there is room."""
        names = [n for n in self.tensors if self._used(n)]
        depth, banks = self.config.buffer_bank_depth, self.config.buffer_banks
        sizes = {n: self.words(n) * _product(self.tensors[n].shape[:3]) for n in names}
        for unit in (depth, 1):
            result, position = {}, 0
            for name in names:
                result[name] = position
                position = round_up(position + sizes[name], unit)
            if position <= depth * banks:
                return result
        raise ValueError(f"{sum(sizes.values())} words do not fit into {depth * banks}")

    def _used(self, name):
        return name in {"dx": ("dy", "w", "dx"), "dw": ("x", "dy", "dw", "db")}[self.parts[0]] or (
            len(self.parts) > 1
        )

    def image(self, x, dy, weights):
        """The memory window: the program, and operand codes x (N, H, W, CI), dy (N, HO, WO, CO)
        and weights (CO, CI, KH, KW) as torch shapes them."""
        memory = bytearray(b"\xa5" * self.memory_size)
        memory[: len(self.program)] = self.program
        values = {"x": x, "dy": dy, "w": weights.transpose(2, 3, 1, 0)}
        for name, codes in values.items():
            tensor = self.tensors[name]
            data = tensor.pack(codes.astype(tensor.dtype))
            memory[tensor.offset : tensor.offset + len(data)] = data
        return bytes(memory)

    def results(self, memory):
        """name -> float32 codes, shaped as golden's."""
        get = {name: self.tensors[name].unpack(memory) for name in ("dx", "dw", "db")}
        result = {"dx": get["dx"]} if "dx" in self.parts else {}
        if "dw" in self.parts:
            result |= {"dw": get["dw"].transpose(3, 2, 0, 1), "db": get["db"].ravel()}
        return result

    # Commands --------------------------------------------------------------------------------

    @cached_property
    def program(self):
        """The encoded commands."""
        loads = [c for name in ("x", "dy", "w") if self._used(name)
                 for c in self._transfer(Opcode.LOAD, name)]  # fmt: skip
        loads[-1].signal = _W_FULL | _X_FULL
        products = [*(self._input_gradient() if "dx" in self.parts else ()),
                    *(self._weight_gradient() if "dw" in self.parts else ())]  # fmt: skip
        commands = []
        for number, (weights, matmul, posts) in enumerate(products):
            bank = number % 2
            if number == 0:
                weights.wait, matmul.wait = _W_FULL, _X_FULL
            if number >= 2:
                matmul.wait |= _ACC_FREE
            matmul.signal = posts[0].wait = _ACC_FULL
            matmul.fields["accumulator_bank"] = bank
            for post in posts:
                post.fields["accumulator_bank"] = bank
            if number + 2 < len(products):
                posts[-1].signal = _ACC_FREE
            commands += [weights, matmul, *posts]
        commands[-1].signal |= _OUT_FULL
        stores = [c for name in ("dx", "dw", "db") if self._used(name)
                  for c in self._transfer(Opcode.STORE, name)]  # fmt: skip
        stores[0].wait = _OUT_FULL
        result = encode_commands([*loads, *commands, *stores, Command(Opcode.HALT)])
        if len(result) > self.program_bytes:
            raise ValueError(f"the program has {len(result)} bytes")
        return result

    def _transfer(self, opcode, name):
        tensor = self.tensors[name]
        ranges = [(0, size) for size in (*tensor.shape[:3], tensor.pitch)]
        moves = transfers(tensor, *ranges, self.core.word_bytes)
        address = self.addresses[name]
        return [Command(opcode, fields=dma_fields(address + move.word, move)) for move in moves]

    def _input_gradient(self):
        """One product for each phase, column tile and range of rows."""
        core, (images, height, width, inputs) = self.core, self.shape
        for a in range(min(self.stride[0], height)):
            for b in range(min(self.stride[1], width)):
                rows = -(-(height - a) // self.stride[0])
                columns = -(-(width - b) // self.stride[1])
                most = core.accumulator_depth // (images * columns)
                if not most:
                    raise ValueError("a row does not fit into the accumulators")
                for tile in range(-(-inputs // core.columns)):
                    for first in range(0, rows, most):
                        count = min(most, rows - first)
                        yield self._phase(a, b, tile, first, count, columns)

    def _taps(self, axis, phase):
        """(line of dY, tap, number of taps, tap step, line step), the highest tap first."""
        stride, padding, dilation = (
            part[axis] for part in (self.stride, self.padding, self.dilation)
        )
        taps = [
            tap
            for tap in range(self.kernel[axis])
            if (phase + padding - tap * dilation) % stride == 0
        ]
        if not taps:
            return None
        common = gcd(stride, dilation)
        line = (phase + padding - taps[-1] * dilation) // stride
        return line, taps[-1], len(taps), stride // common, dilation // common

    def _phase(self, a, b, tile, first, rows, columns):
        core, (images, height, width, inputs) = self.core, self.shape
        vertical, horizontal = self._taps(0, a), self._taps(1, b)
        empty = vertical is None or horizontal is None
        if empty:  # one tap of zeros
            vertical = horizontal = (0, 0, 1, 1, 1)
        top, kh, kh_count, kh_tap, kh_step = vertical
        left, kw, kw_count, kw_tap, kw_step = horizontal
        top += first
        word, pixel = self.words("w"), self.words("dy")
        line = self.map[1] * pixel
        channel = tile * core.columns
        address = self.addresses["w"] + ((kh * self.kernel[1] + kw) * inputs + channel) * word
        blocks = 1 if empty else -(-self.outputs // core.rows)
        weights = _weights(
            address=address,
            row_stride=word,
            kw_count=kw_count, kh_count=kh_count, cb_count=blocks,
            kw_stride=-kw_tap * inputs * word,
            kh_stride=-kh_tap * self.kernel[1] * inputs * word,
            cb_stride=1,
            row_limit=0 if empty else inputs - channel,
            transpose=0,
        )  # fmt: skip
        matmul = _matmul(
            channels=min(core.columns, inputs - channel),
            x_address=self.addresses["dy"] + top * line + left * pixel,
            wo_count=columns, ho_count=rows, n_count=images,
            kw_count=kw_count, kh_count=kh_count, cb_count=blocks,
            wo_stride=pixel, ho_stride=line, n_stride=self.map[0] * line,
            kw_stride=kw_step * pixel, kh_stride=kh_step * line, cb_stride=1,
            h_origin=top, w_origin=left,
            h_limit=0 if empty else self.map[0], w_limit=self.map[1],
            ho_step=1, wo_step=1, kh_step=kh_step, kw_step=kw_step,
        )  # fmt: skip
        out = self.words("dx")
        first_pixel = (a + first * self.stride[0]) * width + b
        post = self._post(
            "dx", tile, first_pixel * out,
            wo_count=columns, ho_count=rows, n_count=images,
            wo_stride=1, ho_stride=columns, n_stride=columns * rows,
            out_wo_stride=self.stride[1] * out,
            out_ho_stride=self.stride[0] * width * out,
            out_n_stride=height * width * out,
        )  # fmt: skip
        return weights, matmul, [post]

    def _weight_gradient(self):
        """One product for each column tile and range of kernel rows."""
        core, inputs = self.core, self.shape[3]
        row = -(-inputs // core.rows) * self.kernel[1] * core.rows
        most = (core.accumulator_depth - 1) // row
        if not most:
            raise ValueError("a row of the kernel does not fit into the accumulators")
        for tile in range(-(-self.outputs // core.columns)):
            for first in range(0, self.kernel[0], most):
                yield self._kernel_rows(tile, first, min(most, self.kernel[0] - first))

    def _kernel_rows(self, tile, first, count):
        core, (images, height, width, inputs) = self.core, self.shape
        pixels = images * self.map[0] * self.map[1]
        pixel, channel = self.words("dy"), tile * core.columns
        word, skip = divmod(channel, core.rows)
        valid = min(core.columns, self.outputs - channel)
        weights = _weights(
            address=self.addresses["dy"] + word,
            row_stride=pixel,
            cb_count=-(-pixels // core.rows), cb_stride=core.rows * pixel,
            row_limit=pixels,
            transpose=1,
            block_count=-(-(skip + valid) // core.rows), skip=skip,
        )  # fmt: skip
        pixel = self.words("x")
        line, blocks = width * pixel, -(-inputs // core.rows)
        top, left = first * self.dilation[0] - self.padding[0], -self.padding[1]
        matmul = _matmul(
            transpose=1,
            ones=int(first == 0),
            channels=valid,
            x_address=self.addresses["x"] + top * line + left * pixel,
            wo_count=self.map[1], ho_count=self.map[0], n_count=images,
            kw_count=self.kernel[1], kh_count=count, cb_count=blocks,
            wo_stride=self.stride[1] * pixel, ho_stride=self.stride[0] * line,
            n_stride=height * line,
            kw_stride=self.dilation[1] * pixel, kh_stride=self.dilation[0] * line, cb_stride=1,
            h_origin=top, w_origin=left, h_limit=height, w_limit=width,
            ho_step=self.stride[0], wo_step=self.stride[1],
            kh_step=self.dilation[0], kw_step=self.dilation[1],
        )  # fmt: skip
        posts, out, taps = [], self.words("dw"), count * self.kernel[1]
        whole = inputs // core.rows
        # Whole words of input channels, then the rest.
        for block, blocks_here, lanes in (
            (0, whole, core.rows),
            (whole, 1, inputs - whole * core.rows),
        ):
            if blocks_here and lanes:
                row = first * self.kernel[1] * inputs + block * core.rows
                posts.append(
                    self._post(
                        "dw", tile, row * out,
                        accumulator_address=block * taps * core.rows,
                        wo_count=lanes, ho_count=taps, n_count=blocks_here,
                        wo_stride=1, ho_stride=core.rows, n_stride=taps * core.rows,
                        out_wo_stride=out, out_ho_stride=inputs * out,
                        out_n_stride=core.rows * out,
                    )
                )  # fmt: skip
        if first == 0:
            entry = blocks * taps * core.rows
            posts.append(self._post("db", tile, 0, accumulator_address=entry))
        return weights, matmul, posts

    def _post(self, name, tile, word, **fields):
        core, tensor = self.core, self.tensors[name]
        channel = tile * core.columns
        place = tile * core.groups_per_vector * core.chunks_per_wide
        groups = core.groups_per_vector
        if channel + core.columns >= tensor.shape[3]:
            groups = (tensor.pitch - channel) // core.post_lanes
        values = {
            "pool": Pool.MAX, "relu": 0, "wide": 1, "accumulator_address": 0,
            "pw_count": 1, "ph_count": 1, "group_count": groups,
            "wo_count": 1, "ho_count": 1, "n_count": 1,
            "pw_stride": 0, "ph_stride": 0, "wo_stride": 0, "ho_stride": 0, "n_stride": 0,
            "channels": min(core.columns, tensor.shape[3] - channel),
            "out_address": self.addresses[name] + word + place // core.groups_per_word,
            "out_group": place % core.groups_per_word,
            "out_wo_stride": 0, "out_ho_stride": 0, "out_n_stride": 0,
            "scale": _ONE,
        }  # fmt: skip
        return Command(Opcode.POST, fields=values | fields)


def _weights(**fields):
    values = {
        "kw_count": 1, "kh_count": 1, "cb_count": 1, "kw_stride": 0, "kh_stride": 0, "cb_stride": 0,
        "block_count": 1, "skip": 0, "bias": 0, "bias_address": 0,
    }  # fmt: skip
    return Command(Opcode.WEIGHTS, fields=values | fields)


def _matmul(**fields):
    values = {"init": Init.ZERO, "transpose": 0, "ones": 0, "accumulator_address": 0}
    fields["x_address"] %= 1 << BUFFER_ADDRESS_WIDTH
    return Command(Opcode.MATMUL, fields=values | fields)


def _product(numbers):
    result = 1
    for number in numbers:
        result *= number
    return result
