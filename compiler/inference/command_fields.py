"""Fields of the commands of one output tile."""

from compiler.codegen.convolution_walk import matmul_walk
from compiler.codegen.cost import Fields
from hw.isa.encoding import Init
from hw.isa.encoding import Pool as PoolKind

from .tiling import Box, Geometry, Tile

__all__ = ["matmul_fields", "post_fields"]


def matmul_fields(
    geometry: Geometry,
    tile: Tile,
    column_tile: int,
    box: Box,
    *,
    x_box: Box,
    x_address: int,
    bank: int,
) -> Fields:
    """MATMUL of ``box``'s K tiles for ``tile`` and ``column_tile``.

    ``x_box`` is the box whose input window lies at ``x_address``; it contains ``box``.
    """
    product = geometry.product
    walk = matmul_walk(
        x_address + box.cb0 - x_box.cb0,
        x_box.cb1 - x_box.cb0,
        images=tile.images,
        outputs=(geometry.conv_rows(tile), geometry.conv_columns(tile)),
        taps=((box.kh0, box.kh1), (box.kw0, box.kw1)),
        lines=geometry.input_window(tile, x_box),
        stride=product.stride,
        padding=product.padding,
        dilation=product.dilation,
    )
    if box.first:
        init = Init.ACCUMULATOR
    else:
        init = Init.BIAS if product.bias else Init.ZERO
    return walk | {
        "accumulator_bank": bank,
        "init": init,
        "channels": _channels(geometry, column_tile),
        "cb_count": box.cb1 - box.cb0,
    }


def post_fields(
    geometry: Geometry,
    tile: Tile,
    column_tile: int,
    *,
    position: int,
    last_channel: int,
    address: int,
    words: int,
    bank: int,
) -> Fields:
    """POST of ``tile`` and ``column_tile`` to pixels of ``words`` words from ``address`` on.

    ``position`` is the column tile's place among those stored together, ``last_channel`` the first
    one behind the channels stored with it (padding included).
    """
    product, core = geometry.product, geometry.core
    (r0, r1), (c0, c1) = geometry.conv_rows(tile), geometry.conv_columns(tile)
    place = position * core.groups_per_vector * (core.chunks_per_wide if product.wide else 1)
    groups = core.groups_per_vector
    if column_tile == geometry.column_tiles - 1:
        groups = -(-(last_channel - column_tile * core.columns) // core.post_lanes)
    row = c1 - c0
    return {
        "accumulator_bank": bank,
        "pool": PoolKind.SUM if product.pool == "sum" else PoolKind.MAX,
        "relu": int(product.relu),
        "wide": int(product.wide),
        "pw_count": product.pool_kernel[1],
        "ph_count": product.pool_kernel[0],
        "group_count": groups,
        "wo_count": tile.w1 - tile.w0,
        "ho_count": tile.h1 - tile.h0,
        "n_count": tile.images,
        "pw_stride": 1,
        "ph_stride": row,
        "wo_stride": product.pool_stride[1],
        "ho_stride": product.pool_stride[0] * row,
        "n_stride": (r1 - r0) * row,
        "channels": _channels(geometry, column_tile),
        "out_address": address + place // core.groups_per_word,
        "out_group": place % core.groups_per_word,
        "out_wo_stride": words,
        "out_ho_stride": (tile.w1 - tile.w0) * words,
        "out_n_stride": (tile.h1 - tile.h0) * (tile.w1 - tile.w0) * words,
        "scale": product.scale,
    }


def _channels(geometry: Geometry, column_tile: int) -> int:
    columns, outputs = geometry.core.columns, geometry.product.outputs
    return min(columns, outputs - column_tile * columns)
