"""Model against RTL as points."""

from collections.abc import Sequence

from .compare import Comparison

__all__ = ["draw"]


def draw(comparisons: Sequence[Comparison], path: str) -> None:
    """Write a picture: cycles of the model over those of the RTL, and each counter's likewise."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.6))
    for preset, marker in (("tiny", "o"), ("paper", "s")):
        chosen = [item for item in comparisons if item.preset == preset]
        if not chosen:
            continue
        left.scatter(
            [item.rtl for item in chosen], [item.model for item in chosen], s=14, marker=marker,
            label=preset, alpha=0.6,
        )  # fmt: skip
    stalls: dict[str, list[tuple[int, int]]] = {}
    for item in comparisons:
        for name, pair in item.counters.items():
            if "STALL" in name and any(pair):
                stalls.setdefault(name.removeprefix("CORE0_").removeprefix("CORE1_"), []).append(
                    pair
                )
    for name, pairs in stalls.items():
        right.scatter(*zip(*pairs, strict=True), s=8, label=name, alpha=0.6)
    for axes, title in ((left, "cycles"), (right, "stall counters, cycles")):
        most = max(axes.get_xlim()[1], 10)
        axes.plot((0, most), (0, most), linewidth=0.6, color="grey")
        axes.set_xscale("symlog")
        axes.set_yscale("symlog")
        axes.set_title(title)
        axes.set_xlabel("RTL")
        axes.set_ylabel("model")
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
